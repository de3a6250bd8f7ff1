"""Sum over users on this machine: chunks of whole users, a few threads, a fixed order of addition."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from userdp.data.blocks import UserBlock
from userdp.data.dataset import UserDataset
from userdp.engines.base import Floats, Kernel, Sums


@dataclass
class LocalEngine:
    """Runs kernels over a dataset in memory.

    A kernel sees chunks of about ``chunk_rows`` rows and at most ``chunk_users`` whole users, so what it allocates
    stays in cache and never grows with the data. Chunks do not depend on ``threads``, and their results are added in
    chunk order: the answer is the same to the last bit for every number of threads.
    """

    dataset: UserDataset
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    chunk_rows: int = 8192
    chunk_users: int = 4096

    def __post_init__(self) -> None:
        self.n_users = self.dataset.n_users
        self._blas = ThreadpoolController()

    @property
    def rounding(self) -> float:
        """Additions inside a chunk times the unit roundoff, four times over.

        Chunk totals are added with compensation, so their number, which depends on the data, does not enter.
        """
        return 2.0 * (self.chunk_users + 8) * float(np.finfo(np.float64).eps)

    def sum(self, kernel: Kernel, *arguments: Any) -> Sums:
        """Σ over chunks of ``kernel(chunk, *arguments)``."""
        totals: list[Floats] = []
        lost: list[Floats] = []
        for part in self._run(kernel, arguments):
            if not totals:
                totals, lost = [np.zeros_like(term) for term in part], [np.zeros_like(term) for term in part]
            for i, term in enumerate(part):
                totals[i], error = _two_sum(totals[i], term)
                lost[i] += error
        if not totals:
            raise ValueError("the dataset has no users")
        return tuple(total + error for total, error in zip(totals, lost))

    def each(self, kernel: Callable[..., Floats], *arguments: Any) -> Floats:
        """Concatenated results of ``kernel(chunk, *arguments)``, one entry a user."""
        return np.concatenate(list(self._run(kernel, arguments)))

    def _chunks(self) -> Iterator[UserBlock]:
        for block in self.dataset.blocks:
            yield from block.chunks(self.chunk_rows, self.chunk_users)

    def _run(self, kernel: Callable[..., Any], arguments: tuple[Any, ...]) -> Iterator[Any]:
        with self._blas.limit(limits=1), ThreadPoolExecutor(self.threads) as pool:
            yield from pool.map(lambda chunk: kernel(chunk, *arguments), self._chunks())


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """a + b in floating point, and what rounding took from it (Knuth); both exact together."""
    total = a + b
    shown = total - a
    return total, (a - (total - shown)) + (b - shown)
