"""Gradients for phases: in one reading of the rows, in their precision, for losses whose slope is one of three
formulas.

A tile of rows, whoever they belong to, is mapped and predicted, then added up while it is in the processor's first
cache. Rows of float32 are computed with in float32; their sums are carried to float64 every ``_CARRY`` rows of a user.
A row's slope is a function of that row, and a user's sum runs over its rows in order: neither depends on where the
tiles begin.
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
    SIXTEEN,
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
    rounded_like,
    second_half,
    side_of,
    sixteen_from,
    spread,
    store,
    times,
    times_power,
    totals,
)

Shifts = dict["np.dtype[Any]", "Shift"]

LOGISTIC, RESIDUAL, MARGIN = 0, 1, 2
# Sums are taken over so many columns at a time: that hides how long an addition takes.
_COLUMNS = 4 * SIXTEEN
# Bytes and rows in a tile of short rows: many slopes hide how long each takes; more would not stay in the cache.
_TILE, _HEIGHT = 1 << 13, 2 * SIXTEEN
# Memory is asked for rows of at most so many bytes a tile ahead; of longer ones for the next four.
_SHORT = 1 << 10
# Rows of a user that are added up in float32, before float64 takes over.
_CARRY = 64
_THINNEST = 1e-300  # smaller scales count as this: a quotient may overflow and is clamped, but is a number
_ORDINARY = 1e30  # float32 rows with centres or scales beyond this are taken as float64
# Mapped rows and targets are clamped here at least, and predictions stay below: no sum of products overflows.
_LARGEST: dict[np.dtype[Any], tuple[float, float]] = {
    np.dtype(np.float32): (1e12, 1e24),
    np.dtype(np.float64): (1e90, 1e190),
}


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
    columns, where it may be, and then that of all others.
    """

    center: Rows
    inverse: Rows
    rest: Rows
    edges: Rows

    @classmethod
    def of(cls, center: Floats, scale: Floats, bound: float, dimension: int) -> Shifts:
        """Public centres, scales and the bound of the features, for rows of float64 and, if it can hold them, float32.

        ``dimension`` counts the intercept.
        """
        columns, wide = len(center), round_up(dimension, _COLUMNS)
        inverse, rest, edges = 1.0 / np.maximum(scale, _THINNEST), np.zeros(dimension), np.full(SIXTEEN + 1, bound)
        rest[columns:], edges[columns % SIXTEEN : SIXTEEN] = 1.0, 1.0
        centers, inverses, rests = padded(center, wide), padded(inverse, wide), padded(rest, wide)
        shifts: Shifts = {}
        for kind, (largest, _) in _LARGEST.items():
            if kind == np.float64 or (
                np.all(np.abs(center) < _ORDINARY * np.minimum(scale, 1.0))
                and np.all((scale < _ORDINARY) & (scale > 1 / _ORDINARY))
            ):
                first = centers.astype(kind)
                parts = first, inverses, rests + (first - centers) * inverses, np.minimum(edges, largest)
                shifts[kind] = cls(*(padded(part, len(part), kind.type) for part in parts))
        return shifts


def fused_weights(weights: Floats, shifts: Shifts) -> dict[np.dtype[Any], Rows]:
    """Coefficients on the mapped features as ``mean_gradients`` takes them: padded, and no prediction overflows."""
    found = {}
    for kind, shift in shifts.items():
        largest = _LARGEST[kind][1] / (len(weights) * max(float(shift.edges[-1]), 1.0))
        found[kind] = padded(np.clip(weights, -largest, largest), len(shift.center), kind.type)
    return found


def mean_gradients(
    features: Rows,
    shifts: Shifts,
    weights: dict[np.dtype[Any], Rows],
    dimension: int,
    target: Floats,
    units: tuple[float, float, float],
    offsets: NDArray[np.int64],
    slope: Slope,
) -> Floats:
    """(1/m_k) Σ_j φ'(⟨x̃_j, weights⟩, y_j)·x̃_j over the mapped rows of user k, shape (users, dimension).

    ``units`` of the target are centre, scale and bound: y = clamp((target − centre)/scale, ±bound).
    """
    features = np.ascontiguousarray(features)
    if features.dtype not in shifts:
        features = features.astype(np.float64)
    kind = features.dtype
    users, wide = len(offsets) - 1, len(shifts[kind].center)
    out = np.empty(users * dimension + _COLUMNS)
    height = min(max(_TILE // (kind.itemsize * wide * SIXTEEN), 1) * SIXTEEN, _HEIGHT)
    bends = np.array([slope.lower, slope.upper, max(slope.width, 1 / _ORDINARY)], kind)
    _add_gradients(
        features,
        *shifts[kind],
        weights[kind],
        target,
        np.array([units[0], 1.0 / max(units[1], _THINNEST), min(units[2], _LARGEST[kind][0])]),
        offsets,
        dimension,
        slope.kind,
        bends,
        _NUMBERS[kind],
        *_scratch(height, wide, kind),
        out,
    )
    return out[: users * dimension].reshape(users, dimension)


_held = threading.local()


def _scratch(height: int, wide: int, kind: np.dtype[Any]) -> tuple[Rows, Rows]:
    """Memory for a tile, kept by each thread: asking the system for it takes as long as a hundred rows."""
    if getattr(_held, "shape", None) != (height, wide, kind):
        _held.shape = height, wide, kind
        _held.arrays = aligned(height + 1, wide, kind=kind.type), aligned(height, SIXTEEN + 1, kind=kind.type)
    arrays: tuple[Rows, Rows] = _held.arrays
    return arrays


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _add_gradients(
    features: Rows,
    center: Rows,
    inverse: Rows,
    rest: Rows,
    edges: Rows,
    weights: Rows,
    target: Floats,
    units: Floats,
    offsets: NDArray[np.int64],
    dimension: int,
    kind: int,
    bends: Rows,
    numbers: Rows,
    rows: Rows,
    partial: Rows,
    out: Floats,
) -> None:
    """``rows`` is scratch for a tile, its last one for sums that the next tile continues; ``partial`` for a row's sums
    over every sixteenth column, and the slopes behind them.
    """
    n_features, end = features.shape[1], offsets[len(offsets) - 1]
    height, wide = rows.shape[0] - 1, rows.shape[1]
    carried, slopes = height * wide, height * SIXTEEN
    whole = n_features - n_features % SIXTEEN
    over = n_features - whole
    most, high, zero = load_sixteen(edges, 0), sixteen_from(edges, SIXTEEN), sixteen_from(numbers, _ZERO)
    least, low = negative(most), negative(high)
    middle, unit, bound = sixteen_from(units, 0), sixteen_from(units, 1), sixteen_from(units, 2)
    ahead = (height if features.itemsize * n_features <= _SHORT else 4) * n_features
    for at in range(0, (height + 1) * wide, SIXTEEN):
        store(rows, at, zero)
    for at in range(len(out)):
        out[at] = 0.0  # whole vectors are written: behind a user's sums there are those of users to come, zeros as yet
    k = 0
    for start in range(offsets[0], end, height):
        count = min(height, end - start)
        for j in range(0, count, 4):  # four rows: what is the same for all is read once
            # Behind the last row it comes once more, and is not used.
            p, q = (start + j) * n_features, min(start + j + 1, end - 1) * n_features
            r, s = min(start + j + 2, end - 1) * n_features, min(start + j + 3, end - 1) * n_features
            a = b = c = d = zero
            for i in range(0, whole, SIXTEEN):
                fetch(features, p + ahead + 4 * i)
                m, n, o = load_sixteen(center, i), load_sixteen(inverse, i), load_sixteen(rest, i)
                w, to = load_sixteen(weights, i), j * wide + i
                a = _map(load_sixteen(features, p + i), m, n, o, low, high, w, rows, to, a)
                b = _map(load_sixteen(features, q + i), m, n, o, low, high, w, rows, to + wide, b)
                c = _map(load_sixteen(features, r + i), m, n, o, low, high, w, rows, to + 2 * wide, c)
                d = _map(load_sixteen(features, s + i), m, n, o, low, high, w, rows, to + 3 * wide, d)
            if whole < dimension:
                fetch(features, p + ahead + 4 * whole)
                m, n, o = load_sixteen(center, whole), load_sixteen(inverse, whole), load_sixteen(rest, whole)
                w, to = load_sixteen(weights, whole), j * wide + whole
                a = _map(load_sixteen_part(features, p + whole, over), m, n, o, least, most, w, rows, to, a)
                b = _map(load_sixteen_part(features, q + whole, over), m, n, o, least, most, w, rows, to + wide, b)
                c = _map(load_sixteen_part(features, r + whole, over), m, n, o, least, most, w, rows, to + 2 * wide, c)
                d = _map(load_sixteen_part(features, s + whole, over), m, n, o, least, most, w, rows, to + 3 * wide, d)
            store(partial, j * SIXTEEN, a)
            store(partial, (j + 1) * SIXTEEN, b)
            store(partial, (j + 2) * SIXTEEN, c)
            store(partial, (j + 3) * SIXTEEN, d)
        for j in range(0, count, SIXTEEN):
            y = times(minus(load_sixteen_part(target, start + j, count - j), middle), unit)
            y = rounded_like(between(y, negative(bound), bound), zero)
            store(partial, slopes + j, _slopes(totals(partial, j * SIXTEEN), y, kind, bends, numbers))
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
                a = b = c = d = zero
                if before % _CARRY:
                    a, b = load_sixteen(rows, of), load_sixteen(rows, of + SIXTEEN)
                    c, d = load_sixteen(rows, of + 2 * SIXTEEN), load_sixteen(rows, of + 3 * SIXTEEN)
                for j in range(first, last):
                    weight, to = sixteen_from(partial, slopes + j), j * wide + i
                    a = plus_product(a, weight, load_sixteen(rows, to))
                    b = plus_product(b, weight, load_sixteen(rows, to + SIXTEEN))
                    c = plus_product(c, weight, load_sixteen(rows, to + 2 * SIXTEEN))
                    d = plus_product(d, weight, load_sixteen(rows, to + 3 * SIXTEEN))
                if full:
                    _carry(a, share, out, at)
                    _carry(b, share, out, at + SIXTEEN)
                    _carry(c, share, out, at + 2 * SIXTEEN)
                    _carry(d, share, out, at + 3 * SIXTEEN)
                else:
                    store(rows, of, a)
                    store(rows, of + SIXTEEN, b)
                    store(rows, of + 2 * SIXTEEN, c)
                    store(rows, of + 3 * SIXTEEN, d)
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
    rows: Rows,
    to: int,
    predicted: Any,
) -> Any:
    """Sixteen columns of a row, shifted, scaled and clamped, into the tile; their share of the prediction is added."""
    mapped = between(plus_product(rest, minus(values, center), inverse), low, high)
    store(rows, to, mapped)
    return plus_product(predicted, mapped, weights)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _carry(sums: Any, share: float, out: Floats, at: int) -> None:
    """out = (out + sums)·share in float64."""
    store(out, at, times(plus(load(out, at), first_half(sums)), spread(share)))
    store(out, at + WIDTH, times(plus(load(out, at + WIDTH), second_half(sums)), spread(share)))


# Where the numbers of ``_sigmoid`` and ``_slopes`` stand in an array of the rows' precision.
_ZERO, _ONE, _HALF, _FAR, _ROUND, _OVER_LOG2, _LOG2, _LOG2_REST, _SERIES = range(9)


def _numbers(kind: type, far: float, digits: int, log2: tuple[float, float], terms: int) -> Rows:
    """``far``: e^far is near the largest number; adding and subtracting 1.5·2^digits rounds to a whole number; ln 2 in
    two parts, of which the first has few digits; 1/0!, 1/1!, …: the series of e^r for |r| ≤ ln(2)/2.
    """
    constants = [0.0, 1.0, 0.5, far, 1.5 * 2.0**digits, -1.0 / math.log(2.0), *log2]
    return np.array([*constants, *(1.0 / math.factorial(i) for i in range(terms))], kind)


_NUMBERS = {
    np.dtype(np.float32): _numbers(np.float32, 87.0, 23, (0.693359375, -2.12194440e-4), 8),
    np.dtype(np.float64): _numbers(np.float64, 700.0, 52, (0.693147180369123816490, 1.90821492927058770002e-10), 14),
}


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _slopes(z: Any, y: Any, kind: int, bends: Rows, numbers: Rows) -> Any:
    """φ'(z, y) of sixteen rows."""
    one = sixteen_from(numbers, _ONE)
    if kind == LOGISTIC:
        return minus(_sigmoid(z, numbers), between(y, sixteen_from(numbers, _ZERO), one))
    side = one
    if kind == MARGIN:  # −s·q'(1 − s·z) = −s·q'(−s·(z − s)) for s = ±1
        y = side_of(y, sixteen_from(numbers, _HALF))
        side = negative(y)
    bent = divided(times(side, minus(z, y)), sixteen_from(bends, 2))
    return times(side, between(bent, sixteen_from(bends, 0), sixteen_from(bends, 1)))


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _sigmoid(z: Any, numbers: Rows) -> Any:
    """1/(1 + e^−z) of sixteen numbers, to a few units of the last digit; e^−z = 2^k·e^r with k whole."""
    far, whole, one = sixteen_from(numbers, _FAR), sixteen_from(numbers, _ROUND), sixteen_from(numbers, _ONE)
    z = between(z, negative(far), far)
    k = minus(plus(times(z, sixteen_from(numbers, _OVER_LOG2)), whole), whole)
    r = plus_product(z, k, sixteen_from(numbers, _LOG2))
    r = negative(plus_product(r, k, sixteen_from(numbers, _LOG2_REST)))
    square, even, odd = times(r, r), sixteen_from(numbers, _ZERO), sixteen_from(numbers, _ZERO)
    for i in range(len(numbers) - 2, _SERIES - 1, -2):  # even and odd terms do not wait for each other
        even = plus_product(sixteen_from(numbers, i), even, square)
        odd = plus_product(sixteen_from(numbers, i + 1), odd, square)
    power = times_power(plus_product(even, odd, r), k)
    return divided(one, plus(one, power))
