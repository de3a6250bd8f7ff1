"""From value and subgradient of a row's convex loss to a user's loss: h_k(θ) = (1/m_k) Σ_j ℓ(θ; x̃_j, ỹ_j).

For losses that are no function of one linear prediction. Linear phases take any subgradient; certified minimizers need
gradients that turn at a finite rate, and find curvature by differences: that decides their speed, not what they prove.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from userdp.data.blocks import UserBlock
from userdp.losses.base import ConvexLoss, Floats, PointLosses
from userdp.losses.linear import CHUNK_NUMBERS, FeatureMap
from userdp.losses.points import mean_by_user, rows_of

_EPS = float(np.finfo(np.float64).eps)
_DIFFERENCE = 1e-6  # distance, relative to 1 + ‖θ‖, over which a curvature is measured


@dataclass(frozen=True, eq=False)
class SubgradientModel:
    """Values and subgradients over mapped rows, kinks or not: what linear phases and the default fit need."""

    loss: ConvexLoss
    features: FeatureMap

    @property
    def dimension(self) -> int:
        """Number of coefficients."""
        return self.loss.dimension(self.features.dimension)

    @property
    def n_features(self) -> int:
        """Number of columns of the data."""
        return len(self.features.center)

    def __str__(self) -> str:
        return f"{type(self.loss).__name__} loss"

    def user_losses(self, block: UserBlock, theta: Floats) -> Floats:
        """h_k(θ), shape (users,)."""
        nothing = np.zeros((block.n_users, self.dimension))
        return np.concatenate(
            [self._points(part, theta).values(nothing[: part.n_users]) for part in self._parts(block)]
        )

    def user_gradients(self, block: UserBlock, theta: Floats) -> Floats:
        """Some element of ∂h_k(θ), shape (users, dimension)."""
        nothing = np.zeros((block.n_users, self.dimension))
        parts = [self._points(part, theta).gradients(nothing[: part.n_users]) for part in self._parts(block)]
        return np.concatenate(parts)

    def _parts(self, block: UserBlock) -> Iterator[UserBlock]:
        """Users whose rows, which the loss sees as arrays, have a bounded number of entries together."""
        return block.chunks(max(CHUNK_NUMBERS // self.features.dimension, 1), max(block.n_users, 1))

    def _points(self, block: UserBlock, center: Floats) -> GeneralPoints:
        rows, targets = self.features.rows(block.features), self.features.targets(block.target)
        return GeneralPoints(self.loss, center, rows, targets, block.offsets)


@dataclass(frozen=True, eq=False)
class GeneralModel(SubgradientModel):
    """The same for losses of finite ``smoothness``: what every algorithm of the library accepts."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.loss.smoothness):
            raise ValueError(
                "a certified minimizer needs a loss of finite smoothness: smooth its kinks, or use SubgradientModel "
                "with schedule='linear'"
            )

    def at_points(self, block: UserBlock, center: Floats) -> PointLosses:
        """The losses of a block's users at points relative to ``center``."""
        return self._points(block, center)

    def gradient_scale(self, radius: float) -> tuple[float, float]:
        """Twice β(‖θ‖ + ‖x̃‖ + |ỹ|): what rounding the arguments does to a gradient, and a gradient's own size; the
        latter is G where that is finite.
        """
        turned = self.loss.smoothness * (radius + self.features.row_bound + self.features.target_bound)
        if math.isfinite(self.loss.lipschitz):
            return self.loss.lipschitz + turned, self.loss.smoothness
        return 2 * turned, 2 * self.loss.smoothness

    def user_smoothness(self, block: UserBlock) -> Floats:
        """β."""
        return np.full(block.n_users, self.loss.smoothness)


@dataclass(frozen=True, eq=False)
class GeneralPoints:
    """The users of a block at points relative to ``center``."""

    loss: ConvexLoss
    center: Floats
    rows: Floats
    targets: Floats
    offsets: NDArray[np.int64]

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.offsets) - 1

    def select(self, users: NDArray[np.intp]) -> GeneralPoints:
        """Only these users (given in increasing order)."""
        rows, offsets = rows_of(users, self.offsets)
        return GeneralPoints(self.loss, self.center, self.rows[rows], self.targets[rows], offsets)

    def _thetas(self, points: Floats) -> Floats:
        """Every row's θ."""
        return np.repeat(self.center + points, np.diff(self.offsets), axis=0)

    def _mean(self, values: Floats) -> Floats:
        return mean_by_user(np.ascontiguousarray(values), np.ones(len(values)), self.offsets)

    def values(self, points: Floats) -> Floats:
        """h_k(u_k)."""
        return self._mean(self.loss.value(self._thetas(points), self.rows, self.targets)[:, None])[:, 0]

    def minima(self) -> Floats:
        """Lower bounds on min h_k."""
        return self._mean(self.loss.minimum(self.rows, self.targets)[:, None])[:, 0]

    def gradients(self, points: Floats) -> Floats:
        """∇h_k(u_k), or some subgradient."""
        return self._mean(self.loss.subgradient(self._thetas(points), self.rows, self.targets))

    def gradient_error(self, points: Floats) -> Floats:
        """First-order bound on the rounding error of ``gradients``, for losses that evaluate theirs stably: a few units
        of ‖g_j‖ + β(‖θ‖ + ‖x̃_j‖ + |ỹ_j|).
        """
        thetas = self._thetas(points)
        slopes = self.loss.subgradient(thetas, self.rows, self.targets)
        reach = np.linalg.norm(thetas, axis=1) + np.linalg.norm(self.rows, axis=1) + np.abs(self.targets)
        size = np.linalg.norm(slopes, axis=1) + self.loss.smoothness * reach
        return 8 * _EPS * self._mean(size[:, None])[:, 0]

    def hessians(self, points: Floats) -> Floats:
        """Central differences of the gradient, made symmetric and positive: between the one-sided values at a jump."""
        dimension = points.shape[1]
        reach = _DIFFERENCE * (1 + np.linalg.norm(self.center + points, axis=1, keepdims=True))
        found = np.empty((len(points), dimension, dimension))
        for i in range(dimension):
            step = reach * np.eye(dimension)[i]
            found[:, :, i] = (self.gradients(points + step) - self.gradients(points - step)) / (2 * reach)
        values, vectors = np.linalg.eigh(found + np.swapaxes(found, 1, 2))
        return np.asarray((vectors * np.maximum(values / 2, 0.0)[:, None, :]) @ np.swapaxes(vectors, 1, 2))

    def hessian_sum(self, point: Floats) -> Floats:
        """Σ_k ∇²h_k at one point for all."""
        return np.asarray(self.hessians(np.tile(point, (self.n_users, 1))).sum(axis=0))
