"""Plans of the paper's algorithms: every λ, cap, Δ, ball, budget share and noise level, from public numbers only.

A plan is a sequence of stages, a stage a sequence of releases. Stages share the users; the releases of one stage
either do so too (Phased-ERM) or have disjoint blocks of users (Phased-SCO).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Required, TypedDict

from userdp.accounting import (
    Adjacency,
    ApproximateEvent,
    GaussianEvent,
    Parallel,
    Sequential,
    check_adjacency,
    gdp_of,
    sum_sensitivity,
    total,
)
from userdp.accounting.budget import GRID_PRICE, GRID_SHARE
from userdp.accounting.deletion import Constants
from userdp.algorithms.problem import Problem
from userdp.mechanisms.capped import DISTANCE_SHARE
from userdp.mechanisms.deletion import DeletionPlan, plan_deletion
from userdp.theory import TargetRule, deletion_target, user_gradient

ReleaseKind = Literal["capped", "deletion-test"]
# α as a share of Δ: the accuracy asked of the minimizers that the deletion test compares.
INEXACTNESS = 1e-3


class PublicNumbers(TypedDict, total=False):
    """Keyword arguments of every planning function and algorithm; see ``Settings`` for their meaning."""

    epsilon: Required[float]
    delta: Required[float]
    rows_per_user: Required[int]
    adjacency: Adjacency
    release: ReleaseKind
    constants: Constants
    target_rule: TargetRule
    beta: float
    force_cap: float
    share: float


@dataclass(frozen=True)
class Settings:
    """Public numbers that all algorithms share.

    Args:
        epsilon: privacy parameter ε of the whole algorithm.
        delta: privacy parameter δ of the whole algorithm.
        rows_per_user: the *declared* m; the real number of rows is not public. A wrong one costs accuracy, never
            privacy.
        adjacency: "replace" or "add-remove".
        release: "capped" (any data, no ⊥, no search) or "deletion-test" (Algorithm 1).
        constants: of the deletion test: "literal" (as printed), "tight" or "exact".
        target_rule: Δ of the deletion test: "union" (what the theorem needs) or "paper" (as printed in Algorithm 2).
        beta: failure probability, over the allocation of rows to users; by default the one the paper's proof takes.
        force_cap: γ of the capped release; by default min(G, 5G√(ln(nT/β)/m)).
        share: of μ_G², for the capped release, when the rest of (ε, δ) is spent elsewhere.
    """

    epsilon: float
    delta: float
    rows_per_user: int
    adjacency: Adjacency = "replace"
    release: ReleaseKind = "capped"
    constants: Constants = "tight"
    target_rule: TargetRule = "union"
    beta: float | None = None
    force_cap: float | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        check_adjacency(self.adjacency)
        if self.release not in ("capped", "deletion-test"):
            raise ValueError(f"release must be 'capped' or 'deletion-test', got {self.release!r}")
        if not self.rows_per_user >= 1:
            raise ValueError(f"rows_per_user must be at least 1, got {self.rows_per_user}")
        if self.beta is not None and not 0 < self.beta < 1 / math.e:
            raise ValueError(f"beta must lie between 0 and 1/e, got {self.beta}")
        if self.force_cap is not None and not 0 < self.force_cap < math.inf:
            raise ValueError(f"force_cap must be a positive finite number, got {self.force_cap}")
        if self.force_cap is not None and self.release != "capped":
            raise ValueError(
                "force_cap belongs to release='capped'; the deletion test has a target sensitivity instead"
            )
        if not 0 < self.share <= 1 or (self.share < 1 and self.release != "capped"):
            raise ValueError(f"share must lie in (0, 1], and be 1 for the deletion test, got {self.share}")
        _ = self.gdp

    @property
    def gdp(self) -> float:
        """Gaussian budget equivalent to (ε, δ), or the share of it."""
        whole = gdp_of(self.epsilon, self.delta * (1 - GRID_SHARE))
        return whole if self.share == 1.0 else whole * math.sqrt(self.share) * (1 - 1e-14)

    @property
    def literal(self) -> bool:
        """Whether to use what the paper prints wherever it prints something."""
        return self.release == "deletion-test" and self.constants == "literal"

    def cap(self, problem: Problem, n_users: int, phases: int, beta: float) -> float:
        """γ: declared, or the force that every user stays below in all phases with probability 1 − β."""
        if self.force_cap is not None:
            return self.force_cap
        proven = user_gradient(problem.lipschitz, n_users, self.rows_per_user, beta / phases)
        return min(problem.lipschitz, proven)


@dataclass(frozen=True)
class CappedShare:
    """How hard a user may pull and the Gaussian share of one capped release."""

    cap: float
    gdp: float


@dataclass(frozen=True)
class Step:
    """One release: argmin of (1/n)Σh_k + (λ/2)‖θ − θ̂‖² over the stage's set, within ``ball`` of the last release θ̂.

    ``slots`` are the users it reads, half-open; ``regularization`` is λ, ``strong_convexity`` Λ that of the whole
    objective. A ``tangent`` step has the users' losses replaced by their tangents at θ̂.
    """

    label: str
    slots: tuple[int, int]
    regularization: float
    strong_convexity: float
    ball: float
    release: CappedShare | DeletionPlan
    adjacency: Adjacency
    tangent: bool = False

    @property
    def n_users(self) -> int:
        """Public number of users of this release."""
        return self.slots[1] - self.slots[0]

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on each coefficient (a capped release may add a share for rounding)."""
        if isinstance(self.release, DeletionPlan):
            return self.release.sigma
        stable = sum_sensitivity(self.release.cap, self.adjacency) / (self.strong_convexity * self.n_users)
        return stable * (1 + 2 * DISTANCE_SHARE) / self.release.gdp

    @property
    def event(self) -> GaussianEvent | ApproximateEvent:
        """What it costs."""
        if isinstance(self.release, DeletionPlan):
            calibration = self.release.calibration
            return ApproximateEvent(calibration.epsilon, calibration.delta, self.label)
        return GaussianEvent(self.release.gdp, self.label)

    def __str__(self) -> str:
        kind = (
            f"Δ {self.release.threshold:9.3g}  κ {self.release.kappa:4d}"
            if isinstance(self.release, DeletionPlan)
            else f"cap {self.release.cap:7.3g}  gdp {self.release.gdp:6.3g}"
        )
        head = f"{self.label:>20s}  users {self.n_users:6d}  λ {self.strong_convexity:9.3g}"
        return f"{head}  {kind}  noise {self.sigma:9.3g}{'  tangents' if self.tangent else ''}"


@dataclass(frozen=True)
class Stage:
    """Releases inside one set: the domain, cut by a ball of ``radius`` around the release before the stage (inf:
    not cut). The next θ̂ is the release or, where ``to_go`` (the public distance to the optimum) is finite, a mean of
    the releases of the stage (``algorithms.schedule``).
    """

    steps: tuple[Step, ...]
    radius: float = math.inf
    parallel: bool = False
    to_go: float = math.inf

    @property
    def event(self) -> Sequential | Parallel:
        """What the stage costs."""
        events = tuple(step.event for step in self.steps)
        return Parallel(events) if self.parallel else Sequential(events)


@dataclass(frozen=True)
class Plan:
    """One of Algorithms 2–6, decided before data is touched; ``str(plan)`` is meant to be read."""

    algorithm: str
    n_users: int
    dimension: int
    settings: Settings
    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        cost = total(self.event)
        spent = cost.gdp <= self.settings.gdp * (1 + 1e-12)
        if not (
            spent
            and cost.epsilon <= self.settings.epsilon * (1 + 1e-12)
            and cost.delta <= self.settings.delta * (1 + 1e-12)
        ):
            raise ValueError(f"the releases of {self.algorithm} cost {cost}, more than was asked for")
        numbers = self.dimension * sum(len(stage.steps) for stage in self.stages)
        if numbers * GRID_PRICE > self.settings.delta * GRID_SHARE:
            raise ValueError(f"delta = {self.settings.delta:g} is too small to release {numbers} numbers; raise delta")

    @property
    def event(self) -> Sequential:
        """The tree of everything that is released."""
        return Sequential(tuple(stage.event for stage in self.stages))

    @property
    def sigma(self) -> float:
        """Noise on each coefficient of the last release."""
        return self.stages[-1].steps[-1].sigma

    def __str__(self) -> str:
        release: str = self.settings.release
        if release == "deletion-test":
            release = f"{release} ({self.settings.constants}, Δ by {self.settings.target_rule})"
        head = (
            f"{self.algorithm}, {release}, n = {self.n_users} users, m = {self.settings.rows_per_user} declared, "
            f"d = {self.dimension}, ε = {self.settings.epsilon:g}, δ = {self.settings.delta:g} "
            f"({self.settings.adjacency})"
        )
        return "\n".join([head, *(str(step) for stage in self.stages for step in stage.steps)])


def make_step(
    problem: Problem,
    settings: Settings,
    label: str,
    slots: tuple[int, int],
    *,
    regularization: float,
    beta: float,
    share: float,
    cap: float,
    tangent: bool = False,
) -> Step:
    """One release at a share of the budget: ε·share, δ·share (basic composition), or √share of the Gaussian budget."""
    if not (tangent or hasattr(problem.model, "at_points")):
        raise ValueError(f"{label}: {problem.model} has subgradients only: use schedule='linear', or smooth it")
    n_users = slots[1] - slots[0]
    whole = regularization + problem.strong_convexity
    if not whole > 0:
        raise ValueError("output perturbation needs a strongly convex loss: give the problem a ridge")
    ball = problem.lipschitz / regularization if regularization > 0 else math.inf
    if settings.release == "capped":
        if n_users < 1:
            raise ValueError(f"{label}: no users")
        release: CappedShare | DeletionPlan = CappedShare(cap, settings.gdp * math.sqrt(share))
    elif problem.common is not None:
        raise ValueError("the deletion test takes no common quadratic: give the problem a ridge instead")
    else:
        # The paper's phases use 2G and λ_i; the common regularizer cancels, so G and λ_i + μ suffice.
        lipschitz = problem.lipschitz * (2 if settings.literal and regularization > 0 else 1)
        convexity = regularization if settings.literal and regularization > 0 else whole
        release = _deletion_plan(settings, label, n_users, share, lipschitz, convexity, beta)
    return Step(label, slots, regularization, whole, ball, release, settings.adjacency, tangent)


def _deletion_plan(
    settings: Settings, label: str, n_users: int, share: float, lipschitz: float, convexity: float, beta: float
) -> DeletionPlan:
    epsilon, delta = settings.epsilon * share, settings.delta * share

    def plan(target: float) -> DeletionPlan:
        # Δ is the threshold of the test; the certificate has to prove a little less (docs/proofs/algorithms.md, 3).
        return plan_deletion(
            n_users,
            epsilon,
            delta,
            target * (1 - 2 * INEXACTNESS),
            constants=settings.constants,
            adjacency=settings.adjacency,
            inexactness=target * INEXACTNESS,
        )

    try:
        radius = plan(1.0).radius
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None
    return plan(
        deletion_target(settings.target_rule, lipschitz, convexity, n_users, settings.rows_per_user, beta, radius)
    )
