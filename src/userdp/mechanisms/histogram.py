"""Private histograms: every user has one vote in each, however many rows it has.

``user_histogram`` counts one number a user. ``row_histograms`` lets a user split its vote over its rows, so that the
result is the distribution of each feature with every user weighing the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from userdp.accounting import Adjacency
from userdp.data.blocks import Rows, UserBlock
from userdp.engines.base import Engine, Sums
from userdp.losses.base import Floats
from userdp.mechanisms.gaussian import Channel


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


def signed_log_bins(low: float, high: float, factor: float) -> Bins:
    """Bins of numbers of either sign around a zero bin (−low, low)."""
    count = math.ceil(math.log(high / low) / math.log(factor) - 1e-9)
    edges: Floats = np.asarray(low * np.power(factor, np.arange(float(count))), dtype=np.float64)
    centers: Floats = low * np.power(factor, np.arange(count) + 0.5)
    return Bins(
        np.asarray([*-edges[::-1], *edges], dtype=np.float64),
        np.asarray([*-centers[::-1], 0.0, *centers], dtype=np.float64),
    )


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
) -> tuple[Floats, float]:
    """Noisy counts, (features, bins), of (x − center)/scale, a user's vote split evenly over its rows; and their noise.

    **Formal guarantee.** ``gdp``-GDP: in each histogram a user adds a vector of non-negative numbers that sum to at
    most 1, and two such vectors are at most √2 apart in L2; d histograms make √(2d), or √d under add/remove
    (docs/proofs/histograms.md).
    """
    (counts,) = engine.sum(_count_rows, center, 1.0 / scale, bins)
    sensitivity = vote_sensitivity(len(center), adjacency)
    return channel.release(counts, sensitivity, gdp, label), sensitivity / gdp


def vote_sensitivity(histograms: int, adjacency: Adjacency) -> float:
    """L2-sensitivity of so many histograms in each of which a user has one vote."""
    return math.sqrt((2 if adjacency == "replace" else 1) * histograms) * (1 + 1e-9)


def _count_users(block: UserBlock, statistic: Callable[..., Floats], arguments: tuple[Any, ...], bins: Bins) -> Sums:
    index = np.searchsorted(bins.edges, statistic(block, *arguments), side="right")
    return (np.bincount(index, minlength=len(bins.centers)).astype(np.float64),)


def _count_rows(block: UserBlock, center: Floats, inverse: Floats, bins: Bins) -> Sums:
    out = np.zeros((len(center), len(bins.centers)))
    _vote(block.features, block.offsets, center, inverse, bins.edges, out)
    return (out,)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _vote(
    features: Rows, offsets: NDArray[np.int64], center: Floats, inverse: Floats, edges: Floats, out: Floats
) -> None:
    for k in range(len(offsets) - 1):
        # A multiple of 2^-26: sums of votes are exact, so they do not depend on how others are grouped.
        share = math.floor(2.0**26 / max(offsets[k + 1] - offsets[k], 1)) / 2.0**26
        for j in range(offsets[k], offsets[k + 1]):
            for i in range(len(center)):
                value = (features[j, i] - center[i]) * inverse[i]
                low, high = 0, len(edges)
                while low < high:
                    middle = (low + high) // 2
                    if edges[middle] <= value:
                        low = middle + 1
                    else:
                        high = middle
                out[i, low] += share
