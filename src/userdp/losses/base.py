"""What algorithms ask of a loss: pointwise, and summed up for a user."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from userdp.data.blocks import UserBlock

Floats = NDArray[np.float64]


class Loss(Protocol):
    """φ(z, y): convex in the prediction z, vectorized over rows.

    Constants are declared, never estimated: ``lipschitz`` bounds |∂φ/∂z| (inf if unbounded) and ``smoothness`` bounds
    ∂²φ/∂z². Differential privacy does not rest on them, only on convexity; accuracy and speed do.
    """

    @property
    def lipschitz(self) -> float:
        """Bound on |∂φ/∂z|."""

    @property
    def smoothness(self) -> float:
        """Bound on ∂²φ/∂z²."""

    def value(self, prediction: Floats, target: Floats) -> Floats:
        """φ(z, y)."""

    def derivative(self, prediction: Floats, target: Floats) -> Floats:
        """∂φ/∂z."""

    def curvature(self, prediction: Floats, target: Floats) -> Floats:
        """∂²φ/∂z², or any value between the one-sided ones where it jumps."""

    def minimum(self, target: Floats) -> Floats:
        """A lower bound on φ(·, y), the value −φ*(0) of the conjugate: the certificate uses nothing else of it."""


class ConvexLoss(Protocol):
    """ℓ(θ; x, y): convex in θ, vectorized over rows: (rows, dimension) points, (rows, columns) features, targets.

    An entry of a result is a function of that row of the arguments alone. Constants are declared: ``lipschitz`` G
    bounds ‖∂ℓ‖ (inf where only ‖∂ℓ‖ ≤ β(‖θ‖ + ‖x‖ + |y|) holds), ``smoothness`` β how fast the gradient turns (inf if
    ℓ has kinks).
    """

    @property
    def lipschitz(self) -> float:
        """Bound on ‖∂ℓ‖."""

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient."""

    def dimension(self, columns: int) -> int:
        """Number of coefficients for so many columns (the constant one, if there is an intercept, included)."""

    def value(self, points: Floats, rows: Floats, targets: Floats) -> Floats:
        """ℓ(θ; x, y), shape (rows,)."""

    def subgradient(self, points: Floats, rows: Floats, targets: Floats) -> Floats:
        """Some element of ∂ℓ(θ; x, y), shape (rows, dimension)."""

    def minimum(self, rows: Floats, targets: Floats) -> Floats:
        """A lower bound on ℓ(·; x, y), shape (rows,)."""


class UserModel(Protocol):
    """h_k(θ) as far as gradient phases need it: convex in θ, a function of the user's own rows."""

    @property
    def dimension(self) -> int:
        """Number of coefficients."""

    def user_gradients(self, block: UserBlock, theta: Floats) -> Floats:
        """∇h_k(θ), shape (users, dimension); the same bits whoever else is in the block."""


# The gradients of a block's users at one θ, shape (users, dimension), for phases: each is a function of the user's own
# rows to the last bit, but may be rounded.
PhaseGradients = Callable[[UserBlock], Floats]


def phase_gradients(model: UserModel, theta: Floats) -> PhaseGradients:
    """Those of the model's own ``phase(θ)``, if it has one that is faster than ``user_gradients``."""
    phase = getattr(model, "phase", None)
    return partial(model.user_gradients, theta=theta) if phase is None else phase(theta)


class PointValues(Protocol):
    """The losses of users, each at a point of its own, given relative to a common centre: what certificates ask of
    them.
    """

    def values(self, points: Floats) -> Floats:
        """h_k(u_k)."""

    def minima(self) -> Floats:
        """Lower bounds on min h_k."""

    def gradients(self, points: Floats) -> Floats:
        """∇h_k(u_k)."""

    def gradient_error(self, points: Floats) -> Floats:
        """First-order bound on the rounding error of ``gradients``."""


class PointLosses(PointValues, Protocol):
    """The same with what the search for the points needs; users in order."""

    @property
    def n_users(self) -> int:
        """Number of users."""

    def select(self, users: NDArray[np.intp]) -> PointLosses:
        """Only these users (given in increasing order)."""

    def hessians(self, points: Floats) -> Floats:
        """∇²h_k(u_k), or a value between the one-sided ones."""

    def hessian_sum(self, point: Floats) -> Floats:
        """Σ_k ∇²h_k at one point for all."""


class Scaled(Protocol):
    """User losses with a public bound on their gradients."""

    def gradient_scale(self, radius: float) -> tuple[float, float]:
        """Public bound on the numbers whose rounding enters a user's gradient at ‖θ‖ ≤ radius (the gradient's own size
        at least), and how fast it grows with the radius.
        """


class ConvexModel(UserModel, Scaled, Protocol):
    """h_k(θ) with all that certified minimizers need: what every algorithm of the library accepts."""

    @property
    def n_features(self) -> int:
        """Number of columns of the data."""

    def user_losses(self, block: UserBlock, theta: Floats) -> Floats:
        """h_k(θ), shape (users,)."""

    def at_points(self, block: UserBlock, center: Floats) -> PointLosses:
        """The losses of a block's users at points relative to ``center``."""

    def user_smoothness(self, block: UserBlock) -> Floats:
        """Bounds on the curvature of every h_k, shape (users,)."""


class CurvedModel(ConvexModel, Protocol):
    """A user model that knows its curvature."""

    def curved_rows(self, block: UserBlock, theta: Floats) -> tuple[Floats, Floats]:
        """Rows x̃_j and weights a_j ≥ 0 such that (1/m_k) Σ_j a_j x̃_j x̃_jᵀ is the curvature of h_k at θ."""
