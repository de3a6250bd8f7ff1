"""Hinge loss: the support vector machine's."""

from __future__ import annotations

import numpy as np

from userdp.losses.base import Floats
from userdp.losses.fused import MARGIN, Slope
from userdp.losses.kink import Kink


class Hinge:
    """φ(z, y) = max(0, 1 − s·z), s = 2y − 1 for y ∈ {0, 1}, smoothed over a public ``width``.

    >>> Hinge(width=0.1).value(np.array([2.0, -1.0]), np.array([1.0, 1.0])).round(2).tolist()
    [-0.0, 1.95]
    """

    def __init__(self, width: float = 1e-2) -> None:
        self.kink = Kink(0.0, 1.0, width)
        self.lipschitz = 1.0
        self.smoothness = 1 / width
        self.slope = Slope(MARGIN, 0.0, 1.0, width)

    def __str__(self) -> str:
        return f"Hinge loss, smoothed over a width of {self.kink.width:g}"

    def value(self, prediction: Floats, target: Floats) -> Floats:
        """q_w(1 − s·z)."""
        return self.kink.value(1 - _sign(target) * prediction)

    def derivative(self, prediction: Floats, target: Floats) -> Floats:
        """−s·q_w'(1 − s·z)."""
        sign = _sign(target)
        return np.asarray(-sign * self.kink.slope(1 - sign * prediction))

    def curvature(self, prediction: Floats, target: Floats) -> Floats:
        """q_w''(1 − s·z)."""
        return self.kink.curvature(1 - _sign(target) * prediction)

    def constant(self, rates: Floats) -> Floats:
        """A prediction without features for targets 0 and 1 with these ``rates``, shape (1,): the common class's, as
        far as it is common; the best one jumps from −1 to 1.
        """
        return np.asarray(np.clip(2 * (rates[1:] - rates[0]), -1.0, 1.0))

    def minimum(self, target: Floats) -> Floats:
        """0, at margins of 1 and more."""
        return np.zeros_like(target)


def _sign(target: Floats) -> Floats:
    """±1; targets outside {0, 1} count as the nearer one, so that every row has a 1-Lipschitz convex loss."""
    return np.where(target > 0.5, 1.0, -1.0)
