"""Noise: its law, its grid, its exactness on any magnitude, and where it comes from."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from userdp.mechanisms.noise import GRID_BITS, Noise, SecureNoise, SeededNoise, noise_from

SOURCES = [SecureNoise(), SeededNoise(0)]


@pytest.mark.parametrize("noise", SOURCES, ids=["secure", "seeded"])
@pytest.mark.parametrize("scale", [1e-6, 0.7, 3e5])
def test_law_is_gaussian(noise: Noise, scale: float) -> None:
    """Each of the two checks fails by chance with probability 1e-9 for secure noise: 6e-9 over the three scales."""
    draws = noise.gaussian(np.full(4000, 5 * scale), scale) / scale - 5
    assert stats.kstest(draws, "norm").pvalue > 1e-9
    squared = float(np.sum(draws**2))
    assert stats.chi2(4000).ppf(5e-10) < squared < stats.chi2(4000).isf(5e-10)


def test_coordinates_are_independent() -> None:
    """False alarm with probability 1e-9: the lag-one correlation of 4000 draws is N(0, 1/4000) to high accuracy."""
    draws = SecureNoise().gaussian(np.zeros(4001), 1.0)
    assert abs(float(np.mean(draws[1:] * draws[:-1]))) * math.sqrt(4000) < 6.2


def test_values_come_out_on_the_grid_and_the_grid_is_fine_enough() -> None:
    """Every output is a multiple of the grid, which is at most σ·2^-90."""
    for scale in (1.0, 0.75, 1e-20):
        grid = Fraction(2) ** (math.floor(math.log2(scale)) - GRID_BITS)
        assert grid <= Fraction(scale) / 2**GRID_BITS
        draws = SecureNoise().gaussian(np.zeros(200), scale)
        assert all((Fraction(draw) / grid).denominator == 1 for draw in draws.tolist())


@pytest.mark.parametrize("noise", SOURCES, ids=["secure", "seeded"])
def test_values_of_any_magnitude(noise: Noise) -> None:
    values = np.array([1e300, -1e300, 1e-300, 0.0, 1.7e308])
    released = noise.gaussian(values, 1.0)
    assert released[[0, 1, 4]].tolist() == [1e300, -1e300, 1.7e308]
    assert np.all(np.abs(released[2:4]) < 8), "false alarm with probability below 3e-15"


@pytest.mark.parametrize("noise", SOURCES, ids=["secure", "seeded"])
def test_shape_is_kept(noise: Noise) -> None:
    assert noise.gaussian(np.zeros((3, 4)), 1.0).shape == (3, 4)
    assert noise.gaussian(np.zeros(0), 1.0).shape == (0,)


@pytest.mark.parametrize("noise", SOURCES, ids=["secure", "seeded"])
@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, 1e-300])
def test_bad_scale(noise: Noise, scale: float) -> None:
    with pytest.raises(ValueError, match="noise scale must be a positive number of ordinary size"):
        noise.gaussian(np.zeros(1), scale)


def test_seeded_noise_is_reproducible_and_says_so() -> None:
    first, second = (SeededNoise(7).gaussian(np.zeros(5), 2.0) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert SeededNoise(7).reproducible
    assert not SecureNoise().reproducible
    generators = [np.random.RandomState(3), np.random.RandomState(3)]
    assert np.array_equal(*(SeededNoise(state).gaussian(np.zeros(3), 1.0) for state in generators))


def test_secure_noise_ignores_numpy_seeds() -> None:
    np.random.seed(0)  # noqa: NPY002
    first = SecureNoise().gaussian(np.zeros(4), 1.0)
    np.random.seed(0)  # noqa: NPY002
    assert not np.array_equal(first, SecureNoise().gaussian(np.zeros(4), 1.0))


def test_noise_from() -> None:
    assert isinstance(noise_from(None), SecureNoise)
    assert isinstance(noise_from(0), SeededNoise)


@pytest.mark.parametrize("noise", SOURCES, ids=["secure", "seeded"])
def test_permutations_and_integers_are_uniform(noise: Noise) -> None:
    """χ² tests over 6 permutations and 5 integers, each with false-alarm probability 1e-9."""
    orders = [tuple(noise.permutation(3).tolist()) for _ in range(1200)]
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert float(np.sum((counts - 200) ** 2 / 200)) < stats.chi2(5).isf(1e-9)
    counts = np.bincount([noise.integer_below(5) for _ in range(1000)], minlength=5)
    assert float(np.sum((counts - 200) ** 2 / 200)) < stats.chi2(4).isf(1e-9)


@pytest.mark.parametrize("noise", SOURCES, ids=["secure", "seeded"])
def test_large_integers(noise: Noise) -> None:
    """1000 draws below 2^200 stay below, and the top bit is set in about half (false alarm 1e-9)."""
    draws = [noise.integer_below(2**200) for _ in range(1000)]
    assert all(0 <= draw < 2**200 for draw in draws)
    assert abs(sum(draw >= 2**199 for draw in draws) - 500) < 6.2 * math.sqrt(250)
