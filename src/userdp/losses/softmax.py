"""Multinomial logistic loss: K linear predictions a row.

Adding the same vector to all K coefficient rows changes no probability, so K − 1 of them are free. θ holds them in an
orthonormal basis C of the vectors that sum to zero, logits = C·W·x̃ with W of shape (K − 1, features): no class is
special, and a gradient is as long as it is in the K rows themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from userdp.data.blocks import UserBlock
from userdp.losses.base import Floats
from userdp.losses.linear import FeatureMap, apply, rows_times


def contrasts(classes: int) -> Floats:
    """C, (K, K − 1): orthonormal columns that sum to zero.

    >>> contrasts(2).round(3).tolist()
    [[-0.707], [0.707]]
    """
    basis = np.zeros((classes, classes - 1))
    for j in range(classes - 1):
        basis[: j + 1, j] = -1.0
        basis[j + 1, j] = j + 1.0
    return np.asarray(basis / np.linalg.norm(basis, axis=0))


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

    def user_losses(self, block: UserBlock, theta: Floats) -> Floats:
        """h_k(θ), shape (users,)."""
        logits = self._logits(block, theta)
        losses = logsumexp(logits, axis=1) - logits[np.arange(len(logits)), self._labels(block)]
        counts = np.diff(block.offsets)
        owner = np.repeat(np.arange(block.n_users), counts)
        return np.asarray(np.bincount(owner, losses, block.n_users) / np.maximum(counts, 1))

    def user_gradients(self, block: UserBlock, theta: Floats) -> Floats:
        """∇h_k(θ), shape (users, dimension)."""
        excess = softmax(self._logits(block, theta), axis=1)
        excess[np.arange(len(excess)), self._labels(block)] -= 1.0
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
        rows = self.features.rows(block.features)
        chance = softmax(self._logits(block, theta), axis=1)
        mean = np.maximum(1.0 - np.einsum("jc,jc->j", chance, chance), 0.0) / (self.classes - 1)
        return rows if self.geometry is None else rows_times(rows, self.geometry), mean

    def _logits(self, block: UserBlock, theta: Floats) -> Floats:
        """C·W·Pᵀx̃, (rows, K)."""
        weights = theta.reshape(self.classes - 1, -1)
        if self.geometry is not None:
            weights = np.array([apply(self.geometry, row) for row in weights])
        free = np.column_stack([self.features.predictions(block.features, row) for row in weights])
        return rows_times(free, np.ascontiguousarray(contrasts(self.classes).T))

    def _labels(self, block: UserBlock) -> NDArray[np.int64]:
        return np.clip(np.rint(block.target), 0, self.classes - 1).astype(np.int64)
