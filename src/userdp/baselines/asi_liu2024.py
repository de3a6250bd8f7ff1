"""User-level stochastic convex optimization by outlier removal (Asi, Liu 2024).

Literal: per step a concentration score s = (1/n) Σ_{k,j} 1(‖q_k − q_j‖ ≤ τ) compared with 4n/5 by
AboveThreshold(ε/2); if it passes, users are kept with a probability that grows from 0 to 1 as their friends f_k = #{j
: ‖q_k − q_j‖ ≤ 2τ} grow from n/2 to 2n/3; the mean of the kept ones is released with Gaussian noise; descend.

Derived, because the printed constants do not fit the printed score: s is a sum over ordered pairs, so one user moves
it by up to 2(n−1)/n and the Laplace scales are twice the printed ones; the ramp starts at n/2 + 1, so that common
friends survive the replacement; and the sensitivity of the mean is the one proved below instead of the printed noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binom

from userdp.accounting import Budget, Guarantee
from userdp.baselines.descent import private_descent
from userdp.baselines.friendly_core import friend_counts
from userdp.baselines.release import BaselineRelease, source_of, user_gradients
from userdp.baselines.sampling import laplace, uniforms
from userdp.data import UserDataset
from userdp.engines import LocalEngine
from userdp.losses.base import Floats, UserModel
from userdp.mechanisms.gaussian import Channel

FAILURE_SHARE = 0.5  # of δ, for the bad events of the proof


def asi_liu2024(
    dataset: UserDataset,
    model: UserModel,
    *,
    epsilon: float,
    delta: float,
    concentration: float,
    steps: int = 20,
    rate: float = 1.0,
    random_state: Any = None,
) -> BaselineRelease:
    """Gradient descent on means without outliers; ``concentration`` is τ, declared. Stops at the first failed test.

    **Formal guarantee.** (ε, δ)-DP. AboveThreshold on T adaptive queries of sensitivity Δ_s = 2(n−1)/n with noise
    Lap(2Δ_s/ε₁) on the threshold and Lap(4Δ_s/ε₁) on each query is ε₁-DP, ε₁ = ε/2 (it stops at the first failure).
    For a step that passed, fix neighbours that differ in user k and give the others the same uniform numbers on both
    sides:

    1. A count f_i moves by at most 1 and so the chance to keep i by q = 1/(2n/3 − n/2 − 1): the number of others who
       are kept on one side only is at most Binomial(n − 1, q), above b with probability at most β.
    2. Kept users have more than n/2 friends among the n − 1 common users, so any two, of either side, share one: they
       are at most 4τ apart, and adding or dropping one of them moves the mean by at most 4τ/size.
    3. If the test passes, s ≥ 4n/5 − w except with probability β, w covering both Laplace draws. Σ_k (n − f'_k) = n(n
       − s) with f' the counts within τ, so at least (4n/5 − w) − 2n/3 over n/3 of all users have f' ≥ 2n/3; they are
       kept on their own side for sure, and at least K = n(2/5 − 3(w + 2)/n) − 1 on either side.

    The sensitivity of the mean is therefore (b + 2)·4τ/(K − b − 1). T Gaussian releases at (ε/2, δ/2) and 4T bad
    events weighed by e^ε at δ/2 make (ε, δ), also though tests and releases alternate (concurrent composition, Vadhan
    and Zhang 2023).
    """
    n = dataset.n_users
    plan = AsiLiuPlan.of(n, epsilon, delta, steps, concentration)
    channel = Channel(plan.budget, source_of(random_state))
    noise, engine = channel.noise, LocalEngine(dataset)
    threshold = plan.pass_score + laplace(noise, plan.threshold_scale)
    gdp, passed = plan.budget.gdp / math.sqrt(steps) * (1 - 1e-14), 0

    def mean(theta: Floats, t: int) -> Floats | None:
        nonlocal passed
        points = user_gradients(engine, model, theta)
        score = float(friend_counts(points, concentration).sum()) / n
        if score + laplace(noise, plan.query_scale) < threshold:
            return None
        passed += 1
        chance = plan.keep(friend_counts(points, 2 * concentration))
        kept = uniforms(noise, n) < chance
        center = points[kept].mean(axis=0) if kept.any() else np.zeros(model.dimension)
        return channel.release(center, plan.sensitivity, gdp, f"step {t + 1}")

    theta = private_descent(model, mean, steps=steps, rate=rate)
    guarantee = Guarantee(epsilon, delta, n_users=n, reproducible=noise.reproducible)
    return BaselineRelease(theta, guarantee, {"plan": plan, "passed": passed})


@dataclass(frozen=True, eq=False)
class AsiLiuPlan:
    """Noise scales and the sensitivity of the mean, from public numbers."""

    budget: Budget
    n_users: int
    threshold_scale: float
    query_scale: float
    differing: int
    smallest: float
    sensitivity: float

    @classmethod
    def of(cls, n: int, epsilon: float, delta: float, steps: int, tau: float) -> AsiLiuPlan:
        """Raises, before data is touched, if n is too small for the proof to leave anybody in the mean."""
        budget = Budget.of(epsilon / 2, (1 - FAILURE_SHARE) * delta)
        score_sensitivity = 2 * (n - 1) / n
        scales = (2 * score_sensitivity / (epsilon / 2), 4 * score_sensitivity / (epsilon / 2))
        failure = FAILURE_SHARE * delta / (4 * steps * math.exp(epsilon))
        slack = sum(scales) * math.log(1 / failure)
        ramp = 2 * n / 3 - (n / 2 + 1)
        chance = min(1 / ramp, 1.0) if ramp > 0 else 1.0
        differing = int(np.argmax(binom.sf(np.arange(n + 1), n - 1, chance) <= failure))
        smallest = 0.4 * n - 3 * (slack + 2) - 1 - differing - 1
        if smallest < 1:
            raise ValueError(
                f"{n} users are too few for asi_liu2024 at epsilon = {epsilon:g}, delta = {delta:g}: "
                f"its test alone needs about {math.ceil((3 * (slack + 2) + differing + 3) / 0.4)}"
            )
        sensitivity = (differing + 2) * 4 * tau * (1 + 1e-9) / smallest
        return cls(budget, n, *scales, differing, smallest, sensitivity)

    @property
    def pass_score(self) -> float:
        """4n/5."""
        return 0.8 * self.n_users

    def keep(self, friends: Floats) -> Floats:
        """Chance to keep a user: 0 up to n/2 + 1 friends, 1 from 2n/3 on, linear between."""
        start = self.n_users / 2 + 1
        return np.clip((friends - start) / (2 * self.n_users / 3 - start), 0.0, 1.0)
