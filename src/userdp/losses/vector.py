"""Losses of θ and a vector row x without a prediction: mean estimation and linear losses.

ℓ(θ; x) = (q/2)‖θ‖² − s⟨θ, x⟩ + (q/2)‖x‖² covers both: q = s = 2ζ is ζ‖θ − x‖² (Appendix D of the paper), q = 0 the
linear loss of the convex lower bound. Around any point c it is a common quadratic plus a linear function of each
user's mean row,

    h_k(θ) = h_k(c) + ⟨q·c − s·x̄_k, θ − c⟩ + (q/2)‖θ − c‖²,

so the strong convexity is the same for all users and only the linear part has to be capped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from userdp.data.blocks import UserBlock
from userdp.data.sparse import as_sparse
from userdp.losses.base import Floats, PointLosses, UserModel
from userdp.losses.linear import FeatureMap, sum_by_user


@dataclass(frozen=True, eq=False)
class VectorModel:
    """ℓ(θ; x) = (q/2)‖θ‖² − s⟨θ, x̃⟩ + (q/2)‖x̃‖²; methods take a block and return one entry a user.

    ``curvature`` q, ``slope`` s; ``features`` clamps rows by a public rule. A user without rows has loss 0 and x̄_k = 0.
    """

    curvature: float
    slope: float
    features: FeatureMap

    @classmethod
    def mean(cls, dimension: int, zeta: float = 0.5, bound: float = 1e4) -> VectorModel:
        """ζ‖θ − x‖²."""
        return cls(2 * zeta, 2 * zeta, FeatureMap.identity(dimension, bound=bound))

    @classmethod
    def linear(cls, dimension: int, slope: float = 1.0, bound: float = 1e4) -> VectorModel:
        """−s⟨θ, x⟩: needs a bounded domain to have a minimum."""
        return cls(0.0, slope, FeatureMap.identity(dimension, bound=bound))

    @property
    def dimension(self) -> int:
        """Number of coefficients."""
        return self.features.dimension

    @property
    def n_features(self) -> int:
        """Number of columns of the data."""
        return len(self.features.center)

    def at_points(self, block: UserBlock, center: Floats) -> PointLosses:
        """The losses of a block's users at points relative to ``center``."""
        present = np.diff(block.offsets) > 0
        return VectorPoints(self, center, *self._moments(block), present.astype(np.float64))

    def gradient_scale(self, radius: float) -> tuple[float, float]:
        """q‖θ‖ + s‖x̃‖ at most."""
        return self.curvature * radius + self.slope * self.features.row_bound, self.curvature

    def user_smoothness(self, block: UserBlock) -> Floats:
        """q."""
        return np.full(block.n_users, self.curvature)

    def user_losses(self, block: UserBlock, theta: Floats) -> Floats:
        """h_k(θ), shape (users,)."""
        means, squares = self._moments(block)
        present = np.diff(block.offsets) > 0
        half = self.curvature / 2
        return np.where(present, half * float(theta @ theta) - self.slope * (means @ theta) + half * squares, 0.0)

    def user_gradients(self, block: UserBlock, theta: Floats) -> Floats:
        """∇h_k(θ), shape (users, dimension)."""
        means, _ = self._moments(block)
        present = np.diff(block.offsets) > 0
        return np.where(present[:, None], self.curvature * theta - self.slope * means, 0.0)

    def _moments(self, block: UserBlock) -> tuple[Floats, Floats]:
        means, squares = np.zeros((block.n_users, self.dimension)), np.zeros(block.n_users)
        if (sparse := as_sparse(block.features)) is not None:
            self.features.add_sums(block.features, np.ones(block.n_rows), block.offsets, means)
            squares = sum_by_user(self.features.squared_distances(sparse, np.zeros(self.dimension)), block.offsets)
        else:
            _add_moments(self.features.rows(block.features), block.offsets, means, squares)
        counts = np.maximum(np.diff(block.offsets), 1)
        return means / counts[:, None], squares / counts


@dataclass(frozen=True, eq=False)
class VectorPoints:
    """The users of a block at points relative to ``center``: mean row, mean square and 0 or 1 for having rows."""

    model: VectorModel
    center: Floats
    means: Floats
    squares: Floats
    present: Floats

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.means)

    def select(self, users: NDArray[np.intp]) -> VectorPoints:
        """Only these users."""
        return VectorPoints(self.model, self.center, self.means[users], self.squares[users], self.present[users])

    def values(self, points: Floats) -> Floats:
        """h_k(u_k)."""
        theta, half = points + self.center, self.model.curvature / 2
        linear = np.einsum("ki,ki->k", self.means, theta)
        return np.asarray(
            self.present * half * (np.einsum("ki,ki->k", theta, theta) + self.squares) - self.model.slope * linear
        )

    def minima(self) -> Floats:
        """(q/2)·mean ‖x̃‖² − s²‖x̄‖²/(2q), lowered by what rounding may hide."""
        q, s = self.model.curvature, self.model.slope
        if q == 0:
            return np.where(self.means.any(axis=1), -np.inf, 0.0)
        length = np.einsum("ki,ki->k", self.means, self.means)
        return np.asarray(q / 2 * self.squares - s * s * length / (2 * q) - 1e-12 * (q * self.squares + s * s * length))

    def gradients(self, points: Floats) -> Floats:
        """q·u_k − s·x̄_k."""
        moved = self.model.curvature * (points + self.center) - self.model.slope * self.means
        return np.asarray(self.present[:, None] * moved)

    def gradient_error(self, points: Floats) -> Floats:
        """A few roundings of both terms."""
        reach = np.linalg.norm(points, axis=1) + np.linalg.norm(self.center)
        size = self.model.curvature * reach + self.model.slope * np.sqrt(self.squares)
        return np.asarray(8 * float(np.finfo(np.float64).eps) * size * self.present)

    def hessians(self, points: Floats) -> Floats:
        """q·I."""
        eye = self.model.curvature * np.eye(points.shape[1])
        return np.asarray(self.present[:, None, None] * eye)

    def hessian_sum(self, point: Floats) -> Floats:
        """q·I for every user with rows."""
        return np.asarray(self.model.curvature * float(self.present.sum()) * np.eye(len(point)))


@dataclass(frozen=True, eq=False)
class LinearPart:
    """The users' tangents ⟨∇h_k(c), θ − c⟩ at a public or released point c."""

    model: UserModel
    at: Floats

    @property
    def dimension(self) -> int:
        """Number of coefficients."""
        return self.model.dimension

    def forces(self, block: UserBlock, cap: float) -> tuple[Floats, int]:
        """∇h_k(c), each shortened to ``cap``, and how many were."""
        forces = self.model.user_gradients(block, self.at)
        lengths = np.linalg.norm(forces, axis=1)
        lost = ~np.isfinite(lengths)  # a loss of one's own may overflow: such a user does not pull
        forces[lost], lengths[lost] = 0.0, 0.0
        over = lengths > cap * (1 - 1e-12)
        if math.isfinite(cap):
            forces[over] *= (cap * (1 - 1e-12) / lengths[over])[:, None]
        return forces, int(np.count_nonzero(over))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_moments(rows: Floats, offsets: NDArray[np.int64], sums: Floats, squares: Floats) -> None:
    """Sums in row order: the same bits wherever the user stands."""
    for k in range(len(offsets) - 1):
        for j in range(offsets[k], offsets[k + 1]):
            for i in range(rows.shape[1]):
                sums[k, i] += rows[j, i]
                squares[k] += rows[j, i] * rows[j, i]
