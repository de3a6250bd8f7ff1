"""Gradients for phases: in one reading of the rows, to single precision, for losses whose slope is one of three
formulas.

A tile of rows, whoever they belong to, is mapped and predicted, then added up while it is in the processor's first
cache. Rows are shifted in their own precision, clamped, and only then rounded to float32; sums are carried to float64
every ``_CARRY`` rows of a user. A row's slope is a function of that row, and a user's sum runs over its rows in order:
neither depends on where the tiles begin.
"""

from __future__ import annotations

import math
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
    within,
)

Singles = NDArray[np.float32]

LOGISTIC, RESIDUAL, MARGIN = 0, 1, 2
# Sums are taken over so many columns at a time: that hides how long an addition takes.
_COLUMNS = 4 * SINGLES
# Rows of at most so many bytes are mapped in pairs, which reads what is the same for both once. Longer ones are not:
# memory is fetched ahead of the loop only where it is read from one end to the other.
_SHORT = 224
# Numbers and rows in a tile of short rows: many slopes hide how long each takes; more would not stay in the cache.
_TILE, _HEIGHT = 1 << 12, 4 * SINGLES
# Rows of a user that are added up in float32, before float64 takes over.
_CARRY = 64
# Mapped rows and targets are clamped here at least, and so are predictions: no sum of ``_CARRY`` float32 overflows.
_LARGEST, _FARTHEST = 1e12, 1e24
import os
AHEAD=int(os.environ.get('AHEAD','1'))
_ORDINARY = 1e30  # centres and scales of float32 rows beyond this are computed with in float64


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
    in ``rest``. The intercept is a column of zeros to which ``ones`` are added.
    """

    center: Rows
    rest: Rows
    inverse: Rows
    limit: Any
    ones: Singles

    @classmethod
    def of(cls, center: Floats, scale: Floats, bound: float, dimension: int) -> dict[Any, Shift]:
        """Public centres, scales and the bound of the features, for rows of float64 and, if it can hold them, float32.

        ``dimension`` counts the intercept.
        """
        wide, own = round_up(dimension, _COLUMNS), len(center)
        inverse, limit = np.minimum(1.0 / scale, 1e300), min(bound, _LARGEST)
        ones = padded(np.r_[np.zeros(own % SINGLES), np.ones(dimension - own)], SINGLES, np.float32)
        exact = cls(padded(center, wide), aligned(wide), padded(inverse, wide), limit, ones)
        shifts = {np.dtype(np.float64): exact}
        if np.all(np.abs(center) < _ORDINARY) and np.all((scale < _ORDINARY) & (scale > 1 / _ORDINARY)):
            first = center.astype(np.float32)
            parts = first, (first - center) * inverse, inverse
            shifts[np.dtype(np.float32)] = cls(*(padded(part, wide, np.float32) for part in parts), np.float32(limit), ones)
        return shifts


def mean_gradients(
    features: Rows,
    shifts: dict[Any, Shift],
    weights: Floats,
    target: Floats,
    units: tuple[float, float, float],
    offsets: NDArray[np.int64],
    slope: Slope,
) -> Floats:
    """(1/m_k) Σ_j φ'(⟨x̃_j, weights⟩, y_j)·x̃_j over the mapped rows of user k, shape (users, dimension).

    ``units`` of the target are centre, scale and bound: y = clamp((target − centre)/scale, ±bound).
    """
    users, dimension = len(offsets) - 1, len(weights)
    features = np.ascontiguousarray(features)
    if features.dtype not in shifts:
        features = features.astype(np.float64)
    shift = shifts[features.dtype]
    wide = len(shift.center)
    largest = _FARTHEST / (dimension * max(float(shift.limit), 1.0))
    out = np.zeros(users * dimension + _COLUMNS)
    short = True
    height = min(max(_TILE // (wide * SINGLES), 1) * SINGLES, _HEIGHT) if short else SINGLES
    scratch = (aligned(*shape, kind=np.float32) for shape in ((height, wide), (height, SINGLES), (height,), (wide,)))
    _add_gradients(
        features,
        *shift,
        padded(np.clip(weights, -largest, largest), wide, np.float32),
        target,
        units[0],
        1.0 / units[1],
        min(units[2], _LARGEST),
        offsets,
        dimension,
        slope.kind,
        np.float32(slope.lower),
        np.float32(slope.upper),
        np.float32(slope.width),
        short,
        *scratch,
        out,
    )
    return out[: users * dimension].reshape(users, dimension)


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _add_gradients(
    features: Rows,
    center: Rows,
    rest: Rows,
    inverse: Rows,
    limit: float,
    ones: Singles,
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
    short: bool,
    rows: Singles,
    partial: Singles,
    slopes: Singles,
    carried: Singles,
    out: Floats,
) -> None:
    """``rows``, ``partial`` (a row's sums over every sixteenth column) and ``slopes`` are scratch for a tile,
    ``carried`` for sums that the next tile continues.
    """
    n_features, end = features.shape[1], offsets[len(offsets) - 1]
    height, wide = rows.shape
    whole = n_features - n_features % SINGLES
    over = n_features - whole
    low, high = spread_sixteen(-limit), spread_sixteen(limit)
    ahead = (height if height > SINGLES else 4) * n_features * AHEAD
    k = 0
    for start in range(offsets[0], end, height):
        count = min(height, end - start)
        for j in range(0, count, 4 if short else 1):
            p, to, e = (start + j) * n_features, j * wide, spread(_ZERO)
            if short:
                # Behind the last row it comes once more, and is not used.
                q = min(start + j + 1, end - 1) * n_features
                r = min(start + j + 2, end - 1) * n_features
                s = min(start + j + 3, end - 1) * n_features
                f = g = h = e
                for i in range(0, whole, SINGLES):
                    fetch(features, p + ahead + 4 * i)
                    c, o, n, w = load_sixteen(center, i), load_sixteen(inverse, i), load_sixteen(rest, i), load(weights, i)
                    t = _map(load_sixteen(features, p + i), c, o, n, low, high)
                    u = _map(load_sixteen(features, q + i), c, o, n, low, high)
                    v = _map(load_sixteen(features, r + i), c, o, n, low, high)
                    x = _map(load_sixteen(features, s + i), c, o, n, low, high)
                    e, f, g, h = plus_product(e, t, w), plus_product(f, u, w), plus_product(g, v, w), plus_product(h, x, w)
                    store(rows, to + i, t)
                    store(rows, to + wide + i, u)
                    store(rows, to + 2 * wide + i, v)
                    store(rows, to + 3 * wide + i, x)
                if whole < dimension:
                    i = whole
                    fetch(features, p + ahead + 4 * i)
                    c, o, n, w = load_sixteen(center, i), load_sixteen(inverse, i), load_sixteen(rest, i), load(weights, i)
                    one = load(ones, 0)
                    t = plus(_map(load_sixteen_part(features, p + i, over), c, o, n, low, high), one)
                    u = plus(_map(load_sixteen_part(features, q + i, over), c, o, n, low, high), one)
                    v = plus(_map(load_sixteen_part(features, r + i, over), c, o, n, low, high), one)
                    x = plus(_map(load_sixteen_part(features, s + i, over), c, o, n, low, high), one)
                    e, f, g, h = plus_product(e, t, w), plus_product(f, u, w), plus_product(g, v, w), plus_product(h, x, w)
                    store(rows, to + i, t)
                    store(rows, to + wide + i, u)
                    store(rows, to + 2 * wide + i, v)
                    store(rows, to + 3 * wide + i, x)
                store(partial, (j + 1) * SINGLES, f)
                store(partial, (j + 2) * SINGLES, g)
                store(partial, (j + 3) * SINGLES, h)
            else:
                for i in range(0, whole, SINGLES):
                    c, o, n, w = load_sixteen(center, i), load_sixteen(inverse, i), load_sixteen(rest, i), load(weights, i)
                    t = _map(load_sixteen(features, p + i), c, o, n, low, high)
                    store(rows, to + i, t)
                    e = plus_product(e, t, w)
                if whole < dimension:
                    i = whole
                    c, o, n, w = load_sixteen(center, i), load_sixteen(inverse, i), load_sixteen(rest, i), load(weights, i)
                    t = plus(_map(load_sixteen_part(features, p + i, over), c, o, n, low, high), load(ones, 0))
                    store(rows, to + i, t)
                    e = plus_product(e, t, w)
            store(partial, j * SINGLES, e)
        for j in range(0, count, SINGLES):
            y = minus(load_sixteen_part(target, start + j, count - j), spread_sixteen(middle))
            y = rounded(within(times(y, spread_sixteen(unit)), spread_sixteen(bound)))
            store(slopes, j, _slopes(totals(partial, j * SINGLES), y, kind, lower, upper, width))
        first = 0
        while first < count:  # one user after another
            while offsets[k + 1] <= start + first:
                k += 1
            before = start + first - offsets[k]
            last = min(count, offsets[k + 1] - start, first + _CARRY - before % _CARRY)
            done = last == offsets[k + 1] - start
            share = 1.0 / (offsets[k + 1] - offsets[k]) if done else 1.0
            fresh, full = before % _CARRY == 0, done or (before + last - first) % _CARRY == 0
            for i in range(0, dimension, _COLUMNS):
                a = b = c = d = spread(_ZERO)
                if not fresh:
                    a, b = load(carried, i), load(carried, i + SINGLES)
                    c, d = load(carried, i + 2 * SINGLES), load(carried, i + 3 * SINGLES)
                for j in range(first, last):
                    weight, of = spread_from(slopes, j), j * wide + i
                    a = plus_product(a, weight, load(rows, of))
                    b = plus_product(b, weight, load(rows, of + SINGLES))
                    c = plus_product(c, weight, load(rows, of + 2 * SINGLES))
                    d = plus_product(d, weight, load(rows, of + 3 * SINGLES))
                if full:
                    at = k * dimension + i
                    _carry(a, share, out, at)
                    _carry(b, share, out, at + SINGLES)
                    _carry(c, share, out, at + 2 * SINGLES)
                    _carry(d, share, out, at + 3 * SINGLES)
                else:
                    store(carried, i, a)
                    store(carried, i + SINGLES, b)
                    store(carried, i + 2 * SINGLES, c)
                    store(carried, i + 3 * SINGLES, d)
            first = last


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _map(values: Any, center: Any, inverse: Any, rest: Any, low: Any, high: Any) -> Any:
    """Sixteen columns of a row, shifted, scaled and clamped."""
    return rounded(between(plus_product(rest, minus(values, center), inverse), low, high))


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
        side = minus(spread(_ZERO), y)
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
    z = within(z, spread(_FAR))
    k = minus(plus(times(z, spread(_OVER_LOG2)), spread(_ROUND)), spread(_ROUND))
    r = minus(spread(_ZERO), plus_product(plus_product(z, k, spread(_LOG2)), k, spread(_LOG2_REST)))
    square, even, odd = times(r, r), spread(_ZERO), spread(_ZERO)
    for i in range(6, -1, -2):  # even and odd terms do not wait for each other
        even = plus_product(spread_from(_SERIES, i), even, square)
        odd = plus_product(spread_from(_SERIES, i + 1), odd, square)
    power = times_power(plus_product(even, odd, r), k)
    return divided(spread(_ONE), plus(spread(_ONE), power))
