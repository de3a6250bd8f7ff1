"""Learning with user-level privacy (Levy, Sun, Amin, Kale, Kulesza, Mohri, Suresh 2021).

Literal: rotate the users' gradients by a randomized Hadamard transform; per coordinate find a private range by the
exponential mechanism over bins of width 2τ on [−B, B], with the cost max(#left, #right) of a bin; clip to its middle
± 2τ; average; Gaussian noise; descend. Derived: all users in every step, accounting by zCDP with one half for ranges
and one for noise, ε²/8-zCDP for the exponential mechanism, the tail average.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from userdp.accounting import Guarantee
from userdp.accounting.budget import GRID_SHARE
from userdp.baselines.descent import private_descent
from userdp.baselines.release import BaselineRelease, open_channel, user_gradients
from userdp.baselines.sampling import exponential_choice, uniforms
from userdp.data import UserDataset
from userdp.engines import LocalEngine
from userdp.losses.base import Floats, UserModel
from userdp.mechanisms.gaussian import Channel


def levy2021(
    dataset: UserDataset,
    model: UserModel,
    *,
    epsilon: float,
    delta: float,
    concentration: float,
    bound: float,
    steps: int = 30,
    rate: float = 1.0,
    random_state: Any = None,
) -> BaselineRelease:
    """Gradient descent on winsorized means. ``concentration`` is τ, how far a coordinate of a rotated user gradient
    strays from the mean; ``bound`` is B, on any coordinate. Both are declared.

    **Formal guarantee.** (ε, δ)-DP: ρ-zCDP with ρ = (√(ln(1/δ) + ε) − √ln(1/δ))² (Bun, Steinke 2016). *Ranges:*
    replacing a user moves #left and #right of any bin by at most 1, so the cost has sensitivity 1 and each choice is
    ε₀²/8-zCDP; D coordinates and T steps make DTε₀²/8 = ρ/2. *Means:* given the ranges, each clipped coordinate lies
    in an interval of length 4τ, so the mean moves by at most 4τ√D/n in L2; with σ = that·√(T/ρ) a release is
    ρ/(2T)-zCDP.
    """
    channel = open_channel(epsilon, delta, random_state)
    plan = LevyPlan.of(model.dimension, epsilon, delta, steps, concentration, bound)
    signs = np.where(uniforms(channel.noise, plan.width) < 0.5, -1.0, 1.0)
    engine = LocalEngine(dataset)

    def mean(theta: Floats, t: int) -> Floats:
        gradients = user_gradients(engine, model, theta)
        return winsorized_mean(gradients, signs, plan, channel, f"step {t + 1}")

    theta = private_descent(model, mean, steps=steps, rate=rate)
    guarantee = Guarantee(epsilon, delta, n_users=dataset.n_users, reproducible=channel.noise.reproducible)
    return BaselineRelease(theta, guarantee, {"plan": plan})


@dataclass(frozen=True)
class LevyPlan:
    """Width D of the padded transform, budgets of one choice and of one mean, τ and the middles of the bins."""

    width: int
    choice_epsilon: float
    mean_gdp: float
    concentration: float
    middles: tuple[float, ...]

    @classmethod
    def of(cls, dimension: int, epsilon: float, delta: float, steps: int, tau: float, bound: float) -> LevyPlan:
        """Halves of ρ; the price of noise on a grid comes off δ first."""
        if not 0 < tau <= bound < math.inf:
            raise ValueError(f"need 0 < concentration <= bound < inf, got {tau} and {bound}")
        width = 1 << max(dimension - 1, 0).bit_length()
        log = -math.log(delta * (1 - GRID_SHARE))
        rho = (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2
        bins = math.ceil(bound / tau)
        middles = tuple((2 * i + 1 - bins) * tau for i in range(bins))
        return cls(width, math.sqrt(4 * rho / (width * steps)), math.sqrt(rho / steps), tau, middles)

    def sensitivity(self, n_users: int) -> float:
        """4τ√D/n."""
        return 4 * self.concentration * math.sqrt(self.width) / n_users * (1 + 1e-9)


def winsorized_mean(points: Floats, signs: Floats, plan: LevyPlan, channel: Channel, label: str) -> Floats:
    """Private mean of the rows of ``points`` in rotated coordinates, rotated back."""
    n, dimension = points.shape
    padded = np.zeros((n, plan.width))
    padded[:, :dimension] = points
    rotated = hadamard(padded * signs)
    middles = np.array(plan.middles)
    edges = (middles[1:] + middles[:-1]) / 2
    centers = np.empty(plan.width)
    for i, column in enumerate(rotated.T):
        counts = np.bincount(np.searchsorted(edges, column, side="right"), minlength=len(middles))
        left = np.cumsum(counts) - counts
        cost = np.maximum(left, n - left - counts)
        centers[i] = middles[exponential_choice(channel.noise, -cost.astype(np.float64), plan.choice_epsilon)]
    near = np.clip(rotated, centers - 2 * plan.concentration, centers + 2 * plan.concentration)
    released = channel.release(near.mean(axis=0), plan.sensitivity(n), plan.mean_gdp, label)
    return np.asarray((hadamard(released[None, :])[0] * signs)[:dimension])


def hadamard(rows: Floats) -> Floats:
    """Each row times the orthonormal, symmetric Hadamard matrix; the width must be a power of two.

    >>> hadamard(np.array([[1.0, 0.0]])).round(3).tolist()
    [[0.707, 0.707]]
    """
    out, half = np.array(rows, dtype=np.float64), 1
    while half < out.shape[1]:
        pairs = out.reshape(len(out), -1, 2, half)
        out = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2).reshape(out.shape)
        half *= 2
    return np.asarray(out / math.sqrt(out.shape[1]))
