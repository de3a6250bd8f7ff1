"""Gradients of linear models in one reading of the rows, for losses whose slope is one of three formulas.

A few rows at a time are mapped, predicted and added up while they are in the processor's first cache. The order of all
sums depends on the number of features and of the user's rows only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from userdp.data.blocks import Rows
from userdp.losses.base import Floats, Loss

LOGISTIC, RESIDUAL, MARGIN = 0, 1, 2
# Numbers in the rows that are held at a time: 8 kB.
_TILE = 1024


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


def add_gradients(
    features: Rows,
    constants: tuple[Floats, Floats, float],
    weights: Floats,
    target: Floats,
    offsets: NDArray[np.int64],
    slope: Slope,
    out: Floats,
) -> None:
    """out[k] += Σ_j φ'(⟨x̃_j, weights⟩, target_j)·x̃_j over the rows of user k; ``constants`` are the feature map's."""
    tile = max(_TILE // features.shape[1], 1)
    rows, slopes = np.empty((tile, features.shape[1])), np.empty(tile)
    _add_gradients(features, *constants, weights, target, offsets, *slope, rows, slopes, out)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})  # type: ignore[untyped-decorator]
def _add_gradients(
    features: Rows,
    center: Floats,
    inverse: Floats,
    bound: float,
    weights: Floats,
    target: Floats,
    offsets: NDArray[np.int64],
    kind: int,
    lower: float,
    upper: float,
    width: float,
    rows: Floats,
    slopes: Floats,
    out: Floats,
) -> None:
    n_features = features.shape[1]
    tile = len(slopes)
    constant = 0.0
    for i in range(n_features, len(weights)):
        constant += weights[i]
    for k in range(len(offsets) - 1):
        common = 0.0
        for start in range(offsets[k], offsets[k + 1], tile):
            count = min(tile, offsets[k + 1] - start)
            for j in range(count):
                for i in range(n_features):
                    rows[j, i] = min(max((features[start + j, i] - center[i]) * inverse[i], -bound), bound)
                total = 0.0
                for i in range(n_features):  # apart from the stores: the order of a sum must not depend on addresses
                    total += weights[i] * rows[j, i]
                slopes[j] = total + constant
            for j in range(count):
                y = target[start + j]
                if kind == LOGISTIC:
                    slopes[j] = 1.0 / (1.0 + math.exp(-slopes[j])) - min(max(y, 0.0), 1.0)
                elif kind == RESIDUAL:
                    slopes[j] = min(max((slopes[j] - y) / width, lower), upper)
                else:
                    sign = 1.0 if y > 0.5 else -1.0
                    slopes[j] = -sign * min(max((1.0 - sign * slopes[j]) / width, lower), upper)
                common += slopes[j]
            whole = count - count % 4
            for j in range(0, whole, 4):  # four rows at a time: ``out`` is touched a quarter as often
                a, b, c, d = slopes[j], slopes[j + 1], slopes[j + 2], slopes[j + 3]
                for i in range(n_features):
                    out[k, i] += (a * rows[j, i] + b * rows[j + 1, i]) + (c * rows[j + 2, i] + d * rows[j + 3, i])
            for j in range(whole, count):
                a = slopes[j]
                for i in range(n_features):
                    out[k, i] += a * rows[j, i]
        for i in range(n_features, out.shape[1]):
            out[k, i] += common
