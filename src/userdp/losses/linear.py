"""From a row's prediction to a user's loss: h_k(θ) = (1/m_k) Σ_j φ(⟨x̃_j, θ⟩, ỹ_j).

``FeatureMap`` is the public transformation x ↦ x̃ (shift, scale, clamp, intercept). It is applied a chunk of rows at a
time, so the transformed data never exists as a whole; after it, everything is plain linear algebra on the chunk.
"""

from __future__ import annotations

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
        """Coefficients and intercept on the original features of the model θ on transformed ones (where not clamped)."""
        weights = theta[: len(self.center)] / self.scale * self.target_scale
        constant = theta[-1] * self.target_scale if self.intercept else 0.0
        return weights, float(constant + self.target_center - weights @ self.center)


@dataclass(frozen=True)
class LinearModel:
    """A loss of a linear prediction over mapped features; all methods take a block and return one entry a user."""

    loss: Loss
    features: FeatureMap

    @property
    def dimension(self) -> int:
        """Number of coefficients."""
        return self.features.dimension

    def user_losses(self, block: UserBlock, theta: Floats) -> Floats:
        """h_k(θ), shape (users,)."""
        out = np.zeros((block.n_users, 1))
        for rows, target, offsets in self._pieces(block):
            _add_user_sums(np.ones((len(rows), 1)), self.loss.value(rows @ theta, target), offsets, out)
        return out[:, 0] / _row_counts(block)

    def user_gradients(self, block: UserBlock, theta: Floats) -> Floats:
        """∇h_k(θ), shape (users, dimension)."""
        out = np.zeros((block.n_users, self.dimension))
        for rows, target, offsets in self._pieces(block):
            _add_user_sums(rows, self.loss.derivative(rows @ theta, target), offsets, out)
        out /= _row_counts(block)[:, None]
        return out

    def user_moments(self, block: UserBlock) -> Iterator[tuple[int, Floats]]:
        """Each user's mean outer product (1/m_k) Σ_j x̃_j x̃_jᵀ, one at a time, with the user's number in the block."""
        for k in range(block.n_users):
            moment = np.zeros((self.dimension, self.dimension))
            for rows, _, _ in self._pieces(block.users(k, k + 1)):
                moment += rows.T @ rows
            yield k, moment / max(block.offsets[k + 1] - block.offsets[k], 1)

    def _pieces(self, block: UserBlock) -> Iterator[tuple[Floats, Floats, NDArray[np.int64]]]:
        """Transformed rows, targets and clipped offsets, a cache-sized number of rows at a time."""
        step = max(CHUNK_NUMBERS // self.dimension, 1)
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
