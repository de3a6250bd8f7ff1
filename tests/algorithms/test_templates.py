"""Reading noisy histograms by likelihood. All is fixed by seeds: nothing can fail by chance."""

from __future__ import annotations

import numpy as np
import pytest

from userdp.algorithms.calibration import FIRST_LOOK, first_look
from userdp.algorithms.templates import Magnitudes, read_place

N = 1000
BELOW, AROUND, ABOVE = range(3)


def histogram(shares: dict[tuple[int, float], float], sigma: float, seed: int) -> np.ndarray:
    """Noisy counts, (1, 3, bins), of N users with these shares at (side, size)."""
    counts = np.zeros((1, 3, len(FIRST_LOOK.centers)))
    for (side, size), share in shares.items():
        counts[0, side, np.searchsorted(FIRST_LOOK.edges, size, side="right")] += N * share
    return counts + sigma * np.random.default_rng(seed).normal(size=counts.shape)


def read(counts: np.ndarray, sigma: float) -> tuple[float, ...]:
    size, mean, aside, _ = Magnitudes.over(tuple(FIRST_LOOK.centers.tolist())).read(counts, sigma, N)
    return float(size[0]), float(mean[0]), float(aside[0])


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e9])
def test_one_heap_of_users_is_found_in_any_unit(size):
    """Seven deviations of noise in each of two bins; four and a half stand out among 240 by chance."""
    for seed in range(20):
        counts = histogram({(AROUND, size): 0.5, (AROUND, 2 * size): 0.5}, N / 14, seed)
        assert 0.5 < read(counts, N / 14)[0] / (size * np.sqrt(2.5)) < 2


def test_noise_alone_gives_usual_sizes():
    for seed in range(20):
        size, mean, _ = read(histogram({}, 2.0 * N, seed), 2.0 * N)
        assert 0.05 < size < 4
        assert abs(mean) < 0.2 * size


def test_small_noise_gives_the_shares_as_they_are():
    counts = histogram({(AROUND, 0.0): 0.6, (ABOVE, 1.0): 0.3, (ABOVE, 4.0): 0.1}, N / 1e4, 0)
    center, scale, _ = first_look(counts, N / 1e4, FIRST_LOOK, N)
    assert center[0] ** 2 + scale[0] ** 2 == pytest.approx(1.9, rel=0.1)


def test_a_far_column_is_told_from_a_flag():
    sigma = N / 25
    for seed in range(20):
        year, flag = {(ABOVE, 2000.0): 1.0}, {(ABOVE, 1.0): 0.7, (AROUND, 0.0): 0.3}
        assert read(histogram(year, sigma, seed), sigma)[2] > 0.2
        assert read(histogram(flag, sigma, seed), sigma)[2] < 0.01
        assert read(histogram({(BELOW, 2000.0): 1.0}, sigma, seed), sigma)[1] == pytest.approx(-2000, rel=0.2)


@pytest.mark.parametrize("width", [0.3, 2.0, 6.0])
def test_a_heap_is_placed_and_measured(width):
    rng = np.random.default_rng(0)
    for seed in range(10):
        values = 32 + 10 * rng.uniform(-1, 1) + width * rng.normal(size=N)
        counts, _ = np.histogram(values, np.arange(65))
        noisy = counts + N / 25 * np.random.default_rng(seed).normal(size=64)
        place, spread, doubt, _, thin = read_place(noisy[None, :], np.array([N / 25]), N)
        assert (thin[0] > 0.9) == (width < 1)
        assert abs(place[0] - values.mean()) < 0.6 + 0.5 * width + doubt[0]
        assert 0.5 * width < spread[0] < 1.6 * width + 0.6 + doubt[0]
        assert doubt[0] < 1 + 1.2 * width
