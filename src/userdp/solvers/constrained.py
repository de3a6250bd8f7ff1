"""Minimize F(θ) = (1/n) Σ_k h̃_k(θ) + (λ/2)‖θ − c‖² over a convex set, to a proven distance; γ = inf leaves the
losses uncapped.

Certificate (docs/proofs/algorithms.md, Lemma 2). Let v_k be an η_k-subgradient of h̃_k at θ, r₀ = (1/n)Σv_k + λ(θ −
c), and v any vector with sup_{z ∈ K} ⟨v, z − θ⟩ ≤ s. Then F(θ) − min_K F ≤ (1/n)Ση_k + s + ‖r₀ + v‖²/(2λ). The best
v is the projection of *minus* r₀ onto the normal cone, so that r₀ + v is minus the projection of −r₀ onto the
tangent cone.

Method. The quadratic model of F is minimized over the set (an accelerated projected gradient method on d numbers,
no pass over the data; linear parts are their own model), then the slope of F along the way there decides how far to
go. Every step lowers the convex F or the certified gap by a factor, so the gap falls below every target that rounding
allows; there is no iteration limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from userdp.data.blocks import UserBlock
from userdp.engines.base import Engine, Sums
from userdp.losses.base import ConvexModel, Floats
from userdp.losses.vector import LinearPart
from userdp.solvers.capped import Cap, Pulls, linear_pulls, pulls
from userdp.solvers.newton import NOT_A_NUMBER, Solution
from userdp.solvers.sets import Ball, ConvexSet, Within

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Quadratic:
    """½⟨θ − center, matrix(θ − center)⟩, matrix positive semidefinite: public, common to all users, not capped."""

    matrix: Floats
    center: Floats

    def gradient(self, theta: Floats) -> Floats:
        """matrix·(θ − center)."""
        return np.asarray(self.matrix @ (theta - self.center))

    def rounding(self, theta_norm: float) -> float:
        """Bound on the rounding error of ``gradient``."""
        size = theta_norm + float(np.linalg.norm(self.center))
        return 4 * (len(self.center) + 4) * _EPS * float(np.linalg.norm(self.matrix)) * size


@dataclass(frozen=True, eq=False)
class SetObjective:
    """F over the users of an engine, normalized by the public ``n_users``, on the convex set ``domain``.

    ``common`` is a public quadratic that is added to F. With a finite ``cap`` the minimization is over the part of the
    domain within 2γ/λ of ``origin``, the point of the domain nearest to the centre (γ plus the common pull there): with
    at most 2·``n_users`` users that changes nothing (docs/proofs/algorithms.md, Lemma 1), and with more it is part of
    the definition. Users' points stay within twice as far, or twice the domain's diameter; or in the ball ``users``,
    which contains the domain. There linear losses are shortened to ``lipschitz``, or γ if that is more.
    """

    engine: Engine
    model: ConvexModel | LinearPart
    cap: float
    regularization: float
    center: Floats
    n_users: int
    domain: ConvexSet
    common: Quadratic | None = None
    users: Ball | None = None
    lipschitz: float = math.inf

    @cached_property
    def origin(self) -> Floats:
        """The projection of the centre onto the domain."""
        return self.domain.project(self.center)

    @property
    def feasible(self) -> ConvexSet:
        """The set that is searched."""
        if math.isinf(self.cap):
            return self.domain
        return Within(self.domain, Ball(self.origin, self.reach / 2))

    @cached_property
    def reach(self) -> float:
        """How far from the origin users' points may go: 4γ/λ, γ and the common pull together."""
        return 4 * (self.cap + common_pull(self.common, self.origin)) / self.regularization

    @cached_property
    def _within(self) -> tuple[Floats, Cap, bool]:
        """Centre and radius of the ball that users' points stay in, and whether that is ``users``."""
        if self.users is None:
            return self.origin, Cap(self.cap, min(self.reach, 2 * self.domain.diameter)), False
        # No point of the domain is outside, whatever the rounding.
        return self.users.center, Cap(self.cap, self.users.radius + 16 * _EPS * self.users.reach), True

    @cached_property
    def _constant(self) -> Sums:
        """What users with linear losses do, at every point."""
        return self.engine.sum(_linear_kernel, self.model, self.cap)

    def evaluate(self, point: Floats, feasible: ConvexSet) -> State:
        """One pass over the users (linear parts: one for all points)."""
        center, cap, whole = self._within
        if isinstance(self.model, LinearPart) and (not whole or self._constant[2][0] == 0):
            force, lengths, capped = self._constant
            slack, error, curvature = np.zeros(1), np.zeros(1), np.asarray(self.regularization)
        else:
            step = point - center
            if isinstance(self.model, LinearPart):
                found = self.engine.sum(_linear_ball_kernel, self.model, step, cap, self.lipschitz)
            else:
                found = self.engine.sum(_kernel, self.model, center, step, cap)
            force, lengths, capped, slack, error, hessian = found
            curvature = hessian / self.n_users + self.regularization * np.eye(len(point))
        gradient = force / self.n_users + self.regularization * (point - self.center)
        rounding = (float(error[0]) + 2 * self.engine.rounding * float(lengths[0])) / self.n_users
        if self.common is not None:
            gradient = gradient + self.common.gradient(point)
            curvature = curvature * np.eye(len(point)) if curvature.ndim == 0 else curvature
            curvature = curvature + self.common.matrix
            rounding += self.common.rounding(float(np.linalg.norm(point)))
        normal = feasible.normal(point, -gradient)
        bent = normal.slack + (float(np.linalg.norm(gradient + normal.vector)) + rounding) ** 2 / (
            2 * self.regularization
        )
        free = (float(np.linalg.norm(gradient)) + rounding) ** 2 / (2 * self.regularization)
        gap = float(slack[0]) / self.n_users + min(bent, free)
        distance = math.sqrt(2 * gap / self.regularization) + 2 * _EPS * float(np.linalg.norm(point))
        return State(point, gradient, curvature, gap, distance, int(capped[0]))


def users_ball(domain: ConvexSet, lipschitz: float, cap: float, pull: float, regularization: float) -> Ball | None:
    """The domain, or what it was cut from, as a set that users' points may stay in: if it is a ball, G is declared, and
    the diameter is at most 4(G + pull)/λ (G or γ, whichever is more). Later phases have little to gain from it.
    """
    while isinstance(domain, Within):
        domain = domain.base
    if not (isinstance(domain, Ball) and math.isfinite(lipschitz)):
        return None
    return domain if domain.diameter <= 4 * (max(lipschitz, cap) + pull) / regularization else None


def common_pull(common: Quadratic | None, origin: Floats) -> float:
    """Length of a common quadratic's gradient at the origin."""
    return 0.0 if common is None else float(np.linalg.norm(common.gradient(origin)))


@dataclass(frozen=True, eq=False)
class State:
    """A point, the gradient and curvature of F there (a number: that times the identity), and what is proved: F −
    min F ≤ gap, ‖point − argmin‖ ≤ distance.
    """

    point: Floats
    gradient: Floats
    curvature: Floats
    gap: float
    distance: float
    capped: int


def minimize_on_set(
    objective: SetObjective, distance: float, *, on_step: Callable[[float], None] = lambda distance: None
) -> Solution:
    """A point proved to lie within ``distance`` of the minimizer of ``objective`` on its set.

    Starts at the origin and ends only when the distance is proved: callers ask for what floating point allows for any
    data. Equal inputs give equal bits.
    """
    feasible = objective.feasible
    state = best = objective.evaluate(objective.origin, feasible)
    steps = 0
    while not best.distance <= distance:
        if math.isnan(best.distance):
            raise FloatingPointError(NOT_A_NUMBER)
        on_step(best.distance)
        state = _step(objective, state, feasible, best.gap)
        best = state if state.gap < best.gap else best
        steps += 1
    return Solution(best.point, best.distance, best.capped, steps)


def _step(objective: SetObjective, state: State, feasible: ConvexSet, gap: float) -> State:
    """Towards the minimizer of the quadratic model; bisection on the slope of F if that is too far."""
    direction = _model_minimizer(state, feasible) - state.point
    start = float(state.gradient @ direction)
    low, high, length = 0.0, 1.0, 1.0
    trial = state
    for _ in range(50):
        trial = objective.evaluate(feasible.project(state.point + length * direction), feasible)
        slope = float(trial.gradient @ direction)
        if trial.gap <= 0.5 * gap or (slope <= 0 and (length == 1.0 or slope >= 0.7 * start)):
            break
        low, high = (length, high) if slope <= 0 else (low, length)
        length = (low + high) / 2
    return trial


def _model_minimizer(state: State, feasible: ConvexSet) -> Floats:
    """argmin over the set of ⟨g, z − θ⟩ + ½⟨z − θ, H(z − θ)⟩: Newton's point if it is feasible, else FISTA with
    restarts.
    """
    point, gradient, curvature = state.point, state.gradient, state.curvature
    if curvature.ndim == 0:
        return feasible.project(point - gradient / curvature)
    newton = point - np.linalg.solve(curvature, gradient)
    near = feasible.project(newton)
    if float(np.linalg.norm(near - newton)) <= 1e-12 * float(np.linalg.norm(newton - point)):
        return near
    top = float(np.linalg.eigvalsh(curvature)[-1]) * (1 + 1e-9)
    current = feasible.project(point - gradient / top)
    first = previous = current
    momentum = 1.0
    lookahead = current
    for _ in range(1000):
        slope = gradient + curvature @ (lookahead - point)
        current = feasible.project(lookahead - slope / top)
        moved = current - lookahead
        if float(np.linalg.norm(moved)) <= 1e-6 * float(np.linalg.norm(first - point)):
            break
        if float(moved @ (current - previous)) < 0:  # momentum points uphill
            momentum, lookahead, previous = 1.0, current, current
            continue
        following = (1 + math.sqrt(1 + 4 * momentum * momentum)) / 2
        lookahead = current + (momentum - 1) / following * (current - previous)
        momentum, previous = following, current
    return current if _model_value(state, current) <= _model_value(state, first) else first


def _model_value(state: State, point: Floats) -> float:
    step = point - state.point
    return float(state.gradient @ step + 0.5 * step @ state.curvature @ step)


def _linear_kernel(block: UserBlock, model: LinearPart, cap: float) -> Sums:
    forces, capped = model.forces(block, cap)
    return forces.sum(axis=0), _lengths(forces), np.array([float(capped)])


def _linear_ball_kernel(block: UserBlock, model: LinearPart, step: Floats, cap: Cap, lipschitz: float) -> Sums:
    gradients, _ = model.forces(block, max(lipschitz, cap.force))
    return _sums(linear_pulls(gradients, step, cap))


def _kernel(block: UserBlock, model: ConvexModel, center: Floats, step: Floats, cap: Cap) -> Sums:
    return _sums(pulls(block, model, center, step, cap))


def _sums(found: Pulls) -> Sums:
    return (
        found.forces.sum(axis=0),
        _lengths(found.forces),
        np.array([float(found.capped)]),
        found.slacks.sum(keepdims=True),
        found.errors.sum(keepdims=True),
        found.hessian,
    )


def _lengths(forces: Floats) -> Floats:
    """Σ‖v_k‖, which the rounding error of Σv_k is proportional to."""
    return np.asarray(np.linalg.norm(forces, axis=1).sum(keepdims=True))
