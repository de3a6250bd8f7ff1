"""Private second moments: what shapes the cap and the noise to the data."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from userdp.accounting import Adjacency
from userdp.data.blocks import UserBlock
from userdp.engines.base import Engine, Sums
from userdp.losses.base import CurvedModel, Floats
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.histogram import vote_sensitivity


def moment_sizes(block: UserBlock, model: CurvedModel, theta: Floats) -> Floats:
    """‖(1/m_k) Σ_j φ''_j x̃_j x̃_jᵀ‖ (Frobenius) of every user: a statistic for a private histogram."""
    return _moments(block, model, theta, math.inf, summed=False)[0]


def clipped_moment(
    engine: Engine,
    model: CurvedModel,
    theta: Floats,
    cap: float,
    gdp: float,
    n_users: int,
    adjacency: Adjacency,
    channel: Channel,
    label: str,
) -> tuple[Floats, float]:
    """(1/n) Σ_k clip_cap((1/m_k) Σ_j φ''_j x̃_j x̃_jᵀ) plus symmetric Gaussian noise, and the noise's standard deviation.

    **Formal guarantee.** ``gdp``-GDP: written as a vector with off-diagonal entries times √2, a user's matrix has the
    length of its Frobenius norm, at most ``cap``. Users' matrices are positive semidefinite (φ is convex), so ⟨A, B⟩
    ≥ 0 and two of them are at most √2·cap apart: the mean moves by at most √2·cap/n, or cap/n under add/remove, plus
    the rounding of the sums (docs/proofs/default-fit.md).
    """
    (total,) = engine.sum(_moment_sum, model, theta, cap)
    upper = np.triu_indices(len(total))
    weights = np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
    sensitivity = (vote_sensitivity(1, adjacency) / n_users + 4 * engine.rounding) * cap
    released = channel.release(total[upper] * weights / n_users, sensitivity, gdp, label) / weights
    matrix = np.zeros_like(total)
    matrix[upper] = released
    return matrix + np.triu(matrix, 1).T, sensitivity / gdp


def _moment_sum(block: UserBlock, model: CurvedModel, theta: Floats, cap: float) -> Sums:
    lower = _moments(block, model, theta, cap, summed=True)[1]
    return (lower + np.tril(lower, -1).T,)


def _moments(block: UserBlock, model: CurvedModel, theta: Floats, cap: float, *, summed: bool) -> tuple[Floats, Floats]:
    """Sizes of the users' moments; if ``summed``, the lower triangle of the sum of the clipped ones."""
    rows, curvature = model.curved_rows(block, theta)
    weights = np.maximum(curvature, 0.0)  # the sensitivity rests on users' matrices being positive semidefinite
    size = rows.shape[1] if summed else 0
    norms, total, own = np.zeros(block.n_users), np.zeros((size, size)), np.empty((rows.shape[1], rows.shape[1]))
    _clipped_outer(rows, weights, block.offsets, cap, own, norms, total)
    return norms, total


# Users with so few rows are added row by row; more would not fit the engine's bound on rounding.
_FEW = 2


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})  # type: ignore[untyped-decorator]
def _clipped_outer(
    rows: Floats, weights: Floats, offsets: NDArray[np.int64], cap: float, own: Floats, norms: Floats, total: Floats
) -> None:
    """Sizes of the users' moments, and the lower triangle of their clipped sum; ``own`` is scratch."""
    dimension = rows.shape[1]
    for k in range(len(offsets) - 1):
        first, last = offsets[k], offsets[k + 1]
        count = last - first
        if count == 0:
            continue
        if count <= _FEW:  # ‖Σ_j a_j x_j x_jᵀ‖² = Σ_jl a_j a_l ⟨x_j, x_l⟩²: no matrix is needed
            size = 0.0
            for j in range(first, last):
                for g in range(first, last):
                    inner = 0.0
                    for i in range(dimension):
                        inner += rows[j, i] * rows[g, i]
                    size += (weights[j] / count * inner) * (weights[g] / count * inner)
            norms[k] = math.sqrt(size)
            if not norms[k] < math.inf:
                norms[k] = math.inf
                continue
            shrink = min(1.0, cap / max(norms[k], 1e-300))
            for j in range(first, last):
                for i in range(len(total)):
                    a = shrink * (weights[j] / count) * rows[j, i]
                    for h in range(i + 1):
                        total[i, h] += a * rows[j, h]
            continue
        for i in range(dimension):
            for h in range(dimension):  # a slice would do, and take longer to compile
                own[i, h] = 0.0
        whole = last - (last - first) % 4
        for j in range(first, whole, 4):  # four rows at a time: ``own`` is touched a quarter as often
            first_weight, second_weight = weights[j] / count, weights[j + 1] / count
            third_weight, fourth_weight = weights[j + 2] / count, weights[j + 3] / count
            for i in range(dimension):
                a, b = first_weight * rows[j, i], second_weight * rows[j + 1, i]
                c, d = third_weight * rows[j + 2, i], fourth_weight * rows[j + 3, i]
                for h in range(min(i - i % 8 + 8, dimension)):  # the triangle, rounded up to whole vectors
                    own[i, h] += (a * rows[j, h] + b * rows[j + 1, h]) + (c * rows[j + 2, h] + d * rows[j + 3, h])
        for j in range(whole, last):
            for i in range(dimension):
                a = weights[j] / count * rows[j, i]
                for h in range(i + 1):
                    own[i, h] += a * rows[j, h]
        size = 0.0
        for i in range(dimension):
            for h in range(i):
                size += 2 * own[i, h] * own[i, h]
            size += own[i, i] * own[i, i]
        norms[k] = math.sqrt(size)
        if not norms[k] < math.inf:  # an overflow of this user's own: it counts as largest, and adds nothing
            norms[k] = math.inf
            continue
        shrink = min(1.0, cap / max(norms[k], 1e-300))
        for i in range(len(total)):
            for h in range(i + 1):
                total[i, h] += shrink * own[i, h]
