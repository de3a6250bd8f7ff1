"""The capped release on a constraint set: minimizer of (1/n) Σ_k h̃_k(θ) + (λ/2)‖θ − c‖² over K, plus noise.

The proof of sensitivity needs nothing of the users' terms but that they are convex and γ-Lipschitz on K, so it also
covers the linear parts of ``VectorModel`` losses, each shortened to γ. Proofs: docs/proofs/algorithms.md, section
2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from userdp.accounting import Adjacency, sum_sensitivity
from userdp.engines.base import Engine
from userdp.losses.base import ConvexModel, Floats, Scaled
from userdp.losses.vector import LinearPart
from userdp.mechanisms.capped import DISTANCE_SHARE, CappedPlan, plan_capped
from userdp.mechanisms.gaussian import Channel
from userdp.solvers.certificate import smallest_cap
from userdp.solvers.constrained import Quadratic, SetObjective, common_pull, minimize_on_set, users_ball
from userdp.solvers.newton import Solution
from userdp.solvers.sets import Ball, ConvexSet

_EPS = float(np.finfo(np.float64).eps)
# A ball farther from zero than so many radii: its points are too coarse for users' points to be held in it.
FARTHEST_BALL = 1e4


@dataclass(frozen=True, eq=False)
class SetPlan(CappedPlan):
    """The same with the ball that users' points stay in, if there is one, and a declared bound on their gradients."""

    users: Ball | None
    lipschitz: float


@dataclass(frozen=True)
class Declared:
    """Linear losses shortened to a declared length."""

    lipschitz: float

    def gradient_scale(self, radius: float) -> tuple[float, float]:
        """The same everywhere."""
        return self.lipschitz, 0.0


def plan_on_set(
    model: ConvexModel | LinearPart,
    n_users: int,
    adjacency: Adjacency,
    *,
    cap: float,
    regularization: float,
    gdp: float,
    center: Floats,
    domain: ConvexSet,
    rounding: float,
    common: Quadratic | None = None,
    lipschitz: float = math.inf,
) -> SetPlan:
    """Sensitivity 2γ/(λn) (γ/(λn) under add/remove) plus twice the certified distance.

    The distance is a hundredth of the sensitivity or, if that is more, what floating point can certify for any data.
    Users' points stay in the domain where that is a ball and costs no more (``users``). ``center``, ``domain``,
    ``common`` and ``lipschitz`` are public or released earlier; ``rounding`` is the engine's.
    """
    origin = domain.project(center)
    offset, center_norm = float(np.linalg.norm(origin - center)), float(np.linalg.norm(origin))
    pull = common_pull(common, origin)
    stable = sum_sensitivity(cap, adjacency) / (regularization * n_users)

    def certified(scaled: Scaled, norm: float, reach: float) -> float:
        planned = plan_capped(
            scaled,
            n_users,
            adjacency,
            cap=cap,
            regularization=regularization,
            gdp=gdp,
            center_norm=norm,
            rounding=rounding,
            reach=reach,
        )
        return planned.distance

    if isinstance(model, LinearPart):
        error = 8 * rounding * cap / regularization + 8 * _EPS * (center_norm + cap / regularization)
        planned = max(DISTANCE_SHARE * stable, error)
    else:
        planned = certified(model, center_norm, min(2 * domain.diameter, 4 * (cap + pull) / regularization))
    users = users_ball(domain, lipschitz, cap, pull, regularization)
    if users is not None and users.reach > FARTHEST_BALL * users.radius:
        users = None
    if users is not None:
        scaled = Declared(max(lipschitz, cap)) if isinstance(model, LinearPart) else model
        place = float(np.linalg.norm(users.center)), users.diameter
        if smallest_cap(scaled, regularization, *place) > cap or certified(scaled, *place) > planned:
            users = None
    # A normal vector of length ≤ 3γ + λ·offset has a slack of this order on a sphere with points rounded to eps·size.
    size = min(domain.reach, center_norm + 2 * (cap + pull) / regularization) + center_norm
    curved = math.sqrt(2 * 64 * _EPS * (3 * (cap + pull) + regularization * offset) * size / regularization)
    distance = max(planned, curved)
    if common is not None:
        distance += 4 * common.rounding(size) / regularization
    return SetPlan(cap, regularization, distance, stable * (1 + 1e-9) + 2 * distance, gdp, users, lipschitz)


def constrained_minimizer(
    engine: Engine,
    model: ConvexModel | LinearPart,
    center: Floats,
    domain: ConvexSet,
    plan: SetPlan,
    n_users: int,
    channel: Channel,
    label: str,
    common: Quadratic | None = None,
) -> tuple[Floats, Solution]:
    """Release the capped minimizer over ``domain`` around ``center``; the solution is not private.

    **Formal guarantee.** ``plan.gdp``-GDP for every dataset, if center and domain are public or released earlier:
    nothing is assumed of the rows, there is no failure (docs/proofs/algorithms.md, Theorem 1).
    """
    objective = SetObjective(
        engine, model, plan.cap, plan.regularization, center, n_users, domain, common, plan.users, plan.lipschitz
    )
    solution = minimize_on_set(objective, plan.distance)
    return channel.release(solution.theta, plan.sensitivity, plan.gdp, label), solution
