"""Sampling rows: users stay, samples are uniform and each user's own."""

from __future__ import annotations

import numpy as np

from userdp.data import UserDataset
from userdp.mechanisms.noise import SecureNoise, SeededNoise
from userdp.mechanisms.sampling import sample_rows


def example():
    counts = np.array([1, 3, 50, 7, 8])
    users = np.repeat(np.arange(5), counts)
    X = np.arange(float(len(users)))[:, None]
    return UserDataset.from_arrays(X, X[:, 0] * 2, users), counts


def test_everybody_keeps_at_most_the_limit_of_their_own_rows():
    data, counts = example()
    for noise in (SeededNoise(0), SecureNoise()):
        sampled = sample_rows(data, 5, noise)
        assert sampled.rows_per_user.tolist() == np.minimum(counts, 5).tolist()
        assert sampled.users == data.users
        block, original = sampled.blocks[0], data.blocks[0]
        for k in range(5):
            own = original.users(k, k + 1).features.ravel()
            kept = block.users(k, k + 1)
            assert len(set(kept.features.ravel()) & set(own)) == min(counts[k], 5)
            assert kept.target.tolist() == (2 * kept.features.ravel()).tolist()


def test_a_large_limit_changes_nothing():
    data, _ = example()
    assert sample_rows(data, 50, SeededNoise(0)).blocks[0] is data.blocks[0]


def test_samples_are_uniform():
    """Each of 50 rows is kept 200 times in 2000 draws of 5, give or take 5 standard deviations of 13.4."""
    data, _ = example()
    kept = np.zeros(69)
    for seed in range(2000):
        rows = sample_rows(data, 5, SeededNoise(seed)).blocks[0].users(2, 3).features.ravel()
        kept[rows.astype(int)] += 1
    assert np.all(np.abs(kept[4:54] - 200) < 67)
