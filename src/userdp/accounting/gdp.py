"""Gaussian differential privacy: exact conversion to (ε, δ), composition, calibration.

A release is μ-GDP when telling neighbouring datasets apart is at least as hard as telling N(0, 1) from N(μ, 1) (Dong,
Roth, Su 2022). A Gaussian release of L2-sensitivity s with standard deviation σ is (s/σ)-GDP; adaptive composition adds
squares. The curve is δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).

Every calibration here returns a parameter that gives at least the privacy asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, ndtr

# Relative error allowed for the floating-point evaluation of delta_of; calibration keeps this much distance.
_EVALUATION_ERROR = 1e-10


def delta_of(epsilon: float, gdp: float) -> float:
    """Smallest δ such that μ-GDP implies (ε, δ)-DP.

    >>> round(delta_of(1.0, 0.5), 9)
    0.006829595
    """
    if gdp < 0 or math.isnan(gdp):
        raise ValueError(f"gdp must be at least 0, got {gdp}")
    if gdp == 0:
        return 0.0
    near, far = epsilon / gdp - gdp / 2, epsilon / gdp + gdp / 2
    if near <= 0:
        return max(float(ndtr(-near) - math.exp(epsilon + log_ndtr(-far))), 0.0)
    # e^ε φ(far) = φ(near), so the difference of tails is φ(near)·(Mills(near) − Mills(far)): no cancellation of tails.
    mills = math.sqrt(math.pi / 2) * float(erfcx(near / math.sqrt(2)) - erfcx(far / math.sqrt(2)))
    return max(math.exp(-near * near / 2) / math.sqrt(2 * math.pi) * mills, 0.0)


def epsilon_of(delta: float, gdp: float) -> float:
    """Smallest ε (rounded up) such that μ-GDP implies (ε, δ)-DP.

    >>> round(epsilon_of(1e-6, 0.5), 4)
    2.2541
    """
    _check_delta(delta)
    if gdp == 0 or delta_of(0.0, gdp) <= delta:
        return 0.0
    target = delta * (1 - _EVALUATION_ERROR)
    high = 1.0
    while delta_of(high, gdp) > target:
        high *= 2
    root = brentq(lambda epsilon: delta_of(epsilon, gdp) - target, 0.0, high, xtol=1e-14, rtol=1e-14)
    return _nudge(float(root), lambda epsilon: delta_of(epsilon, gdp) <= target, upwards=True)


def gdp_of(epsilon: float, delta: float) -> float:
    """Largest μ (rounded down) such that μ-GDP implies (ε, δ)-DP.

    >>> round(gdp_of(1.0, 1e-6), 6)
    0.236704
    """
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon must be a positive finite number, got {epsilon}")
    _check_delta(delta)
    target = delta * (1 - _EVALUATION_ERROR)
    high = 1.0
    while delta_of(epsilon, high) < target:
        high *= 2
    root = brentq(lambda gdp: delta_of(epsilon, gdp) - target, 0.0, high, xtol=1e-300, rtol=1e-14)
    return _nudge(float(root), lambda gdp: delta_of(epsilon, gdp) <= target, upwards=False)


def compose(gdps: Iterable[float]) -> float:
    """GDP parameter of adaptive releases on the same users: √Σμ², rounded up."""
    total = math.fsum(gdp * gdp for gdp in gdps)
    return math.nextafter(math.sqrt(math.nextafter(total, math.inf)), math.inf) if total > 0 else 0.0


def parallel(gdps: Iterable[float]) -> float:
    """GDP parameter of releases on disjoint sets of users, when a neighbour differs in one set only: max μ."""
    return max(gdps, default=0.0)


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta}")


def _nudge(value: float, safe: Callable[[float], bool], *, upwards: bool) -> float:
    """Move ``value`` by relative steps of 1e-13, doubling, until ``safe(value)`` holds."""
    step = 1e-13
    while not safe(value):
        value *= 1 + step if upwards else 1 - step
        step *= 2
    return value
