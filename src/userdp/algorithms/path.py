"""The way of a descent: released proposals in one geometry, and what is made of them. All post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from userdp.algorithms.calibration import Geometry, shrink
from userdp.algorithms.schedule import precision_mean
from userdp.losses.base import Floats
from userdp.losses.linear import rows_times

BRAKE_AT = 1.5  # curvature along a step, over the learnt one, from which on steps are shortened
RADIUS = 20.0  # in coordinates of unit curvature: a coefficient vector this long predicts with certainty


@dataclass
class Path:
    """Released proposals in one geometry, relative to the public ``start``."""

    geometry: Geometry
    start: Floats
    points: list[Floats] = field(default_factory=list)
    sigmas: list[float] = field(default_factory=list)
    caps: list[float] = field(default_factory=list)
    brake: float = 1.0
    last: tuple[Floats, Floats, float] | None = None

    @property
    def map(self) -> Floats:
        """P with w = Pθ, a vector if it is diagonal."""
        return self.geometry.matrix

    def coefficients(self, theta: Floats) -> Floats:
        """On the mapped features, (copies, dimension)."""
        return np.asarray(self.start + rows_times(theta.reshape(self.start.shape), self.geometry.matrix.T))

    def relative(self, coefficients: Floats) -> Floats:
        """θ of given coefficients."""
        return rows_times(coefficients - self.start, self.geometry.inverse.T).ravel()

    def absolute(self, theta: Floats) -> Floats:
        """Coordinates of the model itself, not relative to the start."""
        return np.asarray(rows_times(self.start, self.geometry.inverse.T).ravel() + theta)

    def pull_back(self, l2: Floats, theta: Floats) -> Floats:
        """Gradient of ½ Σ l2_i w_i² in the coordinates of θ."""
        return rows_times(l2 * self.coefficients(theta), self.geometry.matrix).ravel()

    def add(self, theta: Floats, gradient: Floats, sigma: float) -> None:
        """A proposal θ − gradient; shorter where the released gradients show more curvature than the geometry knows of.

        The curvature ⟨step, change⟩/‖step‖² along the last step is seen with noise: the last gradient's is in both
        factors and adds at most dσ²/‖step‖², which is taken off; of the rest only what exceeds two standard errors
        counts.
        """
        if self.last is not None:
            step, change = theta - self.last[0], gradient - self.last[1]
            length = max(float(np.linalg.norm(step)), 1e-100)
            seen = (float(step @ change) - len(step) * self.last[2] ** 2) / length**2
            error = math.hypot(sigma, self.last[2]) / length
            self.brake = max(1.0, 0.95 * self.brake, seen if seen - 2 * error > BRAKE_AT else 0.0)
        self.last = (theta, gradient, sigma)
        self.points.append(theta - gradient / self.brake)
        self.sigmas.append(sigma / self.brake)

    def estimate(self, decay: float, caution: float = 1.0) -> tuple[Floats, float]:
        """Precision-weighted mean, weights decaying with age, shrunk where noise dominates; and its noise variance."""
        mean, spread = precision_mean(self.points, self.sigmas, decay)
        prior = np.tile(self.geometry.values, len(self.start))
        point = shrink(mean, caution * spread, prior)
        return point * min(1.0, RADIUS / max(float(np.linalg.norm(point)), 1e-300)), spread
