"""The way of a descent: points, and what is made of the gradients released there. All post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from userdp.algorithms.calibration import Geometry
from userdp.algorithms.schedule import step_length, way_weights
from userdp.losses.base import Floats
from userdp.losses.linear import rows_times

BRAKE_AT = 1.5  # curvature along a step, over the learnt one, from which on steps are shortened
RADIUS = 20.0  # in coordinates of unit curvature: a coefficient vector this long predicts with certainty
MEMORY = 0.95  # how much of a proposal's weight in the size of the signal is left one phase later
CAUTION = 3.0  # noise counts so much more than signal: curvature is less than learnt in most directions
LEAST_SIGNAL = 0.01  # squared length of θ* that is believed without seeing it
LARGEST_SIGNAL = 5.0  # a larger one is not believed: proposals that noise drives away would be followed
STRONGEST = 3.0  # most that noise may add to the curvature of 1


@dataclass
class Path:
    """Points in one geometry, relative to the public ``start``, with the gradients released there."""

    geometry: Geometry
    start: Floats
    points: list[Floats] = field(default_factory=list)
    proposals: list[Floats] = field(default_factory=list)
    sigmas: list[float] = field(default_factory=list)
    caps: list[float] = field(default_factory=list)
    brake: float = 1.0
    last: tuple[Floats, Floats, float] | None = None
    noise: list[Floats] = field(default_factory=list)

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

    def step(self, theta: Floats, gradient: Floats, sigma: float, left: int) -> Floats:
        """The next point: from θ against a released gradient with noise ``sigma``, ``left`` phases before the end.

        θ ← θ − η(g + ρθ). η keeps the noise of a step small; ρ holds the points near the start as far as noise, at the
        end of all phases, will exceed the signal.
        """
        self._watch(theta, gradient, sigma)
        self.proposals.append(theta - gradient / self.brake)
        self.sigmas.append(sigma)
        ridge, signal = self._ridge(left)
        distance = min(max(signal, 1.0), LARGEST_SIGNAL)
        length = min(1 / (self.brake * (1 + ridge)), step_length(len(theta) * sigma**2 / distance))
        moved = theta - length * (gradient + ridge * theta)
        self.points.append(moved * min(1.0, RADIUS / max(float(np.linalg.norm(moved)), 1e-300)))
        kept = 1 - length * (1 + ridge)
        before = kept * self.noise[-1] if self.noise else np.zeros(0)
        self.noise.append(np.append(before, length))
        return self.points[-1]

    def _watch(self, theta: Floats, gradient: Floats, sigma: float) -> None:
        """Brake where the released gradients show more curvature than the geometry knows of.

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

    def _ridge(self, left: int) -> tuple[float, float]:
        """ρ = 3dv/‖θ*‖², and ‖θ*‖²: v is the noise that the mean gradient of all phases will have, ‖θ*‖² what the
        proposals show beyond their own noise.
        """
        size, sigmas = len(self.proposals[0]), np.array(self.sigmas)
        weights = MEMORY ** np.arange(len(sigmas))[::-1] / sigmas**2
        weights /= weights.sum()
        noise = size * float(weights**2 @ sigmas**2) / self.brake**2
        mean = weights @ np.array(self.proposals)
        signal = max(float(mean @ mean) - noise, 0.1 * noise, LEAST_SIGNAL)
        at_end = size / float((1 / sigmas**2).sum() + left / sigmas[-1] ** 2)
        return min(CAUTION * at_end / signal, STRONGEST), signal

    def mean(self) -> tuple[Floats, float]:
        """The model: a mean of the points; and its noise variance where the curvature is as learnt."""
        weights, arrived = way_weights(self.sigmas), self._arrived()
        return np.asarray(weights @ np.array(self.points)), float((weights @ arrived) ** 2 @ np.square(self.sigmas))

    def excursion(self) -> float:
        """Mean squared distance of the points from where they would be without noise, where the curvature is as learnt.

        Gradients were taken there, so a loss that flattens away from a point pulled less than it does at the mean.
        """
        spread = np.square(self._arrived()) @ np.square(self.sigmas)
        return len(self.points[0]) * float(way_weights(self.sigmas) @ spread)

    def _arrived(self) -> Floats:
        """Weight with which the noise of each phase (columns) is in each point (rows)."""
        return np.array([np.pad(noise, (0, len(self.noise) - len(noise))) for noise in self.noise])
