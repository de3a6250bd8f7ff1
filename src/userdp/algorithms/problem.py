"""What the paper's algorithms minimize: a user loss with declared constants on a convex set."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from userdp.data import UserDataset
from userdp.data.blocks import UserBlock
from userdp.engines import LocalEngine
from userdp.losses.base import ConvexModel, Floats
from userdp.losses.linear import LinearModel
from userdp.losses.vector import LinearPart, VectorModel
from userdp.solvers.constrained import Quadratic
from userdp.solvers.sets import ConvexSet, WholeSpace


@dataclass(frozen=True, eq=False)
class Problem:
    """h_k(θ) = (1/m_k) Σ_j ℓ(θ; x_kj) + (ridge/2)‖θ − anchor‖² on ``domain``.

    ``lipschitz`` G bounds the gradient of one row's loss, ridge included, on the domain. It is declared, never
    estimated: accuracy needs it to be true, privacy does not. The strong convexity μ is the ridge plus the
    curvature that a ``VectorModel`` has in common for all rows. ``common`` is a further public quadratic, for the
    capped release; μ does not count it.

    >>> from userdp.losses.vector import VectorModel
    >>> Problem(VectorModel.mean(3, zeta=0.5), lipschitz=1.0).strong_convexity
    1.0
    """

    model: ConvexModel
    lipschitz: float
    domain: ConvexSet = field(default_factory=WholeSpace)
    ridge: float = 0.0
    anchor: Floats | None = None
    common: Quadratic | None = None

    def __post_init__(self) -> None:
        if not (self.lipschitz > 0 and np.isfinite(self.lipschitz)):
            raise ValueError(f"lipschitz must be a positive finite number, got {self.lipschitz}")
        if not self.ridge >= 0:
            raise ValueError(f"ridge must be at least 0, got {self.ridge}")
        if self.anchor is not None and np.shape(self.anchor) != (self.dimension,):
            raise ValueError(f"anchor must have shape ({self.dimension},), got {np.shape(self.anchor)}")

    @property
    def dimension(self) -> int:
        """Number of coefficients d."""
        return self.model.dimension

    @property
    def strong_convexity(self) -> float:
        """μ."""
        return self.ridge + (self.model.curvature if isinstance(self.model, VectorModel) else 0.0)

    @property
    def smoothness(self) -> float:
        """Bound on the curvature of a row's loss beyond μ, as far as G and the loss determine it; else inf."""
        if isinstance(self.model, VectorModel):
            return 0.0
        if not isinstance(self.model, LinearModel):
            return math.inf
        loss = self.model.loss
        return loss.smoothness * (self.lipschitz / loss.lipschitz) ** 2 if math.isfinite(loss.lipschitz) else math.inf

    @property
    def start(self) -> Floats:
        """Public starting point θ̂₀: the anchor (0 by default), projected onto the domain."""
        return self.domain.project(np.zeros(self.dimension) if self.anchor is None else self.anchor)

    def around(
        self, center: Floats, regularization: float, *, tangent: bool = False
    ) -> tuple[ConvexModel | LinearPart, float, Floats]:
        """Split h_k + (λ/2)‖θ − center‖² into the users' part and one common quadratic (Λ/2)‖θ − c̃‖², up to constants.

        Returns the users' part (with ``tangent`` its linearization at ``center``), Λ = λ + μ and c̃, a convex
        combination of the anchor and ``center``.
        """
        common = regularization + self.strong_convexity - self.ridge
        weight = common + self.ridge
        if weight <= 0:
            raise ValueError("the objective is not strongly convex: give the problem a ridge, or a regularization")
        middle = center if self.ridge == 0 else (common * center + self.ridge * self.start) / weight
        if tangent or isinstance(self.model, VectorModel):
            return LinearPart(self.model, center), weight, middle
        return self.model, weight, middle

    def risk(self, data: UserDataset, theta: Floats) -> float:
        """Empirical risk (1/n) Σ_k h_k(θ). Depends on the data and is not private: for experiments."""
        losses = LocalEngine(data).each(_losses, self.model, theta)
        step = theta - self.start
        common = 0.0 if self.common is None else 0.5 * float((theta - self.common.center) @ self.common.gradient(theta))
        return float(losses.mean()) + self.ridge / 2 * float(step @ step) + common


def _losses(block: UserBlock, model: ConvexModel, theta: Floats) -> Floats:
    return model.user_losses(block, theta)
