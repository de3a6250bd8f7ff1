"""What the solver proves: a bound on the distance to the true minimizer, and the smallest bound worth asking for."""

from __future__ import annotations

import math

import numpy as np

from userdp.losses.base import Scaled

_EPS = float(np.finfo(np.float64).eps)


def distance_bound(mean_slack: float, residual: float, regularization: float) -> float:
    """‖θ − argmin F‖ ≤ √(2·gap/λ) with gap = (1/n)Σ η_k + ‖r‖²/(2λ) (docs/proofs/capped-release.md, Theorem 4).

    >>> round(distance_bound(0.0, 0.02, 2.0), 12)
    0.01
    """
    return math.sqrt(2 * mean_slack / regularization + (residual / regularization) ** 2)


def rounding_gap(
    model: Scaled,
    cap: float,
    regularization: float,
    center_norm: float,
    rounding: float,
    reach: float | None = None,
) -> float:
    """Public bound on the part of a gap that floating point cannot remove, for any data within the map's bounds.

    u stays within ``reach`` of the centre (4γ/λ unless given) and θ within half of it, so a slack is at most a few
    roundings of a user's gradient times 3/2 of that (docs/proofs/capped-release.md, section 4). ``rounding`` is the
    engine's.
    """
    reach = 4 * cap / regularization if reach is None else reach
    pull = 128 * _EPS * (cap + model.gradient_scale(center_norm + reach)[0])
    return pull * 1.5 * reach + (pull + 4 * rounding * cap) ** 2 / (2 * regularization)


def smallest_cap(model: Scaled, regularization: float, center_norm: float, reach: float | None = None) -> float:
    """A γ below this is lost in the rounding errors of the largest gradients that the map's bounds allow."""
    if reach is not None:
        return 64 * _EPS * model.gradient_scale(center_norm + reach)[0]
    # Numbers that grow with the distance do so over at most 4γ/λ: solve γ = share·scale for γ.
    scale, growth = model.gradient_scale(center_norm)
    lost = 64 * _EPS * growth * 4 / regularization
    return 64 * _EPS * scale / (1 - lost) if lost < 1 else math.inf
