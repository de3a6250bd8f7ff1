"""At most so many rows a user."""

from __future__ import annotations

import numpy as np

from userdp.data import UserDataset
from userdp.data.blocks import UserBlock
from userdp.mechanisms.noise import Noise


def sample_rows(dataset: UserDataset, limit: int, noise: Noise) -> UserDataset:
    """Keep a uniform sample of ``limit`` rows of every user that has more.

    Users stay the same and each sample depends on its own user's rows only, so whatever guarantee holds for the result
    holds for the original data.
    """
    generator = np.random.default_rng(noise.integer_below(2**128))
    blocks = tuple(_sample(block, limit, generator) for block in dataset.blocks)
    return UserDataset(blocks, dataset.users, dataset.columns)


def _sample(block: UserBlock, limit: int, generator: np.random.Generator) -> UserBlock:
    counts = np.diff(block.offsets)
    if not np.any(counts > limit):
        return block
    # The rows with the smallest of independent marks: a uniform sample for every user.
    owner = np.repeat(np.arange(block.n_users), counts)
    order = np.lexsort((generator.random(block.n_rows), owner))
    rank = np.arange(block.n_rows) - np.repeat(block.offsets[:-1] - block.offsets[0], counts)
    kept = np.sort(order[rank < limit])
    offsets = np.concatenate([[0], np.cumsum(np.minimum(counts, limit))]).astype(np.int64)
    return UserBlock(block.features[kept], block.target[kept], offsets)
