"""Distance to the rows: the loss of the geometric median."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from userdp.data.blocks import UserBlock
from userdp.losses.base import Floats
from userdp.losses.linear import FeatureMap


@dataclass(frozen=True, eq=False)
class DistanceModel:
    """h_k(θ) = (1/m_k) Σ_j q_w(‖θ − x̃_j‖), q_w(r) = r²/(2w) up to the public ``width`` w and r − w/2 beyond.

    q_w of the distance is the Moreau envelope of ‖θ − x̃‖: convex, 1-Lipschitz, at most w/2 below the distance.
    """

    features: FeatureMap
    width: float = 1e-3

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.features.dimension

    def __str__(self) -> str:
        return f"distance, smoothed over a width of {self.width:g} private units"

    def user_losses(self, block: UserBlock, theta: Floats) -> Floats:
        """h_k(θ), shape (users,)."""
        losses, _ = self._sums(block, theta)
        return losses / np.maximum(np.diff(block.offsets), 1)

    def user_gradients(self, block: UserBlock, theta: Floats) -> Floats:
        """∇h_k(θ) = (1/m_k) Σ_j (θ − x̃_j)/max(‖θ − x̃_j‖, w), shape (users, dimension)."""
        _, gradients = self._sums(block, theta)
        return gradients / np.maximum(np.diff(block.offsets), 1)[:, None]

    def _sums(self, block: UserBlock, theta: Floats) -> tuple[Floats, Floats]:
        losses, gradients = np.zeros(block.n_users), np.zeros((block.n_users, self.dimension))
        rows = self.features.rows(block.features)
        _add_distances(rows, block.offsets, np.ascontiguousarray(theta), self.width, losses, gradients)
        return losses, gradients


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_distances(
    rows: Floats, offsets: NDArray[np.int64], theta: Floats, width: float, losses: Floats, gradients: Floats
) -> None:
    """Sums in row order: the same bits wherever the user stands."""
    for k in range(len(offsets) - 1):
        for j in range(offsets[k], offsets[k + 1]):
            square = 0.0
            for i in range(rows.shape[1]):
                square += (theta[i] - rows[j, i]) ** 2
            length = math.sqrt(square)
            reach = max(length, width)
            losses[k] += length - width / 2 if length > width else square / (2 * width)
            for i in range(rows.shape[1]):
                gradients[k, i] += (theta[i] - rows[j, i]) / reach
