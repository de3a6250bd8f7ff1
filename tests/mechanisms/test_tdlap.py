"""TDLap: support, tails, ratios (in exact arithmetic) and the sampler."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from userdp.mechanisms.noise import SecureNoise, SeededNoise
from userdp.mechanisms.tdlap import WEIGHT_BITS, TDLap, exp_below

CASES = [(1.0, 1e-6), (0.5, 2.74e-7), (0.01, 1e-8), (15.0, 1e-3), (3.0, 0.5), (0.2, 0.99), (0.7, 1e-12)]


def exp_bracket(exponent: Fraction) -> tuple[Fraction, Fraction]:
    """Rational bounds on e^exponent from the series and its remainder, independent of the implementation."""
    total, term, k = Fraction(1), Fraction(1), 0
    while k < 2 * exponent + 4 or term > Fraction(1, 10**60):
        k += 1
        term *= exponent / k
        total += term
    return total, total + 2 * term  # the remainder is at most term·(1/2 + 1/4 + …)·2 once k ≥ 2·exponent


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_half_width_and_support(epsilon: float, delta: float) -> None:
    law = TDLap(epsilon, delta)
    assert law.kappa == 1 + math.ceil(math.log(1 / delta) / epsilon)
    assert law.pmf().shape == (2 * law.kappa + 1,)


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_tails_are_at_most_delta_exactly(epsilon: float, delta: float) -> None:
    weights = TDLap(epsilon, delta).weights
    assert weights[0] == weights[-1]
    assert Fraction(weights[0], sum(weights)) <= Fraction(delta)


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_neighbouring_ratios_are_at_most_exp_epsilon_exactly(epsilon: float, delta: float) -> None:
    weights = TDLap(epsilon, delta).weights
    lower, _ = exp_bracket(Fraction(epsilon))
    for one, other in itertools.pairwise(weights):
        assert Fraction(max(one, other), min(one, other)) <= lower + Fraction(1, 10**40)
        assert max(one, other) * (1 << WEIGHT_BITS) <= min(one, other) * exp_below(Fraction(epsilon), WEIGHT_BITS)


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_pmf_follows_the_definition(epsilon: float, delta: float) -> None:
    law = TDLap(epsilon, delta)
    expected = np.exp(-epsilon * np.abs(np.arange(2 * law.kappa + 1) - law.kappa))
    np.testing.assert_allclose(law.pmf(), expected / expected.sum(), rtol=1e-12)
    assert math.isclose(law.pmf().sum(), 1.0, rel_tol=1e-12)


@given(st.fractions(min_value=0, max_value=40, max_denominator=10**6))
def test_exp_below_is_a_lower_bound_and_close(exponent: Fraction) -> None:
    _, upper = exp_bracket(exponent)
    scaled = Fraction(exp_below(exponent, 100), 1 << 100)
    assert scaled <= upper
    assert scaled >= (upper - Fraction(1, 10**50)) - Fraction(400, 1 << 100) * max(1, upper)


def test_sampler_follows_the_pmf() -> None:
    """30 000 draws; nine cells within five standard deviations each: false alarm below 2e-4 (Bernstein's inequality).

    The seed is fixed, so the outcome does not vary.
    """
    law, noise, draws = TDLap(0.8, 0.1), SeededNoise(7), 30_000
    counts = np.bincount([law.sample(noise) for _ in range(draws)], minlength=2 * law.kappa + 1)
    probabilities = law.pmf()
    deviation = np.abs(counts - draws * probabilities) / np.sqrt(draws * probabilities * (1 - probabilities))
    assert deviation.max() < 5


class Scripted:
    """Noise whose uniform integer is chosen by the test."""

    reproducible = True

    def __init__(self, value: int) -> None:
        self.value, self.bound = value, 0

    def gaussian(self, values: np.ndarray, scale: float) -> np.ndarray:
        return values

    def integer_below(self, bound: int) -> int:
        self.bound = bound
        return self.value

    def permutation(self, size: int) -> np.ndarray:
        return np.arange(size)


def test_sampler_is_exact_at_every_boundary() -> None:
    law = TDLap(2.0, 0.2)
    start = 0
    for value, weight in enumerate(law.weights):
        for draw in (start, start + weight - 1):
            noise = Scripted(draw)
            assert law.sample(noise) == value
            assert noise.bound == sum(law.weights)
        start += weight


def test_secure_sampling_stays_in_the_support() -> None:
    law = TDLap(1.0, 1e-3)
    assert all(0 <= law.sample(SecureNoise()) <= 2 * law.kappa for _ in range(50))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.1), (-1.0, 0.1), (math.nan, 0.1), (1.0, 0.0), (1.0, 1.0)])
def test_bad_parameters_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match="must"):
        TDLap(epsilon, delta)
