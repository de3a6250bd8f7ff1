"""Plans of Algorithms 2–6: literal constants, budgets, minimum users; all before any data."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from userdp.accounting import total
from userdp.algorithms import (
    Plan,
    Problem,
    plan_output_perturbation,
    plan_phased_erm,
    plan_phased_sco,
    plan_strongly_convex_erm,
    plan_strongly_convex_sco,
)
from userdp.algorithms.phased import user_blocks
from userdp.losses.vector import VectorModel
from userdp.mechanisms.deletion import DeletionPlan
from userdp.solvers.sets import Ball
from userdp.theory import minimum_users

G, MU, D = 2.0, 0.5, 6
MEAN = Problem(VectorModel.mean(D, zeta=MU / 2, bound=10.0), lipschitz=G, domain=Ball(np.zeros(D), 2.0))
LINEAR = Problem(VectorModel.linear(D, bound=10.0), lipschitz=G, domain=Ball(np.zeros(D), 1.0))


def literal_sigma(epsilon: float, delta: float, target: float) -> float:
    """Algorithm 1, line 3, as printed."""
    half = epsilon / 2
    share = delta / (math.exp(half) + 2)
    kappa = 1 + math.ceil(math.log(1 / share) / half)
    return 2 * math.sqrt(math.log(2 / share)) * 8 * kappa * target / half


def deletion(plan: Plan) -> list[DeletionPlan]:
    return [step.release for stage in plan.stages for step in stage.steps if isinstance(step.release, DeletionPlan)]


def test_algorithm_2_is_literal() -> None:
    n, m, beta = 500, 40, 0.01
    plan = plan_output_perturbation(
        MEAN, n, epsilon=1.0, delta=1e-6, rows_per_user=m, beta=beta,
        release="deletion-test", constants="literal", target_rule="paper",
    )  # fmt: skip
    target = 10 * G * math.sqrt(math.log(1 / beta)) / (MU * n * math.sqrt(m))
    assert plan.sigma == pytest.approx(literal_sigma(1.0, 1e-6, target), rel=1e-12)


def test_algorithm_3_is_literal() -> None:
    """T = ⌈ln nm⌉, λ_i = λ4^i with λ = G√d/(Rn√m), R_i = G/λ_i, budgets over T, Δ with 2G and λ_i, β = 1/(nm) over
    T.
    """
    n, m, radius = 60_000, 50, 3.0
    plan = plan_phased_erm(
        LINEAR, n, radius=radius, epsilon=1.0, delta=1e-6, rows_per_user=m,
        release="deletion-test", constants="literal", target_rule="paper",
    )  # fmt: skip
    steps = plan.stages[0].steps
    count = math.ceil(math.log(n * m))
    assert len(steps) == count
    for i, step in enumerate(steps, 1):
        strength = G * math.sqrt(D) / (radius * n * math.sqrt(m)) * 4**i
        assert step.regularization == pytest.approx(strength)
        assert step.ball == pytest.approx(G / strength)
        target = 10 * 2 * G * math.sqrt(math.log(n * m * count)) / (strength * n * math.sqrt(m))
        assert step.sigma == pytest.approx(literal_sigma(1.0 / count, 1e-6 / count, target))
    cost = total(plan.event)
    assert cost.epsilon == pytest.approx(1.0)
    assert cost.delta == pytest.approx(1e-6)


def test_algorithm_4_uses_half_open_blocks_with_the_whole_budget_each() -> None:
    n, m = 5000, 50
    plan = plan_phased_sco(
        LINEAR, n, radius=1.0, epsilon=1.0, delta=1e-6, rows_per_user=m, release="deletion-test", constants="literal"
    )
    slots = [step.slots for step in plan.stages[0].steps]
    assert slots[0] == (n // 2, n)
    assert all(later[1] == earlier[0] for earlier, later in pairwise(slots))
    assert all(stop - start >= minimum_users(1.0, 1e-6) for start, stop in slots)
    assert all(plan.calibration.epsilon == 1.0 and plan.calibration.delta == 1e-6 for plan in deletion(plan))
    assert total(plan.event).epsilon == 1.0


def test_algorithms_5_and_6_halve_the_budget_and_shrink_the_ball() -> None:
    n, m, beta = 80_000, 1000, 1e-4
    public = {"epsilon": 1.0, "delta": 1e-6, "rows_per_user": m, "beta": beta}
    literal = public | {"release": "deletion-test", "constants": "literal", "target_rule": "paper"}
    erm = plan_strongly_convex_erm(MEAN, n, **literal)  # type: ignore[arg-type]
    sigma = literal_sigma(0.5, 5e-7, 10 * G * math.sqrt(math.log(1 / beta)) / (MU * n * math.sqrt(m)))
    assert erm.stages[0].steps[0].sigma == pytest.approx(sigma)
    assert erm.stages[1].radius == pytest.approx(sigma * math.sqrt(D * math.log(1 / beta)))
    sco = plan_strongly_convex_sco(MEAN, n, **literal)  # type: ignore[arg-type]
    closeness = G * math.sqrt(math.log(1 / beta)) / (MU * math.sqrt(n * m))
    assert sco.stages[1].radius == pytest.approx(erm.stages[1].radius + closeness)
    assert total(sco.event).epsilon == pytest.approx(1.0)
    for plan in (plan_strongly_convex_erm(MEAN, n, **public), plan_strongly_convex_sco(MEAN, n, **public)):  # type: ignore[arg-type]
        assert total(plan.event).gdp == pytest.approx(plan.settings.gdp)


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_capped_phases_spend_exactly_the_gaussian_budget(adjacency: str) -> None:
    public = {"epsilon": 1.0, "delta": 1e-6, "rows_per_user": 50, "adjacency": adjacency}
    for plan in (plan_phased_erm(LINEAR, 40, radius=1.0, **public), plan_phased_sco(LINEAR, 40, radius=1.0, **public)):  # type: ignore[arg-type]
        assert total(plan.event).gdp == pytest.approx(plan.settings.gdp, rel=1e-12)
        assert "noise" in str(plan)


def test_add_remove_needs_half_the_noise() -> None:
    public = {"epsilon": 1.0, "delta": 1e-6, "rows_per_user": 50, "force_cap": 0.3}
    replace = plan_output_perturbation(MEAN, 100, **public)  # type: ignore[arg-type]
    remove = plan_output_perturbation(MEAN, 100, adjacency="add-remove", **public)  # type: ignore[arg-type]
    assert replace.sigma == pytest.approx(2 * remove.sigma)


def test_too_few_users_is_said_before_data() -> None:
    public = {"epsilon": 1.0, "delta": 1e-6, "rows_per_user": 50, "release": "deletion-test", "constants": "literal"}
    with pytest.raises(ValueError, match=r"needs at least 130 users .* got 129"):
        plan_output_perturbation(MEAN, 129, **public)  # type: ignore[arg-type]
    plan_output_perturbation(MEAN, 130, **public)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"phase 1: .* needs at least"):
        plan_phased_erm(LINEAR, 500, radius=1.0, **public)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 130 users in its first block"):
        plan_phased_sco(LINEAR, 200, radius=1.0, **public)  # type: ignore[arg-type]


def test_the_capped_release_works_from_a_handful_of_users() -> None:
    public = {"epsilon": 1.0, "delta": 1e-6, "rows_per_user": 5}
    assert plan_phased_erm(LINEAR, 3, radius=1.0, **public).sigma > 0  # type: ignore[arg-type]
    assert plan_phased_sco(LINEAR, 15, radius=1.0, **public).sigma > 0  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="15 users in all, got 14"):
        plan_phased_sco(LINEAR, 14, radius=1.0, **public)  # type: ignore[arg-type]


def test_bad_settings_say_what_to_do() -> None:
    public = {"epsilon": 1.0, "delta": 1e-6, "rows_per_user": 5}
    with pytest.raises(ValueError, match="strong convexity is 0: give it a ridge"):
        plan_output_perturbation(LINEAR, 100, **public)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="release must be"):
        plan_output_perturbation(MEAN, 100, release="magic", **public)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="force_cap belongs to"):
        plan_output_perturbation(MEAN, 100, release="deletion-test", force_cap=0.1, **public)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="radius must be positive"):
        plan_phased_erm(LINEAR, 100, radius=-1.0, **public)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1, got 0"):
        plan_output_perturbation(MEAN, 100, epsilon=1.0, delta=1e-6, rows_per_user=0)


def test_blocks_partition_all_but_a_few_users() -> None:
    for n in (15, 100, 1023, 1024, 1025):
        blocks = user_blocks(n, 8)
        covered = [slot for start, stop in blocks for slot in range(start, stop)]
        assert len(covered) == len(set(covered))
        assert min(covered) < 16
