"""Algorithms 5 and 6: strongly convex losses. First output perturbation, then the phased algorithm in a small ball
around it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Unpack

import numpy as np

from userdp.algorithms.output_perturbation import public_users
from userdp.algorithms.phased import erm_stage, sco_stage
from userdp.algorithms.plan import Plan, PublicNumbers, Settings, Stage, Step, make_step
from userdp.algorithms.problem import Problem
from userdp.algorithms.run import PaperRelease, run
from userdp.data import UserDataset


def plan_strongly_convex_erm(
    problem: Problem, n_users: int, *, phases: int | None = None, **public: Unpack[PublicNumbers]
) -> Plan:
    """Plan Algorithm 5: half of the budget for output perturbation, half for Phased-ERM in K ∩ B(θ₀, R').

    R' = σ√(d ln 1/β) with literal constants, else σ(√d + √(2 ln 1/β)), the length that Gaussian noise exceeds with
    probability at most β. β = 1/(2n²m) unless given. Halves are of ε and δ (deletion test) or of μ_G² (capped).
    """
    settings = Settings(**public)
    first, beta = _first(problem, settings, n_users)
    radius = _noise_length(settings, first, problem.dimension, beta)
    second = erm_stage(problem, settings, n_users, radius, 0.5, phases, beta=beta)
    stages = (Stage((first,)), replace(second, radius=radius))
    return Plan("Strongly convex ERM", n_users, problem.dimension, settings, stages)


def strongly_convex_erm(
    data: UserDataset,
    problem: Problem,
    *,
    phases: int | None = None,
    n_users: int | None = None,
    random_state: int | np.random.Generator | None = None,
    allow_exponential: bool = False,
    **public: Unpack[PublicNumbers],
) -> PaperRelease:
    """Algorithm 5; arguments as in ``plan_strongly_convex_erm`` and ``Settings``.

    **Formal guarantee.** (ε, δ)-DP for the user, for every dataset (docs/proofs/algorithms.md, Theorem 3).
    """
    plan = plan_strongly_convex_erm(problem, public_users(data, n_users, public), phases=phases, **public)
    return run(data, problem, plan, random_state=random_state, allow_exponential=allow_exponential)


def plan_strongly_convex_sco(problem: Problem, n_users: int, **public: Unpack[PublicNumbers]) -> Plan:
    """Plan Algorithm 6: as Algorithm 5 with Phased-SCO, and R' larger by G√(ln 1/β)/(μ√(nm)) for the population
    optimum.

    That term is the paper's; Proposition B.1, as proved, has 30√(ln 2/β) in place of √(ln 1/β). A ball that misses
    the optimum costs accuracy, never privacy.
    """
    settings = Settings(**public)
    first, beta = _first(problem, settings, n_users)
    closeness = problem.lipschitz * math.sqrt(math.log(1 / beta) / (n_users * settings.rows_per_user))
    radius = _noise_length(settings, first, problem.dimension, beta) + closeness / problem.strong_convexity
    second = sco_stage(problem, settings, n_users, radius, 0.5, beta=beta)
    stages = (Stage((first,)), replace(second, radius=radius))
    return Plan("Strongly convex SCO", n_users, problem.dimension, settings, stages)


def strongly_convex_sco(
    data: UserDataset,
    problem: Problem,
    *,
    n_users: int | None = None,
    random_state: int | np.random.Generator | None = None,
    allow_exponential: bool = False,
    **public: Unpack[PublicNumbers],
) -> PaperRelease:
    """Algorithm 6; arguments as in ``plan_strongly_convex_sco`` and ``Settings``.

    **Formal guarantee.** (ε, δ)-DP for the user, for every dataset (docs/proofs/algorithms.md, Theorem 3).
    """
    plan = plan_strongly_convex_sco(problem, public_users(data, n_users, public), **public)
    return run(data, problem, plan, random_state=random_state, allow_exponential=allow_exponential)


def _first(problem: Problem, settings: Settings, n_users: int) -> tuple[Step, float]:
    """Output perturbation at half the budget, and β."""
    if not problem.strong_convexity > 0:
        raise ValueError("this algorithm needs a strongly convex loss: give the problem a ridge, or use phased_erm")
    beta = settings.beta or min(1 / (2 * n_users**2 * settings.rows_per_user), 0.25)
    cap = settings.cap(problem, n_users, 1, beta)
    step = make_step(
        problem, settings, "the minimizer", (0, n_users), regularization=0.0, beta=beta, share=0.5, cap=cap
    )
    return step, beta


def _noise_length(settings: Settings, step: Step, dimension: int, beta: float) -> float:
    if settings.literal:
        return step.sigma * math.sqrt(dimension * math.log(1 / beta))
    return step.sigma * (math.sqrt(dimension) + math.sqrt(2 * math.log(1 / beta)))
