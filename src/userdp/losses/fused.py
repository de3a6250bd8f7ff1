"""Gradients of linear models in one reading of the rows, for losses whose slope is one of three formulas.

A tile of rows, whoever they belong to, is mapped and predicted, then added up while it is in the processor's first
cache. A row's slope is a function of that row, and a user's sum runs over its rows in order: neither depends on where
the tiles begin.
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
    WIDTH,
    aligned,
    between,
    divided,
    load,
    load_part,
    minus,
    padded,
    plus,
    plus_product,
    round_up,
    side_of,
    spread,
    spread_from,
    store,
    times,
    times_power,
    totals,
)

LOGISTIC, RESIDUAL, MARGIN = 0, 1, 2
# Sums are taken over so many columns at a time: that hides how long an addition takes.
_COLUMNS = 4 * WIDTH
# Rows of at most so many bytes are mapped in pairs, which reads what is the same for both once. Longer ones are not:
# memory is fetched ahead of the loop only where it is read from one end to the other.
_SHORT = 224
# Numbers and rows in a tile of short rows: many slopes hide how long each takes; more would not stay in the cache.
_TILE, _HEIGHT = 1 << 10, 4 * WIDTH
_LARGEST = 1e200  # differences are clamped here at least: their sums do not overflow


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
    """A feature map as compiled code knows it: x ↦ clamp(x − center, ±limit), in the features' own units.

    Both are padded with zeros. The intercept is a column of zeros that is shifted to 1.
    """

    center: Floats
    limit: Floats

    @classmethod
    def of(cls, center: Floats, limit: Floats, dimension: int) -> Shift:
        """Public centres and limits of the features; ``dimension`` counts the intercept."""
        wide = round_up(dimension, _COLUMNS)
        shift = cls(padded(center, wide), padded(np.minimum(limit, _LARGEST), wide))
        shift.center[len(center) : dimension], shift.limit[len(center) : dimension] = -1.0, 1.0
        return shift


def mean_gradients(
    features: Rows,
    shift: Shift,
    weights: Floats,
    target: Floats,
    units: tuple[float, float, float],
    offsets: NDArray[np.int64],
    slope: Slope,
) -> Floats:
    """(1/m_k) Σ_j φ'(⟨x_j, weights⟩, y_j)·x_j over the shifted rows of user k, shape (users, dimension).

    ``units`` of the target are centre, scale and bound: y = clamp((target − centre)/scale, ±bound).
    """
    users, dimension, wide = len(offsets) - 1, len(weights), len(shift.center)
    # Whole vectors are written: behind a user's sums there are those of users to come, zeros as yet.
    out = np.zeros(users * dimension + _COLUMNS)
    features = np.ascontiguousarray(features)
    short = features.itemsize * features.shape[1] <= _SHORT
    height = min(max(_TILE // (wide * WIDTH), 1) * WIDTH, _HEIGHT) if short else WIDTH
    scratch = aligned(height, wide), aligned(height, WIDTH), aligned(height)
    _add_gradients(
        features,
        *shift,
        padded(weights, wide),
        target,
        *units,
        offsets,
        dimension,
        *slope,
        short,
        *scratch,
        out,
    )
    return out[: users * dimension].reshape(users, dimension)


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _add_gradients(
    features: Rows,
    center: Floats,
    limit: Floats,
    weights: Floats,
    target: Floats,
    middle: float,
    unit: float,
    bound: float,
    offsets: NDArray[np.int64],
    dimension: int,
    kind: int,
    lower: float,
    upper: float,
    width: float,
    short: bool,
    rows: Floats,
    partial: Floats,
    slopes: Floats,
    out: Floats,
) -> None:
    """``rows``, ``partial`` (a row's sums over every eighth column) and ``slopes`` are scratch for a tile."""
    n_features, end = features.shape[1], offsets[len(offsets) - 1]
    height, wide = rows.shape
    whole = n_features - n_features % WIDTH
    rest = n_features - whole
    k = 0
    for start in range(offsets[0], end, height):
        count = min(height, end - start)
        for j in range(0, count, 2 if short else 1):
            p, to, a, b = (start + j) * n_features, j * wide, spread(0.0), spread(0.0)
            if short:
                q = min(start + j + 1, end - 1) * n_features  # behind the last row it comes once more, and is not used
                for i in range(0, whole, WIDTH):
                    middles, high, factors = load(center, i), load(limit, i), load(weights, i)
                    a = _map(load(features, p + i), middles, high, factors, rows, to + i, a)
                    b = _map(load(features, q + i), middles, high, factors, rows, to + wide + i, b)
                if whole < dimension:
                    middles, high, factors = load(center, whole), load(limit, whole), load(weights, whole)
                    a = _map(load_part(features, p + whole, rest), middles, high, factors, rows, to + whole, a)
                    b = _map(load_part(features, q + whole, rest), middles, high, factors, rows, to + wide + whole, b)
                store(partial, (j + 1) * WIDTH, b)
            else:
                for i in range(0, whole, WIDTH):
                    middles, high, factors = load(center, i), load(limit, i), load(weights, i)
                    a = _map(load(features, p + i), middles, high, factors, rows, to + i, a)
                if whole < dimension:
                    middles, high, factors = load(center, whole), load(limit, whole), load(weights, whole)
                    a = _map(load_part(features, p + whole, rest), middles, high, factors, rows, to + whole, a)
            store(partial, j * WIDTH, a)
        for j in range(0, count, WIDTH):
            y = divided(minus(load_part(target, start + j, count - j), spread(middle)), spread(unit))
            y = between(y, spread(-bound), spread(bound))
            store(slopes, j, _slopes(totals(partial, j * WIDTH), y, kind, lower, upper, width))
        first = 0
        while first < count:  # one user after another
            while offsets[k + 1] <= start + first:
                k += 1
            last = min(count, offsets[k + 1] - start)
            share = 1.0 / (offsets[k + 1] - offsets[k]) if last == offsets[k + 1] - start else 1.0
            for i in range(0, dimension, _COLUMNS):
                at = k * dimension + i
                a, b = load(out, at), load(out, at + WIDTH)
                c, d = load(out, at + 2 * WIDTH), load(out, at + 3 * WIDTH)
                for j in range(first, last):
                    weight, of = spread_from(slopes, j), j * wide + i
                    a = plus_product(a, weight, load(rows, of))
                    b = plus_product(b, weight, load(rows, of + WIDTH))
                    c = plus_product(c, weight, load(rows, of + 2 * WIDTH))
                    d = plus_product(d, weight, load(rows, of + 3 * WIDTH))
                store(out, at, times(a, spread(share)))
                store(out, at + WIDTH, times(b, spread(share)))
                store(out, at + 2 * WIDTH, times(c, spread(share)))
                store(out, at + 3 * WIDTH, times(d, spread(share)))
            first = last


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _map(values: Any, middles: Any, high: Any, factors: Any, rows: Floats, to: int, predicted: Any) -> Any:
    """Eight columns of a row, shifted and clamped, into the tile; their share of the prediction is added."""
    mapped = between(minus(values, middles), minus(spread(0.0), high), high)
    store(rows, to, mapped)
    return plus_product(predicted, mapped, factors)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _slopes(z: Any, y: Any, kind: int, lower: float, upper: float, width: float) -> Any:
    """φ'(z, y) of eight rows."""
    if kind == LOGISTIC:
        return minus(_sigmoid(z), between(y, spread(0.0), spread(1.0)))
    side = spread(1.0)
    if kind == MARGIN:  # −s·q'(1 − s·z) = −s·q'(−s·(z − s)) for s = ±1
        y = side_of(y, spread(0.5))
        side = minus(spread(0.0), y)
    bent = between(divided(times(side, minus(z, y)), spread(width)), spread(lower), spread(upper))
    return times(side, bent)


_ROUND = 1.5 * 2.0**52  # adding and subtracting it rounds to a whole number
_LOG2, _LOG2_REST = 0.693147180369123816490, 1.90821492927058770002e-10  # ln 2 in two parts; the first has few digits


# 1/0!, 1/1!, …, 1/13!: the series of e^r, off by less than 2^−57 for |r| ≤ ln(2)/2.
_SERIES = np.array([1.0 / math.factorial(i) for i in range(14)])


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _sigmoid(z: Any) -> Any:
    """1/(1 + e^−z) of eight numbers, to a few units of the last digit; e^−z = 2^k·e^r with k whole."""
    z = between(z, spread(-700.0), spread(700.0))
    k = minus(plus(times(z, spread(-1.0 / math.log(2.0))), spread(_ROUND)), spread(_ROUND))
    r = minus(spread(0.0), plus_product(plus_product(z, k, spread(_LOG2)), k, spread(_LOG2_REST)))
    square, even, odd = times(r, r), spread(0.0), spread(0.0)
    for i in range(12, -1, -2):  # even and odd terms do not wait for each other
        even = plus_product(spread_from(_SERIES, i), even, square)
        odd = plus_product(spread_from(_SERIES, i + 1), odd, square)
    power = times_power(plus_product(even, odd, r), k)
    return divided(spread(1.0), plus(spread(1.0), power))
