"""Logistic loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit

from userdp.losses.base import Floats
from userdp.losses.fused import LOGISTIC, Slope


@dataclass(frozen=True)
class Logistic:
    """φ(z, y) = log(1 + e^z) − y·z for y ∈ [0, 1]: the negative log-likelihood of P(y = 1) = 1/(1 + e^−z).

    Other targets count as the nearer of 0 and 1, so that the constants and the lower bound hold for any data.
    """

    lipschitz: float = 1.0
    smoothness: float = 0.25
    slope: ClassVar[Slope] = Slope(LOGISTIC)

    def value(self, prediction: Floats, target: Floats) -> Floats:
        """Written so that neither tail overflows."""
        softplus = np.maximum(prediction, 0.0) + np.log1p(np.exp(-np.abs(prediction)))
        return np.asarray(softplus - np.clip(target, 0.0, 1.0) * prediction)

    def derivative(self, prediction: Floats, target: Floats) -> Floats:
        """Predicted minus observed."""
        return np.asarray(expit(prediction) - np.clip(target, 0.0, 1.0))

    def curvature(self, prediction: Floats, target: Floats) -> Floats:
        """p(1 − p) = e/(1 + e)² with e = e^−|z|."""
        power = np.exp(-np.abs(prediction))
        return np.minimum(power / (1.0 + power) ** 2, 0.25)

    def constant(self, rates: Floats) -> Floats:
        """The best prediction without features for targets 0 and 1 with these ``rates``, shape (1,)."""
        return np.asarray(np.log(rates[1:] / rates[0]))

    def minimum(self, target: Floats) -> Floats:
        """0, approached as z → ±∞ on the right side of y."""
        return np.zeros_like(target)
