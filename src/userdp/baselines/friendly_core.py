"""FriendlyCore averaging: drop users without enough friends, then a Gaussian mean of the rest.

Literal: keep a user if a noisy count of its friends (users within r) says so, average the core with noise for its own
diameter, zCDP split 0.1 / 0.9 (Tsfadia, Cohen, Kaplan, Mansour, Stemmer 2022, sections 4 and 5). Derived: the
thresholds and the proof below, in Gaussian DP; a tenth of the larger part pays for the size of the core; 0 if the
core is too small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import njit
from scipy.special import ndtri

from userdp.accounting import Budget
from userdp.baselines.release import BaselineRelease, source_of, user_gradients
from userdp.data import UserDataset
from userdp.engines import LocalEngine
from userdp.losses.base import Floats
from userdp.losses.linear import FeatureMap
from userdp.losses.vector import VectorModel
from userdp.mechanisms.gaussian import Channel

FILTER_SHARE = 0.1
SIZE_SHARE = 0.1  # of the rest
FAILURE_SHARE = 0.1  # of δ, for users kept by luck and a size that is overestimated


def friendly_core(
    dataset: UserDataset,
    features: FeatureMap,
    *,
    epsilon: float,
    delta: float,
    distance: float,
    random_state: Any = None,
) -> BaselineRelease:
    """Mean over users of their mean rows; ``distance`` is r, how far apart two friends may be, in mapped units.

    **Formal guarantee.** (ε, δ)-DP. Fix neighbours that differ in user k.

    1. Replacing k changes the friend counts of the other n − 1 users by at most 1 each, √(n−1) in L2: their flags are
       μ₁-GDP. Given those flags, the cores differ in user k's own point at most.
    2. Except with a probability paid by a share of δ, everyone kept has at least n/2 + 2 friends (itself counted), so
       more than half of the n − 1 common users; any two kept users of either dataset have a common friend among these
       and are at most 2r apart.
    3. The size of the core moves by 1, its mean by 2r/size: x enters a mean of s points at weight 1/(s+1), and
       swapping x for x' moves it by ‖x−x'‖/(s+1). Noisy size minus a quantile is below the size, except with a
       probability paid in the same way.

    The Gaussian parts compose to μ, μ² = μ₁² + μ₂² + μ₃², calibrated to (ε, 0.9δ).
    """
    n = dataset.n_users
    plan = FriendlyPlan.of(n, epsilon, delta, distance)
    channel = Channel(plan.budget, source_of(random_state))
    origin = np.zeros(features.dimension)
    points = -user_gradients(LocalEngine(dataset), VectorModel(1.0, 1.0, features), origin)
    counts = friend_counts(points, distance)
    kept = channel.release(counts, math.sqrt(n - 1), plan.filter_gdp, "friends") >= plan.threshold
    size = channel.release(np.array([float(kept.sum())]), 1.0, plan.size_gdp, "size of the core")
    lower = math.floor(float(size[0]) - plan.size_margin)
    if lower < 1:  # decided by a release
        center, sigma = np.zeros(features.dimension), 0.0
    else:
        mean = points[kept].mean(axis=0) if kept.any() else np.zeros(features.dimension)
        sensitivity = plan.mean_sensitivity(lower)
        center, sigma = channel.release(mean, sensitivity, plan.mean_gdp, "mean"), sensitivity / plan.mean_gdp
    guarantee = replace(plan.budget.guarantee(n, reproducible=channel.noise.reproducible), delta=delta)
    return BaselineRelease(center, guarantee, {"plan": plan, "size": float(size[0]), "sigma": sigma})


@dataclass(frozen=True, eq=False)
class FriendlyPlan:
    """Budget shares and margins; public."""

    budget: Budget
    distance: float
    filter_gdp: float
    size_gdp: float
    mean_gdp: float
    threshold: float
    size_margin: float

    @classmethod
    def of(cls, n_users: int, epsilon: float, delta: float, distance: float) -> FriendlyPlan:
        """A user is kept from n/2 + 2 friends (itself and k counted) plus a margin on; margins from Gaussian tails."""
        budget = Budget.of(epsilon, (1 - FAILURE_SHARE) * delta)
        parts = (FILTER_SHARE, (1 - FILTER_SHARE) * SIZE_SHARE, (1 - FILTER_SHARE) * (1 - SIZE_SHARE))
        first, second, third = (budget.gdp * math.sqrt(part) * (1 - 1e-14) for part in parts)
        # Four events: users kept by luck and an overestimated size, on either dataset; e^ε for the second one's weight.
        failure = FAILURE_SHARE * delta / (4 * math.exp(epsilon))
        margin = float(-ndtri(failure / n_users)) * math.sqrt(n_users - 1) / first
        size_margin = float(-ndtri(failure)) / second
        return cls(budget, distance, first, second, third, n_users / 2 + 2 + margin, size_margin)

    def mean_sensitivity(self, size: int) -> float:
        """2r/size."""
        return 2 * self.distance * (1 + 1e-9) / size


def friend_counts(points: Floats, distance: float) -> Floats:
    """#{j : ‖x_k − x_j‖ ≤ r} for every k, itself counted; n²d/2 operations."""
    out = np.ones(len(points))
    _count_friends(np.ascontiguousarray(points), distance**2, out)
    return out


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _count_friends(points: Floats, square: float, out: Floats) -> None:
    n, dimension = points.shape
    for k in range(n):
        for j in range(k):
            total = 0.0
            for i in range(dimension):
                total += (points[k, i] - points[j, i]) ** 2
            if total <= square:
                out[k] += 1
                out[j] += 1
