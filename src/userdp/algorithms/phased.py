"""Algorithms 3 and 4: Phased-ERM and Phased-SCO.

θ̂_i ≈ argmin_{K_i} (1/n_i) Σ_k h_k(θ) + (λ_i/2)‖θ − θ̂_{i−1}‖², released with noise, i = 1..T, on all users (ERM)
or on disjoint blocks of users (SCO). The plan fixes every λ_i, cap or Δ, and share of the budget before the data is
touched.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from userdp.accounting.deletion import calibrate_deletion
from userdp.algorithms.output_perturbation import default_beta, public_users
from userdp.algorithms.plan import Plan, PublicNumbers, Settings, Stage, make_step
from userdp.algorithms.problem import Problem
from userdp.algorithms.run import PaperRelease, run
from userdp.algorithms.schedule import PHASES, Schedule, growing_shares
from userdp.data import UserDataset

# The smallest block of Phased-SCO with the capped release, which has no minimum of its own.
SMALLEST_BLOCK = 8


def plan_phased_erm(
    problem: Problem,
    n_users: int,
    *,
    radius: float,
    phases: int | None = None,
    regularization: float | None = None,
    schedule: Schedule = "geometric",
    **public: Unpack[PublicNumbers],
) -> Plan:
    """Plan Algorithm 3: T = ⌈ln(nm)⌉ phases with λ_i = λ·4^i.

    ``radius`` R bounds the distance from the start to the optimum. Budgets: ε/T and δ/T a phase (deletion test,
    basic composition), μ_G/√T (capped, exact). λ is the paper's G√d/(Rn√m) for literal constants; else it balances
    λR² with the noise, λ₁ = γ√(dT)/(Rnμ_G), γ = σ-equivalent cap (docs/proofs/algorithms.md, section 4). β = 1/(nm)
    unless given.

    ``schedule="linear"`` is that of the default fit (``algorithms.schedule``), for the capped release only: 40 phases
    of users' tangents with one λ and growing budgets; the model is a mean of the releases. λ is the smoothness of the
    loss, but at most G√T/R, with which tangents still reach the optimum of a kinked loss, and at least what keeps the
    noise of T steps within R.

    >>> from userdp.losses.vector import VectorModel
    >>> from userdp.solvers.sets import Ball
    >>> steep = Problem(VectorModel.linear(4), lipschitz=1.0, domain=Ball(np.zeros(4), 1.0))
    >>> public = dict(epsilon=1.0, delta=1e-6, rows_per_user=100, force_cap=0.2)
    >>> print(plan_phased_erm(steep, 1000, radius=1.0, phases=2, **public))
    Phased-ERM, capped, n = 1000 users, m = 100 declared, d = 4, ε = 1, δ = 1e-06 (replace)
                 phase 1  users   1000  λ   0.00244  cap     0.2  gdp  0.167  noise         1
                 phase 2  users   1000  λ   0.00975  cap     0.2  gdp  0.167  noise      0.25
    """
    settings = Settings(**public)
    if schedule == "linear":
        stage = linear_stage(problem, settings, n_users, radius, phases or PHASES, regularization)
    elif schedule == "geometric":
        stage = erm_stage(problem, settings, n_users, radius, 1.0, phases, regularization)
    else:
        raise ValueError(f"schedule must be 'geometric' or 'linear', got {schedule!r}")
    return Plan("Phased-ERM", n_users, problem.dimension, settings, (stage,))


def phased_erm(
    data: UserDataset,
    problem: Problem,
    *,
    radius: float,
    phases: int | None = None,
    regularization: float | None = None,
    schedule: Schedule = "geometric",
    n_users: int | None = None,
    random_state: int | np.random.Generator | None = None,
    allow_exponential: bool = False,
    **public: Unpack[PublicNumbers],
) -> PaperRelease:
    """Algorithm 3 for convex losses; arguments as in ``plan_phased_erm`` and ``Settings``.

    **Formal guarantee.** (ε, δ)-DP for the user, for every dataset (docs/proofs/algorithms.md, Theorem 3).
    """
    declared = public_users(data, n_users, public)
    plan = plan_phased_erm(
        problem, declared, radius=radius, phases=phases, regularization=regularization, schedule=schedule, **public
    )
    return run(data, problem, plan, random_state=random_state, allow_exponential=allow_exponential)


def plan_phased_sco(
    problem: Problem,
    n_users: int,
    *,
    radius: float,
    regularization: float | None = None,
    **public: Unpack[PublicNumbers],
) -> Plan:
    """Plan Algorithm 4: phase i reads the users in slots [⌊n/2^i⌋, ⌊n/2^(i−1)⌋), as long as the block is large enough.

    Blocks are disjoint, so every phase has the whole budget (parallel composition). Blocks need 4κ + 2 users for
    the deletion test (6κ + 2 under add/remove), a handful for the capped release. Literal constants keep the
    paper's λ = G√d/(Rn√m) and λ_i = λ·4^i; else λ also covers the statistical term, G/(R√(nm)), and grows fast
    enough for the last phase to settle at the scale 1/(nm) (docs/proofs/algorithms.md, section 5: the printed
    choices do not).
    """
    settings = Settings(**public)
    stage = sco_stage(problem, settings, n_users, radius, 1.0, regularization)
    return Plan("Phased-SCO", n_users, problem.dimension, settings, (stage,))


def phased_sco(
    data: UserDataset,
    problem: Problem,
    *,
    radius: float,
    regularization: float | None = None,
    n_users: int | None = None,
    random_state: int | np.random.Generator | None = None,
    allow_exponential: bool = False,
    **public: Unpack[PublicNumbers],
) -> PaperRelease:
    """Algorithm 4 for convex losses and independent rows; arguments as in ``plan_phased_sco`` and ``Settings``.

    **Formal guarantee.** (ε, δ)-DP for the user, for every dataset (docs/proofs/algorithms.md, Theorem 3).
    """
    declared = public_users(data, n_users, public)
    plan = plan_phased_sco(problem, declared, radius=radius, regularization=regularization, **public)
    return run(data, problem, plan, random_state=random_state, allow_exponential=allow_exponential)


def erm_stage(
    problem: Problem,
    settings: Settings,
    n_users: int,
    radius: float,
    share: float,
    phases: int | None = None,
    regularization: float | None = None,
    beta: float | None = None,
) -> Stage:
    """The phases of Algorithm 3 at a ``share`` of the budget."""
    _check(n_users, radius, phases)
    rows = settings.rows_per_user
    beta = beta or settings.beta or default_beta(n_users, rows)
    count = phases or max(math.ceil(math.log(n_users * rows)), 1)
    cap = settings.cap(problem, n_users, count, beta)
    if regularization is None:
        each = share / count
        first = _noise_per_curvature(problem, settings, n_users, each, cap, beta / count) / radius
        regularization = first / 4
        if settings.literal:
            regularization = problem.lipschitz * math.sqrt(problem.dimension / rows) / (radius * n_users)
    steps = tuple(
        make_step(
            problem,
            settings,
            f"phase {i}",
            (0, n_users),
            regularization=regularization * 4**i,
            beta=beta / count,
            share=share / count,
            cap=cap,
        )
        for i in range(1, count + 1)
    )
    return Stage(steps)


def linear_stage(
    problem: Problem,
    settings: Settings,
    n_users: int,
    radius: float,
    phases: int,
    regularization: float | None = None,
) -> Stage:
    """The schedule of the default fit: tangents, one λ, budgets that grow with √t, a mean of the releases."""
    _check(n_users, radius, phases)
    if settings.release != "capped":
        raise ValueError("schedule='linear' needs release='capped': a tangent has no minimizer to delete users from")
    beta = settings.beta or default_beta(n_users, settings.rows_per_user)
    cap = settings.cap(problem, n_users, phases, beta)
    shares = growing_shares(phases) * (1 - 1e-14)
    if regularization is None:
        noise = _noise_per_curvature(problem, settings, n_users, 1 / phases, cap, beta) * math.sqrt(phases)
        kinked = problem.lipschitz * math.sqrt(phases)
        regularization = max(min(problem.smoothness, kinked / radius), noise / radius)
    steps = tuple(
        make_step(
            problem,
            settings,
            f"phase {t}",
            (0, n_users),
            regularization=regularization,
            beta=beta,
            share=float(share),
            cap=cap,
            tangent=True,
        )
        for t, share in enumerate(shares, 1)
    )
    return Stage(steps, to_go=radius)


def sco_stage(
    problem: Problem,
    settings: Settings,
    n_users: int,
    radius: float,
    share: float,
    regularization: float | None = None,
    beta: float | None = None,
) -> Stage:
    """The phases of Algorithm 4, each at the same ``share`` of the budget on its own block."""
    _check(n_users, radius, None)
    rows = settings.rows_per_user
    beta = beta or settings.beta or default_beta(n_users, rows)
    blocks = user_blocks(n_users, _smallest_block(settings, share))
    count = len(blocks)
    cap = settings.cap(problem, n_users, count, beta)
    growth = 4.0 if settings.literal else max(4.0, (n_users * rows) ** (1 / count))
    if regularization is None:
        statistical = problem.lipschitz / (radius * math.sqrt(n_users * rows))
        private = math.sqrt(count) * _noise_per_curvature(problem, settings, n_users, share, cap, beta / count) / radius
        regularization = max(private, statistical) / growth
        if settings.literal:
            regularization = problem.lipschitz * math.sqrt(problem.dimension / rows) / (radius * n_users)
    steps = tuple(
        make_step(
            problem,
            settings,
            f"phase {i}",
            slots,
            regularization=regularization * growth**i,
            beta=beta / count,
            share=share,
            cap=cap,
        )
        for i, slots in enumerate(blocks, 1)
    )
    return Stage(steps, parallel=True)


def user_blocks(n_users: int, smallest: int) -> list[tuple[int, int]]:
    """Half-open blocks [⌊n/2^i⌋, ⌊n/2^(i−1)⌋), i = 1, 2, …, of at least ``smallest`` users.

    >>> user_blocks(100, 8)
    [(50, 100), (25, 50), (12, 25)]
    """
    blocks: list[tuple[int, int]] = []
    start, stop = n_users // 2, n_users
    while stop - start >= smallest and start < stop:
        blocks.append((start, stop))
        start, stop = start // 2, start
    if not blocks:
        raise ValueError(
            f"Phased-SCO needs at least {smallest} users in its first block, which gets half of them: "
            f"{2 * smallest - 1} users in all, got {n_users}; raise epsilon or delta, or use the capped release"
        )
    return blocks


def _smallest_block(settings: Settings, share: float) -> int:
    if settings.release == "capped":
        return SMALLEST_BLOCK
    calibration = calibrate_deletion(
        settings.epsilon * share, settings.delta * share, settings.constants, settings.adjacency
    )
    return calibration.radius(0) + 2


def _noise_per_curvature(
    problem: Problem, settings: Settings, n_users: int, share: float, cap: float, beta: float
) -> float:
    """√d·σ·Λ/2: expected length of the noise per unit of 1/Λ, which does not depend on Λ; halved as in γ√d/(nμ_G)."""
    probe = make_step(
        problem, settings, "phase 1", (0, n_users), regularization=1.0, beta=beta, share=share, cap=cap, tangent=True
    )
    return math.sqrt(problem.dimension) * probe.sigma * probe.strong_convexity / 2


def _check(n_users: int, radius: float, phases: int | None) -> None:
    for name, value in (("n_users", n_users), ("radius", radius), ("phases", 1 if phases is None else phases)):
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be positive and finite, got {value}")
