"""Exact search over deleted sets: the combinatorial part of the deletion test.

For users x = (x₁, …, x_n) and a function f of a list of users, write x₋U for the users that remain after deleting U and

    step(U) = max_{i ∉ U} ‖f(x₋U) − f(x₋(U ∪ {i}))‖.

The local deletion sensitivity is Δ̄_r f(x) = max_{|U| ≤ r} step(U) (Definition 3.2 of the paper), and Δ̄_r f(x₋S) is
the largest step over U ⊇ S with |U| ≤ |S| + r. So one pass over all U with |U| ≤ depth answers every question the
test asks.

Subsets of one size form a level. Values of f are kept for two levels at a time, steps (one number per subset) for all.
Within a level a subset is known by its place in the order in which ``itertools.combinations`` lists what *remains*;
that place is the colexicographic rank of the deleted positions counted from the end.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from userdp.mechanisms.noise import Floats

User = TypeVar("User")
Ranks = NDArray[np.int64]

# A step of a subset that has no bad superset: larger than any number of users.
_NEVER = np.iinfo(np.int32).max


def search_size(n_users: int, depth: int) -> int:
    """Number of subsets of at most ``depth`` + 1 deleted users: how often f is evaluated.

    >>> search_size(14, 12) == 2**14 - 1
    True
    """
    return sum(math.comb(n_users, size) for size in range(min(depth + 1, n_users) + 1))


def deletion_steps(
    f: Callable[[tuple[User, ...]], Floats], users: Sequence[User], depth: int, *, progress: bool = False
) -> list[Floats]:
    """step(U) for all U with |U| ≤ depth, one array per size; not-a-number counts as infinite.

    f is called once per subset, with the tuple of remaining users in their given order; it returns a vector.
    """
    n = len(users)
    steps: list[Floats] = []
    with Watch(search_size(n, depth), enabled=progress) as watch:
        values = _level_values(f, users, 0, watch)
        for size in range(min(depth, n - 1) + 1):
            below = _level_values(f, users, size + 1, watch)
            step = np.zeros(len(values))
            for ranks in _parents(n, size + 1):
                with np.errstate(all="ignore"):  # overflow is data, and must not warn
                    move = np.linalg.norm(below - values[ranks], axis=1)
                np.maximum.at(step, ranks, np.where(np.isnan(move), np.inf, move))
            steps.append(step)
            values = below
    if depth >= n:  # with every user deleted there is nothing left to delete
        steps.append(np.zeros(1))
    return steps


def smallest_stable(
    steps: Sequence[Floats], n_users: int, threshold: float, radius: Callable[[int], int], largest: int
) -> tuple[int, ...] | None:
    """Positions of the smallest S, |S| ≤ largest, with Δ̄_{radius(|S|)} f(x₋S) ≤ threshold; None if there is none.

    ``steps`` must reach size max_s s + radius(s) (or n_users). Among sets of one size the first in lexicographic order
    is taken: a choice that does not depend on the random bound R of the mechanism.
    """
    nearest: list[NDArray[np.int32]] = []
    above: NDArray[np.int32] | None = None
    for size in reversed(range(len(steps))):  # nearest[U]: size of the smallest bad superset of U
        bad = ~(steps[size] <= threshold)
        level = np.full(len(bad), _NEVER, dtype=np.int32)
        if above is not None:
            for ranks in _parents(n_users, size + 1):
                np.minimum.at(level, ranks, above)
        level[bad] = size
        nearest.insert(0, level)
        above = level
    for size in range(min(largest, len(steps) - 1) + 1):
        stable = np.flatnonzero(nearest[size] > size + radius(size))
        if stable.size:
            return _positions(n_users, size, int(stable[-1]))
    return None


def _level_values(f: Callable[[tuple[User, ...]], Floats], users: Sequence[User], size: int, watch: Watch) -> Floats:
    """Values of f with ``size`` users deleted, in the order of ``itertools.combinations`` of what remains."""
    rows = [f(rest) for rest in watch.each(itertools.combinations(users, len(users) - size))]
    return np.asarray(rows, dtype=np.float64)


def _deleted(n: int, size: int) -> NDArray[np.int32]:
    """Row k: the deleted positions of the k-th subset of a level, counted from the end, ascending (colex order)."""
    flat = itertools.chain.from_iterable(itertools.combinations(range(n), size))
    lexicographic = np.fromiter(flat, dtype=np.int32, count=math.comb(n, size) * size).reshape(-1, size)
    return (n - 1 - lexicographic)[::-1, ::-1]


def _parents(n: int, size: int) -> Iterator[Ranks]:
    """For t = 0, …, size − 1: the rank, one level up, of every subset of the level without its t-th element.

    The rank of c₀ < c₁ < … in colex order is Σ_k C(c_k, k + 1); dropping c_t moves the later elements one place down.
    """
    subsets = _deleted(n, size)
    binomial = np.array([[math.comb(c, k) for k in range(size + 1)] for c in range(n)], dtype=np.int64)
    places = np.arange(size)
    before = np.cumsum(binomial[subsets, places + 1], axis=1)
    after = np.cumsum(binomial[subsets, places][:, ::-1], axis=1)[:, ::-1]
    for t in range(size):
        ranks = np.zeros(len(subsets), dtype=np.int64)
        if t > 0:
            ranks += before[:, t - 1]
        if t + 1 < size:
            ranks += after[:, t + 1]
        yield ranks


def _positions(n: int, size: int, rank: int) -> tuple[int, ...]:
    """Deleted positions, ascending, of the subset with this rank in its level."""
    reflected = []
    for place in range(size, 0, -1):
        element = place - 1
        while math.comb(element + 1, place) <= rank:
            element += 1
        rank -= math.comb(element, place)
        reflected.append(element)
    return tuple(n - 1 - element for element in reflected)


@dataclass
class Watch:
    """A progress bar that appears only when the search has lasted two seconds."""

    total: int
    enabled: bool
    done: int = 0
    _started: float = field(default_factory=time.monotonic)
    _bar: Progress | None = None

    def each(self, items: Iterator[User]) -> Iterator[User]:
        """Pass ``items`` through, counting them."""
        for item in items:
            yield item
            self.done += 1
            if self.enabled and self.done % 256 == 0:
                self._show()

    def _show(self) -> None:
        if self._bar is None:
            if time.monotonic() - self._started < 2.0:
                return
            columns = TextColumn("deletion test"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task("deletion test", total=float(self.total))
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=self.done)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
