"""Folding trees of events into their cost."""

from __future__ import annotations

import math

import pytest

from userdp.accounting import (
    ApproximateEvent,
    Cost,
    GaussianEvent,
    Guarantee,
    Parallel,
    Sequential,
    check_adjacency,
    epsilon_of,
    sum_sensitivity,
    total,
)


def test_histogram_on_everybody_then_phases_on_disjoint_users() -> None:
    tree = Sequential((GaussianEvent(0.3), Parallel((GaussianEvent(0.4), GaussianEvent(0.2)))))
    assert total(tree).gdp == pytest.approx(math.hypot(0.3, 0.4))


def test_order_and_nesting_do_not_matter() -> None:
    events = [GaussianEvent(0.1), ApproximateEvent(0.5, 1e-7), GaussianEvent(0.7)]
    flat, nested = total(Sequential(tuple(events))), total(Sequential((Sequential(tuple(events[1:])), events[0])))
    assert flat.gdp == pytest.approx(nested.gdp, rel=1e-14)
    assert (flat.epsilon, flat.delta) == (nested.epsilon, nested.delta)


def test_approximate_events_add() -> None:
    cost = total(Sequential((ApproximateEvent(0.5, 1e-7), ApproximateEvent(0.25, 2e-7))))
    assert cost == Cost(0.0, 0.75, pytest.approx(3e-7))
    assert cost.epsilon_at(1e-6) == 0.75


def test_parallel_takes_the_worse_in_every_part() -> None:
    cost = total(Parallel((GaussianEvent(0.4), ApproximateEvent(0.5, 1e-7), ApproximateEvent(0.1, 1e-5))))
    assert cost == Cost(0.4, 0.5, 1e-5)


def test_epsilon_of_a_mixture_uses_what_is_left_of_delta() -> None:
    cost = total(Sequential((GaussianEvent(0.4), ApproximateEvent(0.5, 4e-7))))
    assert cost.epsilon_at(1e-6) == pytest.approx(0.5 + epsilon_of(6e-7, 0.4))
    with pytest.raises(ValueError, match="more than 1e-08"):
        cost.epsilon_at(1e-8)


def test_nothing_costs_nothing() -> None:
    assert total(Sequential(())) == Cost()
    assert total(Parallel(())) == Cost()


def test_unknown_events_are_refused() -> None:
    with pytest.raises(TypeError, match="unknown privacy event 'laplace'"):
        total("laplace")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unknown privacy event"):
        total(Sequential((GaussianEvent(0.1), object())))  # type: ignore[arg-type]


def test_sensitivity_knows_its_relation() -> None:
    assert sum_sensitivity(3.0, "replace") == 6.0
    assert sum_sensitivity(3.0, "add-remove") == 3.0
    assert check_adjacency("replace") == "replace"
    with pytest.raises(ValueError, match="adjacency must be one of 'replace', 'add-remove', got 'swap'"):
        check_adjacency("swap")


def test_seeded_guarantee_promises_nothing() -> None:
    assert str(Guarantee(1.0, 1e-6, reproducible=True)).startswith("reproducible, not private")
    with pytest.raises(ValueError, match="Gaussian-DP parameter"):
        Guarantee(1.0, 1e-6).delta_at(2.0)
