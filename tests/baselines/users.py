"""Small datasets, their neighbours, and noise that notes its scale instead of adding itself."""

from __future__ import annotations

import numpy as np

from userdp.data import UserBlock, UserDataset
from userdp.mechanisms.noise import SeededNoise


class Recorder(SeededNoise):
    """Adds no Gaussian noise; remembers how much there would have been."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.scales: list[float] = []

    def gaussian(self, values, scale):
        self.scales.append(scale)
        return np.array(values, dtype=np.float64)


def dataset(users, targets=None):
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in users])]).astype(np.int64)
    rows = np.concatenate(users)
    target = np.zeros(len(rows)) if targets is None else np.concatenate(targets)
    return UserDataset(
        (UserBlock(rows, target, offsets),), tuple(range(len(users))), tuple(f"x{i}" for i in range(rows.shape[1]))
    )


def points(values):
    """One row a user."""
    return dataset([np.atleast_2d(value) for value in values])


def random_users(n, m, d, seed=0):
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=(m, d)) for _ in range(n)]
    theta = np.linspace(1, -1, d)
    return dataset(rows, [(rng.random(m) < 1 / (1 + np.exp(-x @ theta))).astype(float) for x in rows])
