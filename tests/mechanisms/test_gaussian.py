"""The channel charges before it draws; Theorem 2 of docs/proofs/gaussian.md by direct summation."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from userdp.accounting import Budget, BudgetExceeded, delta_of
from userdp.accounting.budget import GRID_PRICE, LARGEST_EPSILON, SMALLEST_GDP
from userdp.mechanisms.gaussian import GRID_MARGIN, Channel, mean_sensitivity
from userdp.mechanisms.noise import GRID_BITS, SecureNoise, SeededNoise


class Recorder(SeededNoise):
    def __init__(self) -> None:
        super().__init__(0)
        self.scales: list[float] = []

    def gaussian(self, values: np.ndarray, scale: float) -> np.ndarray:
        self.scales.append(scale)
        return values


def test_noise_is_sensitivity_over_gdp_rounded_up() -> None:
    channel = Channel(Budget.of(1.0, 1e-6), noise := Recorder())
    channel.release(np.zeros(3), 2.0, 0.1, "release")
    assert noise.scales[0] == pytest.approx(20.0, rel=1e-9)
    assert noise.scales[0] > 20.0
    assert channel.budget.numbers == 3


def test_nothing_is_drawn_when_the_budget_refuses() -> None:
    channel = Channel(Budget.of(1.0, 1e-6), noise := Recorder())
    with pytest.raises(BudgetExceeded):
        channel.release(np.zeros(3), 1.0, 2 * channel.budget.gdp, "too much")
    assert noise.scales == []


def test_secure_release_is_centred_on_the_value() -> None:
    """False alarm with probability below 1e-9: the mean of 400 draws leaves ±6.2 standard errors."""
    channel = Channel(Budget.of(1.0, 1e-6), SecureNoise())
    released = channel.release(np.full(400, 3.0), 0.1, 0.2, "release")
    assert abs(float(released.mean()) - 3.0) < 6.2 * 0.5 / math.sqrt(400)


def hockey_stick(grid: float, shift: float, epsilon: float) -> float:
    """sup_E P(E) − e^ε Q(E) of discrete Gaussians (σ = 1) on a grid, the second one shifted by ``shift``."""
    points = grid * np.arange(-int(40 / grid), int(40 / grid) + 1)
    first, second = np.exp(-(points**2) / 2), np.exp(-((points - shift) ** 2) / 2)
    return float(np.maximum(first / first.sum() - math.exp(epsilon) * second / second.sum(), 0).sum())


@pytest.mark.parametrize("bits", [2, 4, 6, 8])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 3.0])
def test_grid_costs_at_most_its_price(bits: int, epsilon: float) -> None:
    """The price per number is 1.6·2^-bits in δ at every ε, in either direction; 2^-89 is what that makes at 90 bits."""
    grid = 2.0**-bits
    for steps in (1, max(1, round(0.3 / grid)), round(2 / grid)):
        shift = grid * steps
        for signed in (shift, -shift):
            assert hockey_stick(grid, signed, epsilon) <= delta_of(epsilon, shift) + 1.6 * grid
    assert 1.6 * 2.0**-GRID_BITS < GRID_PRICE


@pytest.mark.parametrize("bits", [1, 2, 4, 6])
def test_discrete_gaussian_is_close_to_a_rounded_one(bits: int) -> None:
    """Total variation ≤ 0.021·(g/σ)²: Theorem 3 uses it with 2^-90, where e^64 times it is below the price."""
    grid = 2.0**-bits
    points = np.arange(-int(30 / grid), int(30 / grid) + 1)
    discrete = np.exp(-((grid * points) ** 2) / 2)
    discrete /= discrete.sum()
    upper = np.where(points < 0, stats.norm.cdf(grid * (points + 0.5)), stats.norm.sf(grid * (points - 0.5)))
    lower = np.where(points < 0, stats.norm.cdf(grid * (points - 0.5)), stats.norm.sf(grid * (points + 0.5)))
    assert 0.5 * float(np.abs(discrete - (upper - lower)).sum()) <= 0.021 * grid**2
    assert (1 + math.exp(LARGEST_EPSILON)) * 0.021 * 2.0 ** (-2 * GRID_BITS) < GRID_PRICE


def test_normalizer_of_the_discrete_gaussian_is_the_continuous_one() -> None:
    """Poisson summation: g·Σφ(gj) = 1 + 2Σ exp(−2π²j²/g²), already for coarse grids."""
    with mpmath.workdps(60):
        for bits in (1, 2):
            grid = mpmath.mpf(2) ** -bits
            total = grid * mpmath.nsum(lambda j, g=grid: mpmath.npdf(g * j), [-mpmath.inf, mpmath.inf])
            assert abs(total - 1) < 3 * mpmath.exp(-2 * mpmath.pi**2 / grid**2)


def test_margin_covers_rounding_to_the_grid() -> None:
    """g√d ≤ 2^-40·s for every release the budget accepts: g ≤ σ·2^-90 and σ = s·margin/μ."""
    numbers = 2.0**58
    worst = 2.0**-GRID_BITS * GRID_MARGIN / SMALLEST_GDP * math.sqrt(numbers)
    assert worst <= GRID_MARGIN - 1


def test_mean_sensitivity_knows_its_relation_and_its_rounding() -> None:
    assert mean_sensitivity(0.5, 10, "replace", 0.0) == pytest.approx(0.1)
    assert mean_sensitivity(0.5, 10, "add-remove", 0.0) == pytest.approx(0.05)
    assert mean_sensitivity(0.5, 10, "replace", 0.0) > 0.1
    assert mean_sensitivity(0.5, 10, "replace", 1e-3) >= 0.1 + 2 * 1e-3 * 0.5 * 2
