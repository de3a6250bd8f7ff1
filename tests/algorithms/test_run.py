"""Algorithms 2–6 on data: sensitivity of every release, ⊥, blocks, determinism, accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from userdp.accounting import Budget
from userdp.algorithms import (
    PaperRelease,
    Problem,
    output_perturbation,
    permuted_rows,
    phased_erm,
    phased_sco,
    plan_output_perturbation,
    run,
    strongly_convex_erm,
    strongly_convex_sco,
)
from userdp.algorithms.run import SearchTooLarge
from userdp.algorithms.schedule import PHASES, growing_shares, step_length, way_weights
from userdp.data import UserDataset
from userdp.data.blocks import UserBlock
from userdp.engines import LocalEngine
from userdp.losses import FeatureMap, LinearModel, Logistic
from userdp.losses.absolute import Absolute
from userdp.losses.base import Floats
from userdp.losses.hinge import Hinge
from userdp.losses.vector import VectorModel
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.noise import SeededNoise
from userdp.mechanisms.slots import assign_slots
from userdp.solvers.sets import Ball, Box

D = 3
CAP = 0.25
PUBLIC: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "rows_per_user": 6}
MEAN = Problem(VectorModel.mean(D, zeta=0.5, bound=5.0), 1.0, Ball(np.zeros(D), 1.0))
LINEAR = Problem(VectorModel.linear(D, bound=5.0), 1.0, Ball(np.zeros(D), 1.0))
LOGISTIC = Problem(
    LinearModel(Logistic(), FeatureMap.identity(D, bound=5.0)), 1.0, Box(np.full(D, -1), np.full(D, 1.0))
)
RIDGE = Problem(LOGISTIC.model, 1.0, LOGISTIC.domain, ridge=0.5)
MEDIAN = Problem(
    LinearModel(Absolute(width=0.1), FeatureMap.identity(D, bound=5.0)), 1.0, Ball(np.zeros(D), 1.0), ridge=0.5
)
SVM = Problem(LinearModel(Hinge(width=0.2), FeatureMap.identity(D, bound=5.0)), 1.0, Ball(np.zeros(D), 1.0), ridge=0.5)
ALGORITHMS: dict[str, tuple[Callable[..., PaperRelease], Problem, dict[str, Any]]] = {
    "output perturbation, mean": (output_perturbation, MEAN, {}),
    "output perturbation, logistic": (output_perturbation, RIDGE, {}),
    "output perturbation, absolute": (output_perturbation, MEDIAN, {}),
    "output perturbation, hinge": (output_perturbation, SVM, {}),
    "phased ERM, linear": (phased_erm, LINEAR, {"radius": 1.0, "phases": 3}),
    "phased ERM, logistic": (phased_erm, LOGISTIC, {"radius": 1.0, "phases": 3}),
    "phased ERM, tangents, logistic": (phased_erm, LOGISTIC, {"radius": 1.0, "schedule": "linear"}),
    "phased ERM, tangents, hinge": (phased_erm, SVM, {"radius": 1.0, "schedule": "linear", "phases": 5}),
    "phased ERM, tangents, mean": (phased_erm, MEAN, {"radius": 1.0, "schedule": "linear", "phases": 5}),
    "phased SCO, logistic": (phased_sco, LOGISTIC, {"radius": 1.0}),
    "phased SCO, linear": (phased_sco, LINEAR, {"radius": 1.0}),
    "strongly convex ERM, logistic": (strongly_convex_erm, RIDGE, {"phases": 3}),
    "strongly convex SCO, mean": (strongly_convex_sco, MEAN, {}),
}


def users(seed: int, n: int = 24, m: int = 6) -> UserDataset:
    generator = np.random.default_rng(seed)
    rows = 0.3 * generator.normal(size=(n * m, D)) + 0.1
    target = (generator.random(n * m) < 0.5).astype(float)
    return UserDataset.from_arrays(rows, target, np.repeat(np.arange(n), m))


def replaced(data: UserDataset, user: int, rows: Floats, target: float) -> UserDataset:
    features, old, owner = data.arrays()
    mine = owner == user
    features, old = features.copy(), old.copy()
    features[mine], old[mine] = rows, target
    return UserDataset.from_arrays(features, old, owner)


WORST = [(np.full(D, 1e6), 0.0), (np.full(D, -1e6), 1.0), (np.array([5.0, 0.0, 0.0]), 1.0), (np.zeros(D), 0.0)]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_replacement_moves_a_release_by_more_than_its_sensitivity(name: str) -> None:
    """With the same seed the noise is the same, so the first releases differ by what the minimizers differ; σ·μ
    bounds it.

    Later phases start from different centres, so each release is compared where its inputs agree: the first of the run.
    """
    algorithm, problem, options = ALGORITHMS[name]
    data = users(0)
    options = PUBLIC | options | {"force_cap": CAP, "random_state": 7}
    released = algorithm(data, problem, **options)
    step = released.plan.stages[0].steps[0]
    limit = released.sigmas[0] * step.event.gdp  # type: ignore[union-attr]
    largest = 0.0
    for user in (0, 11, 23):
        for rows, target in WORST:
            other = algorithm(replaced(data, user, rows, target), problem, **options)
            moved = float(np.linalg.norm(released.points[0] - other.points[0]))  # type: ignore[operator]
            assert moved <= limit
            largest = max(largest, moved)
    assert largest > 0


def test_tangents_are_gradient_steps_of_the_default_schedule() -> None:
    """A phase without a set is one step of length 1/λ along the capped mean gradient, and the model the mean that the
    default fit takes.
    """
    free = Problem(LOGISTIC.model, 1.0)
    data = users(0)
    options = PUBLIC | {"radius": 1.0, "schedule": "linear", "force_cap": CAP, "random_state": 7}
    released = phased_erm(data, free, **options)
    steps = released.plan.stages[0].steps
    assert len(steps) == PHASES
    assert len({step.regularization for step in steps}) == 1
    spent = np.array([step.event.gdp**2 for step in steps])  # type: ignore[union-attr]
    assert spent == pytest.approx(released.plan.settings.gdp**2 * growing_shares(PHASES))
    way = [np.zeros(D)]
    for proposal, sigma in zip(released.points, released.sigmas, strict=True):
        assert proposal is not None
        way.append(way[-1] + step_length(D * sigma**2) * (proposal - way[-1]))
    assert released.theta == pytest.approx(way_weights(released.sigmas) @ np.array(way[1:]))
    quiet = phased_erm(data, free, **(options | {"phases": 1, "epsilon": 60.0, "force_cap": 10.0}))
    gradient = np.mean(LocalEngine(data).each(_gradients, free.model, np.zeros(D)), axis=0)
    step = quiet.plan.stages[0].steps[0]
    assert np.linalg.norm(quiet.theta + gradient / step.regularization) <= 6 * math.sqrt(D) * step.sigma


def _gradients(block: UserBlock, model: LinearModel, theta: Floats) -> Floats:
    return model.user_gradients(block, theta)


@pytest.mark.parametrize("problem", [LOGISTIC, LINEAR, MEAN, SVM])
def test_tangents_reach_the_optimum_without_noise(problem: Problem) -> None:
    """Excess risk below 5 % of what the start has (plus 5e-4), at a budget where noise is little."""
    data = users(0, n=200)
    options = {"epsilon": 60.0, "delta": 0.01, "rows_per_user": 6, "radius": 1.0, "force_cap": 1.0, "random_state": 0}
    exact = phased_erm(data, problem, **options)  # type: ignore[arg-type]
    best = phased_erm(data, problem, **options, schedule="linear")  # type: ignore[arg-type]
    start, geometric, linear = (problem.risk(data, theta) for theta in (problem.start, exact.theta, best.theta))
    assert linear - geometric <= 0.05 * (start - geometric) + 5e-4


def test_tangents_have_no_deletion_test() -> None:
    with pytest.raises(ValueError, match="needs release='capped'"):
        phased_erm(users(0), LOGISTIC, **PUBLIC, radius=1.0, schedule="linear", release="deletion-test")
    with pytest.raises(ValueError, match="schedule must be"):
        phased_erm(users(0), LOGISTIC, **PUBLIC, radius=1.0, schedule="fast")  # type: ignore[arg-type]


def test_the_sensitivity_is_nearly_attained() -> None:
    """The bound has no slack to hide an error in: two opposite users move the mean by nearly 2γ/(λn), which is 98 % of
    what is planned. (Not by all of it, because they pull towards points of the ball that is the domain.)
    """
    data = users(0)
    options = PUBLIC | {"force_cap": CAP, "random_state": 7}
    up = output_perturbation(replaced(data, 3, np.array([5.0, 0, 0]), 0.0), MEAN, **options)
    down = output_perturbation(replaced(data, 3, np.array([-5.0, 0, 0]), 0.0), MEAN, **options)
    moved = np.linalg.norm(up.points[0] - down.points[0])  # type: ignore[operator]
    assert 0.98 * 2 * CAP / 24 < moved <= 2 * CAP / 24
    assert up.sigmas[0] * up.plan.settings.gdp == pytest.approx(1.02 * 2 * CAP / 24, rel=1e-3)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_add_remove_with_a_declared_number(name: str) -> None:
    algorithm, problem, options = ALGORITHMS[name]
    data = users(0)
    options = PUBLIC | options | {"force_cap": CAP, "random_state": 7, "adjacency": "add-remove", "n_users": 20}
    released = algorithm(data, problem, **options)
    assert released.guarantee.adjacency == "add-remove"
    assert released.guarantee.n_users == 20
    assert problem.domain.project(released.theta) == pytest.approx(released.theta)
    with pytest.raises(ValueError, match="needs n_users"):
        algorithm(data, problem, **(options | {"n_users": None}))


def test_far_more_users_than_declared_do_not_raise() -> None:
    """An exception would tell that somebody is there."""
    options = PUBLIC | {"force_cap": CAP, "random_state": 7, "adjacency": "add-remove", "n_users": 5}
    assert np.all(np.isfinite(output_perturbation(users(0, n=24), RIDGE, **options).theta))


def test_blocks_are_disjoint_and_a_replacement_touches_one() -> None:
    data = users(0)
    slots = [(12, 24), (6, 12), (3, 6)]
    for seed in range(20):
        parts = assign_slots(data, slots, 24, "replace", SeededNoise(seed))
        ids = [user for part in parts for user in part.users]
        assert len(ids) == len(set(ids)) == 21
        assert [part.n_users for part in parts] == [12, 6, 3]
        other = assign_slots(replaced(data, 5, np.ones(D), 1.0), slots, 24, "replace", SeededNoise(seed))
        differing = [
            not np.array_equal(a.blocks[0].features, b.blocks[0].features) for a, b in zip(parts, other, strict=True)
        ]
        assert sum(differing) == (5 in ids)


def test_under_add_remove_the_others_keep_their_slots() -> None:
    """With a fresh generator per user count the draws of the first users agree: adding the last one changes one
    block.
    """
    data = users(0)
    slots = [(12, 24), (6, 12)]
    with_last = assign_slots(data, slots, 24, "add-remove", SeededNoise(3))
    without = assign_slots(data.without([23]), slots, 24, "add-remove", SeededNoise(3))
    for a, b in zip(with_last, without, strict=True):
        assert set(a.users) - set(b.users) <= {23}
        assert set(b.users) <= set(a.users)
    with pytest.raises(ValueError, match="must not overlap"):
        assign_slots(data, [(0, 3), (2, 5)], 24, "replace", SeededNoise(0))


def test_slots_are_secret_and_uniform() -> None:
    data = users(0, n=6)
    counts = np.zeros(6)
    for seed in range(600):
        (part,) = assign_slots(data, [(0, 2)], 6, "replace", SeededNoise(seed))
        counts[list(part.users)] += 1  # type: ignore[call-overload]
    assert np.all(np.abs(counts - 200) < 5 * math.sqrt(200))


DELETION: dict[str, Any] = {
    "epsilon": 300.0, "delta": 0.2, "rows_per_user": 6, "release": "deletion-test", "random_state": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("constants", "rule"),
    [("literal", "union"), ("tight", "paper"), ("tight", "union"), ("exact", "paper"), ("exact", "union")],
)
def test_the_deletion_test_runs_with_all_constants(constants: str, rule: str) -> None:
    data = users(0, n=14 if constants == "literal" else 10)
    options = DELETION | {"epsilon": 60.0 if constants == "literal" else 300.0}
    found = output_perturbation(data, MEAN, constants=constants, target_rule=rule, **options)
    assert found.guarantee.gdp is None
    assert len(found.points) == 1


def test_certificate_and_search_release_the_same() -> None:
    """On certified data the exhaustive search finds the empty set too, and the released value has the same law."""
    data = users(0, n=10)
    options = DELETION | {"constants": "tight", "target_rule": "union"}
    found = output_perturbation(data, RIDGE, **options)
    assert found.diagnostics == ("the minimizer: certified",)
    exact = output_perturbation(
        data, RIDGE, **(options | {"beta": 0.36, "target_rule": "paper", "rows_per_user": 3000})
    )
    assert exact.diagnostics[0].startswith("the minimizer: searched")


def test_bottom_continues_from_the_last_public_point_and_is_charged() -> None:
    """Two camps of users at opposite ends with a tiny Δ: every test fails, all phases give ⊥, the start is returned."""
    rows = np.concatenate([np.full((30, D), 1.0), np.full((30, D), -1.0)])
    data = UserDataset.from_arrays(rows, None, np.repeat(np.arange(10), 6))
    options = DELETION | {"rows_per_user": 10**9, "constants": "tight"}
    found = phased_erm(data, MEAN, radius=1.0, phases=2, **options)
    assert found.points == (None, None)
    np.testing.assert_array_equal(found.theta, MEAN.start)
    assert found.guarantee.epsilon == 300.0


def test_an_exponential_search_is_refused_before_data() -> None:
    data = users(0, n=200)
    options = PUBLIC | {"release": "deletion-test", "constants": "literal"}
    with pytest.raises(SearchTooLarge, match=r"may need about 10\^.* minimizations for 200 users"):
        output_perturbation(data, MEAN, **options)
    found = output_perturbation(data, MEAN, allow_exponential=True, random_state=0, **options)
    assert found.diagnostics == ("the minimizer: certified",)


def test_a_large_budget_finds_the_minimizer() -> None:
    """With almost no noise every algorithm ends near the optimum of its problem."""
    data = users(0)
    mean = data.blocks[0].features.mean(axis=0)
    options = PUBLIC | {"epsilon": 400.0, "force_cap": 5.0, "random_state": 0}
    for algorithm in (output_perturbation, strongly_convex_erm):
        np.testing.assert_allclose(algorithm(data, MEAN, **options).theta, mean, atol=0.05)  # type: ignore[operator]
    found = phased_erm(data, LINEAR, radius=1.0, **options)
    assert found.theta @ mean >= 0.95 * np.linalg.norm(mean)


def test_the_plan_must_fit_the_data() -> None:
    plan = plan_output_perturbation(MEAN, 25, **PUBLIC)
    with pytest.raises(ValueError, match="plan is for 25 users, the data has 24"):
        run(users(0), MEAN, plan)


def test_users_without_rows_count() -> None:
    """Cleaning must not change n: a user left with no rows stays, pulls with nothing, and n stays public."""
    rows = np.random.default_rng(0).normal(size=(12, D))
    data = UserDataset.from_arrays(rows, np.zeros(12), np.repeat([0, 1], 6))
    block = data.blocks[0]
    empty = type(block)(block.features, block.target, np.array([0, 6, 6, 12]))
    padded = UserDataset((empty,), (0, "gone", 1), data.columns)
    found = output_perturbation(padded, RIDGE, random_state=0, force_cap=CAP, **PUBLIC)
    assert found.plan.n_users == 3


def test_permuted_rows_keep_the_sizes() -> None:
    data = users(0)
    again = permuted_rows(data, 1)
    assert np.array_equal(again.rows_per_user, data.rows_per_user)
    assert not np.array_equal(again.blocks[0].features, data.blocks[0].features)
    np.testing.assert_allclose(np.sort(again.blocks[0].features, axis=0), np.sort(data.blocks[0].features, axis=0))


class Naive(Logistic):
    """The logistic loss as one should not write it: e^z overflows."""

    def derivative(self, prediction: Floats, target: Floats) -> Floats:
        with np.errstate(all="ignore"):
            return np.exp(prediction) / (1 + np.exp(prediction)) - target


def test_a_loss_that_overflows_is_refused_before_data() -> None:
    """Where a loss is not a number nothing is certified: the minimizer would move by more than its sensitivity."""
    problem = Problem(LinearModel(Naive(), FeatureMap.identity(D, bound=1e4)), 1.0, Ball(np.zeros(D), 2.0))
    with pytest.raises(ValueError, match="not a finite number at prediction"):
        phased_erm(users(0), problem, **PUBLIC, radius=1.0, phases=2, force_cap=CAP, random_state=0)


def test_nothing_that_is_not_a_number_is_released() -> None:
    budget = Budget.of(1.0, 1e-6)
    with pytest.raises(FloatingPointError, match="not released"):
        Channel(budget, SeededNoise(0)).release(np.array([np.nan]), 1.0, 0.1, "a")
    assert budget.events == []
