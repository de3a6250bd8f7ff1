"""From a row's prediction to a user's loss: h_k(θ) = (1/m_k) Σ_j φ(⟨x̃_j, θ⟩, ỹ_j).

``FeatureMap`` is the public transformation x ↦ x̃ (shift, scale, clamp, intercept). It is applied a chunk of rows at a
time, so the transformed data never exists as a whole; after it, everything is plain linear algebra on the chunk. Sums
run in the order of the rows and features, not in BLAS's, which varies with the shape of the chunk: what is computed for
a user is a function of its own rows to the last bit, and replacing somebody else cannot move it across a threshold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from userdp.data.blocks import Rows, UserBlock
from userdp.losses.base import Floats, Loss

# Numbers in a chunk of transformed rows: about 1 MB, so that it stays in the processor's cache.
CHUNK_NUMBERS = 1 << 17


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

    def rows(self, features: Rows) -> Floats:
        """Transformed rows, (rows, dimension) float64."""
        out = np.empty((features.shape[0], self.dimension))
        _transform(features, self.center, 1.0 / self.scale, self.bound, out)
        return out

    def targets(self, target: Floats) -> Floats:
        """Transformed targets; the identity returns its argument."""
        if self.target_center == 0.0 and self.target_scale == 1.0:
            return np.clip(target, -self.target_bound, self.target_bound)
        with np.errstate(over="ignore"):
            return np.clip((target - self.target_center) / self.target_scale, -self.target_bound, self.target_bound)

    def unfold(self, theta: Floats) -> tuple[Floats, float]:
        """Coefficients and intercept on the original features of the model θ on transformed ones (if not clamped)."""
        weights = theta[: len(self.center)] / self.scale * self.target_scale
        constant = theta[-1] * self.target_scale if self.intercept else 0.0
        return weights, float(constant + self.target_center - weights @ self.center)


@dataclass(frozen=True)
class LinearModel:
    """A loss of a linear prediction over mapped features; all methods take a block and return one entry a user.

    ``geometry`` P, (features, dimension), changes coordinates: predictions are ⟨x̃, Pθ⟩, so gradients and their norms,
    hence caps and noise, live in the coordinates of θ. It is public.
    """

    loss: Loss
    features: FeatureMap
    geometry: Floats | None = None

    @property
    def dimension(self) -> int:
        """Number of coefficients."""
        return self.features.dimension if self.geometry is None else self.geometry.shape[1]

    @property
    def row_bound(self) -> float:
        """Public bound on the length of a row in the coordinates of θ."""
        stretch = 1.0 if self.geometry is None else float(np.linalg.norm(self.geometry, 2))
        return self.features.bound * math.sqrt(self.features.dimension) * stretch

    def coefficients(self, theta: Floats) -> Floats:
        """Coefficients on the mapped features of the model θ."""
        return theta if self.geometry is None else np.asarray(self.geometry @ theta)

    def rows(self, features: Rows) -> Floats:
        """What θ is multiplied with, (rows, dimension)."""
        rows = self.features.rows(features)
        return rows if self.geometry is None else _rows_times(rows, self.geometry)

    def user_losses(self, block: UserBlock, theta: Floats) -> Floats:
        """h_k(θ), shape (users,)."""
        out = np.zeros((block.n_users, 1))
        weights = self.coefficients(theta)
        for rows, target, offsets in self._pieces(block):
            _add_user_sums(np.ones((len(rows), 1)), self.loss.value(predictions(rows, weights), target), offsets, out)
        return out[:, 0] / _row_counts(block)

    def user_gradients(self, block: UserBlock, theta: Floats) -> Floats:
        """∇h_k(θ), shape (users, dimension)."""
        out = np.zeros((block.n_users, self.features.dimension))
        weights = self.coefficients(theta)
        for rows, target, offsets in self._pieces(block):
            _add_user_sums(rows, self.loss.derivative(predictions(rows, weights), target), offsets, out)
        out /= _row_counts(block)[:, None]
        return out if self.geometry is None else _rows_times(out, self.geometry)

    def _pieces(self, block: UserBlock) -> Iterator[tuple[Floats, Floats, NDArray[np.int64]]]:
        """Transformed rows, targets and clipped offsets, a cache-sized number of rows at a time."""
        step = max(CHUNK_NUMBERS // self.features.dimension, 1)
        for start in range(0, max(block.n_rows, 1), step):
            stop = min(start + step, block.n_rows)
            offsets = np.clip(block.offsets, start, stop) - start
            rows = self.features.rows(block.features[start:stop])
            yield rows, self.features.targets(block.target[start:stop]), offsets


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


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_user_sums(rows: Floats, weights: Floats, offsets: NDArray[np.int64], out: Floats) -> None:
    """out[k] += Σ_j weights[j]·rows[j] over the rows of user k."""
    for k in range(len(offsets) - 1):
        for j in range(offsets[k], offsets[k + 1]):
            for i in range(rows.shape[1]):
                out[k, i] += weights[j] * rows[j, i]


def predictions(rows: Floats, weights: Floats) -> Floats:
    """⟨row, weights⟩ for every row; the same bits wherever the row stands."""
    out = np.empty(len(rows))
    _dot_rows(rows, weights, out)
    return out


def _rows_times(rows: Floats, matrix: Floats) -> Floats:
    out = np.zeros((len(rows), matrix.shape[1]))
    _add_products(rows, matrix, out)
    return out


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _dot_rows(rows: Floats, weights: Floats, out: Floats) -> None:
    """out[j] = ⟨rows[j], weights⟩ in four interleaved sums."""
    n_features = rows.shape[1]
    whole = n_features - n_features % 4
    for j in range(rows.shape[0]):
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for i in range(0, whole, 4):
            a += rows[j, i] * weights[i]
            b += rows[j, i + 1] * weights[i + 1]
            c += rows[j, i + 2] * weights[i + 2]
            d += rows[j, i + 3] * weights[i + 3]
        for i in range(whole, n_features):
            a += rows[j, i] * weights[i]
        out[j] = (a + b) + (c + d)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_products(rows: Floats, matrix: Floats, out: Floats) -> None:
    """out += rows @ matrix, row by row."""
    for j in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            for k in range(matrix.shape[1]):
                out[j, k] += rows[j, i] * matrix[i, k]
