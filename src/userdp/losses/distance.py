"""Distance to the rows: the loss of the geometric median."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from userdp.data.blocks import UserBlock
from userdp.data.sparse import as_sparse
from userdp.losses.base import Floats, PointLosses
from userdp.losses.linear import FeatureMap, sum_by_user
from userdp.losses.points import mean_by_user, mean_outer_by_user, rows_of


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

    @property
    def n_features(self) -> int:
        """Number of columns of the data."""
        return self.dimension

    def at_points(self, block: UserBlock, center: Floats) -> PointLosses:
        """The losses of a block's users at points relative to ``center``."""
        return DistancePoints(self.width, center - self.features.rows(block.features), block.offsets)

    def gradient_scale(self, radius: float) -> tuple[float, float]:
        """Differences of points over the smoothing width: what their rounding does to a direction."""
        reach = self.features.row_bound + radius
        return 1.0 + self.dimension + 2 * reach / self.width, 2 / self.width

    def user_smoothness(self, block: UserBlock) -> Floats:
        """1/w."""
        return np.full(block.n_users, 1 / self.width)

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
        if (sparse := as_sparse(block.features)) is not None:
            squares = self.features.squared_distances(sparse, theta)
            lengths = np.sqrt(squares)
            near = np.where(lengths > self.width, lengths - self.width / 2, squares / (2 * self.width))
            inverse = 1 / np.maximum(lengths, self.width)
            self.features.add_sums(block.features, -inverse, block.offsets, gradients)
            losses, weights = sum_by_user(near, block.offsets), sum_by_user(inverse, block.offsets)
            return losses, gradients + weights[:, None] * theta
        rows = self.features.rows(block.features)
        _add_distances(rows, block.offsets, np.ascontiguousarray(theta), self.width, losses, gradients)
        return losses, gradients


@dataclass(frozen=True, eq=False)
class DistancePoints:
    """The users of a block at points relative to a centre c; ``gaps`` are c − x̃_j."""

    width: float
    gaps: Floats
    offsets: NDArray[np.int64]

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.offsets) - 1

    def select(self, users: NDArray[np.intp]) -> DistancePoints:
        """Only these users (given in increasing order)."""
        rows, offsets = rows_of(users, self.offsets)
        return DistancePoints(self.width, self.gaps[rows], offsets)

    def _differences(self, points: Floats) -> tuple[Floats, Floats]:
        """u_k − x̃_j and its length."""
        moved = self.gaps + np.repeat(points, np.diff(self.offsets), axis=0)
        return moved, np.sqrt(np.einsum("ji,ji->j", moved, moved))

    def values(self, points: Floats) -> Floats:
        """h_k(u_k)."""
        _, lengths = self._differences(points)
        losses = np.where(lengths > self.width, lengths - self.width / 2, np.square(lengths) / (2 * self.width))
        return mean_by_user(np.ones((len(losses), 1)), losses, self.offsets)[:, 0]

    def minima(self) -> Floats:
        """0."""
        return np.zeros(self.n_users)

    def gradients(self, points: Floats) -> Floats:
        """∇h_k(u_k)."""
        moved, lengths = self._differences(points)
        return mean_by_user(moved, 1 / np.maximum(lengths, self.width), self.offsets)

    def gradient_error(self, points: Floats) -> Floats:
        """A difference is off by a rounding of its terms, a direction by that over its length, or over w."""
        _, lengths = self._differences(points)
        terms = np.linalg.norm(self.gaps, axis=1) + np.repeat(np.linalg.norm(points, axis=1), np.diff(self.offsets))
        size = 1.0 + self.gaps.shape[1] + terms / np.maximum(lengths, self.width)
        return 8 * float(np.finfo(np.float64).eps) * mean_by_user(np.ones((len(size), 1)), size, self.offsets)[:, 0]

    def hessians(self, points: Floats) -> Floats:
        """Means of (I − ddᵀ)/r beyond the width, d the direction, I/w within."""
        moved, lengths = self._differences(points)
        inverse = 1 / np.maximum(lengths, self.width)
        level = mean_by_user(np.ones((len(inverse), 1)), inverse, self.offsets)
        turned = mean_outer_by_user(moved, np.where(lengths > self.width, inverse**3, 0.0), self.offsets)
        return np.asarray(level[:, :, None] * np.eye(moved.shape[1]) - turned)

    def hessian_sum(self, point: Floats) -> Floats:
        """Σ_k ∇²h_k at one point for all."""
        return np.asarray(self.hessians(np.tile(point, (self.n_users, 1))).sum(axis=0))


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
