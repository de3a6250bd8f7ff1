"""Private second moments: the sensitivity that docs/proofs/default-fit.md proves, attacked."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from userdp.accounting import Budget
from userdp.data import UserBlock, UserDataset
from userdp.engines import LocalEngine
from userdp.losses import FeatureMap, LinearModel, Logistic
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.moments import _clipped_outer, clipped_moment, moment_sizes


class Silent:
    """No noise, and a note of how much there would have been."""

    reproducible = True

    def gaussian(self, values, scale):
        self.scale = scale
        return values

    def integer_below(self, bound):
        return 0

    def permutation(self, size):
        return np.arange(size)


def moment(users, cap, adjacency="replace", n_users=None, theta=(0.3, -0.2)):
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in users])]).astype(np.int64)
    block = UserBlock(np.concatenate(users), np.zeros(offsets[-1]), offsets)
    dataset = UserDataset((block,), tuple(range(len(users))), ("a", "b"))
    model = LinearModel(Logistic(), FeatureMap.identity(2))
    noise = Silent()
    channel = Channel(Budget.of(1.0, 1e-6, adjacency), noise)
    matrix, sigma = clipped_moment(
        LocalEngine(dataset), model, np.array(theta), cap, 0.1, n_users or len(users), adjacency, channel, "moment"
    )
    return matrix, noise.scale * 0.1, sigma, dataset, model


def test_equals_the_formula():
    rng = np.random.default_rng(0)
    users = [rng.normal(size=(m, 2)) for m in (1, 5, 3)]
    users.append(np.zeros((0, 2)))
    matrix, _, _, dataset, model = moment(users, 1e9)
    theta = np.array([0.3, -0.2])
    weights = [Logistic().curvature(rows @ theta, np.zeros(len(rows))) for rows in users]
    own = [(rows * w[:, None]).T @ rows / max(len(rows), 1) for rows, w in zip(users, weights)]
    np.testing.assert_allclose(matrix, sum(own) / 4, rtol=1e-12)
    sizes = moment_sizes(dataset.blocks[0], model, theta)
    np.testing.assert_allclose(sizes, [np.linalg.norm(matrix) for matrix in own], rtol=1e-12)


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_worst_neighbour(adjacency):
    """Random and constructed replacements stay within the sensitivity, and two orthogonal users reach it."""
    rng = np.random.default_rng(1)
    others = [rng.normal(size=(4, 2)) for _ in range(5)]
    cap, worst = 0.4, 0.0
    candidates = [np.array([[1e3, 0.0]]), np.array([[0.0, 1e3]]), np.zeros((0, 2))]
    candidates += [rng.normal(size=(3, 2)) * 10.0**k for k in range(-2, 5)]
    for first in candidates:
        for second in candidates if adjacency == "replace" else [None]:
            with_first = [*others, first]
            with_second = others if second is None else [*others, second]
            a, sensitivity, *_ = moment(with_first, cap, adjacency, 6, theta=(0.0, 0.0))
            b, *_ = moment(with_second, cap, adjacency, 6, theta=(0.0, 0.0))
            distance = float(np.linalg.norm(a - b))
            assert distance <= sensitivity
            worst = max(worst, distance / sensitivity)
    assert worst > 0.999


def test_noise_has_the_stated_shape():
    rng = np.random.default_rng(2)
    users = [rng.normal(size=(4, 2)) for _ in range(6)]
    _, sensitivity, sigma, *_ = moment(users, 0.4)
    assert sigma == pytest.approx(sensitivity / 0.1)
    assert sensitivity == pytest.approx(math.sqrt(2) * 0.4 / 6, rel=1e-6)


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5, 9, 40])
def test_few_rows_and_many_are_added_alike(count: int) -> None:
    """Users of one or two rows take a short cut: sizes and clipped sum are those of the matrices themselves."""
    rng = np.random.default_rng(count)
    rows, weights = rng.normal(size=(3 * count, 6)), rng.uniform(0, 1, 3 * count)
    offsets = count * np.arange(4)
    norms, total, scratch = np.zeros(3), np.zeros((8, 16)), (np.zeros((32, 16)), np.zeros((32, 16)), np.empty((8, 16)))
    _clipped_outer(rows, weights, offsets, 0.5, *scratch, norms, total)
    own = [(rows[a:b].T * weights[a:b]) @ rows[a:b] / max(count, 1) for a, b in pairwise(offsets)]
    assert np.allclose(norms, [np.linalg.norm(part) for part in own])
    expected = sum(part * min(1.0, 0.5 / max(float(np.linalg.norm(part)), 1e-300)) for part in own)
    assert np.allclose(np.tril(total[:6, :6]), np.tril(expected), atol=1e-14)
