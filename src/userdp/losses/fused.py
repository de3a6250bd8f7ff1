"""Gradients for phases: in one reading of the rows, to single precision, for losses whose slope is one of three
formulas.

A tile of rows, whoever they belong to, is mapped and predicted, then added up while it is in the processor's first
cache. Rows are shifted in their own precision, clamped, and only then rounded to float32; sums are carried to float64
every ``_CARRY`` rows of a user. A row's slope is a function of that row, and a user's sum runs over its rows in order:
neither depends on where the tiles begin.
"""

from __future__ import annotations

import math
import threading
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from userdp.data.blocks import Rows
from userdp.losses.base import Floats, Loss
from userdp.losses.vectors import (
    SINGLES,
    WIDTH,
    aligned,
    between,
    divided,
    fetch,
    first_half,
    load,
    load_sixteen,
    load_sixteen_part,
    minus,
    negative,
    padded,
    plus,
    plus_product,
    round_up,
    rounded,
    second_half,
    side_of,
    spread,
    spread_from,
    spread_sixteen,
    store,
    times,
    times_power,
    totals,
)

Singles = NDArray[np.float32]
Shifts = dict[np.dtype[Any], "Shift"]

LOGISTIC, RESIDUAL, MARGIN = 0, 1, 2
# Sums are taken over so many columns at a time: that hides how long an addition takes.
_COLUMNS = 4 * SINGLES
# Numbers and rows in a tile of short rows: many slopes hide how long each takes; more would not stay in the cache.
_TILE, _HEIGHT = 1 << 11, 2 * SINGLES
# Rows of a user that are added up in float32, before float64 takes over.
_CARRY = 64
# Mapped rows and targets are clamped here at least, and predictions stay below: no sum of float32 overflows.
_LARGEST, _FARTHEST = 1e12, 1e24
_THINNEST = 1e-300  # smaller scales count as this: a quotient may overflow and is clamped, but is a number
_ORDINARY = 1e30  # float32 rows with centres or scales beyond this are mapped in float64


class Slope(NamedTuple):
    """∂φ/∂z as compiled code knows it, q'(t) = clip(t/width, lower, upper).

    ``LOGISTIC``: 1/(1 + e^−z) − y. ``RESIDUAL``: q'(z − y). ``MARGIN``: −s·q'(1 − s·z), s = ±1 for y above ½ or not.
    """

    kind: int
    lower: float = -math.inf
    upper: float = math.inf
    width: float = 1.0


def slope_of(loss: Loss) -> Slope | None:
    """The formula that a loss declares as ``slope``, if it does."""
    declared = getattr(loss, "slope", None)
    return declared if isinstance(declared, Slope) else None


class Shift(NamedTuple):
    """A feature map as compiled code knows it: x ↦ clamp((x − center)·inverse + rest, ±limit), padded with zeros.

    In float32 a centre has two parts: the difference of a row and the first is exact where they are close, the other is
    in ``rest``. The intercept is a column of zeros with a rest of 1; ``edges`` are the limits of the last sixteen
    columns, where it may be.
    """

    center: Rows
    inverse: Rows
    rest: Rows
    limit: float | np.float32
    edges: Rows

    @classmethod
    def of(cls, center: Floats, scale: Floats, bound: float, dimension: int) -> Shifts:
        """Public centres, scales and the bound of the features, for rows of float64 and, if it can hold them, float32.

        ``dimension`` counts the intercept.
        """
        columns, wide, limit = len(center), round_up(dimension, _COLUMNS), min(bound, _LARGEST)
        inverse, rest, edges = 1.0 / np.maximum(scale, _THINNEST), np.zeros(dimension), np.full(SINGLES, limit)
        rest[columns:], edges[columns % SINGLES :] = 1.0, 1.0
        centers, inverses, rests = padded(center, wide), padded(inverse, wide), padded(rest, wide)
        shifts: Shifts = {np.dtype(np.float64): cls(centers, inverses, rests, limit, edges)}
        if np.all(np.abs(center) < _ORDINARY) and np.all((scale < _ORDINARY) & (scale > 1 / _ORDINARY)):
            first = centers.astype(np.float32)
            parts = first, inverses, rests + (first - centers) * inverses
            one, two, three = (padded(part, wide, np.float32) for part in parts)
            shifts[np.dtype(np.float32)] = cls(one, two, three, np.float32(limit), edges.astype(np.float32))
        return shifts


def fused_weights(weights: Floats, shifts: Shifts) -> Singles:
    """Coefficients on the mapped features as ``mean_gradients`` takes them: padded, and no prediction overflows."""
    exact = shifts[np.dtype(np.float64)]
    largest = _FARTHEST / (len(weights) * max(float(exact.limit), 1.0))
    return padded(np.clip(weights, -largest, largest), len(exact.center), np.float32)


def mean_gradients(
    features: Rows,
    shifts: Shifts,
    weights: Singles,
    dimension: int,
    target: Floats,
    units: tuple[float, float, float],
    offsets: NDArray[np.int64],
    slope: Slope,
) -> Floats:
    """(1/m_k) Σ_j φ'(⟨x̃_j, weights⟩, y_j)·x̃_j over the mapped rows of user k, shape (users, dimension).

    ``units`` of the target are centre, scale and bound: y = clamp((target − centre)/scale, ±bound).
    """
    users, wide = len(offsets) - 1, len(weights)
    features = np.ascontiguousarray(features)
    if features.dtype not in shifts:
        features = features.astype(np.float64)
    out = np.empty(users * dimension + _COLUMNS)
    height = min(max(_TILE // (wide * SINGLES), 1) * SINGLES, _HEIGHT)
    _add_gradients(
        features,
        *shifts[features.dtype],
        weights,
        target,
        units[0],
        1.0 / max(units[1], _THINNEST),
        min(units[2], _LARGEST),
        offsets,
        dimension,
        slope.kind,
        np.float32(slope.lower),
        np.float32(slope.upper),
        np.float32(slope.width),
        *_scratch(height, wide),
        out,
    )
    return out[: users * dimension].reshape(users, dimension)


_held = threading.local()


def _scratch(height: int, wide: int) -> tuple[Singles, Singles]:
    """Memory for a tile, kept by each thread: asking the system for it takes as long as a hundred rows."""
    if getattr(_held, "shape", None) != (height, wide):
        _held.shape = height, wide
        _held.arrays = aligned(height + 1, wide, kind=np.float32), aligned(height, SINGLES + 1, kind=np.float32)
    arrays: tuple[Singles, Singles] = _held.arrays
    return arrays


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _add_gradients(
    features: Rows,
    center: Rows,
    inverse: Rows,
    rest: Rows,
    limit: Any,
    edges: Rows,
    weights: Singles,
    target: Floats,
    middle: float,
    unit: float,
    bound: float,
    offsets: NDArray[np.int64],
    dimension: int,
    kind: int,
    lower: np.float32,
    upper: np.float32,
    width: np.float32,
    rows: Singles,
    partial: Singles,
    out: Floats,
) -> None:
    """``rows`` is scratch for a tile, its last one for sums that the next tile continues; ``partial`` for a row's sums
    over every sixteenth column, and the slopes behind them.
    """
    n_features, end = features.shape[1], offsets[len(offsets) - 1]
    height, wide = rows.shape[0] - 1, rows.shape[1]
    carried, slopes = height * wide, height * SINGLES
    whole = n_features - n_features % SINGLES
    over = n_features - whole
    low, high, most = spread_sixteen(-limit), spread_sixteen(limit), load_sixteen(edges, 0)
    least = negative(most)
    # Memory is asked for the next tile while this one is mapped; of long rows, for the next four.
    ahead = (height if height > SINGLES else 4) * n_features
    for at in range(0, (height + 1) * wide, SINGLES):
        store(rows, at, spread(_ZERO))
    for at in range(len(out)):
        out[at] = 0.0  # whole vectors are written: behind a user's sums there are those of users to come, zeros as yet
    k = 0
    for start in range(offsets[0], end, height):
        count = min(height, end - start)
        for j in range(0, count, 4):  # four rows: what is the same for all is read once
            # Behind the last row it comes once more, and is not used.
            p, q = (start + j) * n_features, min(start + j + 1, end - 1) * n_features
            r, s = min(start + j + 2, end - 1) * n_features, min(start + j + 3, end - 1) * n_features
            a = b = c = d = spread(_ZERO)
            for i in range(0, whole, SINGLES):
                fetch(features, p + ahead + 4 * i)
                m, n, o = load_sixteen(center, i), load_sixteen(inverse, i), load_sixteen(rest, i)
                w, to = load(weights, i), j * wide + i
                a = _map(load_sixteen(features, p + i), m, n, o, low, high, w, rows, to, a)
                b = _map(load_sixteen(features, q + i), m, n, o, low, high, w, rows, to + wide, b)
                c = _map(load_sixteen(features, r + i), m, n, o, low, high, w, rows, to + 2 * wide, c)
                d = _map(load_sixteen(features, s + i), m, n, o, low, high, w, rows, to + 3 * wide, d)
            if whole < dimension:
                fetch(features, p + ahead + 4 * whole)
                m, n, o = load_sixteen(center, whole), load_sixteen(inverse, whole), load_sixteen(rest, whole)
                w, to = load(weights, whole), j * wide + whole
                a = _map(load_sixteen_part(features, p + whole, over), m, n, o, least, most, w, rows, to, a)
                b = _map(load_sixteen_part(features, q + whole, over), m, n, o, least, most, w, rows, to + wide, b)
                c = _map(load_sixteen_part(features, r + whole, over), m, n, o, least, most, w, rows, to + 2 * wide, c)
                d = _map(load_sixteen_part(features, s + whole, over), m, n, o, least, most, w, rows, to + 3 * wide, d)
            store(partial, j * SINGLES, a)
            store(partial, (j + 1) * SINGLES, b)
            store(partial, (j + 2) * SINGLES, c)
            store(partial, (j + 3) * SINGLES, d)
        for j in range(0, count, SINGLES):
            y = minus(load_sixteen_part(target, start + j, count - j), spread_sixteen(middle))
            y = rounded(between(times(y, spread_sixteen(unit)), spread_sixteen(-bound), spread_sixteen(bound)))
            store(partial, slopes + j, _slopes(totals(partial, j * SINGLES), y, kind, lower, upper, width))
        first = 0
        while first < count:  # one user after another
            while offsets[k + 1] <= start + first:
                k += 1
            before = start + first - offsets[k]
            last = min(count, offsets[k + 1] - start, first + _CARRY - before % _CARRY)
            done = last == offsets[k + 1] - start
            share = 1.0 / (offsets[k + 1] - offsets[k]) if done else 1.0
            full = done or (before + last - first) % _CARRY == 0
            for i in range(0, dimension, _COLUMNS):
                at, of = k * dimension + i, carried + i
                a = b = c = d = spread(_ZERO)
                if before % _CARRY:
                    a, b = load(rows, of), load(rows, of + SINGLES)
                    c, d = load(rows, of + 2 * SINGLES), load(rows, of + 3 * SINGLES)
                for j in range(first, last):
                    weight, to = spread_from(partial, slopes + j), j * wide + i
                    a = plus_product(a, weight, load(rows, to))
                    b = plus_product(b, weight, load(rows, to + SINGLES))
                    c = plus_product(c, weight, load(rows, to + 2 * SINGLES))
                    d = plus_product(d, weight, load(rows, to + 3 * SINGLES))
                if full:
                    _carry(a, share, out, at)
                    _carry(b, share, out, at + SINGLES)
                    _carry(c, share, out, at + 2 * SINGLES)
                    _carry(d, share, out, at + 3 * SINGLES)
                else:
                    store(rows, of, a)
                    store(rows, of + SINGLES, b)
                    store(rows, of + 2 * SINGLES, c)
                    store(rows, of + 3 * SINGLES, d)
            first = last


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _map(
    values: Any,
    center: Any,
    inverse: Any,
    rest: Any,
    low: Any,
    high: Any,
    weights: Any,
    rows: Singles,
    to: int,
    predicted: Any,
) -> Any:
    """Sixteen columns of a row, shifted, scaled and clamped, into the tile; their share of the prediction is added."""
    mapped = rounded(between(plus_product(rest, minus(values, center), inverse), low, high))
    store(rows, to, mapped)
    return plus_product(predicted, mapped, weights)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _carry(sums: Any, share: float, out: Floats, at: int) -> None:
    """out = (out + sums)·share in float64."""
    store(out, at, times(plus(load(out, at), first_half(sums)), spread(share)))
    store(out, at + WIDTH, times(plus(load(out, at + WIDTH), second_half(sums)), spread(share)))


_ZERO, _ONE, _HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _slopes(z: Any, y: Any, kind: int, lower: np.float32, upper: np.float32, width: np.float32) -> Any:
    """φ'(z, y) of sixteen rows."""
    if kind == LOGISTIC:
        return minus(_sigmoid(z), between(y, spread(_ZERO), spread(_ONE)))
    side = spread(_ONE)
    if kind == MARGIN:  # −s·q'(1 − s·z) = −s·q'(−s·(z − s)) for s = ±1
        y = side_of(y, spread(_HALF))
        side = negative(y)
    bent = between(divided(times(side, minus(z, y)), spread(width)), spread(lower), spread(upper))
    return times(side, bent)


_FAR = np.float32(87.0)  # e^87 is near the largest float32
_ROUND = np.float32(1.5 * 2.0**23)  # adding and subtracting it rounds to a whole number
_LOG2, _LOG2_REST = np.float32(0.693359375), np.float32(-2.12194440e-4)  # ln 2 in two parts; the first has few digits
_OVER_LOG2 = np.float32(-1.0 / math.log(2.0))
# 1/0!, 1/1!, …, 1/7!: the series of e^r, off by less than 2^−27 for |r| ≤ ln(2)/2.
_SERIES = np.array([1.0 / math.factorial(i) for i in range(8)], dtype=np.float32)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _sigmoid(z: Any) -> Any:
    """1/(1 + e^−z) of sixteen numbers, to a few units of the last digit; e^−z = 2^k·e^r with k whole."""
    z = between(z, spread(-_FAR), spread(_FAR))
    k = minus(plus(times(z, spread(_OVER_LOG2)), spread(_ROUND)), spread(_ROUND))
    r = negative(plus_product(plus_product(z, k, spread(_LOG2)), k, spread(_LOG2_REST)))
    square, even, odd = times(r, r), spread(_ZERO), spread(_ZERO)
    for i in range(6, -1, -2):  # even and odd terms do not wait for each other
        even = plus_product(spread_from(_SERIES, i), even, square)
        odd = plus_product(spread_from(_SERIES, i + 1), odd, square)
    power = times_power(plus_product(even, odd, r), k)
    return divided(spread(_ONE), plus(spread(_ONE), power))
