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
from userdp.losses.vectors import (
    WIDTH,
    aligned,
    load,
    load_part,
    plus,
    plus_product,
    round_up,
    spread,
    spread_from,
    store,
    times,
    total,
)
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
    lower = np.tril(_moments(block, model, theta, cap, summed=True)[1])
    return (lower + np.tril(lower, -1).T,)


def _moments(block: UserBlock, model: CurvedModel, theta: Floats, cap: float, *, summed: bool) -> tuple[Floats, Floats]:
    """Sizes of the users' moments; if ``summed``, the sum of the clipped ones, its lower triangle."""
    norms, out, scratch = np.zeros(block.n_users), np.zeros((0, 0)), None
    for start, stop in block.cuts(_ROWS, block.n_users):
        part = block.users(start, stop)
        rows, curvature = model.curved_rows(part, theta)
        weights = np.maximum(curvature, 0.0)  # the sensitivity rests on users' matrices being positive semidefinite
        if scratch is None:
            height, wide = round_up(rows.shape[1], _HEIGHT), round_up(rows.shape[1], 2 * WIDTH)
            out, scratch = aligned(height if summed else 0, wide), (aligned(_TILE, wide), aligned(_TILE, wide))
            own, dimension = aligned(height, wide), rows.shape[1]
        _clipped_outer(np.ascontiguousarray(rows), weights, part.offsets, cap, *scratch, own, norms[start:stop], out)
    return norms, out[:dimension, :dimension]


# Rows transformed at a time: larger arrays leave the cache, and the system hands them out anew for every chunk.
_ROWS = 1 << 12
# Users with so few rows are added row by row; more would not fit the engine's bound on rounding.
_FEW = 2
# Rows held at a time, and rows of a matrix that are summed at a time.
_TILE, _HEIGHT = 32, 4


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _clipped_outer(
    rows: Floats,
    weights: Floats,
    offsets: NDArray[np.int64],
    cap: float,
    tile: Floats,
    scaled: Floats,
    own: Floats,
    norms: Floats,
    out: Floats,
) -> None:
    """Sizes of the users' moments, and their clipped sum, right up to the diagonal; ``own`` and tiles are scratch."""
    dimension, summed = rows.shape[1], len(out) > 0
    height, wide = own.shape
    users, held = len(offsets) - 1, np.int64(0)  # rows in the tile that wait to be added to the sum
    for k in range(users + 1):
        first, last = offsets[k], offsets[min(k + 1, users)]
        count = last - first
        if held and (k == users or count > _FEW or held + count > _TILE):
            _add_outer(tile, scaled, held, dimension, out)
            held = np.int64(0)
        if 0 < count <= _FEW:  # ‖Σ_j a_j x_j x_jᵀ‖² = Σ_jl a_j a_l ⟨x_j, x_l⟩²: no matrix is needed
            size = 0.0
            for j in range(first, last):
                for g in range(first, last):
                    inner = spread(0.0)
                    for i in range(0, dimension, WIDTH):
                        part = load_part(rows, j * dimension + i, dimension - i)
                        inner = plus_product(inner, part, load_part(rows, g * dimension + i, dimension - i))
                    product = total(inner)
                    size += (weights[j] / count * product) * (weights[g] / count * product)
            norms[k] = math.sqrt(size) if size < math.inf else math.inf
            if summed and norms[k] < math.inf:
                shrink = min(1.0, cap / max(norms[k], 1e-300))
                for j in range(first, last):
                    _hold(rows, j, shrink * (weights[j] / count), tile, scaled, held)
                    held += 1
        elif count > 0:
            for i in range(height):
                for h in range(0, i - i % _HEIGHT + _HEIGHT, 2 * WIDTH):
                    store(own, i * wide + h, spread(0.0))
                    store(own, i * wide + h + WIDTH, spread(0.0))
            for start in range(first, last, _TILE):
                taken = min(_TILE, last - start)
                for j in range(taken):
                    _hold(rows, start + j, weights[start + j] / count, tile, scaled, j)
                _add_outer(tile, scaled, taken, dimension, own)
            squares, diagonal = spread(0.0), 0.0
            for i in range(dimension):
                diagonal += own[i, i] * own[i, i]
                line = spread(0.0)
                for h in range(0, i, WIDTH):
                    part = load_part(own, i * wide + h, i - h)
                    line = plus_product(line, part, part)
                squares = plus(squares, line)
            norms[k] = math.sqrt(2 * total(squares) + diagonal)
            if not norms[k] < math.inf:  # an overflow of this user's own: it counts as largest, and adds nothing
                norms[k] = math.inf
            elif summed:
                shrink = spread(min(1.0, cap / max(norms[k], 1e-300)))
                for i in range(dimension):
                    for at in range(i * wide, i * wide + i + 1, WIDTH):
                        store(out, at, plus_product(load(out, at), shrink, load(own, at)))


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _hold(rows: Floats, j: int, weight: float, tile: Floats, scaled: Floats, place: int) -> None:
    """A row into the tile, and weight times the row into the other one."""
    dimension, wide = rows.shape[1], tile.shape[1]
    for i in range(0, dimension, WIDTH):
        part = load_part(rows, j * dimension + i, dimension - i)
        store(tile, place * wide + i, part)
        store(scaled, place * wide + i, times(part, spread(weight)))


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _add_outer(tile: Floats, scaled: Floats, count: int, dimension: int, out: Floats) -> None:
    """out += Σ_j scaled_j·tile_jᵀ, right up to the diagonal: blocks of four by sixteen numbers stay in registers."""
    wide = tile.shape[1]
    for i in range(0, dimension, _HEIGHT):
        for h in range(0, i + _HEIGHT, 2 * WIDTH):
            p, q = i * wide + h, i * wide + h + WIDTH
            a, b, c, d = load(out, p), load(out, p + wide), load(out, p + 2 * wide), load(out, p + 3 * wide)
            e, f, g, o = load(out, q), load(out, q + wide), load(out, q + 2 * wide), load(out, q + 3 * wide)
            for j in range(count):
                left, right, at = load(tile, j * wide + h), load(tile, j * wide + h + WIDTH), j * wide + i
                weight = spread_from(scaled, at)
                a, e = plus_product(a, weight, left), plus_product(e, weight, right)
                weight = spread_from(scaled, at + 1)
                b, f = plus_product(b, weight, left), plus_product(f, weight, right)
                weight = spread_from(scaled, at + 2)
                c, g = plus_product(c, weight, left), plus_product(g, weight, right)
                weight = spread_from(scaled, at + 3)
                d, o = plus_product(d, weight, left), plus_product(o, weight, right)
            store(out, p, a)
            store(out, p + wide, b)
            store(out, p + 2 * wide, c)
            store(out, p + 3 * wide, d)
            store(out, q, e)
            store(out, q + wide, f)
            store(out, q + 2 * wide, g)
            store(out, q + 3 * wide, o)
