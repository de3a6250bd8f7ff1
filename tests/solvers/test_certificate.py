"""The capped loss and its certificate, one user at a time: Lemmas 1 and 3 of docs/proofs/capped-release.md."""

from __future__ import annotations

import cvxpy as cp
import mpmath
import numpy as np
import pytest

from tests.solvers.reference import user_loss
from userdp.data import UserBlock, UserDataset
from userdp.losses import FeatureMap, LinearModel, Logistic, Squared
from userdp.losses.linear import loss_slope
from userdp.losses.points import LinearPoints
from userdp.solvers.capped import Cap, _certify, pulls
from userdp.solvers.certificate import rounding_gap, smallest_cap

CENTER = np.array([0.2, -0.1, 0.4])


def block(seed: int, users: int = 4, rows: int = 20) -> UserBlock:
    rng = np.random.default_rng(seed)
    groups = np.concatenate([np.arange(users), rng.integers(0, users, rows - users)])
    X, y = 2 * rng.normal(size=(rows, 3)), (rng.random(rows) < 0.5).astype(float)
    return UserDataset.from_arrays(X, y, groups).blocks[0]


def capped_value(model: LinearModel, user: UserBlock, theta: np.ndarray, cap: Cap) -> float:
    """h̃_k(c + θ) by cvxpy."""
    u = cp.Variable(3)
    rows, target = model.rows(user.features), model.features.targets(user.target)
    value = user_loss(model, rows @ CENTER, rows, u, target) + cap.force * cp.norm(theta - u)
    return float(cp.Problem(cp.Minimize(value), [cp.norm(u) <= cap.radius]).solve(solver="CLARABEL"))


@pytest.mark.parametrize("cap", [Cap(0.1, 4.0), Cap(0.5, 0.7), Cap(1e-3, 0.05)], ids=["free", "both", "ball"])
@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
def test_forces_are_subgradients_of_the_capped_loss(loss: Logistic | Squared, cap: Cap) -> None:
    model, users = LinearModel(loss, FeatureMap.identity(3)), block(0)
    theta = 0.4 * cap.radius * np.array([0.6, 0.0, 0.8])
    found = pulls(users, model, CENTER, theta, cap)
    assert np.all(np.linalg.norm(found.forces, axis=1) <= cap.force)
    assert np.all(found.slacks >= 0)
    assert np.all(found.slacks <= 1e-11 * cap.force * cap.radius + 1e-12 * cap.radius)
    others = [0.4 * cap.radius * direction for direction in (np.eye(3)[0], np.full(3, -0.5))]
    for k in range(users.n_users):
        user = users.users(k, k + 1)
        here = capped_value(model, user, theta, cap)
        for other in others:
            there = capped_value(model, user, other, cap)
            allowed = found.slacks[k] + 1e-7 * (1 + abs(here))
            assert there >= here + found.forces[k] @ (other - theta) - allowed


@pytest.mark.parametrize("seed", range(10))
def test_slack_is_valid_for_any_point_and_multiplier(seed: int) -> None:
    """Garbage in, true bound out: random u in the ball, random ν ≥ 0, forces that must be scaled down."""
    rng = np.random.default_rng(seed)
    loss = Logistic() if seed % 2 else Squared()
    model, users = LinearModel(loss, FeatureMap.identity(3)), block(seed)
    cap = Cap(10.0 ** rng.uniform(-2, 0.5), 10.0 ** rng.uniform(-1, 0.5))
    problems = LinearPoints.of(model, users, CENTER)
    points = rng.normal(size=(users.n_users, 3))
    points *= (cap.radius * rng.random(users.n_users) ** 0.2 / np.linalg.norm(points, axis=1))[:, None]
    theta = rng.normal(size=3)
    theta *= 0.5 * cap.radius / np.linalg.norm(theta)
    multipliers = rng.exponential(size=users.n_users) * rng.integers(0, 2, users.n_users)
    forces, slacks, _ = _certify(problems, points, multipliers, theta, cap)
    assert np.all(np.linalg.norm(forces, axis=1) <= cap.force)
    for k in range(users.n_users):
        user = users.users(k, k + 1)
        here = capped_value(model, user, theta, cap)
        for other in (-theta, 0.5 * cap.radius * np.eye(3)[seed % 3]):
            there = capped_value(model, user, other, cap)
            assert there >= here + forces[k] @ (other - theta) - slacks[k] - 1e-7 * (1 + abs(here))


def test_uncapped_users_keep_their_own_gradient() -> None:
    model, users = LinearModel(Logistic(), FeatureMap.identity(3)), block(1)
    theta = np.array([0.1, 0.2, -0.1])
    found = pulls(users, model, CENTER, theta, Cap(1e3, 1e4))
    assert found.capped == 0
    assert np.all(found.slacks == 0)
    assert np.allclose(found.forces, model.user_gradients(users, CENTER + theta), rtol=1e-12)


def test_hessian_is_the_slope_of_the_forces() -> None:
    model, users, cap = LinearModel(Logistic(), FeatureMap.identity(3)), block(2), Cap(0.3, 2.0)
    theta, step = np.array([0.3, 0.1, -0.2]), 1e-5
    found = pulls(users, model, CENTER, theta, cap)
    assert found.capped > 0
    for i in range(3):
        move = step * np.eye(3)[i]
        ahead, behind = (pulls(users, model, CENTER, theta + s * move, cap).forces.sum(axis=0) for s in (1, -1))
        assert np.allclose(found.hessian[:, i], (ahead - behind) / (2 * step), atol=1e-5)


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
def test_gradient_error_bounds_the_rounding_of_gradients(loss: Logistic | Squared) -> None:
    rng = np.random.default_rng(3)
    X = 10.0 ** rng.uniform(-3, 3, size=(4000, 3)) * rng.choice([-1, 1], size=(4000, 3))
    users = UserDataset.from_arrays(X, (rng.random(4000) < 0.5).astype(float), np.repeat([0, 1, 2], [10, 990, 3000]))
    problems = LinearPoints.of(LinearModel(loss, FeatureMap.identity(3)), users.blocks[0], CENTER)
    points = rng.normal(size=(3, 3)) * np.array([[1e-3], [1.0], [10.0]])
    computed, bound = problems.gradients(points), problems.gradient_error(points)
    with mpmath.workdps(40):
        for k in range(3):
            own = users.blocks[0].users(k, k + 1)
            total = [mpmath.mpf(0)] * 3
            for row, y in zip(own.features.tolist(), own.target.tolist()):
                z = sum(mpmath.mpf(x) * (mpmath.mpf(c) + mpmath.mpf(u)) for x, c, u in zip(row, CENTER, points[k]))
                slope = 1 / (1 + mpmath.exp(-z)) - y if isinstance(loss, Logistic) else z - y
                total = [t + slope * x for t, x in zip(total, row)]
            error = max(abs(float(t / own.n_rows - mpmath.mpf(g))) for t, g in zip(total, computed[k].tolist()))
            assert error <= bound[k]


def test_public_rounding_bounds() -> None:
    model = LinearModel(Logistic(), FeatureMap.identity(3, bound=10.0))
    gap = rounding_gap(model, 0.1, 0.01, 1.0, 1e-12)
    assert 0 < gap < 1e-9
    assert rounding_gap(model, 0.1, 0.01, 1.0, 1e-3) > gap
    assert smallest_cap(model, 0.01, 1.0) < 1e-11
    assert loss_slope(Logistic(), 5.0, 1.0) == 1.0
    assert loss_slope(Squared(), 5.0, 2.0) == 7.0
    assert smallest_cap(LinearModel(Squared(), FeatureMap.identity(3, bound=1e8)), 1e-8, 1.0) == np.inf
