"""Losses with a kink, smoothed: one class behind absolute, pinball, Huber and hinge.

A kink q(t) = max(a·t, b·t), a ≤ b, is replaced by its Moreau envelope of a public width w,

    q_w(t) = min_s q(s) + (t − s)²/(2w),   q − w·max(a², b²)/2 ≤ q_w ≤ q,

which is convex, has slopes in [a, b] and curvature at most 1/w. With w far below the privacy noise the loss is the
non-smooth one for every purpose but the solver's. Privacy does not depend on w.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from userdp.losses.base import Floats, Loss
from userdp.losses.fused import RESIDUAL, Slope


@dataclass(frozen=True)
class Kink:
    """max(lower·t, upper·t), smoothed over ``width``.

    >>> Kink(-1.0, 1.0, 0.5).value(np.array([-2.0, 0.25, 2.0])).tolist()
    [1.75, 0.0625, 1.75]
    """

    lower: float
    upper: float
    width: float

    def __post_init__(self) -> None:
        if not self.lower <= 0 <= self.upper or self.lower == self.upper:
            raise ValueError(f"slopes must satisfy lower ≤ 0 ≤ upper and differ, got {self.lower} and {self.upper}")
        if not 0 < self.width < float("inf"):
            raise ValueError(f"the smoothing width must be positive and finite, got {self.width}")

    @property
    def steepest(self) -> float:
        """Lipschitz constant."""
        return max(-self.lower, self.upper)

    @property
    def bias(self) -> float:
        """How much smoothing lowers the kink at most."""
        return self.width * self.steepest**2 / 2

    def value(self, t: Floats) -> Floats:
        """q_w(t) = s·t − w·s²/2 at the slope s = clip(t/w, a, b)."""
        slope = self.slope(t)
        return np.asarray(slope * t - 0.5 * self.width * slope * slope)

    def slope(self, t: Floats) -> Floats:
        """q_w'(t)."""
        return np.clip(t / self.width, self.lower, self.upper)

    def curvature(self, t: Floats) -> Floats:
        """q_w''(t): 1/w on the smoothed part, else 0."""
        return np.where((t > self.lower * self.width) & (t < self.upper * self.width), 1 / self.width, 0.0)


class ResidualLoss:
    """φ(z, y) = scale-free kink of the residual z − y; subclasses say which kink."""

    def __init__(self, kink: Kink) -> None:
        self.kink = kink
        self.lipschitz = kink.steepest
        self.smoothness = 1 / kink.width
        self.slope = Slope(RESIDUAL, kink.lower, kink.upper, kink.width)

    def __str__(self) -> str:
        return f"{type(self).__name__} loss, smoothed over a width of {self.kink.width:g} private units"

    def value(self, prediction: Floats, target: Floats) -> Floats:
        """q_w(z − y)."""
        return self.kink.value(prediction - target)

    def derivative(self, prediction: Floats, target: Floats) -> Floats:
        """q_w'(z − y)."""
        return self.kink.slope(prediction - target)

    def curvature(self, prediction: Floats, target: Floats) -> Floats:
        """q_w''(z − y)."""
        return self.kink.curvature(prediction - target)

    def minimum(self, target: Floats) -> Floats:
        """0, at z = y."""
        return np.zeros_like(target)


def widened(loss: Loss, width: float) -> Loss:
    """The same loss, a kink of which is smoothed over at least ``width``; losses without kinks as they are."""
    kink = getattr(loss, "kink", None)
    if not isinstance(kink, Kink) or kink.width >= width:
        return loss
    wider = copy(loss)
    vars(wider).update(kink=replace(kink, width=width), smoothness=1 / width)
    return wider
