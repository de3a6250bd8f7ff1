"""The protocol of a pointwise convex loss of a linear prediction."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

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
