"""Mean of few users by ball sampling (Narayanan, Mirrokni, Esfandiari 2022).

Literal: an exponential mechanism over all of space whose score is the number of users within R of a point, with a
"garbage bucket" that catches the draw when users are scattered; plugged into gradient descent. Derived: the cap on
the score (so that sampling takes about n tries at most), the weight of the bucket, the proof, basic composition over
the steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from userdp.accounting import Guarantee
from userdp.baselines.descent import private_descent
from userdp.baselines.release import BaselineRelease, source_of, user_gradients
from userdp.data import UserDataset
from userdp.engines import LocalEngine
from userdp.losses.base import Floats, UserModel
from userdp.mechanisms.noise import Noise

BUCKET_CHANCE = 0.01  # of a garbage draw when everybody is in one place


def narayanan2022(
    dataset: UserDataset,
    model: UserModel,
    *,
    epsilon: float,
    delta: float,
    radius: float,
    steps: int = 5,
    rate: float = 1.0,
    random_state: Any = None,
) -> BaselineRelease:
    """Gradient descent on sampled means. ``radius`` is R, about √d times the spread of the users' gradients;
    declared.

    The error of a step is about R however many users there are; it ends at the first garbage draw.

    **Formal guarantee.** (ε, δ)-DP: each of the T draws is (ε/T, δ/T)-DP (``BallPlan``), and basic composition adds.
    """
    n, noise, engine = dataset.n_users, source_of(random_state), LocalEngine(dataset)
    plan = BallPlan.of(n, epsilon / steps, delta / steps, radius)

    def mean(theta: Floats, t: int) -> Floats | None:
        return sample_ball(user_gradients(engine, model, theta), plan, noise)

    theta = private_descent(model, mean, steps=steps, rate=rate)
    guarantee = Guarantee(epsilon, delta, n_users=n, reproducible=noise.reproducible)
    return BaselineRelease(theta, guarantee, {"plan": plan})


@dataclass(frozen=True)
class BallPlan:
    """Density ∝ e^(a·min(f(c), F)) where f(c) = #{k : ‖x_k − c‖ ≤ R} ≥ 1, and a bucket of weight e^a V/δ; V the
    ball's volume.

    **Formal guarantee.** (2a, δ)-DP, a = ε/2. Replacing a user moves f(c) by at most 1 everywhere. Where both
    densities are positive they differ by a factor e^a; so do the normalizers, because the part of space that only the
    neighbour's f reaches weighs at most e^a V ≤ (e^a − 1)·bucket. The set that only this dataset reaches has f = 1, a
    volume of at most V and hence a probability of at most e^a V/bucket = δ.
    """

    radius: float
    slope: float
    score_cap: int
    log_bucket: float

    @classmethod
    def of(cls, n_users: int, epsilon: float, delta: float, radius: float) -> BallPlan:
        """F makes the bucket unlikely when F users share a ball of volume V/2; weights are in units of V."""
        if not (radius > 0 and math.isfinite(radius)):
            raise ValueError(f"radius must be positive and finite, got {radius}")
        slope = epsilon / 2
        log_bucket = slope + math.log(1 / min(delta, -math.expm1(-slope)))
        wanted = math.ceil((log_bucket + math.log(2 / BUCKET_CHANCE)) / slope)
        return cls(radius, slope, min(wanted, n_users), log_bucket)

    def log_weight(self, score: int) -> float:
        """a·min(f, F)."""
        return self.slope * min(score, self.score_cap)


def sample_ball(points: Floats, plan: BallPlan, noise: Noise) -> Floats | None:
    """One draw by rejection; None is the garbage bucket.

    A uniform point in the ball of a uniform user has density f(c)/(nV). The weight is at most M·f(c) with M the
    largest of e^(a·min(f, F))/f over 1 ≤ f ≤ n, so accepting with probability weight/(M f) from an envelope of total
    weight M·n + bucket gives the law of ``BallPlan`` exactly.
    """
    n, dimension = points.shape
    generator = np.random.default_rng(noise.integer_below(2**128))
    log_envelope = max(plan.log_weight(f) - math.log(f) for f in {1, plan.score_cap})
    bucket = 1 / (1 + math.exp(log_envelope + math.log(n) - plan.log_bucket))
    while True:
        if generator.random() < bucket:
            return None
        direction = generator.standard_normal(dimension)
        length = plan.radius * generator.random() ** (1 / dimension)
        center = points[generator.integers(n)] + direction * (length / np.linalg.norm(direction))
        score = max(int(np.count_nonzero(np.linalg.norm(points - center, axis=1) <= plan.radius)), 1)
        if math.log(generator.random()) < plan.log_weight(score) - math.log(score) - log_envelope:
            return np.asarray(center)
