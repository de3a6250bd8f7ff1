"""The budget pays before it releases, and refuses before it overspends."""

from __future__ import annotations

import math

import pytest

from userdp.accounting import Budget, BudgetExceeded, GaussianEvent, Sequential, compose, delta_of, total
from userdp.accounting.budget import GRID_PRICE, GRID_SHARE


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (8.0, 1e-3)])
def test_whole_budget_with_its_grid_share_stays_within_delta(epsilon: float, delta: float) -> None:
    budget = Budget.of(epsilon, delta)
    assert delta_of(epsilon, budget.gdp * (1 + 1e-13)) + delta * GRID_SHARE <= delta


def test_plan_that_spends_everything_is_accepted_and_nothing_more() -> None:
    budget = Budget.of(1.0, 1e-6)
    for i in range(7):
        budget.charge(budget.gdp / math.sqrt(7), f"phase {i}", numbers=3)
    assert budget.left == pytest.approx(0, abs=1e-6 * budget.gdp)
    with pytest.raises(BudgetExceeded, match="extra needs gdp"):
        budget.charge(0.01 * budget.gdp, "extra", numbers=1)
    assert len(budget.events) == 7
    assert budget.numbers == 21


def test_refusal_leaves_the_budget_as_it_was() -> None:
    budget = Budget.of(1.0, 1e-6)
    budget.charge(0.5 * budget.gdp, "first", numbers=1)
    before = budget.left
    with pytest.raises(BudgetExceeded):
        budget.charge(0.9 * budget.gdp, "too much", numbers=1)
    assert budget.left == before
    assert [event.label for event in budget.events] == ["first"]


def test_too_many_numbers_for_the_grid_share() -> None:
    budget = Budget.of(1.0, 1e-24)
    affordable = int(1e-24 * GRID_SHARE / GRID_PRICE)
    with pytest.raises(BudgetExceeded, match="more numbers than delta"):
        budget.charge(0.1 * budget.gdp, "wide", numbers=affordable + 1)
    budget.charge(0.1 * budget.gdp, "narrow", numbers=affordable - 1)


@pytest.mark.parametrize("gdp", [0.0, -1.0, math.inf, math.nan, 1e-9])
def test_a_release_costs_an_ordinary_amount(gdp: float) -> None:
    with pytest.raises(ValueError, match="gdp of ordinary size"):
        Budget.of(1.0, 1e-6).charge(gdp, "odd", numbers=1)


@pytest.mark.parametrize("delta", [0.0, 1.0, 2.0, -1.0])
def test_bad_delta(delta: float) -> None:
    with pytest.raises(ValueError, match="delta must lie strictly between 0 and 1"):
        Budget.of(1.0, delta)


def test_an_epsilon_that_protects_nobody() -> None:
    with pytest.raises(ValueError, match="epsilon = 65 protects nobody: choose at most 64"):
        Budget.of(65.0, 1e-6)
    assert Budget.of(64.0, 1e-6).gdp > 5


def test_guarantee_reports_what_was_asked_and_what_was_spent() -> None:
    budget = Budget.of(2.0, 1e-5, "add-remove")
    budget.charge(0.3 * budget.gdp, "a", numbers=1)
    budget.charge(0.4 * budget.gdp, "b", numbers=1)
    guarantee = budget.guarantee(100)
    assert (guarantee.epsilon, guarantee.delta, guarantee.adjacency, guarantee.n_users) == (
        2.0,
        1e-5,
        "add-remove",
        100,
    )
    assert guarantee.gdp == pytest.approx(0.5 * budget.gdp)
    assert guarantee.delta_at(2.0) < 1e-5
    assert "adding or removing all rows of any one person" in str(guarantee)


def test_event_is_the_history() -> None:
    budget = Budget.of(1.0, 1e-6)
    budget.charge(0.1, "a", numbers=1)
    budget.charge(0.2, "b", numbers=1)
    assert budget.event == Sequential((GaussianEvent(0.1, "a"), GaussianEvent(0.2, "b")))
    assert total(budget.event).gdp == pytest.approx(compose([0.1, 0.2]))
