"""The ancestor of Algorithm 1 for real-valued functions (Kohli, Laskowski 2021): delete until stable, then Laplace
noise.

Literal: a data-independent random number of users may be deleted so that what is left has small deletion sensitivity;
f of that is released with Laplace noise, or ⊥. Derived: the law of that number (TDLap, as in Algorithm 1), the tested
radius 4κ − s and the sensitivity (4κ + 1)Δ, by the proof that docs/proofs/deletion.md gives for Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from userdp.accounting import Guarantee
from userdp.baselines.release import BaselineRelease, source_of
from userdp.baselines.sampling import laplace
from userdp.losses.base import Floats
from userdp.mechanisms.deletion import EVALUATION_LIMIT, SearchTooLarge
from userdp.mechanisms.deletion_search import deletion_steps, search_size, smallest_stable
from userdp.mechanisms.tdlap import TDLap

User = TypeVar("User")


def kohli_laskowski2021(
    f: Callable[[tuple[User, ...]], float],
    users: Sequence[User],
    *,
    epsilon: float,
    delta: float,
    target: float,
    random_state: Any = None,
) -> BaselineRelease:
    """f(users without S) + Laplace noise, S a smallest set of at most R users that leaves a Δ-stable dataset; NaN for
    ⊥.

    **Formal guarantee.** (ε, δ)-DP for every f, by replacement. R ~ TDLap(ε/2, δ/2) decides whether an answer is
    given: (ε/2, δ), because the sizes s, s' of the smallest sets on neighbours differ by at most 1 and each end of
    the support has probability at most δ/2. Given an answer on both sides, the path through the common users deletes
    at most 2s + 3 ≤ 4κ + 1 users inside the tested radii, so f moves by at most (4κ + 1)Δ: Laplace noise of that
    scale over ε/2 is (ε/2)-DP.
    """
    law = TDLap(epsilon / 2, delta / 2)
    radius, n = 4 * law.kappa, len(users)
    if n < radius + 2:
        raise ValueError(f"{n} users are too few: the test needs 4κ + 2 = {radius + 2}")
    if search_size(n, radius) > EVALUATION_LIMIT:
        raise SearchTooLarge(
            f"{search_size(n, radius):,} evaluations of f for {n} users: this baseline has no certificate"
        )
    noise = source_of(random_state)

    def function(rest: tuple[User, ...]) -> Floats:
        return np.array([f(rest)], dtype=np.float64)

    everyone, bound = tuple(users), law.sample(noise)
    steps = deletion_steps(function, everyone, radius, progress=False)
    deleted = smallest_stable(steps, n, target, lambda size: radius - size, bound)
    scale = (radius + 1) * target * (1 + 1e-9) / (epsilon / 2)
    value = np.array([np.nan])
    if deleted is not None:
        rest = tuple(user for position, user in enumerate(everyone) if position not in set(deleted))
        value = function(rest) + laplace(noise, scale)
    guarantee = Guarantee(epsilon, delta, n_users=n, reproducible=noise.reproducible)
    return BaselineRelease(value, guarantee, {"scale": scale, "kappa": law.kappa})
