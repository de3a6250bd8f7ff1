"""Plans and releases of the capped mechanisms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from userdp.accounting import Budget
from userdp.data import UserDataset
from userdp.engines import LocalEngine
from userdp.losses import FeatureMap, LinearModel, Logistic, Squared
from userdp.mechanisms.capped import DISTANCE_SHARE, capped_minimizer, clipped_mean, plan_capped
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.noise import SecureNoise, SeededNoise
from userdp.solvers import CappedObjective, minimize

MODEL = LinearModel(Logistic(), FeatureMap.identity(3, bound=30.0))


def example(users: int = 30) -> UserDataset:
    rng = np.random.default_rng(0)
    groups = np.concatenate([np.arange(users), rng.integers(0, users, 5 * users)])
    return UserDataset.from_arrays(rng.normal(size=(6 * users, 3)), (rng.random(6 * users) < 0.5) * 1.0, groups)


def plan(**changes: object) -> object:
    arguments = {"cap": 0.2, "regularization": 0.1, "gdp": 0.5, "center_norm": 1.0, "rounding": 1e-12} | changes
    model = arguments.pop("model", MODEL)
    n_users, adjacency = arguments.pop("n_users", 30), arguments.pop("adjacency", "replace")
    return plan_capped(model, n_users, adjacency, **arguments)  # type: ignore[arg-type]


def test_plan_is_public_arithmetic() -> None:
    made = plan()
    assert made.distance == pytest.approx(DISTANCE_SHARE * 2 * 0.2 / (0.1 * 30))
    assert made.sensitivity == pytest.approx(2 * 0.2 / (0.1 * 30) + 2 * made.distance)
    assert made.sigma == made.sensitivity / 0.5
    assert plan(adjacency="add-remove").sensitivity == pytest.approx(made.sensitivity / 2)
    assert "cap 0.2, λ 0.1" in str(made)


def test_many_users_make_floating_point_the_limit() -> None:
    made = plan(n_users=10**9)
    assert made.distance > DISTANCE_SHARE * 2 * 0.2 / (0.1 * 10**9)
    assert made.sensitivity > 2 * made.distance


@pytest.mark.parametrize("changes", [{"cap": 0.0}, {"cap": math.inf}, {"regularization": -1.0}, {"cap": math.nan}])
def test_bad_parameters(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="cap and regularization must be positive and finite"):
        plan(**changes)


def test_a_cap_lost_in_rounding_is_refused_before_data() -> None:
    wide = LinearModel(Squared(), FeatureMap.identity(3, bound=1e6))
    with pytest.raises(ValueError, match="lost in the rounding of gradients: choose at least"):
        plan(model=wide, cap=1e-6)


def test_capped_release_is_the_minimizer_plus_the_planned_noise() -> None:
    """Mean and spread of 300 releases; each check fails by chance with probability below 1e-8 (the seed is fixed)."""
    data, made, noise = example(), plan(), SeededNoise(1)
    engine = LocalEngine(data, 1)
    exact = minimize(CappedObjective(engine, MODEL, 0.2, 0.1, np.zeros(3), 30), 1e-4).theta
    channel = Channel(Budget.of(2.0, 1e-3), noise)
    released, solution = capped_minimizer(engine, MODEL, np.zeros(3), made, 30, channel, "phase")
    assert [event.label for event in channel.budget.events] == ["phase"]
    assert solution.distance <= made.distance / math.sqrt(2)
    draws = [released - solution.theta]
    draws += [noise.gaussian(solution.theta, made.sigma) - solution.theta for _ in range(299)]
    squared = float(np.sum(np.square(draws))) / made.sigma**2
    assert stats.chi2(900).ppf(1e-9) < squared < stats.chi2(900).isf(1e-9)
    assert np.linalg.norm(solution.theta - exact) <= made.distance + 1e-4


def test_secure_release() -> None:
    """Leaves the minimizer by less than 7.5σ in every coordinate: false alarm with probability below 1e-12."""
    engine, made = LocalEngine(example(), 1), plan()
    released, solution = capped_minimizer(
        engine, MODEL, np.zeros(3), made, 30, Channel(Budget.of(2.0, 1e-3), SecureNoise()), "phase"
    )
    assert np.all(np.abs(released - solution.theta) < 7.5 * made.sigma)
    assert not np.array_equal(released, solution.theta)


def test_clipped_mean_is_the_mean_of_shortened_gradients() -> None:
    data, theta = example(), np.array([0.5, -0.5, 1.0])
    gradients = MODEL.user_gradients(data.blocks[0], theta)
    lengths = np.linalg.norm(gradients, axis=1)
    cap = float(np.median(lengths))
    expected = (gradients * np.minimum(1, cap / lengths)[:, None]).mean(axis=0)
    channel = Channel(Budget.of(2.0, 1e-3), SeededNoise(2))
    found = clipped_mean(LocalEngine(data, 1), MODEL, theta, cap, 0.4, 30, "replace", channel, "step")
    assert found.sigma == pytest.approx(2 * cap / 30 / 0.4, rel=1e-6)
    again = SeededNoise(2).gaussian(expected, found.sigma)
    assert np.allclose(found.value, again, rtol=1e-9)


def test_linear_surrogate_is_one_gradient_step() -> None:
    """argmin of ⟨g, θ − c⟩ + (λ/2)‖θ − c‖² is c − g/λ: sensitivity and noise scale by 1/λ together."""
    data, center, cap, regularization = example(), np.zeros(3), 0.3, 0.7
    channel = Channel(Budget.of(2.0, 1e-3), SeededNoise(3))
    found = clipped_mean(LocalEngine(data, 1), MODEL, center, cap, 0.4, 30, "replace", channel, "step")
    step = center - found.value / regularization
    assert found.sigma / regularization == pytest.approx(2 * cap / (regularization * 30) / 0.4, rel=1e-6)
    assert np.allclose(regularization * (step - center) + found.value, 0, atol=1e-15)


def test_a_huge_user_and_a_long_user_harm_nobody() -> None:
    data = example()
    X, y, owner = data.arrays()
    bad = UserDataset.from_arrays(
        np.vstack([X, np.full((1, 3), 1e300), np.full((200_000, 3), -1e300)]),
        np.concatenate([y, np.zeros(200_001)]),
        np.concatenate([owner, [100], np.full(200_000, 101)]),
    )
    made = plan(n_users=32)
    thetas = []
    for source in (data, bad):
        objective = CappedObjective(LocalEngine(source, 1), MODEL, 0.2, 0.1, np.zeros(3), 32)
        thetas.append(minimize(objective, made.distance).theta)
    assert np.linalg.norm(thetas[0] - thetas[1]) <= 2 * 0.2 / (0.1 * 32) + 2 * made.distance
