"""Conversions, composition and calibration against dp-accounting and against their own definitions."""

from __future__ import annotations

import math
from decimal import Decimal

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from userdp.accounting import compose, delta_of, epsilon_of, gdp_of, parallel

EPSILONS = [0.01, 0.1, 0.5, 1.0, 3.0, 8.0, 20.0]
DELTAS = [1e-15, 1e-12, 1e-9, 1e-6, 1e-4, 1e-2, 0.1]
GRID = [(epsilon, delta) for epsilon in EPSILONS for delta in DELTAS]


def exact_delta(epsilon: float, gdp: float) -> mpmath.mpf:
    """δ(ε) with 60 digits."""
    with mpmath.workdps(60):
        e, mu = mpmath.mpf(epsilon), mpmath.mpf(gdp)
        return mpmath.ncdf(-e / mu + mu / 2) - mpmath.exp(e) * mpmath.ncdf(-e / mu - mu / 2)


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_gdp_of_agrees_with_dp_accounting(epsilon: float, delta: float) -> None:
    sigma = dp_accounting.get_sigma_gaussian(epsilon, delta)
    assert gdp_of(epsilon, delta) == pytest.approx(1 / sigma, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_epsilon_of_agrees_with_dp_accounting(epsilon: float, delta: float) -> None:
    gdp = gdp_of(epsilon, delta)
    assert epsilon_of(delta, gdp) == pytest.approx(dp_accounting.get_epsilon_gaussian(1 / gdp, delta), rel=1e-6)
    assert epsilon_of(delta, gdp) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_calibration_rounds_towards_privacy(epsilon: float, delta: float) -> None:
    gdp = gdp_of(epsilon, delta)
    assert exact_delta(epsilon, gdp) <= delta
    assert exact_delta(epsilon_of(delta, gdp), gdp) <= delta
    assert exact_delta(epsilon, gdp * (1 + 1e-6)) > delta, "and is not wasteful"


@pytest.mark.parametrize("gdp", [1e-3, 0.05, 0.3, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.0, 20.0])
def test_delta_of_is_accurate(epsilon: float, gdp: float) -> None:
    expected = exact_delta(epsilon, gdp)
    if expected > 1e-300:
        assert delta_of(epsilon, gdp) == pytest.approx(float(expected), rel=1e-10)
    else:
        assert delta_of(epsilon, gdp) <= 1e-290


def test_curve_is_monotone() -> None:
    deltas = [delta_of(1.0, gdp) for gdp in np.geomspace(1e-2, 30, 200)]
    assert deltas == sorted(deltas)
    deltas = [delta_of(epsilon, 0.7) for epsilon in np.linspace(0, 20, 200)]
    assert deltas == sorted(deltas, reverse=True)


@pytest.mark.parametrize("gdps", [[0.3, 0.4], [0.1] * 25, [1.0, 0.01, 2.5]])
def test_composition_agrees_with_dp_accounting(gdps: list[float]) -> None:
    events = dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(1 / gdp) for gdp in gdps])
    accountant = PLDAccountant().compose(events)
    epsilon = epsilon_of(1e-6, compose(gdps))
    pessimistic = accountant.get_epsilon(1e-6)
    assert epsilon <= pessimistic + 1e-9
    assert epsilon == pytest.approx(pessimistic, rel=5e-3), "dp-accounting discretizes, pessimistically"


def test_composition_rounds_up() -> None:
    for seed in range(50):
        gdps = np.random.default_rng(seed).uniform(0, 1, 7).tolist()
        exact = sum((Decimal(gdp) ** 2 for gdp in gdps), Decimal(0))
        assert Decimal(compose(gdps)) ** 2 >= exact
        assert compose(gdps) == pytest.approx(math.sqrt(float(exact)), rel=1e-14)
    assert compose([]) == 0.0


def test_parallel_is_the_worst_part() -> None:
    assert parallel([0.2, 0.9, 0.4]) == 0.9
    assert parallel([]) == 0.0


def test_no_release_costs_nothing() -> None:
    assert delta_of(1.0, 0.0) == 0.0
    assert epsilon_of(1e-6, 0.0) == 0.0


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_bad_epsilon(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon must be a positive finite number"):
        gdp_of(epsilon, 1e-6)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-9, math.nan])
def test_bad_delta(delta: float) -> None:
    with pytest.raises(ValueError, match="delta must lie strictly between 0 and 1"):
        gdp_of(1.0, delta)
    with pytest.raises(ValueError, match="delta must lie strictly between 0 and 1"):
        epsilon_of(delta, 1.0)


@pytest.mark.parametrize("gdp", [-0.1, math.nan])
def test_bad_gdp(gdp: float) -> None:
    with pytest.raises(ValueError, match="gdp must be at least 0"):
        delta_of(1.0, gdp)
