"""Squared loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from userdp.losses.base import Floats
from userdp.losses.fused import RESIDUAL, Slope


@dataclass(frozen=True)
class Squared:
    """φ(z, y) = (z − y)²/2."""

    lipschitz: float = math.inf
    smoothness: float = 1.0
    slope: ClassVar[Slope] = Slope(RESIDUAL)

    def value(self, prediction: Floats, target: Floats) -> Floats:
        """Half the squared residual."""
        return np.asarray(0.5 * np.square(prediction - target))

    def derivative(self, prediction: Floats, target: Floats) -> Floats:
        """The residual."""
        return np.asarray(prediction - target)

    def curvature(self, prediction: Floats, target: Floats) -> Floats:
        """1 everywhere."""
        return np.ones_like(prediction)

    def minimum(self, target: Floats) -> Floats:
        """0, at z = y."""
        return np.zeros_like(target)
