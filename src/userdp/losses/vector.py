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
from userdp.losses.base import Floats, UserModel
from userdp.losses.linear import FeatureMap


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
        rows = self.features.rows(block.features)
        means, squares = np.zeros((block.n_users, self.dimension)), np.zeros(block.n_users)
        _add_moments(rows, block.offsets, means, squares)
        counts = np.maximum(np.diff(block.offsets), 1)
        return means / counts[:, None], squares / counts


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
