"""The curvature that a step meets: what the geometry of a fit learns from losses with kinks.

The curvature of a kink is a spike: a mean over users sees it by luck, and a row far from its kink shows none although
a step may carry it there. What a step meets is the steepest turn of the slope around the prediction, over any distance
from a smallest one on,

    c(z) = max over s ≥ w of (φ'(z + s) − φ'(z − s))/(2s).

For |z − y| that is 1/max(|z − y|, w), the weight of iteratively reweighted least squares, whose steps always descend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from userdp.losses.base import Floats, Loss

_DISTANCES = np.sqrt(2.0) ** np.arange(18)


@dataclass(frozen=True)
class Blurred:
    """φ with the curvature c(z) ≥ 0 instead of φ'', from distance ``width`` on."""

    loss: Loss
    width: float

    @property
    def lipschitz(self) -> float:
        """That of φ."""
        return self.loss.lipschitz

    @property
    def smoothness(self) -> float:
        """φ' turns from one extreme to the other over the smallest distance."""
        return min(self.loss.smoothness, self.loss.lipschitz / self.width)

    def value(self, prediction: Floats, target: Floats) -> Floats:
        """φ itself."""
        return self.loss.value(prediction, target)

    def derivative(self, prediction: Floats, target: Floats) -> Floats:
        """φ' itself."""
        return self.loss.derivative(prediction, target)

    def curvature(self, prediction: Floats, target: Floats) -> Floats:
        """c(z), on distances √2 apart."""
        steepest = np.zeros_like(prediction)
        for distance in self.width * _DISTANCES:
            above = self.loss.derivative(prediction + distance, target)
            below = self.loss.derivative(prediction - distance, target)
            np.maximum(steepest, (above - below) / (2 * distance), out=steepest)
        return steepest

    def minimum(self, target: Floats) -> Floats:
        """That of φ."""
        return self.loss.minimum(target)


def blurred(loss: Loss, width: float) -> Loss:
    """``loss`` if its slope needs a distance of 4 (the logistic loss's) to turn, else with the curvature a step meets.

    >>> from userdp.losses import Absolute, Logistic
    >>> blurred(Logistic(), 0.05)
    Logistic(lipschitz=1.0, smoothness=0.25)
    >>> blurred(Absolute(), 0.05).curvature(np.array([0.0, 0.5]), np.zeros(2)).round(1).tolist()
    [20.0, 1.8]
    """
    sharp = math.isfinite(loss.lipschitz) and loss.lipschitz < 4 * loss.smoothness
    return Blurred(loss, width) if sharp else loss
