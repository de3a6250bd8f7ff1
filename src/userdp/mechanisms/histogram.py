"""Private histograms: every user has one vote in each, however many rows it has.

``user_histogram`` counts one number a user. ``row_histograms`` lets a user split its vote over its rows, so that the
result is the distribution of each feature with every user weighing the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from userdp.accounting import Adjacency
from userdp.data.blocks import Rows, UserBlock
from userdp.data.sparse import as_sparse
from userdp.engines.base import Engine, Sums
from userdp.losses.base import Floats
from userdp.mechanisms.gaussian import Channel

Columns = Literal["features", "target", "both"]


@dataclass(frozen=True, eq=False)
class Bins:
    """Public bins: ``edges`` between them, in increasing order, and the value in ``centers`` that each stands for.

    The outer bins are unbounded, so every number has one. ``widths`` tells how coarse they are.
    """

    edges: Floats
    centers: Floats

    @property
    def widths(self) -> Floats:
        """Distance between the edges; the outer bins count as wide as their neighbours."""
        inner = np.diff(self.edges)
        return np.concatenate([inner[:1], inner, inner[-1:]])

    def quantile(self, counts: Floats, level: float) -> float:
        """The centre at which the counts, negatives cut off, reach ``level`` of their total (post-processing)."""
        cumulative = np.cumsum(np.maximum(counts, 0.0))
        if cumulative[-1] <= 0:
            return float(self.centers[len(self.centers) // 2])
        return float(self.centers[int(np.searchsorted(cumulative, level * cumulative[-1]))])


def log_bins(low: float, high: float, factor: float) -> Bins:
    """Bins of positive numbers, ``factor`` apart.

    >>> log_bins(1.0, 8.0, 2.0).edges.tolist()
    [2.0, 4.0]
    """
    count = math.ceil(math.log(high / low) / math.log(factor) - 1e-9)
    edges: Floats = low * np.power(factor, np.arange(1.0, count))
    centers: Floats = low * np.power(factor, np.arange(count) + 0.5)
    return Bins(edges, centers)


def magnitude_bins(low: float, high: float, factor: float) -> Bins:
    """Bins of non-negative numbers: a zero bin below ``low``, then ``factor`` apart.

    >>> magnitude_bins(1.0, 4.0, 4.0).centers.tolist()
    [0.0, 2.0]
    """
    rest = log_bins(low, high, factor)
    return Bins(np.concatenate([[low], rest.edges]), np.concatenate([[0.0], rest.centers]))


def linear_bins(low: float, high: float, count: int) -> Bins:
    """Equal bins."""
    width = (high - low) / count
    edges: Floats = np.asarray(low + width * np.arange(1.0, count), dtype=np.float64)
    centers: Floats = np.asarray(low + width * (np.arange(count) + 0.5), dtype=np.float64)
    return Bins(edges, centers)


def user_histogram(
    engine: Engine,
    statistic: Callable[..., Floats],
    arguments: tuple[Any, ...],
    bins: Bins,
    gdp: float,
    adjacency: Adjacency,
    channel: Channel,
    label: str,
) -> tuple[Floats, float]:
    """Noisy counts of ``statistic(block, *arguments)``, one number a user, and the noise's standard deviation.

    **Formal guarantee.** ``gdp``-GDP: replacing a user moves one unit of count between two bins, √2 in L2; adding or
    removing one changes a single count by 1 (docs/proofs/histograms.md).
    """
    (counts,) = engine.sum(_count_users, statistic, arguments, bins)
    sensitivity = vote_sensitivity(1, adjacency)
    return channel.release(counts, sensitivity, gdp, label), sensitivity / gdp


def row_histograms(
    engine: Engine,
    center: Floats,
    scale: Floats,
    bins: Bins,
    gdp: float,
    adjacency: Adjacency,
    channel: Channel,
    label: str,
    columns: Columns = "features",
    chosen: NDArray[np.intp] | None = None,
) -> tuple[Floats, float]:
    """Noisy counts, (columns, bins), of (x − center)/scale, a user's vote split evenly over its rows; and their noise.

    ``columns`` are the features, the target, or both (the target last); ``chosen`` picks some of them.

    **Formal guarantee.** ``gdp``-GDP: in each histogram a user adds a vector of non-negative numbers that sum to at
    most 1, and two such vectors are at most √2 apart in L2; h histograms make √(2h), or √h under add/remove
    (docs/proofs/histograms.md).
    """
    chosen = np.arange(len(center)) if chosen is None else chosen
    (counts,) = engine.sum(_count_rows, center, 1.0 / scale, bins, columns, chosen)
    sensitivity = vote_sensitivity(len(chosen), adjacency)
    return channel.release(counts, sensitivity, gdp, label), sensitivity / gdp


def magnitude_histograms(
    engine: Engine,
    columns: Columns,
    histograms: int,
    bins: Bins,
    gdp: float,
    adjacency: Adjacency,
    channel: Channel,
    label: str,
) -> tuple[Floats, float]:
    """Noisy counts, (columns, 3, bins), of each user's root mean square; and their noise.

    The three are users whose values lie below zero, around it, and above it (their mean is within a tenth of the root
    mean square, or not).

    **Formal guarantee.** ``gdp``-GDP: a user has one vote in each of ``histograms`` histograms, as in
    ``row_histograms``.
    """
    (counts,) = engine.sum(_count_magnitudes, columns, bins)
    sensitivity = vote_sensitivity(histograms, adjacency)
    return channel.release(counts, sensitivity, gdp, label), sensitivity / gdp


def vote_sensitivity(histograms: int, adjacency: Adjacency) -> float:
    """L2-sensitivity of so many histograms in each of which a user has one vote."""
    return math.sqrt((2 if adjacency == "replace" else 1) * histograms) * (1 + 1e-9)


def _count_users(block: UserBlock, statistic: Callable[..., Floats], arguments: tuple[Any, ...], bins: Bins) -> Sums:
    index = np.searchsorted(bins.edges, statistic(block, *arguments), side="right")
    return (np.bincount(index, minlength=len(bins.centers)).astype(np.float64),)


def _count_rows(
    block: UserBlock, center: Floats, inverse: Floats, bins: Bins, columns: Columns, chosen: NDArray[np.intp]
) -> Sums:
    counts, start = [], 0
    for part in _parts(block, columns):
        own, width = chosen[(chosen >= start) & (chosen < start + part.shape[1])], part.shape[1]
        if (sparse := as_sparse(part)) is not None:
            out, every = np.zeros((width, len(bins.centers))), slice(start, start + width)
            entries = sparse.data, sparse.indices, sparse.indptr
            _vote_entries(*entries, block.offsets, center[every], inverse[every], bins.edges, out)
            counts.append(out[own - start])
        else:
            counts.append(np.zeros((len(own), len(bins.centers))))
            rows = part if len(own) == width else np.ascontiguousarray(part[:, own - start])
            _vote(rows, block.offsets, center[own], inverse[own], *_search(bins), counts[-1])
        start += width
    return (np.concatenate(counts),)


def _count_magnitudes(block: UserBlock, columns: Columns, bins: Bins) -> Sums:
    counts = []
    for part in _parts(block, columns):
        counts.append(np.zeros((part.shape[1], 3, len(bins.centers))))
        if (sparse := as_sparse(part)) is not None:
            _count_entry_sizes(sparse.data, sparse.indices, sparse.indptr, block.offsets, bins.edges, counts[-1])
        else:
            means, sizes = np.zeros((2, block.n_users, part.shape[1]))
            _add_means_and_sizes(part, block.offsets, means, sizes)
            _count_sides(means, sizes, sizes.view(np.uint64), *_search(bins), counts[-1])
    return (np.concatenate(counts),)


def _parts(block: UserBlock, columns: Columns) -> list[Rows]:
    """The columns that are looked at, the target last."""
    features = [] if columns == "target" else [block.features]
    return features if columns == "features" else [*features, block.target[:, None]]


def _search(bins: Bins) -> tuple[Floats, NDArray[np.int16]]:
    """What finds a number's bin: the edges, with one behind that nothing reaches, and where to begin."""
    return _search_tables(np.ascontiguousarray(bins.edges, dtype=np.float64).tobytes())


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_means_and_sizes(features: Rows, offsets: NDArray[np.int64], means: Floats, sizes: Floats) -> None:
    """Mean and root mean square of each column over each user's rows, into zeros of shape (users, columns)."""
    columns = features.shape[1]
    for k in range(len(offsets) - 1):
        for j in range(offsets[k], offsets[k + 1]):
            for i in range(columns):
                value = float(features[j, i])  # min and max take longer to compile
                value = -1e150 if value < -1e150 else 1e150 if value > 1e150 else value
                means[k, i] += value
                sizes[k, i] += value * value
        count = max(offsets[k + 1] - offsets[k], 1)
        for i in range(columns):
            means[k, i] /= count
            sizes[k, i] = math.sqrt(sizes[k, i] / count)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _count_sides(
    means: Floats,
    sizes: Floats,
    bits: NDArray[np.uint64],
    edges: Floats,
    starts: NDArray[np.int16],
    out: Floats,
) -> None:
    """One vote a user and column: in the bin of its size, below zero, around it or above it."""
    for k in range(len(sizes)):
        for i in range(sizes.shape[1]):
            most = 0.9 * sizes[k, i]
            side = 1 + int(means[k, i] >= most) - int(means[k, i] <= -most)
            out[i, side, _bin(sizes[k, i], bits[k, i], edges, starts)] += 1.0


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _count_size(total: float, square: float, rows: int, edges: Floats, out: Floats) -> None:
    """A user's vote for the size and the side of a column whose values have this sum and sum of squares."""
    size, mean = math.sqrt(square / rows), total / rows
    side = 1 + int(mean >= 0.9 * size) - int(mean <= -0.9 * size)
    out[side, np.searchsorted(edges, size, side="right")] += 1.0


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _count_entry_sizes(
    data: Floats,
    indices: NDArray[np.int64],
    indptr: NDArray[np.int64],
    offsets: NDArray[np.int64],
    edges: Floats,
    out: Floats,
) -> None:
    """The same over the entries of sparse rows: a column that a user has no entry in gets a vote for zero."""
    columns = len(out)
    totals, squares, last = np.empty(columns), np.empty(columns), np.full(columns, -1)
    for i in range(columns):
        out[i, 1, 0] += len(offsets) - 1
    for k in range(len(offsets) - 1):
        for j in range(offsets[k], offsets[k + 1]):
            for p in range(indptr[j], indptr[j + 1]):
                i = indices[p]
                if last[i] != k:
                    totals[i], squares[i], last[i] = 0.0, 0.0, k
                    out[i, 1, 0] -= 1.0
                value = min(max(data[p], -1e150), 1e150)
                totals[i] += value
                squares[i] += value * value
        for j in range(offsets[k], offsets[k + 1]):
            for p in range(indptr[j], indptr[j + 1]):
                i = indices[p]
                if last[i] == k:
                    _count_size(totals[i], squares[i], offsets[k + 1] - offsets[k], edges, out[i])
                    last[i] = -1


# Leading bits of a number (sign, exponent, four of the mantissa) that say nearly where it falls.
_LEADING = 16


@lru_cache(maxsize=16)
def _search_tables(edges: bytes) -> tuple[Floats, NDArray[np.int16]]:
    """The edges, and for every value of the leading bits, the bin of the smallest number that has them."""
    leading = np.arange(1 << _LEADING, dtype=np.uint64)
    negative = leading >> np.uint64(_LEADING - 1) == 1
    rest = np.uint64(64 - _LEADING)
    smallest = np.where(negative, (leading << rest) | np.uint64((1 << (64 - _LEADING)) - 1), leading << rest)
    numbers = smallest.view(np.float64)
    numbers = np.where(np.isfinite(numbers), numbers, np.where(negative, -np.inf, np.inf))
    known = np.frombuffer(edges)
    return np.append(known, np.nan), np.searchsorted(known, numbers, side="right").astype(np.int16)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _bin(value: float, bits: np.uint64, edges: Floats, starts: NDArray[np.int16]) -> np.uint64:
    position = np.uint64(starts[bits >> np.uint64(64 - _LEADING)])  # unsigned: no index is checked for its sign
    while edges[position] <= value:
        position += np.uint64(1)
    return position


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _share(rows: int) -> float:
    """A row's share of its user's vote, a multiple of 2^-26: sums of votes are exact, however others are grouped."""
    return math.floor(2.0**26 / max(rows, 1)) / 2.0**26


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _vote_entries(
    data: Floats,
    indices: NDArray[np.int64],
    indptr: NDArray[np.int64],
    offsets: NDArray[np.int64],
    center: Floats,
    inverse: Floats,
    edges: Floats,
    out: Floats,
) -> None:
    """``_vote`` over the entries of sparse rows: all rows vote for zero, then those with an entry change their vote."""
    zeros = np.searchsorted(edges, (0.0 - center) * inverse, side="right")
    for k in range(len(offsets) - 1):
        share = _share(offsets[k + 1] - offsets[k])
        for i in range(len(center)):
            out[i, zeros[i]] += share * (offsets[k + 1] - offsets[k])
        for j in range(offsets[k], offsets[k + 1]):
            for p in range(indptr[j], indptr[j + 1]):
                i = indices[p]
                out[i, zeros[i]] -= share
                out[i, np.searchsorted(edges, (data[p] - center[i]) * inverse[i], side="right")] += share


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _vote(
    features: Rows,
    offsets: NDArray[np.int64],
    center: Floats,
    inverse: Floats,
    edges: Floats,
    starts: NDArray[np.int16],
    out: Floats,
) -> None:
    n_features, n_bins = out.shape
    values, counts = np.empty(n_features), out.reshape(-1)
    bits = values.view(np.uint64)
    for k in range(len(offsets) - 1):
        share = _share(offsets[k + 1] - offsets[k])
        for j in range(offsets[k], offsets[k + 1]):
            for i in range(n_features):
                values[i] = (features[j, i] - center[i]) * inverse[i]
            first = np.uint64(0)
            for i in range(n_features):
                counts[first + _bin(values[i], bits[i], edges, starts)] += share
                first += np.uint64(n_bins)
