"""Post-processing of noisy histograms and moments. All is fixed by seeds: nothing can fail by chance."""

from __future__ import annotations

import math

import numpy as np
import pytest

from userdp.algorithms.calibration import (
    FIRST_LOOK,
    Geometry,
    choose_cap,
    class_rates,
    clean,
    closer_look,
    denoise,
    first_look,
    flag_scale,
    hidden_scale,
    lost_spread,
    raised,
)
from userdp.data import UserBlock
from userdp.losses import Hinge, Logistic
from userdp.mechanisms.histogram import _count_magnitudes, _count_rows, linear_bins, log_bins

N = 5000
SIGMA = N / 50


def look(columns, bins, sigma, seed=0, rows=4):
    """Noisy histograms of columns: of users with a few rows each over all magnitudes, of rows in linear bins."""
    rng = np.random.default_rng(seed)
    values = np.column_stack(columns)
    users = len(values) // rows
    block = UserBlock(values[: users * rows], np.zeros(users * rows), rows * np.arange(users + 1))
    if bins is FIRST_LOOK:
        counts = _count_magnitudes(block, "features", bins)[0] * rows
    else:
        counts = (
            _count_rows(
                block, np.zeros(len(columns)), np.ones(len(columns)), bins, "features", np.arange(len(columns))
            )[0]
            * rows
        )
    return counts + sigma * rng.normal(size=counts.shape)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_first_look_finds_units(unit):
    rng = np.random.default_rng(1)
    columns = [rng.normal(size=N), rng.normal(3, 1, N), rng.exponential(size=N), (rng.random(N) < 0.4).astype(float)]
    center, scale, _ = first_look(look([unit * c for c in columns], FIRST_LOOK, SIGMA), SIGMA, FIRST_LOOK, N)
    for column, c, s in zip(columns, center / unit, scale / unit):
        assert 0.4 < s / np.std(column) < 2.5
        assert abs(c - np.mean(column)) < 1.5 * np.std(column)


def test_first_look_on_noise_alone_stays_near_one():
    """Pure noise of 30 columns: no column may get an absurd scale."""
    counts = 0.5 * N * np.random.default_rng(2).normal(size=(30, 3, len(FIRST_LOOK.centers)))
    _, scale, _ = first_look(counts, 0.5 * N, FIRST_LOOK, N)
    assert np.all((scale > 1e-3) & (scale < 1e3))


def test_rare_columns_get_the_scale_of_what_could_hide():
    column = np.zeros(N)
    column[:20] = 1.0
    center, scale, _ = first_look(look([column], FIRST_LOOK, SIGMA), SIGMA, FIRST_LOOK, N)
    assert center[0] == 0.0
    assert 0.05 < scale[0] < 1.0


def test_closer_look_resolves_a_far_narrow_column():
    years = np.random.default_rng(3).normal(2008, 3, N)
    sigma = N / 200
    center, scale, _ = first_look(look([years], FIRST_LOOK, sigma), sigma, FIRST_LOOK, N)
    assert scale[0] > 30
    bins = linear_bins(-4.0, 4.0, 64)
    for seed, still in ((1, True), (2, False)):
        counts = look([(years - center[0]) / scale[0]], bins, sigma, seed)
        found = closer_look(counts, np.array([sigma]), bins, center, scale, N)
        center, scale = found.center, found.scale
        assert found.narrow[0] == still
        assert not found.unclear[0]
        assert abs(found.missing[0]) < 5 * found.noise[0]
    assert abs(center[0] - 2008) < 3
    assert 2 < scale[0] < 8


def test_closer_look_at_noise_stays_where_it_was():
    """Noise of half of all users in every bin says nothing: 50 columns keep about their places and scales."""
    counts = 0.5 * N * np.random.default_rng(4).normal(size=(50, 64))
    found = closer_look(counts, np.full(50, 0.5 * N), linear_bins(-4.0, 4.0, 64), np.full(50, 7.0), np.ones(50), N)
    assert not np.any(found.narrow)
    assert np.all(found.unclear)
    assert np.sqrt(np.mean((found.center - 7) ** 2)) < 1
    assert np.all(found.scale > 0.5)


def test_places_of_hidden_values_follow_from_the_common_one():
    """A flag of 2 % that was standardized; the same place where a fifth or none of the rows lie elsewhere; codes."""
    heap, noise = -math.sqrt(0.02 / 0.98), np.full(3, 0.005)
    scale = 0.5 * math.sqrt(0.98 / 0.02)
    sizes = np.array([0.3, 0.01, 0.0004])
    for share, expected in ((0.02, scale), (0.05, scale), (0.2, None), (0.0, None)):
        found = hidden_scale(heap, False, sizes, np.full(3, share), noise, N)
        assert found == (None if expected is None else pytest.approx(expected))
    assert hidden_scale(1.0, True, sizes, np.full(3, 0.001), noise, N) == 0.5
    assert hidden_scale(1.0, True, sizes, np.full(3, 0.2), noise, N) is None
    assert flag_scale(0.0, 10_000) == pytest.approx(50.0)


def test_lost_spread_counts_users_where_they_were_lost():
    scales, noise = np.array([400.0, 15.0, 0.5, 0.02]), np.full(4, 0.03)
    assert lost_spread(scales, np.array([0.05, -0.02, 0.04, 0.01]), noise) == 0.0
    tenth = lost_spread(scales, np.array([0.02, 0.11, 0.08, 0.12]), noise / 3)
    assert math.sqrt(0.08) * 15 < tenth < math.sqrt(0.12) * 15
    # Where noise leaves it open which look lost them, the larger scale counts.
    assert tenth < lost_spread(scales, np.array([0.02, 0.11, 0.08, 0.12]), noise / 1.5) < 400


def test_denoise_is_positive_definite_and_close_when_noise_is_small():
    rng = np.random.default_rng(6)
    root = rng.normal(size=(8, 8))
    moment = root @ root.T / 8 + np.eye(8)
    np.testing.assert_allclose(denoise(moment, 1e-6), moment, atol=2e-3)
    for sigma in (0.1, 1.0, 10.0):
        noise = np.triu(rng.normal(size=(8, 8)) * sigma)
        noisy = moment + (noise + noise.T) / math.sqrt(2)
        assert np.linalg.eigvalsh(denoise(noisy, sigma))[0] > 0


def test_geometry_makes_curvature_the_identity():
    rng = np.random.default_rng(7)
    root = rng.normal(size=(5, 5))
    moment = root @ root.T + 0.1 * np.eye(5)
    geometry = Geometry.of(moment)
    np.testing.assert_allclose(geometry.matrix.T @ moment @ geometry.matrix, np.eye(5), atol=1e-10)
    np.testing.assert_allclose(geometry.matrix @ geometry.inverse, np.eye(5), atol=1e-10)


def test_clean_keeps_the_peak():
    bins = log_bins(1.0, 2.0**16, 2.0)
    counts = np.zeros(16)
    counts[5:8] = [200, 500, 100]
    counts += 10 * np.random.default_rng(9).normal(size=16)
    shares = clean(counts, 10.0, bins, bins.centers[8])
    assert shares.sum() == pytest.approx(1)
    assert int(np.argmax(shares)) == 6
    assert shares[10:].sum() == 0


def test_cap_rises_with_the_budget():
    bins = log_bins(1.0, 2.0**16, 2.0)
    shares = np.ones(16) / 16
    caps = [choose_cap(shares, bins, noise, 0.2)[0] for noise in (1.0, 0.1, 0.01, 0.001)]
    assert caps == sorted(caps)
    assert caps[0] < caps[-1]
    kept = choose_cap(shares, bins, 0.001, 0.2)[1]
    assert 1 / 3 <= kept <= 1


def test_rounding_does_not_choose_coordinates():
    """Equal curvatures but for rounding: any vectors would do, and noise would fall into others with another engine."""
    rng = np.random.default_rng(0)
    for size in (1, 2, 8, 60):
        first = Geometry.of(raised(np.eye(size), 0.0)).matrix
        for _ in range(20):
            nearly = np.eye(size) + 1e-15 * rng.normal(size=(size, size))
            np.testing.assert_allclose(Geometry.of(raised(nearly, 0.0)).matrix, first, atol=1e-9)


def test_noise_alone_is_read_near_what_is_likely():
    """The second histogram of gradient lengths, where noise hides it: within an octave or two of what the first showed,
    on 30 draws, wherever that lies among the bins.
    """
    bins, rng = log_bins(2.0**-8, 2.0**8, math.sqrt(2)), np.random.default_rng(8)
    for likely in (2.0**-5, 1.0, 2.0**5):
        for _ in range(10):
            shares = clean(rng.normal(size=len(bins.centers)), 1.0, bins, likely)
            assert abs(shares @ np.log2(bins.centers / likely)) < 3


def test_class_rates():
    assert class_rates(np.array([70.0, 20.0, 10.0]), 0.0, 100) == pytest.approx([0.7, 0.2, 0.1])
    # Users without rows have no vote; a declared number of users is not the number of votes.
    assert class_rates(np.array([60.0, 30.0]), 0.0, 100) == pytest.approx([0.65, 0.35])
    assert class_rates(np.array([70.0, 30.0]), 1e6, 100) == pytest.approx([0.5, 0.5])
    for counts in ([-500.0, 900.0], [0.0, 0.0], [1e9, -1e9]):
        rates = class_rates(np.array(counts), 30.0, 100)
        assert rates.sum() == pytest.approx(1.0)
        assert rates.min() > 0.05
    assert class_rates(np.array([1000.0, 0.0]), 0.0, 1000).min() == pytest.approx(1e-3, rel=0.01)


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.5, 0.9])
def test_constants_fit_their_rates(rate):
    """The logistic one is the best; the hinge's is no worse than 0."""
    rates, grid, targets = np.array([1 - rate, rate]), np.linspace(-6, 6, 2401), np.array([0.0, 1.0])
    for loss, slack in ((Logistic(), 1e-4), (Hinge(), 0.25)):
        risks = np.array([rates @ loss.value(np.full(2, z), targets) for z in [*grid, 0.0, *loss.constant(rates)]])
        assert risks[-1] <= risks[-2] + 1e-12
        assert risks[-1] <= risks.min() + slack
