"""What the solver proves: a bound on the distance to the true minimizer, and the smallest bound worth asking for."""

from __future__ import annotations

import math

import numpy as np

from userdp.losses.base import Loss
from userdp.losses.linear import LinearModel

_EPS = float(np.finfo(np.float64).eps)


def distance_bound(mean_slack: float, residual: float, regularization: float) -> float:
    """‖θ − argmin F‖ ≤ √(2·gap/λ) with gap = (1/n)Σ η_k + ‖r‖²/(2λ) (docs/proofs/capped-release.md, Theorem 4).

    >>> round(distance_bound(0.0, 0.02, 2.0), 12)
    0.01
    """
    return math.sqrt(2 * mean_slack / regularization + (residual / regularization) ** 2)


def rounding_gap(model: LinearModel, cap: float, regularization: float, center_norm: float, rounding: float) -> float:
    """Public bound on the part of a gap that floating point cannot remove, for any data within the map's bounds.

    u stays within 4γ/λ of the centre and θ within 2γ/λ, so a slack is at most a few roundings of a user's gradient
    times 6γ/λ (docs/proofs/capped-release.md, section 4). ``rounding`` is the engine's.
    """
    row = model.row_bound
    slope = loss_slope(model.loss, row * (center_norm + 4 * cap / regularization), model.features.target_bound)
    pull = 128 * _EPS * (cap + slope * row)
    return pull * 6 * cap / regularization + (pull + 4 * rounding * cap) ** 2 / (2 * regularization)


def smallest_cap(model: LinearModel, regularization: float, center_norm: float) -> float:
    """A γ below this is lost in the rounding errors of the largest gradients that the map's bounds allow."""
    row, share = model.row_bound, 64 * _EPS * model.row_bound
    far = loss_slope(model.loss, row * center_norm, model.features.target_bound)
    # For an unbounded slope, which grows by at most smoothness·row·4γ/λ on the ball, solve γ = share·slope for γ.
    growth = 0.0 if math.isfinite(model.loss.lipschitz) else share * model.loss.smoothness * row * 4 / regularization
    return share * far / (1 - growth) if growth < 1 else math.inf


def loss_slope(loss: Loss, prediction: float, target: float) -> float:
    """Bound on |∂φ/∂z| for |z| ≤ prediction and |y| ≤ target."""
    if math.isfinite(loss.lipschitz):
        return loss.lipschitz
    corners = np.array([-prediction, prediction])
    return max(float(np.max(np.abs(loss.derivative(corners, np.full(2, y))))) for y in (-target, target))
