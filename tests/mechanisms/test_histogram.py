"""Bins, votes and quantiles of private histograms."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from userdp.accounting import Budget
from userdp.data import UserBlock, UserDataset
from userdp.data.sparse import SparseRows
from userdp.engines import LocalEngine
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.histogram import (
    Bins,
    linear_bins,
    log_bins,
    magnitude_bins,
    magnitude_histograms,
    row_histograms,
    user_histogram,
    vote_sensitivity,
)
from userdp.mechanisms.noise import SeededNoise


class Silent(SeededNoise):
    def __init__(self) -> None:
        super().__init__(0)
        self.scales: list[float] = []

    def gaussian(self, values: np.ndarray, scale: float) -> np.ndarray:
        self.scales.append(scale)
        return np.asarray(values)


def channel() -> Channel:
    return Channel(Budget.of(4.0, 1e-3), Silent())


def first_feature(block: UserBlock, factor: float) -> np.ndarray:
    return np.array([factor * block.users(k, k + 1).features[0, 0] for k in range(block.n_users)])


@pytest.mark.parametrize("bins", [log_bins(1e-3, 1e3, 2.0), magnitude_bins(1e-2, 1e2, 1.5), linear_bins(-3, 3, 12)])
def test_bins_cover_every_number_once_and_hold_their_centres(bins: Bins) -> None:
    assert len(bins.centers) == len(bins.edges) + 1 == len(bins.widths)
    assert np.all(np.diff(bins.edges) > 0)
    assert np.searchsorted(bins.edges, bins.centers, side="right").tolist() == list(range(len(bins.centers)))
    extremes = np.array([-1e300, 1e300, 0.0])
    index = np.searchsorted(bins.edges, extremes, side="right")
    assert index.min() >= 0
    assert index.max() < len(bins.centers)


def test_user_histogram_counts_users_not_rows() -> None:
    data = UserDataset.from_arrays([[1.5], [3.0], [1.5], [100.0], [1e300]], None, ["a", "b", "a", "c", "d"])
    bins = log_bins(1.0, 16.0, 2.0)
    counts, sigma = user_histogram(
        LocalEngine(data, 1), first_feature, (1.0,), bins, 0.5, "replace", out := channel(), "h"
    )
    assert counts.tolist() == [1, 1, 0, 2]
    assert sigma == pytest.approx(np.sqrt(2) / 0.5)
    assert out.noise.scales[0] >= np.sqrt(2) / 0.5  # type: ignore[attr-defined]
    assert out.budget.events[0].gdp == 0.5


def test_row_histograms_split_each_users_vote() -> None:
    X = np.array([[1.5, 0.0], [3.0, 0.0], [3.0, 9.0], [9.0, 1.0], [1e300, -1e300]])
    data = UserDataset.from_arrays(X, None, ["a", "a", "a", "a", "b"])
    counts, sigma = row_histograms(
        LocalEngine(data, 1), np.zeros(2), np.ones(2), linear_bins(0, 16, 8), 0.5, "add-remove", channel(), "h"
    )
    assert counts[0].tolist() == [0.25, 0.5, 0, 0, 0.25, 0, 0, 1]
    assert counts[1].tolist() == [1.75, 0, 0, 0, 0.25, 0, 0, 0]
    assert sigma == pytest.approx(np.sqrt(2) / 0.5)


def test_votes_are_exact_whatever_the_grouping() -> None:
    """Neighbours may be cut into other chunks; sums must not feel it."""
    rng = np.random.default_rng(0)
    groups = np.concatenate([np.arange(200), rng.zipf(1.3, 3000) % 200])
    data = UserDataset.from_arrays(rng.normal(size=(3200, 3)), None, groups)
    results = [
        row_histograms(
            LocalEngine(data, 1, rows, users),
            np.zeros(3),
            np.ones(3),
            linear_bins(-3, 3, 20),
            0.5,
            "replace",
            channel(),
            "",
        )[0]
        for rows, users in ((8192, 4096), (1, 1), (17, 5))
    ]
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
    votes = results[0].sum(axis=1)
    assert np.all(votes <= 200)
    assert np.all(votes > 200 * (1 - 1e-3))


@pytest.mark.parametrize(("adjacency", "expected"), [("replace", np.sqrt(6)), ("add-remove", np.sqrt(3))])
def test_vote_sensitivity(adjacency: str, expected: float) -> None:
    assert vote_sensitivity(3, adjacency) == pytest.approx(expected)  # type: ignore[arg-type]
    assert vote_sensitivity(3, adjacency) >= expected  # type: ignore[arg-type]


def test_quantile_is_exact_without_noise() -> None:
    bins = log_bins(1.0, 256.0, 2.0)
    counts = np.array([10.0, 20, 30, 20, 10, 5, 4, 1])
    assert bins.quantile(counts, 0.05) == bins.centers[0]
    assert bins.quantile(counts, 0.5) == bins.centers[2]
    assert bins.quantile(counts, 1.0) == bins.centers[7]


def test_quantile_of_noise_alone_stays_inside_public_bounds() -> None:
    bins = log_bins(1.0, 256.0, 2.0)
    assert bins.quantile(np.full(8, -3.0), 0.5) in bins.centers
    for seed in range(100):
        counts = np.random.default_rng(seed).normal(size=8)
        assert bins.quantile(counts, 0.9) in bins.centers


def test_magnitudes_are_one_vote_a_user_and_column() -> None:
    X = np.array([[3.0, -1.0], [3.0, 1.0], [-1e300, 0.0], [0.0, 0.0]])
    users = np.array(["a", "a", "b", "c"])
    bins = magnitude_bins(1.0, 16.0, 2.0)
    data = UserDataset.from_arrays(X, None, users)
    counts, sigma = magnitude_histograms(LocalEngine(data, 1), "features", 2, bins, 0.5, "replace", channel(), "h")
    assert counts.shape == (2, 3, 5)
    np.testing.assert_array_equal(counts.sum(axis=(1, 2)), 3)
    assert counts[0, 2, 2] == 1  # a lies above zero, between 2 and 4
    assert counts[0, 0, 4] == 1  # b below, beyond the last edge
    assert counts[1, 1, 1] == 1  # a around zero, between 1 and 2
    assert sigma == pytest.approx(2 / 0.5)


def test_no_replacement_moves_magnitudes_farther_than_their_sensitivity() -> None:
    rng = np.random.default_rng(0)
    bins = magnitude_bins(1e-3, 1e3, 2.0)

    def counts(rows: np.ndarray) -> np.ndarray:
        block = UserBlock(
            np.concatenate([np.ones((2, 3)), rows]), np.zeros(2 + len(rows)), np.array([0, 2, 2 + len(rows)])
        )
        data = UserDataset((block,), (0, 1), ("x", "y", "z"))
        return magnitude_histograms(LocalEngine(data, 1), "features", 3, bins, 0.5, "replace", channel(), "h")[0]

    candidates = [rng.normal(size=(m, 3)) * 10.0**k for m in (0, 1, 3) for k in (-200, -2, 0, 5, 250)]
    distances = [np.linalg.norm(counts(a) - counts(b)) for a in candidates for b in candidates]
    assert max(distances) <= vote_sensitivity(3, "replace")
    assert max(distances) == pytest.approx(np.sqrt(6))


@pytest.mark.parametrize("columns", ["features", "both"])
def test_sparse_rows_have_the_same_votes_to_the_last_bit(columns: str) -> None:
    """Implied zeros count, entries that are zero too, and users without rows vote for zero in the first histograms."""
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((200, 7)) < 0.3, rng.normal(size=(200, 7)) * 10.0 ** rng.integers(-9, 9, 7), 0.0)
    rows[:, 0] = np.abs(rng.normal(size=200)) + 1
    sparse = scipy.sparse.csr_array(rows)
    sparse.data[:5] = rows.ravel()[np.flatnonzero(rows)[:5]] = 0.0
    rows = sparse.toarray()
    offsets = np.concatenate([[0, 0], np.sort(rng.integers(0, 200, 30)), [200]])
    wide = 7 + (columns == "both")
    engines = [
        LocalEngine(
            UserDataset((UserBlock(X, rng.normal(size=200) * 0 + 2, offsets),), tuple(range(32)), tuple("abcdefg"))
        )
        for X in (rows, SparseRows.of(sparse))
    ]
    first = [
        magnitude_histograms(
            engine, columns, wide, magnitude_bins(2.0**-30, 2.0**30, 2.0), 0.1, "replace", channel(), ""
        )
        for engine in engines
    ]
    np.testing.assert_array_equal(first[1][0], first[0][0])
    assert first[0][0].sum() == 32 * wide
    center, scale = rng.normal(size=wide), np.ones(wide)
    second = [
        row_histograms(engine, center, scale, linear_bins(-4, 4, 64), 0.1, "replace", channel(), "", columns)
        for engine in engines
    ]
    np.testing.assert_array_equal(second[1][0], second[0][0])
