"""Multinomial logistic loss: K linear predictions a row.

Adding the same vector to all K coefficient rows changes no probability, so K − 1 of them are free. θ holds them in an
orthonormal basis C of the vectors that sum to zero, logits = C·W·x̃ with W of shape (K − 1, features): no class is
special, and a gradient is as long as it is in the K rows themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from userdp.data.blocks import UserBlock
from userdp.losses.base import Floats, PointLosses
from userdp.losses.linear import FeatureMap, apply, rows_times
from userdp.losses.points import mean_by_user, mean_outer_by_user, mean_squares, predict, rows_of


@lru_cache(maxsize=16)
def contrasts(classes: int) -> Floats:
    """C, (K, K − 1): orthonormal columns that sum to zero; not to be written to.

    >>> contrasts(2).round(3).tolist()
    [[-0.707], [0.707]]
    """
    basis = np.zeros((classes, classes - 1))
    for j in range(classes - 1):
        basis[: j + 1, j] = -1.0
        basis[j + 1, j] = j + 1.0
    basis /= np.linalg.norm(basis, axis=0)
    basis.flags.writeable = False
    return basis


@dataclass(frozen=True, eq=False)
class SoftmaxModel:
    """h_k(W) = (1/m_k) Σ_j [log Σ_c exp(z_jc) − z_{j, y_j}], z_j = C·W·Pᵀx̃_j, y_j ∈ {0, …, K − 1}.

    θ is W, row by row; ``geometry`` P is that of each row. A target that is no class counts as the nearest one.
    """

    classes: int
    features: FeatureMap
    geometry: Floats | None = None

    @property
    def dimension(self) -> int:
        """Number of coefficients, (K − 1) times that of one class."""
        return (self.classes - 1) * (self.features.dimension if self.geometry is None else self.geometry.shape[-1])

    @property
    def n_features(self) -> int:
        """Number of columns of the data."""
        return len(self.features.center)

    def rows(self, block: UserBlock) -> Floats:
        """What one class's coefficients are multiplied with."""
        rows = self.features.rows(block.features)
        return rows if self.geometry is None else rows_times(rows, self.geometry)

    def at_points(self, block: UserBlock, center: Floats) -> PointLosses:
        """The losses of a block's users at points relative to ``center``."""
        return SoftmaxPoints.of(self, block, center)

    def gradient_scale(self, radius: float) -> tuple[float, float]:
        """√2 times the longest row, and what the rounding of logits does to differences of them."""
        largest = np.inf if self.geometry is not None and self.geometry.ndim == 1 else 2
        stretch = 1.0 if self.geometry is None else float(np.linalg.norm(self.geometry, largest))
        row = self.features.row_bound * stretch
        return row * (math.sqrt(2) + self.classes * row * radius), self.classes * row * row

    def user_smoothness(self, block: UserBlock) -> Floats:
        """(1/m_k) Σ_j ‖x̃_j‖²/2: diag(p) − ppᵀ has no eigenvalue above 1/2."""
        return 0.5 * mean_squares(self.rows(block), block.offsets)

    def user_losses(self, block: UserBlock, theta: Floats) -> Floats:
        """h_k(θ), shape (users,)."""
        logits = self._logits(block, theta)
        losses = logsumexp(logits, axis=1) - logits[np.arange(len(logits)), self.labels(block)]
        counts = np.diff(block.offsets)
        owner = np.repeat(np.arange(block.n_users), counts)
        return np.asarray(np.bincount(owner, losses, block.n_users) / np.maximum(counts, 1))

    def user_gradients(self, block: UserBlock, theta: Floats) -> Floats:
        """∇h_k(θ), shape (users, dimension)."""
        excess = softmax(self._logits(block, theta), axis=1)
        excess[np.arange(len(excess)), self.labels(block)] -= 1.0
        counts = np.maximum(np.diff(block.offsets), 1)[:, None]
        parts = []
        for slope in rows_times(excess, contrasts(self.classes)).T:
            part = np.zeros((block.n_users, self.features.dimension))
            self.features.add_sums(block.features, np.ascontiguousarray(slope), block.offsets, part)
            part /= counts
            parts.append(part if self.geometry is None else rows_times(part, self.geometry))
        return np.concatenate(parts, axis=1)

    def curved_rows(self, block: UserBlock, theta: Floats) -> tuple[Floats, Floats]:
        """Rows of one class's features, and the mean curvature (1 − Σ_c p_c²)/(K − 1) of a logit: 1/K at θ = 0."""
        chance = softmax(self._logits(block, theta), axis=1)
        mean = np.maximum(1.0 - np.einsum("jc,jc->j", chance, chance), 0.0) / (self.classes - 1)
        return self.rows(block), mean

    def _logits(self, block: UserBlock, theta: Floats) -> Floats:
        """C·W·Pᵀx̃, (rows, K)."""
        weights = theta.reshape(self.classes - 1, -1)
        if self.geometry is not None:
            weights = np.array([apply(self.geometry, row) for row in weights])
        free = np.column_stack([self.features.predictions(block.features, row) for row in weights])
        return rows_times(free, np.ascontiguousarray(contrasts(self.classes).T))

    def labels(self, block: UserBlock) -> NDArray[np.int64]:
        """Number of each row's class."""
        return np.clip(np.rint(block.target), 0, self.classes - 1).astype(np.int64)


@dataclass(frozen=True, eq=False)
class SoftmaxPoints:
    """The users of a block at points relative to a centre, whose free logits are ``base`` + ``base_rest``."""

    classes: int
    base: Floats
    base_rest: Floats
    rows: Floats
    labels: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, model: SoftmaxModel, block: UserBlock, center: Floats) -> SoftmaxPoints:
        """Transform a block's rows."""
        rows = model.rows(block)
        nothing = np.zeros((model.classes - 1, len(rows)))
        empty = cls(model.classes, nothing, nothing, rows, model.labels(block), block.offsets)
        base, rest = empty._free(np.tile(center, (block.n_users, 1)))
        return cls(model.classes, base, rest, rows, empty.labels, block.offsets)

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.offsets) - 1

    def select(self, users: NDArray[np.intp]) -> SoftmaxPoints:
        """Only these users (given in increasing order)."""
        kept, offsets = rows_of(users, self.offsets)
        base, rest = self.base[:, kept], self.base_rest[:, kept]
        return SoftmaxPoints(self.classes, base, rest, self.rows[kept], self.labels[kept], offsets)

    def _free(self, points: Floats) -> tuple[Floats, Floats]:
        """W·x̃, (K − 1, rows), in twice the working precision."""
        width = self.rows.shape[1]
        found = [
            predict(self.rows, self.offsets, base, rest, np.ascontiguousarray(points[:, c * width : (c + 1) * width]))
            for c, (base, rest) in enumerate(zip(self.base, self.base_rest))
        ]
        return np.array([out for out, _ in found]), np.array([rest for _, rest in found])

    def _logits(self, points: Floats) -> Floats:
        free = np.ascontiguousarray(self._free(points)[0].T)
        return rows_times(free, np.ascontiguousarray(contrasts(self.classes).T))

    def values(self, points: Floats) -> Floats:
        """h_k(u_k)."""
        logits = self._logits(points)
        losses = logsumexp(logits, axis=1) - logits[np.arange(len(logits)), self.labels]
        return mean_by_user(np.ones((len(losses), 1)), losses, self.offsets)[:, 0]

    def minima(self) -> Floats:
        """0."""
        return np.zeros(self.n_users)

    def gradients(self, points: Floats) -> Floats:
        """∇h_k(u_k)."""
        excess = softmax(self._logits(points), axis=1)
        excess[np.arange(len(excess)), self.labels] -= 1.0
        slopes = rows_times(excess, contrasts(self.classes)).T
        return np.hstack([mean_by_user(self.rows, np.ascontiguousarray(slope), self.offsets) for slope in slopes])

    def gradient_error(self, points: Floats) -> Floats:
        """Logits are off by a rounding of their size; the slope follows at a rate of at most 1/2."""
        logits = self._logits(points)
        size = math.sqrt(2) + self.classes * np.sqrt(np.einsum("jc,jc->j", logits, logits))
        lengths = np.sqrt(np.einsum("ji,ji->j", self.rows, self.rows))
        return 8 * float(np.finfo(np.float64).eps) * mean_by_user(lengths[:, None], size, self.offsets)[:, 0]

    def hessians(self, points: Floats) -> Floats:
        """∇²h_k(u_k): blocks of means of B_ab·x̃x̃ᵀ, B = Cᵀ(diag(p) − ppᵀ)C."""
        width, bends = self.rows.shape[1], self._bends(self._logits(points))
        out = np.empty((self.n_users, (self.classes - 1) * width, (self.classes - 1) * width))
        for (a, b), weights in bends.items():
            block = mean_outer_by_user(self.rows, weights, self.offsets)
            out[:, a * width : (a + 1) * width, b * width : (b + 1) * width] = block
            out[:, b * width : (b + 1) * width, a * width : (a + 1) * width] = block
        return out

    def hessian_sum(self, point: Floats) -> Floats:
        """Σ_k ∇²h_k at one point for all."""
        width, counts = self.rows.shape[1], np.diff(self.offsets)
        bends = self._bends(self._logits(np.tile(point, (self.n_users, 1))))
        out = np.empty(((self.classes - 1) * width, (self.classes - 1) * width))
        for (a, b), weights in bends.items():
            block = (self.rows * (weights / np.repeat(counts, counts))[:, None]).T @ self.rows
            out[a * width : (a + 1) * width, b * width : (b + 1) * width] = block
            out[b * width : (b + 1) * width, a * width : (a + 1) * width] = block
        return out

    def _bends(self, logits: Floats) -> dict[tuple[int, int], Floats]:
        """B_ab of every row, a ≤ b."""
        chance, basis = softmax(logits, axis=1), contrasts(self.classes)
        mean = rows_times(chance, basis)
        return {
            (a, b): np.ascontiguousarray(chance @ (basis[:, a] * basis[:, b]) - mean[:, a] * mean[:, b])
            for a in range(self.classes - 1)
            for b in range(a, self.classes - 1)
        }
