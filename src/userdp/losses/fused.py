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
    at_once,
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
    sigmoid,
    sixteen,
    sixteen_from,
    spread,
    store,
    times,
    totals,
    wide_registers,
)

Shifts = dict["np.dtype[Any]", "Shift"]

LOGISTIC, RESIDUAL, MARGIN = 0, 1, 2
# Sums are taken over so many columns at a time: that hides how long an addition takes.
_COLUMNS = 4 * SIXTEEN
# Bytes and rows in a tile of short rows: many slopes hide how long each takes; more would not stay in the cache.
_TILE, _HEIGHT = 1 << 13, 2 * SIXTEEN
# Memory is asked for the tile after the next; if that is farther than so many bytes, for so many columns ahead.
_NEXT, _AHEAD = 1 << 18, 8 * SIXTEEN
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
    in ``rest``. The intercept is a column of zeros with a rest and a limit of 1.
    """

    center: Rows
    inverse: Rows
    rest: Rows
    limit: Rows

    @classmethod
    def of(cls, center: Floats, scale: Floats, bound: float, dimension: int) -> Shifts:
        """Public centres, scales and the bound of the features, for rows of float64 and, if it can hold them, float32.

        ``dimension`` counts the intercept.
        """
        columns, wide = len(center), round_up(dimension, _COLUMNS)
        inverse, rest, limit = 1.0 / np.maximum(scale, _THINNEST), np.zeros(dimension), np.full(dimension, bound)
        rest[columns:], limit[columns:] = 1.0, 1.0
        centers, inverses, rests, limits = (padded(part, wide) for part in (center, inverse, rest, limit))
        shifts: Shifts = {}
        for kind, (largest, _) in _LARGEST.items():
            if kind == np.float64 or (
                np.all(np.abs(center) < _ORDINARY * np.minimum(scale, 1.0))
                and np.all((scale < _ORDINARY) & (scale > 1 / _ORDINARY))
            ):
                first = centers.astype(kind)
                parts = first, inverses, rests + (first - centers) * inverses, np.minimum(limits, largest)
                shifts[kind] = cls(*(padded(part, wide, kind.type) for part in parts))
        return shifts


def fused_weights(weights: Floats, shifts: Shifts) -> dict[np.dtype[Any], Rows]:
    """Coefficients on the mapped features as ``mean_gradients`` takes them: padded, and no prediction overflows."""
    found = {}
    for kind, shift in shifts.items():
        largest = _LARGEST[kind][1] / (len(weights) * max(float(shift.limit.max()), 1.0))
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
    height = min(_TILE // (kind.itemsize * wide * 4) * 4, _HEIGHT) or (SIXTEEN if wide_registers() else 4)
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
        *_scratch(height, wide, kind),
        out,
    )
    return out[: users * dimension].reshape(users, dimension)


_held = threading.local()


def _scratch(height: int, wide: int, kind: np.dtype[Any]) -> tuple[Rows, Rows]:
    """Memory for a tile, kept by each thread: asking the system for it takes as long as a hundred rows."""
    if getattr(_held, "shape", None) != (height, wide, kind):
        _held.shape = height, wide, kind
        vectors = round_up(height, SIXTEEN)
        _held.arrays = aligned(height + 1, wide, kind=kind.type), aligned(vectors, SIXTEEN + 1, kind=kind.type)
    arrays: tuple[Rows, Rows] = _held.arrays
    return arrays


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _add_gradients(
    features: Rows,
    center: Rows,
    inverse: Rows,
    rest: Rows,
    limit: Rows,
    weights: Rows,
    target: Floats,
    units: Floats,
    offsets: NDArray[np.int64],
    dimension: int,
    kind: int,
    bends: Rows,
    rows: Rows,
    partial: Rows,
    out: Floats,
) -> None:
    """``rows`` is scratch for a tile, its last one for sums that the next tile continues; ``partial`` for a row's sums
    over every sixteenth column, and the slopes behind them.
    """
    n_features, end = features.shape[1], offsets[len(offsets) - 1]
    height, wide = rows.shape[0] - 1, rows.shape[1]
    carried, slopes = height * wide, len(partial) * SIXTEEN
    zero, one, half = sixteen(rows, 0.0), sixteen(rows, 1.0), sixteen(rows, 0.5)
    middle, unit, bound = sixteen_from(units, 0), sixteen_from(units, 1), sixteen_from(units, 2)
    lower, upper, width = sixteen_from(bends, 0), sixteen_from(bends, 1), sixteen_from(bends, 2)
    most = at_once(rows)
    ahead = 2 * height * n_features
    if ahead * features.itemsize > _NEXT:
        ahead = _AHEAD
    for at in range(0, (height + 1) * wide, SIXTEEN):
        store(rows, at, zero)
    for at in range(len(out)):
        out[at] = 0.0  # whole vectors are written: behind a user's sums there are those of users to come, zeros as yet
    k = 0
    for start in range(offsets[0], end, height):
        count = min(height, end - start)
        i = 0
        while i < dimension:  # what is the same for all rows is read once, and stays in registers
            first, over = _constants(center, inverse, rest, limit, weights, i), n_features - i
            if most == 4 and dimension - i > 2 * SIXTEEN:
                second = _constants(center, inverse, rest, limit, weights, i + SIXTEEN)
                third = _constants(center, inverse, rest, limit, weights, i + 2 * SIXTEEN)
                fourth = _constants(center, inverse, rest, limit, weights, i + 3 * SIXTEEN)
                for j in range(count):
                    p, to = (start + j) * n_features + i, j * wide + i
                    fetch(features, p + ahead)
                    fetch(features, p + ahead + SIXTEEN)
                    fetch(features, p + ahead + 2 * SIXTEEN)
                    fetch(features, p + ahead + 3 * SIXTEEN)
                    if over < 4 * SIXTEEN:
                        c = load_sixteen_part(features, p + 2 * SIXTEEN, over - 2 * SIXTEEN)
                        d = load_sixteen_part(features, p + 3 * SIXTEEN, over - 3 * SIXTEEN)
                    else:
                        c, d = load_sixteen(features, p + 2 * SIXTEEN), load_sixteen(features, p + 3 * SIXTEEN)
                    z = load_sixteen(partial, j * SIXTEEN) if i > 0 else zero
                    z = _map(load_sixteen(features, p), first, rows, to, z)
                    z = _map(load_sixteen(features, p + SIXTEEN), second, rows, to + SIXTEEN, z)
                    z = _map(c, third, rows, to + 2 * SIXTEEN, z)
                    store(partial, j * SIXTEEN, _map(d, fourth, rows, to + 3 * SIXTEEN, z))
                i += 4 * SIXTEEN
            elif most >= 2 and dimension - i > SIXTEEN:
                second = _constants(center, inverse, rest, limit, weights, i + SIXTEEN)
                for j in range(count):
                    p, to = (start + j) * n_features + i, j * wide + i
                    fetch(features, p + ahead)
                    fetch(features, p + ahead + SIXTEEN)
                    if over < 2 * SIXTEEN:
                        b = load_sixteen_part(features, p + SIXTEEN, over - SIXTEEN)
                    else:
                        b = load_sixteen(features, p + SIXTEEN)
                    z = load_sixteen(partial, j * SIXTEEN) if i > 0 else zero
                    z = _map(load_sixteen(features, p), first, rows, to, z)
                    store(partial, j * SIXTEEN, _map(b, second, rows, to + SIXTEEN, z))
                i += 2 * SIXTEEN
            else:
                for j in range(count):
                    p, to = (start + j) * n_features + i, j * wide + i
                    fetch(features, p + ahead)
                    a = load_sixteen(features, p) if over >= SIXTEEN else load_sixteen_part(features, p, over)
                    z = load_sixteen(partial, j * SIXTEEN) if i > 0 else zero
                    store(partial, j * SIXTEEN, _map(a, first, rows, to, z))
                i += SIXTEEN
        for j in range(0, count, SIXTEEN):
            fetch(target, start + j + 2 * height)
            y = times(minus(load_sixteen_part(target, start + j, count - j), middle), unit)
            y = rounded_like(between(y, negative(bound), bound), zero)
            z = totals(partial, j * SIXTEEN)
            if kind == LOGISTIC:
                z = minus(sigmoid(z), between(y, zero, one))
            else:
                side = one
                if kind == MARGIN:  # −s·q'(1 − s·z) = −s·q'(−s·(z − s)) for s = ±1
                    y = side_of(y, half)
                    side = negative(y)
                z = times(side, between(divided(times(side, minus(z, y)), width), lower, upper))
            store(partial, slopes + j, z)
        begin = 0
        while begin < count:  # one user after another
            while offsets[k + 1] <= start + begin:
                k += 1
            before = start + begin - offsets[k]
            last = min(count, offsets[k + 1] - start, begin + _CARRY - before % _CARRY)
            done = last == offsets[k + 1] - start
            part = 1.0 / (offsets[k + 1] - offsets[k]) if done else 1.0
            full = done or (before + last - begin) % _CARRY == 0
            for i in range(0, dimension, _COLUMNS):
                at, of = k * dimension + i, carried + i
                a = b = c = d = zero
                if before % _CARRY:
                    a, b = load_sixteen(rows, of), load_sixteen(rows, of + SIXTEEN)
                    c, d = load_sixteen(rows, of + 2 * SIXTEEN), load_sixteen(rows, of + 3 * SIXTEEN)
                for j in range(begin, last):
                    weight, to = sixteen_from(partial, slopes + j), j * wide + i
                    a = plus_product(a, weight, load_sixteen(rows, to))
                    b = plus_product(b, weight, load_sixteen(rows, to + SIXTEEN))
                    c = plus_product(c, weight, load_sixteen(rows, to + 2 * SIXTEEN))
                    d = plus_product(d, weight, load_sixteen(rows, to + 3 * SIXTEEN))
                if full:
                    _carry(a, part, out, at)
                    _carry(b, part, out, at + SIXTEEN)
                    _carry(c, part, out, at + 2 * SIXTEEN)
                    _carry(d, part, out, at + 3 * SIXTEEN)
                else:
                    store(rows, of, a)
                    store(rows, of + SIXTEEN, b)
                    store(rows, of + 2 * SIXTEEN, c)
                    store(rows, of + 3 * SIXTEEN, d)
            begin = last


@njit(nogil=True, forceinline=True)  # type: ignore[untyped-decorator]
def _constants(center: Rows, inverse: Rows, rest: Rows, limit: Rows, weights: Rows, at: int) -> Any:
    """The map of sixteen columns and their coefficients."""
    return (
        load_sixteen(center, at),
        load_sixteen(inverse, at),
        load_sixteen(rest, at),
        load_sixteen(limit, at),
        load_sixteen(weights, at),
    )


@njit(nogil=True, forceinline=True)  # type: ignore[untyped-decorator]
def _map(values: Any, constants: Any, rows: Rows, to: int, predicted: Any) -> Any:
    """Sixteen columns of a row, shifted, scaled and clamped, into the tile; their share of the prediction is added."""
    center, inverse, rest, limit, weights = constants
    mapped = between(plus_product(rest, minus(values, center), inverse), negative(limit), limit)
    store(rows, to, mapped)
    return plus_product(predicted, mapped, weights)


@njit(nogil=True, forceinline=True)  # type: ignore[untyped-decorator]
def _carry(sums: Any, share: float, out: Floats, at: int) -> None:
    """out = (out + sums)·share in float64."""
    store(out, at, times(plus(load(out, at), first_half(sums)), spread(share)))
    store(out, at + WIDTH, times(plus(load(out, at + WIDTH), second_half(sums)), spread(share)))
