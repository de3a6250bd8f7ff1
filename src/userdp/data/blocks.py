"""Rows sorted by user: the shape in which data travels through the library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.floating]


@dataclass(frozen=True)
class UserBlock:
    """Rows of consecutive users.

    ``features`` is (rows, d) in C order, float32 or float64; ``target`` is (rows,); the rows of user k of the block are
    ``offsets[k]:offsets[k + 1]``. A user without rows is allowed: its loss is 0.
    """

    features: Rows
    target: Floats
    offsets: NDArray[np.int64]

    @property
    def n_users(self) -> int:
        """Users in this block, those without rows included."""
        return len(self.offsets) - 1

    @property
    def n_rows(self) -> int:
        """Rows in this block."""
        return int(self.offsets[-1] - self.offsets[0])

    def users(self, start: int, stop: int) -> UserBlock:
        """The users start..stop−1 as a block that shares this one's memory."""
        first, last = self.offsets[start], self.offsets[stop]
        return UserBlock(self.features[first:last], self.target[first:last], self.offsets[start : stop + 1] - first)

    def cuts(self, rows: int, users: int) -> Iterator[tuple[int, int]]:
        """Ranges of whole users, at most ``users`` each and about ``rows`` rows (one user is never cut)."""
        start = 0
        while start < self.n_users:
            fits = int(np.searchsorted(self.offsets, self.offsets[start] + rows, side="right")) - 1
            stop = min(max(fits, start + 1), start + users, self.n_users)
            yield start, stop
            start = stop

    def chunks(self, rows: int, users: int) -> Iterator[UserBlock]:
        """``cuts`` as blocks."""
        return (self.users(start, stop) for start, stop in self.cuts(rows, users))
