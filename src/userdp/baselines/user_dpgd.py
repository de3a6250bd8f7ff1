"""User-level DP gradient descent: the strongest practical rival.

Literal: full-batch gradient descent where each user's mean gradient q_k is clipped to C, averaged and released with
Gaussian noise, what DP-FedAvg (McMahan, Ramage, Talwar, Zhang 2018) is with all users in every round and one local
step; the adaptive clip C ← C·exp(−0.2(b̃ − ½)) (Andrew, Thakkar, McMahan, Ramaswamy 2021), b̃ a noisy share of users
within C. Derived: exact Gaussian accounting (μ-GDP) instead of moments, a budget share of 5 % for the counts, a
public range for C.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from userdp.baselines.release import BaselineRelease, open_channel
from userdp.data import UserDataset
from userdp.data.blocks import UserBlock
from userdp.engines import Engine, LocalEngine, Sums
from userdp.losses.base import Floats, PhaseGradients, UserModel, phase_gradients
from userdp.mechanisms.capped import clipped_mean

COUNT_SHARE = 0.05  # of μ², for the counts behind an adaptive clip
CLIP_RATE = 0.2
CLIP_RANGE = 1e4  # an adaptive clip stays within this factor of where it started


def user_dpgd(
    dataset: UserDataset,
    model: UserModel,
    *,
    epsilon: float,
    delta: float,
    clip: float,
    steps: int = 30,
    rate: float = 4.0,
    adaptive: bool = False,
    average: bool = True,
    engine: Engine | None = None,
    random_state: Any = None,
) -> BaselineRelease:
    """θ_{t+1} = θ_t − rate·((1/n) Σ_k clip_C(∇h_k(θ_t)) + noise) from 0; the mean of the last half if ``average``.

    ``clip`` is C, or where an ``adaptive`` one starts; it must be public.

    **Formal guarantee.** (ε, δ)-DP for every dataset. Each clipped q_k has norm at most C, so replacing a user moves
    the mean by at most 2C/n; with σ = 2C√T/(nμ) every step is (μ/√T)-GDP and T adaptive steps are μ-GDP. An adaptive
    clip also releases T counts of users with ‖q_k‖ ≤ C, each of sensitivity 1, on 5 % of μ²; the next C is a function
    of releases.
    """
    if not (clip > 0 and math.isfinite(clip)) or steps < 1 or not rate > 0:
        raise ValueError(f"clip and rate must be positive and steps at least 1, got {clip}, {rate}, {steps}")
    channel = open_channel(epsilon, delta, random_state)
    budget, engine, n = channel.budget, engine or LocalEngine(dataset), dataset.n_users
    share = 1 - COUNT_SHARE if adaptive else 1.0
    step_gdp = budget.gdp * math.sqrt(share / steps) * (1 - 1e-14)
    count_gdp = budget.gdp * math.sqrt((1 - share) / steps) * (1 - 1e-14)
    theta = np.zeros(model.dimension)
    points: list[Floats] = []
    clips, sigmas = [clip], list[float]()
    for t in range(steps):
        mean = clipped_mean(engine, model, theta, clips[-1], step_gdp, n, budget.adjacency, channel, f"step {t + 1}")
        sigmas.append(mean.sigma)
        clips.append(clips[-1])
        if adaptive:
            (inside,) = engine.sum(_count_inside, phase_gradients(model, theta), clips[-1])
            noisy = float(channel.release(inside, 1.0, count_gdp, f"count {t + 1}")[0]) / n
            clips[-1] = next_clip(clips[-1], noisy, clip)
        theta = theta - rate * mean.value
        points.append(theta)
    final = np.mean(points[steps // 2 :], axis=0) if average else theta
    guarantee = budget.guarantee(n, reproducible=channel.noise.reproducible)
    return BaselineRelease(final, guarantee, {"clips": clips[:steps], "sigmas": sigmas})


def next_clip(clip: float, inside: float, start: float) -> float:
    """C·exp(−0.2(b̃ − ½)): towards the median length. b̃ is cut to [0, 1], C to a public range around its start."""
    moved = clip * math.exp(-CLIP_RATE * (min(max(inside, 0.0), 1.0) - 0.5))
    return min(max(moved, start / CLIP_RANGE), start * CLIP_RANGE)


def _count_inside(block: UserBlock, phase: PhaseGradients, clip: float) -> Sums:
    lengths = np.linalg.norm(phase(block), axis=1)
    return (np.array([np.count_nonzero(lengths <= clip)], dtype=np.float64),)
