"""The target is one more column of the histograms, and one more vote."""

from __future__ import annotations

import math

import numpy as np
import pytest

from userdp.accounting import Budget
from userdp.data import UserDataset
from userdp.engines import LocalEngine
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.histogram import linear_bins, row_histograms
from userdp.mechanisms.noise import SeededNoise


class NoNoise(SeededNoise):
    """For counting."""

    def gaussian(self, values, scale):
        return values


@pytest.mark.parametrize(("columns", "size"), [("features", 2), ("target", 1), ("both", 3)])
@pytest.mark.parametrize(("adjacency", "votes"), [("replace", 2), ("add-remove", 1)])
def test_columns_and_sensitivity(columns, size, adjacency, votes):
    rng = np.random.default_rng(0)
    X, y, users = rng.normal(size=(90, 2)), rng.normal(size=90), rng.integers(0, 20, 90)
    engine, bins = LocalEngine(UserDataset.from_arrays(X, y, users)), linear_bins(-3.0, 3.0, 12)
    channel = Channel(Budget.of(1.0, 1e-6, adjacency), NoNoise(0))
    center, scale = np.full(size, 0.1), np.full(size, 2.0)
    counts, sigma = row_histograms(engine, center, scale, bins, 0.1, adjacency, channel, "units", columns)
    assert sigma == pytest.approx(math.sqrt(votes * size) / 0.1, rel=1e-6)
    data = {"features": X, "target": y[:, None], "both": np.column_stack([X, y])}[columns]
    expected = np.zeros((size, len(bins.centers)))
    for row, user in zip(data, users):
        for i, value in enumerate(row):
            expected[i, np.searchsorted(bins.edges, (value - 0.1) / 2.0, side="right")] += 1 / np.sum(users == user)
    np.testing.assert_allclose(counts, expected, atol=1e-5)
