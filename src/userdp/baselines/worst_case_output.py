"""Output perturbation with worst-case user sensitivity: no gain from having many rows a user.

Literal: the minimizer of a λ-strongly convex, G-Lipschitz risk moves by at most 2G/(λn) when a user is replaced
(Chaudhuri, Monteleoni, Sarwate 2011, Corollary 8, read at user level); and its phased form on disjoint users, n_i =
n/2^i, η_i = η/4^i, λ_i = 2/(η_i n_i) (Feldman, Koren, Talwar 2020, Algorithm 3). Derived: Gaussian noise with exact
accounting instead of the norm-Gamma density, a certified solver paid for in the sensitivity, the rules for λ and η
below.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from userdp.baselines.release import BaselineRelease, open_channel
from userdp.data import UserDataset
from userdp.engines import LocalEngine
from userdp.losses import LinearModel
from userdp.losses.base import Floats
from userdp.mechanisms.capped import CappedPlan, capped_minimizer, plan_capped
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.slots import assign_slots


def gradient_bound(model: LinearModel) -> float:
    """G: the most a row can pull, from declared constants: Lipschitz constant of the loss × bound on a row's length."""
    bound = model.loss.lipschitz * model.row_bound
    if not math.isfinite(bound):
        raise ValueError(f"worst-case sensitivity needs a Lipschitz loss, but {model.loss} has none")
    return bound


def balanced_regularization(model: LinearModel, n_users: int, gdp: float, radius: float) -> float:
    """λ that minimizes λR²/2 + ½σ²·(smoothness·B²) with σ = 2G/(λnμ): bias against noise, from public numbers.

    B = G over the loss's Lipschitz constant bounds a row's length, so smoothness·B² bounds the trace of the Hessian.
    """
    bound = gradient_bound(model)
    smoothness = model.loss.smoothness if math.isfinite(model.loss.smoothness) else 1.0
    trace = smoothness * model.row_bound**2
    return float((8 * bound**2 * trace / (radius * n_users * gdp) ** 2) ** (1 / 3))


def worst_case_output(
    dataset: UserDataset,
    model: LinearModel,
    *,
    epsilon: float,
    delta: float,
    radius: float = 3.0,
    phased: bool = False,
    random_state: Any = None,
) -> BaselineRelease:
    """argmin (1/n) Σ_k h_k(θ) + (λ/2)‖θ‖², plus N(0, (2G/(λnμ))² I); ``radius`` guesses ‖θ*‖ and sets λ.

    **Formal guarantee.** (ε, δ)-DP for every dataset. The feature map clamps rows to length B, so every h_k is
    G-Lipschitz with G = B·Lipschitz(φ); replacing one changes the risk by a (2G/n)-Lipschitz function and hence the
    minimizer of a λ-strongly convex risk by 2G/(λn). (It is the capped release with a cap that nobody reaches.)
    Phases use disjoint users in secret random slots, so a replacement touches one phase and each may spend all of μ.
    """
    channel = open_channel(epsilon, delta, random_state)
    budget, n = channel.budget, dataset.n_users
    if phased:
        theta, plans = _phases(dataset, model, channel, radius)
    else:
        strength = balanced_regularization(model, n, budget.gdp, radius)
        start = np.zeros(model.dimension)
        theta, plan = _minimizer(dataset, model, start, strength, n, channel, "minimizer")
        plans = [plan]
    guarantee = budget.guarantee(n, reproducible=channel.noise.reproducible)
    return BaselineRelease(theta, guarantee, {"plans": plans})


def phase_sizes(n_users: int) -> list[int]:
    """n/2, n/4, …, 1: about log₂ n blocks of users.

    >>> phase_sizes(100)
    [50, 25, 12, 6, 3, 1]
    """
    sizes: list[int] = []
    while (size := n_users >> (len(sizes) + 1)) >= 1:
        sizes.append(size)
    return sizes


def first_rate(model: LinearModel, n_users: int, gdp: float, radius: float) -> float:
    """η = (R/G)·min(4/√n, μ/√d): the paper's, with its ε/√(log 1/δ) read as μ and constants set to 1."""
    return radius / gradient_bound(model) * min(4 / math.sqrt(n_users), gdp / math.sqrt(model.dimension))


def _phases(
    dataset: UserDataset, model: LinearModel, channel: Channel, radius: float
) -> tuple[Floats, list[CappedPlan]]:
    budget, n = channel.budget, dataset.n_users
    sizes = phase_sizes(n)
    ends = np.cumsum([0, *sizes]).tolist()
    parts = assign_slots(dataset, list(pairwise(ends)), n, budget.adjacency, channel.noise)
    rate = first_rate(model, n, budget.gdp, radius)
    theta, plans = np.zeros(model.dimension), list[CappedPlan]()
    for i, (part, size) in enumerate(zip(parts, sizes)):
        strength = 2 / (rate / 4 ** (i + 1) * size)
        # Disjoint users: all phases together cost what the dearest one costs, so only the first is charged.
        own = channel if i == 0 else Channel(replace(budget, events=[], numbers=0), channel.noise)
        theta, plan = _minimizer(part, model, theta, strength, size, own, f"phase {i + 1}")
        plans.append(plan)
    return theta, plans


def _minimizer(
    dataset: UserDataset, model: LinearModel, center: Floats, strength: float, n: int, channel: Channel, label: str
) -> tuple[Floats, CappedPlan]:
    engine = LocalEngine(dataset)
    plan = plan_capped(
        model,
        n,
        channel.budget.adjacency,
        cap=gradient_bound(model),
        regularization=strength,
        gdp=channel.budget.gdp * (1 - 1e-14),
        center_norm=float(np.linalg.norm(center)),
        rounding=engine.rounding,
    )
    return capped_minimizer(engine, model, center, plan, n, channel, label)[0], plan
