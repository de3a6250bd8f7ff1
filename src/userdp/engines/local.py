"""Sum over users on this machine: chunks of whole users, a few threads, a fixed order of addition."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from userdp.data.blocks import UserBlock
from userdp.data.dataset import UserDataset
from userdp.data.sparse import as_sparse
from userdp.data.store import StoredBlock
from userdp.engines.base import Floats, Kernel, Sums

# A chunk holds at most so many numbers (8 MB), or one user: wide data gets fewer rows a chunk, wide sparse data fewer
# users.
CHUNK_NUMBERS = 1 << 20


@dataclass
class LocalEngine:
    """Runs kernels over a dataset in memory or on disk.

    A kernel sees chunks of about ``chunk_rows`` rows and at most ``chunk_users`` whole users, so what it allocates
    stays in cache and never grows with the data. Chunks do not depend on ``threads``, and their results are added in
    chunk order: the answer is the same to the last bit for every number of threads.
    """

    dataset: UserDataset
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    chunk_rows: int = 1 << 15
    chunk_users: int = 4096

    def __post_init__(self) -> None:
        self.n_users, self.columns, self.remote = self.dataset.n_users, self.dataset.columns, False
        self._blas = _blas()
        self._pool = ThreadPoolExecutor(max(self.threads - 1, 1), "userdp")
        fits = max(CHUNK_NUMBERS // max(self.dataset.n_features, 1), 1)
        users = min(self.chunk_users, fits)
        self._chunks: list[Callable[[], UserBlock]] = []
        for block in self.dataset.blocks:
            rows = self.chunk_rows if as_sparse(block.features) is not None else min(self.chunk_rows, fits)
            for start, stop in block.cuts(rows, users):
                chunk = partial(block.users, start, stop)  # rows on disk are read when they are due, others are there
                self._chunks.append(chunk if isinstance(block, StoredBlock) else partial(_same, chunk()))

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.columns)

    @property
    def rounding(self) -> float:
        """Additions inside a chunk times the unit roundoff, four times over.

        Chunk totals are added with compensation, so their number, which depends on the data, does not enter.
        """
        return rounding_of(self.chunk_users)

    def sum(self, kernel: Kernel, *arguments: Any) -> Sums:
        """Σ over chunks of ``kernel(chunk, *arguments)``."""
        total = CompensatedSum()
        self.run(kernel, arguments, total.add)
        return total.result()

    def each(self, kernel: Callable[..., Floats], *arguments: Any) -> Floats:
        """Concatenated results of ``kernel(chunk, *arguments)``."""
        parts: list[Floats] = []
        self.run(kernel, arguments, parts.append)
        return np.concatenate(parts)

    def chunked(self, users: int) -> LocalEngine:
        """The same rows in chunks of at most so many users."""
        return replace(self, chunk_users=users)

    def run(self, kernel: Callable[..., Any], arguments: tuple[Any, ...], take: Callable[[Any], None]) -> None:
        """Hand the result of every chunk to ``take``, in chunk order. Whichever thread is free takes the next chunk."""
        numbers = iter(range(len(self._chunks)))
        waiting: dict[int, Any] = {}
        due = 0
        lock, stopped = threading.Lock(), threading.Event()

        def work() -> None:
            nonlocal due
            try:
                while not stopped.is_set():
                    with lock:
                        mine = next(numbers, None)
                    if mine is None:
                        return
                    part = kernel(self._chunks[mine](), *arguments)
                    with lock:
                        waiting[mine] = part
                        while due in waiting:
                            take(waiting.pop(due))
                            due += 1
            except BaseException:
                stopped.set()
                raise

        with self._blas.limit(limits=1):
            helpers = [self._pool.submit(work) for _ in range(min(self.threads, len(self._chunks)) - 1)]
            try:
                work()
            finally:
                wait(helpers)
            for helper in helpers:
                helper.result()


def _same(block: UserBlock) -> UserBlock:
    return block


@lru_cache(maxsize=1)
def _blas() -> ThreadpoolController:
    """Finding the libraries takes longer than a pass over little data: once."""
    return ThreadpoolController()


class CompensatedSum:
    """Adds tuples of arrays, keeping what rounding takes: the error does not grow with their number."""

    def __init__(self) -> None:
        self.totals: list[Floats] = []
        self.lost: list[Floats] = []

    def add(self, part: Sums) -> None:
        """One more term."""
        if not self.totals:
            self.totals, self.lost = [np.zeros_like(term) for term in part], [np.zeros_like(term) for term in part]
        for i, term in enumerate(part):
            self.totals[i], error = _two_sum(self.totals[i], term)
            self.lost[i] += error

    def merge(self, other: CompensatedSum) -> None:
        """Add what another one has added."""
        if other.totals:
            self.add(tuple(other.totals))
            for lost, more in zip(self.lost, other.lost):
                lost += more

    def result(self) -> Sums:
        """The sum of all terms."""
        if not self.totals:
            raise ValueError("the dataset has no users")
        return tuple(total + error for total, error in zip(self.totals, self.lost))


def rounding_of(chunk_users: int) -> float:
    """Bound on the relative error of sums over chunks of so many users."""
    return 2.0 * (chunk_users + 8) * float(np.finfo(np.float64).eps)


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """a + b in floating point, and what rounding took from it (Knuth); both exact together."""
    total = a + b
    shown = total - a
    return total, (a - (total - shown)) + (b - shown)
