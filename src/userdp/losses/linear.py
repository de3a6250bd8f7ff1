"""From a row's prediction to a user's loss: h_k(θ) = (1/m_k) Σ_j φ(⟨x̃_j, θ⟩, ỹ_j).

``FeatureMap`` is the public transformation x ↦ x̃ (shift, scale, clamp, intercept). Losses and gradients apply it in
registers: a tile of rows that fits the processor's cache is read twice, for the predictions and for the sums, and the
transformed data never exists. Sums run in an order that depends on the number of features and of the user's rows only,
not in BLAS's, which varies with the shape of the chunk: what is computed for a user is a function of its own rows to
the last bit, and replacing somebody else cannot move it across a threshold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from userdp.data.blocks import Rows, UserBlock
from userdp.data.sparse import SparseRows, as_sparse, dense
from userdp.losses.base import Floats, Loss, PhaseGradients, PointLosses
from userdp.losses.fused import Shift, Shifts, fused_weights, mean_gradients, slope_of
from userdp.losses.points import LinearPoints, mean_squares
from userdp.losses.sparse import sparse_add_sums, sparse_predictions, sparse_squared_distances
from userdp.losses.vectors import WIDTH, load, padded, plus_product, round_up, spread, spread_from, store

# Numbers in a tile of rows: 4 MB at most, so that its second reading comes out of the processor's cache.
CHUNK_NUMBERS = 1 << 19
# Sums over features may be reordered (for vector instructions) and contracted, but infinities stay what they are.
FAST = {"reassoc", "contract", "nsz"}


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """x̃ = clamp((x − center)/scale, ±bound), followed by a constant 1 if ``intercept``; targets likewise.

    All of it is public: declared, or released privately beforehand. The clamp is the rule that makes rows of any
    magnitude harmless (nothing overflows) without looking at anybody's data.
    """

    center: Floats
    scale: Floats
    bound: float = 1e4
    intercept: bool = True
    target_center: float = 0.0
    target_scale: float = 1.0
    target_bound: float = 1e4

    @classmethod
    def identity(cls, n_features: int, *, bound: float = 1e4, intercept: bool = False) -> FeatureMap:
        """Leave values within ±bound as they are."""
        return cls(np.zeros(n_features), np.ones(n_features), bound, intercept, target_bound=bound)

    @property
    def dimension(self) -> int:
        """Number of coefficients, the intercept's included."""
        return len(self.center) + self.intercept

    @property
    def row_bound(self) -> float:
        """Public bound on ‖x̃‖."""
        return self.bound * math.sqrt(self.dimension)

    @property
    def constants(self) -> tuple[Floats, Floats, float]:
        """What the compiled loops take: center, 1/scale, bound."""
        return self.center, 1.0 / self.scale, float(self.bound)

    @cached_property
    def shifts(self) -> Shifts:
        """The map as compiled code knows it."""
        return Shift.of(self.center, self.scale, self.bound, self.dimension)

    def rows(self, features: Rows) -> Floats:
        """Transformed rows, (rows, dimension) float64."""
        out = np.empty((features.shape[0], self.dimension))
        _transform(dense(features), *self.constants, out)
        return out

    def predictions(self, features: Rows, weights: Floats) -> Floats:
        """⟨x̃_j, weights⟩ for every row, without forming x̃."""
        weights = np.ascontiguousarray(weights, dtype=np.float64)
        if (sparse := as_sparse(features)) is not None:
            return sparse_predictions(sparse, *self.constants, weights)
        out = np.empty(features.shape[0])
        _predict(features, *self.constants, weights, out)
        return out

    def add_sums(self, features: Rows, weights: Floats, offsets: NDArray[np.int64], out: Floats) -> None:
        """out[k] += Σ_j weights[j]·x̃_j over the rows of user k, without forming x̃."""
        if (sparse := as_sparse(features)) is not None:
            sparse_add_sums(sparse, *self.constants, weights, offsets, out)
        else:
            _add_user_rows(features, *self.constants, weights, offsets, out)

    def squared_distances(self, features: SparseRows, point: Floats) -> Floats:
        """‖x̃_j − point‖² for every sparse row, without forming x̃."""
        return sparse_squared_distances(features, *self.constants, point)

    def targets(self, target: Floats) -> Floats:
        """Transformed targets; the identity returns its argument."""
        if self.target_center == 0.0 and self.target_scale == 1.0:
            return np.clip(target, -self.target_bound, self.target_bound)
        with np.errstate(over="ignore"):
            return np.clip((target - self.target_center) / self.target_scale, -self.target_bound, self.target_bound)

    def fold(self, coefficients: Floats) -> Floats:
        """θ on transformed features of coefficients on the original ones, the intercept last: undoes ``unfold``."""
        weights = coefficients[: len(self.center)] * self.scale / self.target_scale
        if not self.intercept:
            return np.asarray(weights)
        constant = coefficients[-1] + coefficients[:-1] @ self.center - self.target_center
        return np.append(weights, constant / self.target_scale)

    @property
    def limits(self) -> tuple[Floats, Floats]:
        """Smallest and largest value of each feature that is not clamped."""
        return self.center - self.bound * self.scale, self.center + self.bound * self.scale

    def unfold(self, theta: Floats) -> tuple[Floats, float]:
        """Coefficients and intercept on the original features of the model θ on transformed ones (if not clamped)."""
        weights = theta[: len(self.center)] / self.scale * self.target_scale
        constant = theta[-1] * self.target_scale if self.intercept else 0.0
        return weights, float(constant + self.target_center - weights @ self.center)


@dataclass(frozen=True)
class LinearModel:
    """A loss of a linear prediction over mapped features; all methods take a block and return one entry a user.

    ``geometry`` P, (features, dimension) or a vector for its diagonal, changes coordinates: predictions are ⟨x̃, Pθ⟩,
    so gradients and their norms, hence caps and noise, live in the coordinates of θ. It is public.
    """

    loss: Loss
    features: FeatureMap
    geometry: Floats | None = None

    @property
    def dimension(self) -> int:
        """Number of coefficients."""
        return self.features.dimension if self.geometry is None else self.geometry.shape[-1]

    @property
    def row_bound(self) -> float:
        """Public bound on the length of a row in the coordinates of θ."""
        largest = np.inf if self.geometry is not None and self.geometry.ndim == 1 else 2
        stretch = 1.0 if self.geometry is None else float(np.linalg.norm(self.geometry, largest))
        return self.features.row_bound * stretch

    @property
    def n_features(self) -> int:
        """Number of columns of the data."""
        return len(self.features.center)

    def at_points(self, block: UserBlock, center: Floats) -> PointLosses:
        """The losses of a block's users at points relative to ``center``."""
        return LinearPoints.of(self, block, center)

    def gradient_scale(self, radius: float) -> tuple[float, float]:
        """Largest slope times the longest row; for an unbounded slope it grows by smoothness·row²."""
        row = self.row_bound
        growth = 0.0 if math.isfinite(self.loss.lipschitz) else self.loss.smoothness * row * row
        return row * loss_slope(self.loss, row * radius, self.features.target_bound), growth

    def user_smoothness(self, block: UserBlock) -> Floats:
        """φ''_max·(1/m_k) Σ_j ‖x̃_j‖²."""
        return self.loss.smoothness * mean_squares(self.rows(block.features), block.offsets)

    def coefficients(self, theta: Floats) -> Floats:
        """Coefficients on the mapped features of the model θ."""
        return theta if self.geometry is None else apply(self.geometry, theta)

    def rows(self, features: Rows) -> Floats:
        """What θ is multiplied with, (rows, dimension)."""
        rows = self.features.rows(features)
        return rows if self.geometry is None else rows_times(rows, self.geometry)

    def user_losses(self, block: UserBlock, theta: Floats) -> Floats:
        """h_k(θ), shape (users,)."""
        out = np.zeros(block.n_users)
        for _, offsets, predicted, target in self._tiles(block, theta):
            _add_user_values(self.loss.value(predicted, target), offsets, out)
        return out / _row_counts(block)

    def user_gradients(self, block: UserBlock, theta: Floats) -> Floats:
        """∇h_k(θ), shape (users, dimension)."""
        out = np.zeros((block.n_users, self.features.dimension))
        for tile, offsets, predicted, values in self._tiles(block, theta):
            self.features.add_sums(tile, self.loss.derivative(predicted, values), offsets, out)
        out /= _row_counts(block)[:, None]
        return out if self.geometry is None else rows_times(out, self.geometry)

    def phase(self, theta: Floats) -> PhaseGradients:
        """The gradients at θ as phases take them: those of float32 rows in single precision."""
        return LinearPhase(self, theta)

    def curved_rows(self, block: UserBlock, theta: Floats) -> tuple[Floats, Floats]:
        """x̃_j and φ''_j: h_k has the Hessian (1/m_k) Σ_j φ''_j x̃_j x̃_jᵀ."""
        rows = self.rows(block.features)
        return rows, self.loss.curvature(predictions(rows, theta), self.features.targets(block.target))

    def _tiles(self, block: UserBlock, theta: Floats) -> Iterator[tuple[Rows, NDArray[np.int64], Floats, Floats]]:
        """Original rows, clipped offsets, predictions and targets, a cache-sized number of rows at a time.

        Sparse rows come all at once: they are small, and what the zeros add is added once a user.
        """
        weights = self.coefficients(theta)
        sparse = as_sparse(block.features) is not None
        step = max(block.n_rows if sparse else CHUNK_NUMBERS // self.features.dimension, 1)
        for start in range(0, max(block.n_rows, 1), step):
            stop = min(start + step, block.n_rows)
            offsets = block.offsets if stop - start == block.n_rows else np.clip(block.offsets, start, stop) - start
            tile = block.features[start:stop]
            predicted = self.features.predictions(tile, weights)
            yield tile, offsets, predicted, self.features.targets(block.target[start:stop])


@dataclass(frozen=True, eq=False)
class LinearPhase:
    """``user_gradients`` at one θ, in one reading of the rows and in their precision, where these are dense and the
    loss declares its slope.

    What is the same for all chunks is computed once in each process.
    """

    model: LinearModel
    theta: Floats

    @cached_property
    def _weights(self) -> dict[np.dtype[Any], Rows]:
        return fused_weights(self.model.coefficients(self.theta), self.model.features.shifts)

    @cached_property
    def _turn(self) -> Floats | None:
        geometry = self.model.geometry
        return geometry if geometry is None or geometry.ndim == 1 else padded(geometry, round_up(geometry.shape[1]))

    def __call__(self, block: UserBlock) -> Floats:
        """∇h_k(θ), shape (users, dimension); the same bits whoever else is in the block."""
        model, maps, slope = self.model, self.model.features, slope_of(self.model.loss)
        if slope is None or as_sparse(block.features) is not None:
            return model.user_gradients(block, self.theta)
        units = maps.target_center, maps.target_scale, maps.target_bound
        weights, dimension, target = self._weights, maps.dimension, block.target
        out = mean_gradients(block.features, maps.shifts, weights, dimension, target, units, block.offsets, slope)
        return out if self._turn is None else _turned(out, self._turn, model.dimension)


def loss_slope(loss: Loss, prediction: float, target: float) -> float:
    """Bound on |∂φ/∂z| for |z| ≤ prediction and |y| ≤ target; refuses a loss that overflows there.

    A certificate means nothing where a loss is not a number, so that is looked for here, before any data: on both sides
    of zero, from small predictions to the largest.
    """
    sizes = np.append(np.geomspace(1e-3, max(min(prediction, 1e100), 1.0), 64), [0.0, min(prediction, 1e100)])
    points = np.concatenate([-sizes, sizes])
    slopes = []
    for y in (-target, 0.0, 1.0, target):
        with np.errstate(all="ignore"):
            values, slope = (call(points, np.full(len(points), y)) for call in (loss.value, loss.derivative))
        bad = np.flatnonzero(~(np.isfinite(values) & np.isfinite(slope)))
        if bad.size:
            at = points[bad[np.argmin(np.abs(points[bad]))]]
            raise ValueError(
                f"{loss} is not a finite number at prediction {at:.3g} and target {y:.3g}: write it so that it does "
                "not overflow, or give the features and targets smaller bounds"
            )
        slopes.append(float(np.max(np.abs(slope))))
    return loss.lipschitz if math.isfinite(loss.lipschitz) else max(slopes)


def _row_counts(block: UserBlock) -> Floats:
    """m_k, with 1 for users without rows (their sums are 0)."""
    return np.maximum(np.diff(block.offsets), 1).astype(np.float64)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _transform(features: Rows, center: Floats, inverse: Floats, bound: float, out: Floats) -> None:
    n_features = features.shape[1]
    for j in range(features.shape[0]):
        for i in range(n_features):
            out[j, i] = min(max((features[j, i] - center[i]) * inverse[i], -bound), bound)
        for i in range(n_features, out.shape[1]):
            out[j, i] = 1.0


@njit(cache=True, nogil=True, fastmath=FAST)  # type: ignore[untyped-decorator]
def _predict(features: Rows, center: Floats, inverse: Floats, bound: float, weights: Floats, out: Floats) -> None:
    """out[j] = ⟨x̃_j, weights⟩."""
    n_features = features.shape[1]
    constant = 0.0
    for i in range(n_features, len(weights)):
        constant += weights[i]
    for j in range(features.shape[0]):
        total = 0.0
        for i in range(n_features):
            total += weights[i] * min(max((features[j, i] - center[i]) * inverse[i], -bound), bound)
        out[j] = total + constant


@njit(cache=True, nogil=True, fastmath={"contract"})  # type: ignore[untyped-decorator]
def _add_user_rows(
    features: Rows,
    center: Floats,
    inverse: Floats,
    bound: float,
    weights: Floats,
    offsets: NDArray[np.int64],
    out: Floats,
) -> None:
    """out[k] += Σ_j weights[j]·x̃_j over the rows of user k."""
    n_features = features.shape[1]
    for k in range(len(offsets) - 1):
        for j in range(offsets[k], offsets[k + 1]):
            weight = weights[j]
            for i in range(n_features):
                out[k, i] += weight * min(max((features[j, i] - center[i]) * inverse[i], -bound), bound)
            for i in range(n_features, out.shape[1]):
                out[k, i] += weight


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_user_values(values: Floats, offsets: NDArray[np.int64], out: Floats) -> None:
    for k in range(len(offsets) - 1):
        for j in range(offsets[k], offsets[k + 1]):
            out[k] += values[j]


def sum_by_user(values: Floats, offsets: NDArray[np.int64]) -> Floats:
    """Σ of a user's values, in row order: the same bits wherever the user stands."""
    out = np.zeros(len(offsets) - 1)
    _add_user_values(values, offsets, out)
    return out


def predictions(rows: Floats, weights: Floats) -> Floats:
    """⟨row, weights⟩ for every row; the same bits wherever the row stands."""
    out = np.empty(len(rows))
    _dot_rows(rows, weights, out)
    return out


def apply(geometry: Floats, theta: Floats) -> Floats:
    """Pθ; a vector is a diagonal matrix."""
    return np.asarray(geometry * theta if geometry.ndim == 1 else geometry @ theta)


def rows_times(rows: Floats, matrix: Floats) -> Floats:
    """rows @ matrix; the same bits wherever the row stands. A vector is a diagonal matrix."""
    wide = matrix if matrix.ndim == 1 else padded(matrix, round_up(matrix.shape[1]))
    return _turned(rows, wide, matrix.shape[-1])


def _turned(rows: Floats, matrix: Floats, width: int) -> Floats:
    """``rows_times`` a matrix that is padded to whole vectors; its first ``width`` columns count."""
    if matrix.ndim == 1:
        return np.asarray(rows * matrix)
    out = np.empty(len(rows) * width + WIDTH)
    _products(np.ascontiguousarray(rows), matrix, width, out)
    return out[: len(rows) * width].reshape(len(rows), width)


@njit(cache=True, nogil=True, fastmath=FAST)  # type: ignore[untyped-decorator]
def _dot_rows(rows: Floats, weights: Floats, out: Floats) -> None:
    for j in range(rows.shape[0]):
        total = 0.0
        for i in range(rows.shape[1]):
            total += rows[j, i] * weights[i]
        out[j] = total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _products(rows: Floats, matrix: Floats, width: int, out: Floats) -> None:
    """out = rows @ matrix, four rows at a time, the last columns first.

    Whole vectors are written: what falls behind a row's end is the beginning of the next row, which is written later.
    """
    count, inner = rows.shape
    wide = matrix.shape[1]
    for j in range(0, count, 4):
        p, q, r, s = j, min(j + 1, count - 1), min(j + 2, count - 1), min(j + 3, count - 1)
        for h in range(wide - WIDTH, -1, -WIDTH):
            a = b = c = d = spread(0.0)
            for i in range(inner):
                column = load(matrix, i * wide + h)
                a = plus_product(a, spread_from(rows, p * inner + i), column)
                b = plus_product(b, spread_from(rows, q * inner + i), column)
                c = plus_product(c, spread_from(rows, r * inner + i), column)
                d = plus_product(d, spread_from(rows, s * inner + i), column)
            store(out, p * width + h, a)
            store(out, q * width + h, b)
            store(out, r * width + h, c)
            store(out, s * width + h, d)
