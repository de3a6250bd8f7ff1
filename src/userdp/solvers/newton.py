"""Minimize F(θ) = (1/n) Σ_k h̃_k(θ) + (λ/2)‖θ − c‖² to a proven distance.

Each step is a Newton step that must shorten the gradient; when none does, a gradient step whose length is halved until
it must (F is smooth and λ-strongly convex, so a short enough one always does). The loop ends only when the certificate
says so: there is no iteration limit and no "did not converge".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from userdp.data.blocks import UserBlock
from userdp.engines.base import Engine, Sums
from userdp.losses.base import ConvexModel, Floats
from userdp.solvers.capped import Cap, pulls
from userdp.solvers.certificate import distance_bound


@dataclass(frozen=True)
class Solution:
    """A point with ‖theta − argmin F‖ ≤ distance. ``capped`` and ``steps`` depend on the data: diagnostics only."""

    theta: Floats
    distance: float
    capped: int
    steps: int


@dataclass(frozen=True)
class CappedObjective:
    """F over the users of an engine, normalized by the public ``n_users``.

    The minimizer lies within γ/λ of the centre, or a little more if there are more users than ``n_users`` says; points
    are kept within twice that, and the users' own u within four times.
    """

    engine: Engine
    model: ConvexModel
    cap: float
    regularization: float
    center: Floats
    n_users: int

    def __post_init__(self) -> None:
        if self.engine.n_users > 2 * self.n_users:
            raise ValueError(f"{self.engine.n_users} users, but only {self.n_users} were declared")

    @property
    def trust(self) -> float:
        """Twice γ/λ: farther from the centre than the minimizer can be with up to 2·``n_users`` users."""
        return 2 * self.cap / self.regularization

    def project(self, step: Floats) -> Floats:
        """The nearest step from the centre of length at most ``trust``."""
        length = float(np.linalg.norm(step))
        return step if length <= self.trust else step * (self.trust / length)

    def evaluate(self, step: Floats) -> _State:
        """One pass over the users, at centre + step."""
        cap = Cap(self.cap, 2 * self.trust)
        force, slack, error, hessian, capped = self.engine.sum(_kernel, self.model, self.center, step, cap)
        residual = force / self.n_users + self.regularization * step
        curvature = hessian / self.n_users + self.regularization * np.eye(len(step))
        rounding = 2 * self.engine.rounding * self.cap * self.engine.n_users / self.n_users
        error = error / self.n_users + rounding
        return _State(step, residual, curvature, float(slack[0]) / self.n_users, float(error[0]), int(capped[0]))

    def distance(self, state: _State) -> float:
        """Certified distance of a state to the minimizer; the last term pays for rounding centre + step."""
        rounded = float(np.finfo(np.float64).eps) * float(np.linalg.norm(self.center + state.step))
        return distance_bound(state.slack, state.length + state.error, self.regularization) + rounded


@dataclass(frozen=True)
class _State:
    step: Floats
    residual: Floats
    curvature: Floats
    slack: float
    error: float
    capped: int

    @property
    def length(self) -> float:
        return float(np.linalg.norm(self.residual))


NOT_A_NUMBER = "a loss returned something that is not a number: nothing can be certified, and nothing was released"


def minimize(
    objective: CappedObjective, distance: float, *, on_step: Callable[[float], None] = lambda distance: None
) -> Solution:
    """A point proved to lie within ``distance`` of the minimizer of ``objective``.

    ``on_step`` hears the certified distance after each step (for progress display inside the trusted process).
    """
    state = objective.evaluate(np.zeros_like(objective.center))
    steps = 0
    while not objective.distance(state) <= distance:
        if math.isnan(objective.distance(state)):
            raise FloatingPointError(NOT_A_NUMBER)
        on_step(objective.distance(state))
        state = _newton_step(objective, state) or _gradient_step(objective, state)
        steps += 1
    return Solution(objective.center + state.step, objective.distance(state), state.capped, steps)


def _newton_step(objective: CappedObjective, state: _State) -> _State | None:
    direction = np.linalg.solve(state.curvature, state.residual)
    length = 1.0
    for _ in range(12):
        trial = objective.evaluate(objective.project(state.step - length * direction))
        if trial.length <= (1 - 0.25 * length) * state.length:
            return trial
        length *= 0.5
    return None


def _gradient_step(objective: CappedObjective, state: _State) -> _State:
    """θ − r/L: contracts ‖r‖ by 1 − λ/L once L exceeds the smoothness of F, which doubling reaches."""
    smoothness = float(np.linalg.norm(state.curvature, 2))
    while True:
        trial = objective.evaluate(objective.project(state.step - state.residual / smoothness))
        shorter = trial.length <= (1 - 0.5 * objective.regularization / smoothness) * state.length
        if shorter or smoothness > 1e15 * objective.regularization:
            return trial
        smoothness *= 2.0


def _kernel(block: UserBlock, model: ConvexModel, center: Floats, step: Floats, cap: Cap) -> Sums:
    found = pulls(block, model, center, step, cap)
    return (
        found.forces.sum(axis=0),
        found.slacks.sum(keepdims=True),
        found.errors.sum(keepdims=True),
        found.hessian,
        np.array([float(found.capped)]),
    )
