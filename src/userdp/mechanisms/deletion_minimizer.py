"""Algorithm 1 for f = the minimizer of a strongly convex risk on a set (SCOutputPert), with the certificate of
Appendix C.

f(x₋S) is the minimizer over K of the mean loss of the users that are left plus (Λ/2)‖θ − c̃‖². It is computed from
a cold start at the public centre, by one thread, adding users in their given order: a deterministic function of the
subset. Proofs: docs/proofs/deletion.md, section 5; docs/proofs/algorithms.md, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from threadpoolctl import ThreadpoolController

from userdp.data import UserBlock, UserDataset
from userdp.engines import LocalEngine
from userdp.engines.base import Kernel, Sums
from userdp.losses.base import ConvexModel, Floats
from userdp.losses.vector import LinearPart
from userdp.mechanisms.deletion import EVALUATION_LIMIT, DeletionPlan, DeletionRelease, SearchTooLarge, del_output_pert
from userdp.mechanisms.noise import Noise
from userdp.solvers.constrained import SetObjective, minimize_on_set
from userdp.solvers.newton import Solution
from userdp.solvers.sets import ConvexSet
from userdp.theory import certified_sensitivity

_EPS = float(np.finfo(np.float64).eps)


class _OneBlock:
    """The simplest engine: all users in one block, one thread."""

    columns: tuple[str, ...] = ()
    remote = False

    def __init__(self, block: UserBlock) -> None:
        self.block = block
        self.n_users = block.n_users

    @property
    def n_features(self) -> int:
        return int(self.block.features.shape[1])

    @property
    def rounding(self) -> float:
        return _rounding(self.n_users)

    def sum(self, kernel: Kernel, *arguments: Any) -> Sums:
        return kernel(self.block, *arguments)

    def each(self, kernel: Callable[..., Floats], *arguments: Any) -> Floats:
        return kernel(self.block, *arguments)

    def chunked(self, users: int) -> LocalEngine:
        return LocalEngine(UserDataset((self.block,), tuple(range(self.n_users)), self.columns), 1, chunk_users=users)


def refuse_large_search(plan: DeletionPlan, allow_exponential: bool) -> None:
    """Raise ``SearchTooLarge`` if the worst case of the test is above the limit and not accepted; looks at no data."""
    if plan.evaluations > EVALUATION_LIMIT and not allow_exponential:
        size = f"10^{math.floor(math.log10(plan.evaluations))}"
        raise SearchTooLarge(
            f"the deletion test may need about {size} minimizations for {plan.n_users} users (κ = {plan.kappa}): pass "
            "allow_exponential=True to accept that (the certificate usually avoids it), or use release='capped'"
        )


def deletion_minimizer(
    data: UserDataset,
    model: ConvexModel | LinearPart,
    regularization: float,
    center: Floats,
    domain: ConvexSet,
    fallback: Floats,
    plan: DeletionPlan,
    noise: Noise,
    allow_exponential: bool,
    progress: bool,
) -> DeletionRelease:
    """Release argmin over ``domain`` of (1/n)Σh_k + (Λ/2)‖θ − center‖² through the deletion test, or ⊥.

    Under add/remove ``fallback``, a public point of the domain, stands for the minimizer of nobody. The minimizers of
    all subsets are computed to the plan's inexactness or, if that is more, what floating point allows for any data;
    the release pays for the larger one (``plan`` of the result).

    **Formal guarantee.** (ε, δ)-DP as planned, for every dataset, if model, centre, domain and fallback are public
    or released earlier (docs/proofs/deletion.md, Theorems 1–4).
    """
    users = [user for block in data.blocks for user in block.chunks(1, 1)]
    rounding = gradient_rounding(model, regularization, center, domain)
    inexactness = max(plan.inexactness, 4 * reachable(model, regularization, center, domain, plan.n_users))

    def solve(rest: tuple[UserBlock, ...]) -> Solution:
        engine = _OneBlock(_join(rest))
        objective = SetObjective(engine, model, math.inf, regularization, center, len(rest), domain)
        return minimize_on_set(objective, inexactness / 4)

    def certificate(radius: int) -> float:
        found = solve(tuple(users))
        return _certified(_join(tuple(users)), model, regularization, center, found, rounding, radius)

    adjacency = plan.calibration.adjacency
    with ThreadpoolController().limit(limits=1):
        return del_output_pert(
            lambda rest: solve(rest).theta,
            users,
            plan.calibration.epsilon,
            plan.calibration.delta,
            plan.target,
            constants=plan.calibration.constants,
            adjacency=adjacency,
            declared_users=plan.n_users if adjacency == "add-remove" else None,
            fallback=fallback if adjacency == "add-remove" else None,
            smallest=plan.smallest,
            inexactness=inexactness,
            certificate=certificate,
            allow_exponential=allow_exponential,
            noise=noise,
            progress=progress,
        )


def _certified(
    block: UserBlock,
    model: ConvexModel | LinearPart,
    regularization: float,
    center: Floats,
    found: Solution,
    rounding: float,
    radius: int,
) -> float:
    """Proven bound on Δ̄_r of the exact minimizer from the users' forces, each computed up to ``rounding``.

    The exact minimizer is within a = ``found.distance`` of the computed one, so its forces differ by at most βa:
    the bound is for the exact minimizer and needs no residual. Forces are centred for the plain certificate (a
    common regularizer and a binding constraint cancel there), whole for the sharper one for smooth losses.
    """
    if isinstance(model, LinearPart):
        forces, _ = model.forces(block, math.inf)
        smoothness = 0.0
    else:
        forces = model.user_gradients(block, found.theta)
        smoothness = float(np.max(model.user_smoothness(block), initial=0.0))
    common = regularization * (found.theta - center)
    drift = 2 * (smoothness * found.distance + rounding)
    centred = float(np.max(np.linalg.norm(forces - forces.mean(axis=0), axis=1))) + drift
    whole = float(np.max(np.linalg.norm(forces + common, axis=1))) + drift + regularization * found.distance
    n = block.n_users
    plain = certified_sensitivity(centred, regularization, n, radius)
    smooth = certified_sensitivity(whole, regularization, n, radius, smoothness=smoothness + regularization)
    return min(plain, smooth) * (1 + 1e-9)


def reachable(
    model: ConvexModel | LinearPart, regularization: float, center: Floats, domain: ConvexSet, n_users: int
) -> float:
    """A distance that the certificate of uncapped minimizers reaches in floating point for every subset of any data
    with at most twice ``n_users`` users, from public numbers (docs/proofs/algorithms.md, section 3).
    """
    origin = domain.project(center)
    offset, size, pull = _bounds(model, regularization, center, domain)
    residual = gradient_rounding(model, regularization, center, domain) + 2 * _rounding(2 * n_users) * pull
    slack = 64 * _EPS * (3 * pull + regularization * offset) * (size + float(np.linalg.norm(origin)))
    return math.sqrt((2 * residual / regularization) ** 2 + 2 * slack / regularization) + 8 * _EPS * size


def gradient_rounding(
    model: ConvexModel | LinearPart, regularization: float, center: Floats, domain: ConvexSet
) -> float:
    """Public bound on the rounding error of a user's gradient where minimizers may lie."""
    return 128 * _EPS * _bounds(model, regularization, center, domain)[2]


def _bounds(
    model: ConvexModel | LinearPart, regularization: float, center: Floats, domain: ConvexSet
) -> tuple[float, float, float]:
    """How far the centre is from the domain, and bounds on ‖θ‖ and on a user's gradient on the solver's way."""
    # Tangents are released without a deletion test, so a linear part comes from a model that knows its scale.
    base = cast(ConvexModel, model.model) if isinstance(model, LinearPart) else model
    origin = domain.project(center)
    offset, start = float(np.linalg.norm(origin - center)), float(np.linalg.norm(origin))
    # F falls from the origin on, so no point is farther than twice the first gradient over λ.
    size = min(domain.reach, start + 2 * (base.gradient_scale(start)[0] / regularization + offset))
    return offset, size, base.gradient_scale(size)[0]


def _rounding(n_users: int) -> float:
    """Of a plain sum over users."""
    return 4.0 * (n_users + 8) * _EPS


def _join(users: tuple[UserBlock, ...]) -> UserBlock:
    counts = [user.n_rows for user in users]
    return UserBlock(
        np.concatenate([user.features for user in users]),
        np.concatenate([user.target for user in users]),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
    )
