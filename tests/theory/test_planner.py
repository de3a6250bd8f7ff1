"""The planner: its formula re-derived, its scaling, its refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from userdp.accounting import gdp_of
from userdp.theory.planner import EFFICIENCY, REFUSAL, plan

BUDGET = {"epsilon": 1.0, "delta": 1e-6, "conditioning": 1.0, "tails": 0.0}


def test_the_formula_by_hand():
    """p = 21, m = 50, ρ = 0: γ² = p/m, s = 2γ/(nμ√share), N = ½ s² p."""
    found = plan(1000, 50, 20, **BUDGET, similarity=0.0, signal=0.14)
    s = 2 * math.sqrt(21 / 50) / (1000 * gdp_of(1.0, 1e-6) * math.sqrt(EFFICIENCY))
    loss = s**2 * 21 / 2
    assert found.noise_loss == pytest.approx(loss)
    assert found.noise_per_coefficient == pytest.approx(2 * s)
    assert found.excess_risk == pytest.approx(0.14 * loss / (0.14 + loss))


def test_noise_cost_of_the_model_by_simulation():
    """½ s² p is the mean loss of noise s on a quadratic of unit curvature, also with 1/4-curved rows and 2s."""
    found = plan(500, 10, 15, **BUDGET)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4000, 16))
    noise = found.noise_per_coefficient * rng.normal(size=(3000, 16))
    curvature = 0.25 * rows.T @ rows / 4000
    assert np.mean(np.einsum("ij,jk,ik->i", noise, curvature, noise) / 2) == pytest.approx(found.noise_loss, rel=0.05)


def test_scaling():
    base = plan(1000, 10, 20, **BUDGET)
    assert plan(2000, 10, 20, **BUDGET).noise_loss == pytest.approx(base.noise_loss / 4)
    assert plan(1000, 10, 20, **BUDGET, adjacency="add-remove").noise_loss == pytest.approx(base.noise_loss / 4)
    assert (
        plan(1000, 10, 20, **BUDGET, similarity=1.0).noise_loss
        == plan(1000, 99, 20, **BUDGET, similarity=1.0).noise_loss
    )
    uneven = plan(1000, [1, 10, 100], 20, **BUDGET)
    assert plan(1000, 100, 20, **BUDGET).noise_loss < uneven.noise_loss < plan(1000, 1, 20, **BUDGET).noise_loss
    assert plan(1000, 10, 20, **BUDGET, loss="squared").noise_per_coefficient == pytest.approx(
        base.noise_per_coefficient / 2
    )


@pytest.mark.parametrize("target", [0.001, 0.02, 0.09])
def test_the_users_it_asks_for_reach_the_target(target):
    needed = int(plan(10, 10, 20, **BUDGET, target=target).users_needed)
    assert plan(needed, 10, 20, **BUDGET).excess_risk <= target
    assert plan(needed - 1, 10, 20, **BUDGET).excess_risk > target


def test_it_says_no_plainly():
    few = plan(30, 10, 20, **BUDGET)
    assert not few.worthwhile
    assert few.verdict.startswith(REFUSAL)
    assert REFUSAL in str(few)
    many = plan(100_000, 10, 20, **BUDGET)
    assert many.worthwhile
    assert many.verdict.startswith("go ahead")
    between = plan(int(few.users_needed * 0.7), 10, 20, **BUDGET)
    assert between.worthwhile
    assert between.verdict.startswith("expect to lose")


def test_a_target_above_the_signal_needs_one():
    assert plan(30, 10, 20, **BUDGET, target=0.2).users_needed == 1


def test_redundant_features_cost_until_the_geometry_is_learnt():
    even, uneven = ({"epsilon": 1.0, "delta": 1e-6, "conditioning": value} for value in (1.0, 9.0))
    few, many = 500, 10**6
    assert plan(few, 10, 20, **uneven).noise_loss == pytest.approx(9 * plan(few, 10, 20, **even).noise_loss)
    assert plan(many, 10, 20, **uneven).noise_loss < 1.2 * plan(many, 10, 20, **even).noise_loss


def test_heavy_tails_add_bias_that_falls_with_the_square_root_of_the_noise():
    plain = plan(10**6, 10, 20, **BUDGET)
    heavy = plan(10**6, 10, 20, **(BUDGET | {"tails": 0.3}))
    both = plain.noise_loss + 0.3 * math.sqrt(plain.noise_loss * 0.1)
    assert heavy.excess_risk == pytest.approx(0.1 * both / (0.1 + both))
    assert heavy.noise_loss == plain.noise_loss


def test_bad_numbers_are_refused():
    for wrong in (
        {"n": 0},
        {"d": 0},
        {"rows_per_user": []},
        {"rows_per_user": 0},
        {"similarity": 2},
        {"signal": 0},
        {"tails": -1},
    ):
        settings = {"n": 100, "rows_per_user": 10, "d": 5, **BUDGET, **wrong}
        with pytest.raises(ValueError, match=r"must be positive|between 0 and 1|at least 0"):
            plan(**settings)
