"""Releases built on the cap: no user pulls with more than γ, whatever its rows are.

``capped_minimizer``: the minimizer of (1/n) Σ_k h̃_k(θ) + (λ/2)‖θ − c‖², computed to a certified distance, plus noise.
``clipped_mean``: the mean of the users' gradients, each shortened to γ, plus noise; with step 1/λ this is the same
release for the linear surrogate ⟨clip_γ(∇h_k(c)), θ − c⟩ of the user loss, at the price of one pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit

from userdp.accounting import Adjacency, sum_sensitivity
from userdp.data.blocks import UserBlock
from userdp.engines.base import Engine, Sums
from userdp.losses.base import ConvexModel, Floats, PhaseGradients, Scaled, UserModel, phase_gradients
from userdp.losses.vectors import WIDTH, aligned, load, load_part, plus_product, round_up, spread, store, total
from userdp.mechanisms.gaussian import Channel, mean_sensitivity
from userdp.solvers import CappedObjective, Solution, minimize, rounding_gap, smallest_cap

# The certified distance asked of the solver, as a share of the sensitivity it is added to.
DISTANCE_SHARE = 0.01


@dataclass(frozen=True)
class CappedPlan:
    """All that decides the noise of a capped minimizer, fixed before the data is touched."""

    cap: float
    regularization: float
    distance: float
    sensitivity: float
    gdp: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on each coefficient."""
        return self.sensitivity / self.gdp

    def __str__(self) -> str:
        return (
            f"cap {self.cap:.4g}, λ {self.regularization:.4g}, certified to {self.distance:.2g}, "
            f"sensitivity {self.sensitivity:.4g}, gdp {self.gdp:.4g}, noise {self.sigma:.4g} a coefficient"
        )


def plan_capped(
    model: Scaled,
    n_users: int,
    adjacency: Adjacency,
    *,
    cap: float,
    regularization: float,
    gdp: float,
    center_norm: float,
    rounding: float,
    reach: float | None = None,
) -> CappedPlan:
    """Sensitivity 2γ/(λn) (γ/(λn) under add/remove) plus twice the certified distance.

    The distance is a hundredth of the sensitivity, or what floating point can certify for *any* data if that is more
    (docs/proofs/capped-release.md, Theorem 5). ``center_norm`` is that of the released centre, ``rounding`` the
    engine's, ``reach`` how far from the centre users' points are searched (None: 4γ/λ).
    """
    if not (cap > 0 and regularization > 0 and math.isfinite(cap) and math.isfinite(regularization)):
        raise ValueError(f"cap and regularization must be positive and finite, got {cap} and {regularization}")
    least = smallest_cap(model, regularization, center_norm, reach)
    if cap < least:
        raise ValueError(
            f"a cap of {cap:g} is lost in the rounding of gradients: choose at least {least:.2g}, or smaller bounds in "
            "the feature map"
        )
    stable = sum_sensitivity(cap, adjacency) / (regularization * n_users)
    hidden = 8 * rounding_gap(model, cap, regularization, center_norm, rounding, reach)
    reachable = math.sqrt(2 * hidden / regularization) + 4 * np.finfo(float).eps * (center_norm + cap / regularization)
    distance = max(DISTANCE_SHARE * stable, float(reachable))
    return CappedPlan(cap, regularization, distance, stable * (1 + 1e-9) + 2 * distance, gdp)


def capped_minimizer(
    engine: Engine, model: ConvexModel, center: Floats, plan: CappedPlan, n_users: int, channel: Channel, label: str
) -> tuple[Floats, Solution]:
    """Release the capped minimizer around ``center`` (a release or a public point); ``Solution`` is not private.

    **Formal guarantee.** ``plan.gdp``-GDP for every dataset: nothing is assumed of the rows, there is no failure
    (docs/proofs/capped-release.md, Theorem 5).
    """
    objective = CappedObjective(engine, model, plan.cap, plan.regularization, center, n_users)
    # Half of the gap that the plan pays for stays in reserve for rounding errors of the certificate itself.
    solution = minimize(objective, plan.distance / math.sqrt(2))
    return channel.release(solution.theta, plan.sensitivity, plan.gdp, label), solution


@dataclass(frozen=True)
class ClippedMean:
    """A released mean of clipped user gradients and the standard deviation of its noise."""

    value: Floats
    sigma: float


def clipped_mean(
    engine: Engine,
    model: UserModel,
    theta: Floats,
    cap: float,
    gdp: float,
    n_users: int,
    adjacency: Adjacency,
    channel: Channel,
    label: str,
) -> ClippedMean:
    """(1/n) Σ_k clip_γ(∇h_k(θ)) plus noise, at a public or released θ.

    **Formal guarantee.** ``gdp``-GDP: each term has norm at most γ, so the mean moves by at most 2γ/n (γ/n under
    add/remove), plus the engine's rounding error (docs/proofs/capped-release.md, Theorem 6).
    """
    (total,) = engine.sum(_clipped_sum, phase_gradients(model, theta), cap)
    sensitivity = mean_sensitivity(cap, n_users, adjacency, engine.rounding)
    return ClippedMean(channel.release(total / n_users, sensitivity, gdp, label), sensitivity / gdp)


def _clipped_sum(block: UserBlock, phase: PhaseGradients, cap: float) -> Sums:
    gradients = np.ascontiguousarray(phase(block))
    out = aligned(round_up(gradients.shape[1]))
    _add_clipped(gradients, cap, out)
    return (out[: gradients.shape[1]],)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_clipped(gradients: Floats, cap: float, out: Floats) -> None:
    """out += Σ_k clip_cap(gradients[k])."""
    users, columns = gradients.shape
    for k in range(users):
        at, squares = k * columns, spread(0.0)
        for i in range(0, columns, WIDTH):
            part = load_part(gradients, at + i, columns - i)
            squares = plus_product(squares, part, part)
        norm = math.sqrt(total(squares))
        if not norm < math.inf:  # a loss of one's own may overflow: such a user does not pull
            continue
        shrink = spread(min(1.0, cap / max(norm, 1e-300)))
        for i in range(0, columns, WIDTH):
            store(out, i, plus_product(load(out, i), shrink, load_part(gradients, at + i, columns - i)))
