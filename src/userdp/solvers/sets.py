"""Constraint sets: the whole space, a ball, a box, and a set cut by a ball.

A set projects, and splits a direction at one of its points into a normal and a tangential part (Moreau
decomposition: direction = Π_N(direction) + Π_T(direction), N the normal cone, T the tangent cone). Which faces a
computed point lies on is a matter of rounding, so ``normal`` also returns how far its vector is from being normal,

    slack ≥ sup { ⟨vector, z − point⟩ : z in the set },

computed from the support function. A certificate that adds the slack is valid for every vector
(docs/proofs/algorithms.md, Lemma 2): the tolerance below decides how good it is, never whether it holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from userdp.losses.base import Floats

_EPS = float(np.finfo(np.float64).eps)
# A point this close to a face, relative to the size of the set, is treated as lying on it.
_FACE = 1e-9


@dataclass(frozen=True)
class Normal:
    """A vector and a bound on ⟨vector, z − point⟩ over the set: 0, up to rounding, when the vector is normal there."""

    vector: Floats
    slack: float


class ConvexSet(Protocol):
    """A closed convex set in ℝ^d."""

    @property
    def reach(self) -> float:
        """Bound on the norm of the set's points; inf if unbounded."""

    @property
    def diameter(self) -> float:
        """Bound on the distance of two of the set's points; inf if unbounded."""

    def project(self, point: Floats) -> Floats:
        """The nearest point of the set."""

    def normal(self, point: Floats, direction: Floats) -> Normal:
        """Projection of ``direction`` onto the normal cone at ``point`` (which lies in the set up to rounding)."""


def tangent(domain: ConvexSet, point: Floats, direction: Floats) -> Floats:
    """Projection of ``direction`` onto the tangent cone at ``point``: what is left of a force that the set resists.

    >>> tangent(Ball(np.zeros(2), 1.0), np.array([1.0, 0.0]), np.array([3.0, 4.0])).tolist()
    [0.0, 4.0]
    """
    return direction - domain.normal(point, direction).vector


@dataclass(frozen=True)
class WholeSpace:
    """No constraint."""

    @property
    def reach(self) -> float:
        """Unbounded."""
        return math.inf

    @property
    def diameter(self) -> float:
        """Unbounded."""
        return math.inf

    def project(self, point: Floats) -> Floats:
        """The point itself."""
        return point

    def normal(self, point: Floats, direction: Floats) -> Normal:
        """The normal cone is {0}."""
        return Normal(np.zeros_like(direction), 0.0)


@dataclass(frozen=True, eq=False)
class Ball:
    """{θ : ‖θ − center‖ ≤ radius}."""

    center: Floats
    radius: float

    def __post_init__(self) -> None:
        if not self.radius > 0:
            raise ValueError(f"the radius of a ball must be positive, got {self.radius}")

    @property
    def reach(self) -> float:
        """Norm of the centre plus the radius."""
        return float(np.linalg.norm(self.center)) + self.radius

    @property
    def diameter(self) -> float:
        """Twice the radius."""
        return 2 * self.radius

    def project(self, point: Floats) -> Floats:
        """Pull towards the centre."""
        step = point - self.center
        length = float(np.linalg.norm(step))
        return point if length <= self.radius else self.center + step * (self.radius / length)

    def normal(self, point: Floats, direction: Floats) -> Normal:
        """Non-negative multiples of the radial vector on the sphere, 0 inside."""
        step = point - self.center
        length = float(np.linalg.norm(step))
        if length < self.radius * (1 - _FACE):
            return Normal(np.zeros_like(direction), 0.0)
        outward = step / length
        size = max(float(direction @ outward), 0.0)
        return Normal(size * outward, size * (max(self.radius - length, 0.0) + 4 * _EPS * self.reach))


@dataclass(frozen=True, eq=False)
class Box:
    """{θ : lower ≤ θ ≤ upper}, coordinate by coordinate; bounds may be infinite."""

    lower: Floats
    upper: Floats

    def __post_init__(self) -> None:
        if not (np.shape(self.lower) == np.shape(self.upper) and np.all(self.lower <= self.upper)):
            raise ValueError(f"a box needs lower ≤ upper in every coordinate, got {self.lower} and {self.upper}")

    @property
    def reach(self) -> float:
        """Norm of the farthest corner."""
        return float(np.linalg.norm(np.maximum(np.abs(self.lower), np.abs(self.upper))))

    @property
    def diameter(self) -> float:
        """Length of the diagonal."""
        return float(np.linalg.norm(np.asarray(self.upper) - np.asarray(self.lower)))

    def project(self, point: Floats) -> Floats:
        """Clip."""
        return np.clip(point, self.lower, self.upper)

    def normal(self, point: Floats, direction: Floats) -> Normal:
        """What pushes against a bound the point sits on (a clipped coordinate equals its bound exactly)."""
        up = (direction > 0) & (point >= self.upper)
        down = (direction < 0) & (point <= self.lower)
        return Normal(np.where(up | down, direction, 0.0), 0.0)


@dataclass(frozen=True, eq=False)
class Within:
    """The part of ``base`` inside ``ball``, whose centre must lie in ``base`` (so the part is never empty)."""

    base: ConvexSet
    ball: Ball

    def __post_init__(self) -> None:
        away = float(np.linalg.norm(self.base.project(self.ball.center) - self.ball.center))
        if away > 1e-9 * (self.ball.radius + self.ball.reach):
            raise ValueError(f"the ball's centre is {away:g} outside the set: project it onto the set first")

    @property
    def reach(self) -> float:
        """The smaller one."""
        return min(self.base.reach, self.ball.reach)

    @property
    def diameter(self) -> float:
        """The smaller one."""
        return min(self.base.diameter, self.ball.diameter)

    def project(self, point: Floats) -> Floats:
        """Π_base((1 − t)·point + t·center) with the smallest t that lands in the ball; its distance to the centre
        falls in t.
        """
        center, radius = self.ball.center, self.ball.radius

        def at(t: float) -> Floats:
            return self.base.project((1 - t) * point + t * center)

        found = at(0.0)
        excess = float(np.linalg.norm(found - center)) - radius
        if excess <= 0:
            return found
        low, high, above, below, inside = 0.0, 1.0, excess, -radius, center
        for _ in range(100):  # regula falsi (Illinois)
            t = high - below * (high - low) / (below - above)
            t = t if low < t < high else (low + high) / 2
            found = at(t)
            excess = float(np.linalg.norm(found - center)) - radius
            if excess > 0:
                low, above, below = t, excess, below / 2
            else:
                high, below, above, inside = t, excess, above / 2, found
            if -4 * _EPS * radius <= excess <= 0 or high - low <= 2 * _EPS:
                break
        return inside

    def normal(self, point: Floats, direction: Floats) -> Normal:
        """t·outward + Π_N(base)(direction − t·outward) with the t ≥ 0 that leaves the shortest remainder."""
        alone = self.base.normal(point, direction)
        step = point - self.ball.center
        length = float(np.linalg.norm(step))
        if length < self.ball.radius * (1 - _FACE):
            return alone
        outward = step / length

        def slope(t: float) -> float:
            rest = direction - t * outward
            return float(outward @ (rest - self.base.normal(point, rest).vector))

        if slope(0.0) <= 0:
            return alone
        low, high = 0.0, max(float(np.linalg.norm(direction)), 1e-300)
        for _ in range(60):
            if slope(high) <= 0:
                break
            low, high = high, 2 * high
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle) > 0 else (low, middle)
        rest = self.base.normal(point, direction - high * outward)
        gap = max(self.ball.radius - length, 0.0) + 4 * _EPS * self.ball.reach
        return Normal(rest.vector + high * outward, rest.slack + high * gap)
