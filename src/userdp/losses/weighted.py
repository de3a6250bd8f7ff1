"""Users weighted by their number of rows instead of once each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from userdp.data.blocks import UserBlock
from userdp.losses.base import ConvexModel, CurvedModel, Floats, PhaseGradients, PointLosses, phase_gradients

# No user counts for more than so many typical ones: public, and far beyond what any cap lets through.
LARGEST_WEIGHT = 1024.0


@dataclass(frozen=True, eq=False)
class RowWeighted:
    """h_k(θ) = w_k·(mean loss of user k's rows), w_k = min(m_k/typical, 1024), with a public or released ``typical``.

    The weight is a function of the user's own rows and caps come after it, so a user with very many rows pulls no
    harder than anyone else may. Nothing is divided by a sum over users.
    """

    model: ConvexModel
    typical: float

    @property
    def dimension(self) -> int:
        """Number of coefficients."""
        return self.model.dimension

    @property
    def n_features(self) -> int:
        """Number of columns of the data."""
        return self.model.n_features

    def weights(self, block: UserBlock) -> Floats:
        """w_k, shape (users,)."""
        return np.minimum(row_counts(block) / self.typical, LARGEST_WEIGHT)

    def user_losses(self, block: UserBlock, theta: Floats) -> Floats:
        """h_k(θ), shape (users,)."""
        return np.asarray(self.model.user_losses(block, theta) * self.weights(block))

    def user_gradients(self, block: UserBlock, theta: Floats) -> Floats:
        """∇h_k(θ), shape (users, dimension)."""
        return np.asarray(self.model.user_gradients(block, theta) * self.weights(block)[:, None])

    def phase(self, theta: Floats) -> PhaseGradients:
        """The gradients at θ as phases take them."""
        return WeightedPhase(self, phase_gradients(self.model, theta))

    def at_points(self, block: UserBlock, center: Floats) -> PointLosses:
        """The losses of a block's users at points relative to ``center``."""
        return WeightedPoints(self.model.at_points(block, center), self.weights(block))

    def gradient_scale(self, radius: float) -> tuple[float, float]:
        """That of the model, times the largest weight."""
        scale, growth = self.model.gradient_scale(radius)
        return LARGEST_WEIGHT * scale, LARGEST_WEIGHT * growth

    def user_smoothness(self, block: UserBlock) -> Floats:
        """That of the model, times the weight."""
        return np.asarray(self.model.user_smoothness(block) * self.weights(block))


@dataclass(frozen=True, eq=False)
class CurvedRowWeighted(RowWeighted):
    """The same for models that know their curvature."""

    model: CurvedModel

    def curved_rows(self, block: UserBlock, theta: Floats) -> tuple[Floats, Floats]:
        """Rows, and their curvatures times the user's weight."""
        rows, curvature = self.model.curved_rows(block, theta)
        return rows, curvature * np.repeat(self.weights(block), np.diff(block.offsets))


@dataclass(frozen=True, eq=False)
class WeightedPhase:
    """Gradients at one θ, each times its user's weight."""

    model: RowWeighted
    plain: PhaseGradients

    def __call__(self, block: UserBlock) -> Floats:
        """w_k·∇h_k(θ)."""
        return np.asarray(self.plain(block) * self.model.weights(block)[:, None])


@dataclass(frozen=True, eq=False)
class WeightedPoints:
    """Losses at points, each times its user's weight."""

    plain: PointLosses
    weights: Floats

    @property
    def n_users(self) -> int:
        """Number of users."""
        return self.plain.n_users

    def select(self, users: NDArray[np.intp]) -> WeightedPoints:
        """Only these users (given in increasing order)."""
        return WeightedPoints(self.plain.select(users), self.weights[users])

    def values(self, points: Floats) -> Floats:
        """w_k·h_k(u_k)."""
        return np.asarray(self.weights * self.plain.values(points))

    def minima(self) -> Floats:
        """Lower bounds."""
        return np.asarray(self.weights * self.plain.minima())

    def gradients(self, points: Floats) -> Floats:
        """w_k·∇h_k(u_k)."""
        return np.asarray(self.weights[:, None] * self.plain.gradients(points))

    def gradient_error(self, points: Floats) -> Floats:
        """Rounding error of ``gradients``."""
        return np.asarray(2 * self.weights * self.plain.gradient_error(points))

    def hessians(self, points: Floats) -> Floats:
        """w_k·∇²h_k(u_k)."""
        return np.asarray(self.weights[:, None, None] * self.plain.hessians(points))

    def hessian_sum(self, point: Floats) -> Floats:
        """Σ_k w_k·∇²h_k at one point for all."""
        everywhere = np.tile(point, (self.n_users, 1))
        return np.asarray(np.einsum("k,kij->ij", self.weights, self.plain.hessians(everywhere)))


def row_counts(block: UserBlock) -> Floats:
    """m_k: a statistic for a private histogram."""
    return np.diff(block.offsets).astype(np.float64)
