"""The certified minimizer against cvxpy, on ordinary, degenerate and badly scaled data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.solvers.reference import reference
from userdp.data import UserBlock, UserDataset
from userdp.engines import LocalEngine
from userdp.losses import FeatureMap, LinearModel, Logistic, Squared
from userdp.mechanisms.capped import plan_capped
from userdp.solvers import CappedObjective, distance_bound, minimize

Data = tuple[np.ndarray, np.ndarray, np.ndarray]


def random(seed: int = 0, users: int = 6, rows: int = 30, d: int = 3) -> Data:
    rng = np.random.default_rng(seed)
    groups = np.concatenate([np.arange(users), rng.integers(0, users, rows - users)])
    return 2 * rng.normal(size=(rows, d)), (rng.random(rows) < 0.5).astype(float), groups


def separable() -> Data:
    X, _, groups = random(1)
    return X, (X[:, 0] > 0).astype(float), groups


def collinear() -> Data:
    X, y, groups = random(2)
    return X[:, :1] * np.array([1.0, -2.0, 0.5]), y, groups


def single_user() -> Data:
    X, y, _ = random(3, rows=9)
    return X, y, np.zeros(9, dtype=int)


def one_row_each() -> Data:
    X, y, _ = random(4, users=10, rows=10)
    return X, y, np.arange(10)


def mixed_scales() -> Data:
    X, y, groups = random(5)
    return X * np.array([1e-3, 1.0, 10.0]), y, groups


def one_giant() -> Data:
    X, y, groups = random(6)
    X[groups == 3] *= 1e6
    return X, y, groups


def constant_column() -> Data:
    X, y, groups = random(7)
    X[:, 1] = 0.0
    return X, y, groups


CASES: dict[str, Callable[[], Data]] = {
    "random": random,
    "separable": separable,
    "collinear": collinear,
    "single user": single_user,
    "one row each": one_row_each,
    "mixed scales": mixed_scales,
    "one giant": one_giant,
    "constant column": constant_column,
}


def problem(
    data: UserDataset, loss: Logistic | Squared, cap: float, regularization: float, center: np.ndarray | None = None
) -> tuple[CappedObjective, float]:
    """An objective and the distance that a plan would ask for."""
    model = LinearModel(loss, FeatureMap.identity(data.n_features, bound=30.0))
    center = np.full(data.n_features, 0.3) if center is None else center
    engine = LocalEngine(data, 1)
    objective = CappedObjective(engine, model, cap, regularization, center, data.n_users)
    norm = float(np.linalg.norm(center))
    plan = plan_capped(
        model,
        data.n_users,
        "replace",
        cap=cap,
        regularization=regularization,
        gdp=1.0,
        center_norm=norm,
        rounding=engine.rounding,
    )
    return objective, plan.distance / np.sqrt(2)


def check(objective: CappedObjective, target: float, data: UserDataset) -> None:
    solution = minimize(objective, target)
    assert solution.distance <= target, "never returned above the target"
    exact, accuracy = reference(objective, data)
    assert np.linalg.norm(solution.theta - exact) <= solution.distance + accuracy, "the certificate is true"


@pytest.mark.parametrize("cap", [0.01, 0.3, 50.0])
@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
@pytest.mark.parametrize("case", CASES)
def test_certificate_is_true(case: str, loss: Logistic | Squared, cap: float) -> None:
    data = UserDataset.from_arrays(*CASES[case]())
    objective, target = problem(data, loss, cap, 0.1)
    check(objective, target, data)


@pytest.mark.parametrize("regularization", [1e-3, 10.0])
@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
def test_weak_and_strong_regularization(loss: Logistic | Squared, regularization: float) -> None:
    data = UserDataset.from_arrays(*random(11))
    objective, target = problem(data, loss, 0.05, regularization)
    check(objective, target, data)


def test_users_without_rows_pull_on_nothing_but_count() -> None:
    X, y, groups = random(8, users=5, rows=30)
    order = np.argsort(groups, kind="stable")
    offsets = np.concatenate([[0, 0], np.cumsum(np.bincount(groups)), [30]])
    block = UserBlock(X[order], y[order], offsets.astype(np.int64))
    data = UserDataset((block,), tuple(range(7)), ("a", "b", "c"))
    objective, target = problem(data, Logistic(), 0.1, 0.1)
    check(objective, target, data)
    smaller = UserDataset.from_arrays(X, y, groups)
    without = CappedObjective(LocalEngine(smaller, 1), objective.model, 0.1, 0.1, objective.center, 7)
    tight = 1e-5
    assert np.linalg.norm(minimize(objective, tight).theta - minimize(without, tight).theta) <= 2 * tight


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
def test_all_users_capped_by_a_tiny_cap_pull_with_unit_vectors(loss: Logistic | Squared) -> None:
    """γ → 0: the ball shrinks around c, each force tends to γ·∇h/‖∇h‖ there."""
    data = UserDataset.from_arrays(*random(9))
    cap, regularization = 1e-7, 0.5
    objective, target = problem(data, loss, cap, regularization)
    solution = minimize(objective, target)
    gradients = objective.model.user_gradients(data.blocks[0], objective.center)
    unit = gradients / np.linalg.norm(gradients, axis=1)[:, None]
    step = (solution.theta - objective.center) * regularization / cap
    # u sits on the ball opposite to the gradient: v = γ(θ − u)/‖θ − u‖ with u = −4(γ/λ)·unit.
    gaps = step + 4 * unit
    forces = gaps / np.linalg.norm(gaps, axis=1)[:, None]
    assert solution.capped == data.n_users
    assert np.linalg.norm(forces.mean(axis=0) + step) <= 0.05


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
def test_a_cap_that_never_binds_changes_nothing(loss: Logistic | Squared) -> None:
    data = UserDataset.from_arrays(*random(10))
    objective, _ = problem(data, loss, 200.0, 0.1)
    solution = minimize(objective, 1e-7)
    assert solution.capped == 0
    mean = objective.model.user_gradients(data.blocks[0], solution.theta).mean(axis=0)
    assert np.linalg.norm(mean + 0.1 * (solution.theta - objective.center)) <= 0.1 * 1e-7 * 30


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
def test_huge_rows_do_not_stop_the_solver(loss: Logistic | Squared) -> None:
    X, y, groups = random(12)
    X[groups == 0] = 1e300 * np.sign(X[groups == 0])
    data = UserDataset.from_arrays(X, y, groups)
    objective, target = problem(data, loss, 0.2, 0.05)
    solution = minimize(objective, target)
    assert solution.distance <= target
    assert np.linalg.norm(solution.theta - objective.center) <= 0.2 / 0.05 * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_badly_scaled_random_problems_end(seed: int) -> None:
    """Rows, caps and regularization over many orders of magnitude: the loop ends at the plan's distance."""
    rng = np.random.default_rng(seed)
    users, d = int(rng.integers(2, 30)), int(rng.integers(1, 6))
    rows = users + int(rng.integers(0, 80))
    X, _, groups = random(seed + 100, users, rows, d)
    X = X * 10.0 ** rng.uniform(-4, 2, size=(rows if seed % 2 else 1, d))
    loss = Logistic() if seed % 3 else Squared()
    y = (rng.random(rows) < 0.5).astype(float) if seed % 3 else 5 * rng.standard_cauchy(rows)
    data = UserDataset.from_arrays(X, y, groups)
    cap, regularization = 10.0 ** rng.uniform(-5, 2), 10.0 ** rng.uniform(-3, 1)
    objective, target = problem(data, loss, cap, regularization, rng.normal(size=d))
    heard: list[float] = []
    solution = minimize(objective, target, on_step=heard.append)
    assert solution.distance <= target
    assert all(distance > target for distance in heard)


def test_more_users_than_declared() -> None:
    data = UserDataset.from_arrays(*random(13))
    engine, model = LocalEngine(data, 1), LinearModel(Logistic(), FeatureMap.identity(3, bound=30.0))
    objective = CappedObjective(engine, model, 0.05, 0.1, np.zeros(3), 4)
    check(objective, 1e-4, data)
    with pytest.raises(ValueError, match="6 users, but only 2 were declared"):
        CappedObjective(engine, model, 0.05, 0.1, np.zeros(3), 2)


def test_same_bits_for_any_number_of_threads() -> None:
    data = UserDataset.from_arrays(*random(14, users=40, rows=400))
    model = LinearModel(Logistic(), FeatureMap.identity(3))
    found = [
        minimize(CappedObjective(LocalEngine(data, threads, 16, 4), model, 0.1, 0.1, np.zeros(3), 40), 1e-3).theta
        for threads in (1, 3)
    ]
    assert np.array_equal(*found)


def test_distance_bound_adds_slack_and_residual() -> None:
    assert distance_bound(0.5, 3.0, 1.0) == pytest.approx(np.sqrt(10.0))
