"""Output perturbation through the deletion test: Algorithm 1 (DelOutputPert) for any function of a list of users.

Reference: "On User-Level Private Convex Optimization", Section 3.1, Algorithm 1 and Theorem 3.3; the certificate is
Appendix C. Proofs, including everything that differs from the paper: docs/proofs/deletion.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from userdp.accounting import Adjacency, ApproximateEvent, Guarantee
from userdp.accounting.budget import GRID_PRICE, GRID_SHARE
from userdp.accounting.deletion import Constants, DeletionCalibration, calibrate_deletion
from userdp.mechanisms.deletion_search import User, deletion_steps, search_size, smallest_stable
from userdp.mechanisms.noise import Floats, Noise, noise_from
from userdp.mechanisms.tdlap import TDLap

# More evaluations of f than this in the worst case are refused unless the caller accepts an exponential search.
EVALUATION_LIMIT = 2_000_000


class SearchTooLarge(ValueError):
    """The worst case of the deletion test needs more evaluations of f than allowed; no data was looked at."""


@dataclass(frozen=True)
class DeletionPlan:
    """Everything Algorithm 1 needs to know, from public numbers only; computed before data is touched.

    ``n_users`` is the number of users (replacement) or its declared value (add/remove), ``target`` the deletion
    sensitivity Δ that is hoped for, ``inexactness`` the solver's error α, ``smallest`` the fewest users on which f is
    meaningful. The test compares steps of f with Δ + 2α.
    """

    calibration: DeletionCalibration
    n_users: int
    target: float
    inexactness: float = 0.0
    smallest: int = 1

    def __post_init__(self) -> None:
        if not (self.target > 0 and math.isfinite(self.target)):
            raise ValueError(f"target must be a positive finite number, got {self.target}")
        if not (self.inexactness >= 0 and math.isfinite(self.inexactness)):
            raise ValueError(f"inexactness must be a finite number, at least 0, got {self.inexactness}")
        if self.smallest < 1:
            raise ValueError(f"smallest must be at least 1, got {self.smallest}")
        if self.n_users < self.minimum_users:
            raise ValueError(
                f"the deletion test at epsilon = {self.calibration.epsilon:g}, delta = {self.calibration.delta:g} "
                f"needs at least {self.minimum_users} users (kappa = {self.kappa}), got {self.n_users}; raise epsilon "
                "or delta, or use the capped release, which has no minimum"
            )

    @property
    def kappa(self) -> int:
        """Half-width κ of the law of R."""
        return self.calibration.kappa

    @property
    def radius(self) -> int:
        """The r for which Δ̄_r f(x) ≤ Δ guarantees that nothing is deleted: 4κ, or 6κ for add/remove."""
        return self.calibration.radius(0)

    @property
    def minimum_users(self) -> int:
        """Users needed so that every subset the test looks at has at least ``smallest``: 4κ + 2 by default."""
        return self.radius + 1 + self.smallest

    @property
    def threshold(self) -> float:
        """What one deletion may change in f as computed: Δ + 2α."""
        return self.target + 2 * self.inexactness

    @property
    def sigma(self) -> float:
        """Standard deviation of the Gaussian noise on every coordinate."""
        return self.calibration.noise_multiplier * self.threshold

    @property
    def evaluations(self) -> int:
        """Evaluations of f in the worst case: Σ_{j ≤ radius + 1} C(n, j)."""
        return search_size(self.n_users, self.radius)

    @property
    def event(self) -> ApproximateEvent:
        """What the release costs."""
        return ApproximateEvent(self.calibration.epsilon, self.calibration.delta, "deletion test")


@dataclass(frozen=True)
class Diagnostics:
    """What happened inside: depends on the data, is not private, must not be published."""

    certified: bool
    deleted: tuple[int, ...] | None


@dataclass(frozen=True)
class DeletionRelease:
    """Result of Algorithm 1: ``value`` is f of a stable subset plus noise, or None for ⊥. Either may be published."""

    value: Floats | None
    plan: DeletionPlan
    guarantee: Guarantee
    diagnostics: Diagnostics = field(repr=False, compare=False)

    @property
    def bottom(self) -> bool:
        """Whether the mechanism answered ⊥."""
        return self.value is None


def plan_deletion(
    n_users: int,
    epsilon: float,
    delta: float,
    target: float,
    *,
    constants: Constants = "literal",
    adjacency: Adjacency = "replace",
    inexactness: float = 0.0,
    smallest: int = 1,
) -> DeletionPlan:
    """Plan of Algorithm 1 from public numbers; raises if ``n_users`` is too small for the test to be defined.

    >>> plan = plan_deletion(130, epsilon=1.0, delta=1e-6, target=0.01)
    >>> plan.kappa, plan.minimum_users, round(plan.sigma, 1)
    (32, 130, 40.7)
    """
    return DeletionPlan(
        calibrate_deletion(epsilon, delta, constants, adjacency), n_users, target, inexactness, smallest
    )


def deletion_sensitivity(
    f: Callable[[tuple[User, ...]], ArrayLike], users: Sequence[User], radius: int, *, progress: bool = False
) -> float:
    """Exact local deletion sensitivity Δ̄_r f(x) = max_{|S| ≤ r} max_{i ∉ S} ‖f(x₋S) − f(x₋(S ∪ {i}))‖.

    Evaluates f once on each of the Σ_{j ≤ r + 1} C(n, j) subsets. The result depends on the data and is not private.

    >>> deletion_sensitivity(np.mean, (0.0, 0.0, 0.0, 4.0), radius=2)
    2.0
    """
    if not 0 <= radius < len(users):
        raise ValueError(f"radius must be at least 0 and below the number of users, {len(users)}, got {radius}")
    steps = deletion_steps(lambda rest: _vector(f(rest)), users, radius, progress=progress)
    return max(float(step.max()) for step in steps)


def del_output_pert(
    f: Callable[[tuple[User, ...]], ArrayLike],
    users: Sequence[User],
    epsilon: float,
    delta: float,
    target: float,
    *,
    constants: Constants = "literal",
    adjacency: Adjacency = "replace",
    declared_users: int | None = None,
    fallback: ArrayLike | None = None,
    smallest: int = 1,
    inexactness: float = 0.0,
    certificate: Callable[[int], float] | None = None,
    allow_exponential: bool = False,
    noise: Noise | None = None,
    random_state: int | np.random.Generator | None = None,
    progress: bool = True,
) -> DeletionRelease:
    """Algorithm 1 (DelOutputPert): release f of the users, or of a slightly smaller stable subset, or ⊥.

    Draw R ~ TDLap; among the sets S of at most R users with Δ̄_{radius(|S|)} f(x₋S) ≤ Δ take a smallest one; release
    f(x₋S) + N(0, σ²I), or ⊥ if there is none. If Δ̄_{4κ} f(x) ≤ Δ (6κ for add/remove) the result is always
    f(x) + N(0, σ²I).

    Args:
        f: function of a tuple of users, in their given order; returns a scalar or a vector of fixed length (released
            as a vector). It must be a deterministic function of that tuple alone (no warm starts, no threads that
            change the order of a sum) and must not raise.
        users: one entry per user: all data of that user.
        epsilon: privacy parameter ε of the whole release.
        delta: privacy parameter δ of the whole release.
        target: Δ, the deletion sensitivity that is hoped for; public.
        constants: "literal" (the paper's σ), "tight" or "exact" (see ``userdp.accounting.deletion``).
        adjacency: "replace" or "add-remove".
        declared_users: add/remove only: the public number the plan is made for; the true one is private.
        fallback: add/remove only: public value of f on fewer than ``smallest`` users.
        smallest: fewest users on which f is called; public.
        inexactness: α ≥ 0 such that f as computed is within α of the ideal function that ``certificate`` speaks about.
        certificate: given r, returns a proven upper bound on Δ̄_r of the ideal function at these users, or inf. If it is
            at most ``target`` the search is skipped, with the same output distribution.
        allow_exponential: accept a worst case of more than ``EVALUATION_LIMIT`` evaluations of f.
        noise: source of randomness; secure by default.
        random_state: seed for reproducible noise (marks the release "not private"); not together with ``noise``.
        progress: show a progress bar on stderr once the search has lasted two seconds.

    Formal guarantee:
        (ε, δ)-DP under ``adjacency`` for every f, every target and every dataset (docs/proofs/deletion.md, Theorems
        1–4). Not covered: the running time, which shows whether the certificate held.

    Raises:
        SearchTooLarge: before data is touched, when the worst case is above the limit and not explicitly allowed.
    """
    planned = _public_size(len(users), adjacency, declared_users, fallback)
    plan = plan_deletion(
        planned,
        epsilon,
        delta,
        target,
        constants=constants,
        adjacency=adjacency,
        inexactness=inexactness,
        smallest=smallest,
    )
    if plan.evaluations > EVALUATION_LIMIT and not allow_exponential:
        raise SearchTooLarge(
            f"the deletion test may need {_approximately(plan.evaluations)} evaluations of f for {planned} users "
            f"(kappa = {plan.kappa}, subsets of up to {plan.radius + 1} deleted users), above {EVALUATION_LIMIT:,}; "
            "pass allow_exponential=True to accept that (a certificate usually avoids it), or use the capped release"
        )
    if noise is not None and random_state is not None:
        raise ValueError("pass noise or random_state, not both")
    source = noise if noise is not None else noise_from(random_state)
    default = None if fallback is None else _vector(fallback)

    def function(rest: tuple[User, ...]) -> Floats:
        if default is not None and len(rest) < smallest:
            return default
        return _vector(f(rest))

    everyone = tuple(users)
    whole = function(everyone)
    _check_dimension(whole.size, default, plan.calibration)
    if certificate is not None and len(everyone) >= plan.minimum_users and certificate(plan.radius) <= target:
        diagnostics = Diagnostics(certified=True, deleted=())
    else:
        diagnostics = Diagnostics(certified=False, deleted=_test(function, everyone, plan, source, progress))
    value = None
    if diagnostics.deleted is not None:
        gone = frozenset(diagnostics.deleted)
        rest = tuple(user for position, user in enumerate(everyone) if position not in gone)
        value = source.gaussian(function(rest) if gone else whole, plan.sigma)
    guarantee = Guarantee(epsilon, delta, "user", adjacency, None, planned, source.reproducible)
    return DeletionRelease(value, plan, guarantee, diagnostics)


def _test(
    function: Callable[[tuple[User, ...]], Floats],
    users: tuple[User, ...],
    plan: DeletionPlan,
    noise: Noise,
    progress: bool,
) -> tuple[int, ...] | None:
    """Lines 4–9 of Algorithm 1: positions to delete, or None for ⊥."""
    law = TDLap(plan.calibration.tail_epsilon, plan.calibration.tail_delta)
    bound = law.sample(noise)
    steps = deletion_steps(function, users, min(plan.radius, len(users)), progress=progress)
    return smallest_stable(steps, len(users), plan.threshold, plan.calibration.radius, bound)


def _public_size(n_users: int, adjacency: Adjacency, declared: int | None, fallback: ArrayLike | None) -> int:
    if adjacency == "replace":
        if declared is not None or fallback is not None:
            raise ValueError("declared_users and fallback belong to adjacency='add-remove'; replacement keeps n public")
        return n_users
    if declared is None or fallback is None:
        raise ValueError(
            "adjacency='add-remove' needs declared_users (the number of users is private there) and fallback (a public "
            "value of f on fewer than `smallest` users)"
        )
    if not np.isfinite(_vector(fallback)).all():
        raise ValueError(f"fallback must be finite, got {fallback}")
    return declared


def _vector(value: ArrayLike) -> Floats:
    return np.asarray(value, dtype=np.float64).reshape(-1)


def _check_dimension(dimension: int, fallback: Floats | None, calibration: DeletionCalibration) -> None:
    """The dimension is public: the price of noise on a grid must fit in its share of δ (docs/proofs/gaussian.md)."""
    if fallback is not None and fallback.size != dimension:
        raise ValueError(f"fallback has {fallback.size} coordinates, but f returns {dimension}")
    if dimension * GRID_PRICE * math.exp(calibration.tail_epsilon) > calibration.delta * GRID_SHARE:
        raise ValueError(f"delta = {calibration.delta:g} is too small to release {dimension} numbers; raise delta")


def _approximately(count: int) -> str:
    return f"{count:,}" if count < 10**9 else f"about 10^{math.floor(math.log10(count))}"
