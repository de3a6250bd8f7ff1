"""Algorithm 2 (SCOutputPert): release the minimizer of a strongly convex risk."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from userdp.algorithms.plan import Plan, PublicNumbers, Settings, Stage, make_step
from userdp.algorithms.problem import Problem
from userdp.algorithms.run import PaperRelease, run
from userdp.data import UserDataset


def plan_output_perturbation(problem: Problem, n_users: int, **public: Unpack[PublicNumbers]) -> Plan:
    """Plan Algorithm 2: one release with the whole budget; β = 1/(nm) unless given.

    >>> from userdp.losses.vector import VectorModel
    >>> mean = Problem(VectorModel.mean(2), lipschitz=1.0)
    >>> print(plan_output_perturbation(mean, 200, epsilon=1.0, delta=1e-6, rows_per_user=10_000))
    Output perturbation, capped, n = 200 users, m = 10000 declared, d = 2, ε = 1, δ = 1e-06 (replace)
             the minimizer  users    200  λ         1  cap   0.223  gdp  0.237  noise   0.00959
    """
    settings = Settings(**public)
    if not problem.strong_convexity > 0:
        raise ValueError(
            "output perturbation needs a strongly convex loss, but this problem's strong convexity is 0: "
            "give it a ridge, or "
            "use phased_erm"
        )
    beta = settings.beta or default_beta(n_users, settings.rows_per_user)
    cap = settings.cap(problem, n_users, 1, beta)
    step = make_step(
        problem, settings, "the minimizer", (0, n_users), regularization=0.0, beta=beta, share=1.0, cap=cap
    )
    return Plan("Output perturbation", n_users, problem.dimension, settings, (Stage((step,)),))


def output_perturbation(
    data: UserDataset,
    problem: Problem,
    *,
    n_users: int | None = None,
    random_state: int | np.random.Generator | None = None,
    allow_exponential: bool = False,
    **public: Unpack[PublicNumbers],
) -> PaperRelease:
    """Algorithm 2: argmin (1/n)Σh_k over the problem's domain, through the chosen release.

    ``n_users`` is the declared number under add/remove; replacement takes the data's. The other arguments are those of
    ``Settings``.

    **Formal guarantee.** (ε, δ)-DP for the user, for every dataset (docs/proofs/algorithms.md, Theorem 3).
    """
    plan = plan_output_perturbation(problem, public_users(data, n_users, public), **public)
    return run(data, problem, plan, random_state=random_state, allow_exponential=allow_exponential)


def default_beta(n_users: int, rows: int) -> float:
    """1/(nm), kept below 1/e where the lemmas hold."""
    return min(1 / (n_users * rows), 0.25)


def public_users(data: UserDataset, declared: int | None, public: PublicNumbers) -> int:
    """n: the data's under replacement, where it is public; the declared one under add/remove, where it is not."""
    if public.get("adjacency", "replace") == "replace":
        if declared is not None and declared != data.n_users:
            raise ValueError(f"n_users = {declared}, but the data has {data.n_users} users; leave it out")
        return data.n_users
    if declared is None:
        raise ValueError("adjacency='add-remove' needs n_users: the number of users is private there, so declare one")
    return declared
