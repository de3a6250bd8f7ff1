"""Aggregations that compare users: friend counts, cores, ranges, balls; worst neighbours of each."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from tests.baselines.users import Recorder, points, random_users
from userdp.accounting import compose, delta_of
from userdp.baselines import asi_liu2024, coordinate_clipping, friendly_core, levy2021, narayanan2022
from userdp.baselines.asi_liu2024 import AsiLiuPlan
from userdp.baselines.friendly_core import FriendlyPlan, friend_counts
from userdp.baselines.levy2021 import LevyPlan, hadamard, winsorized_mean
from userdp.baselines.narayanan2022 import BallPlan, sample_ball
from userdp.baselines.sampling import exponential_choice, laplace
from userdp.losses import FeatureMap, LinearModel, Logistic
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.noise import SeededNoise

MAP = FeatureMap.identity(2)
BUDGET = {"epsilon": 8.0, "delta": 1e-3}


def cloud(n, seed=0, spread=0.3):
    return np.random.default_rng(seed).normal(size=(n, 2)) * spread


def test_coordinate_clipping_noise_and_worst_neighbour():
    others = cloud(9)
    noise, ends = Recorder(), []
    for last in ([1e3, 1e3], [-1e3, -1e3], [0.1, -5.0], [0.0, 0.0]):
        release = coordinate_clipping(points([*others, last]), MAP, **BUDGET, bound=0.5, random_state=noise)
        ends.append(release.theta)
    distances = [np.linalg.norm(a - b) for a in ends for b in ends]
    assert max(distances) == pytest.approx(2 * 0.5 * math.sqrt(2) / 10, rel=1e-9)
    assert delta_of(8.0, max(distances) / noise.scales[0]) <= 1e-3


def test_friend_counts_by_definition():
    rows = cloud(40)
    counts = np.sum(np.linalg.norm(rows[:, None] - rows[None], axis=2) <= 0.4, axis=1)
    assert friend_counts(rows, 0.4).tolist() == counts.tolist()


def test_friend_counts_worst_neighbour():
    """n − 1 counts by 1 each, √(n−1) in L2: attained by a user that leaves the crowd."""
    rows = np.zeros((20, 2))
    far = rows.copy()
    far[-1] = 99.0
    change = friend_counts(rows, 0.4)[:-1] - friend_counts(far, 0.4)[:-1]
    assert np.linalg.norm(change) == pytest.approx(math.sqrt(19))


def test_friendly_plan_pays_for_everything():
    """Gaussian parts within (ε, 0.9δ); the failure probabilities, from the definition of the margins, within 0.1δ."""
    plan = FriendlyPlan.of(2000, 1.0, 1e-6, 0.5)
    assert delta_of(1.0, compose([plan.filter_gdp, plan.size_gdp, plan.mean_gdp])) <= 0.9e-6
    assert plan.filter_gdp**2 == pytest.approx(0.1 * plan.budget.gdp**2)
    lucky = 2000 * ndtr(-(plan.threshold - 1002) * plan.filter_gdp / math.sqrt(1999))
    over = ndtr(-plan.size_margin * plan.size_gdp)
    assert 2 * math.e * (lucky + over) <= 0.1e-6 * (1 + 1e-6)


def test_friendly_core_worst_neighbour():
    """With the others' flags fixed, the mean of the core moves by at most 2r/size, wherever the last user goes."""
    distance, n, noise = 1.0, 1500, Recorder()
    others, ends = cloud(n - 1, spread=0.2), []
    for last in ([0.0, 0.0], [0.5, 0.2], [-0.7, 0.1], [3.0, 3.0], [1e3, 0.0]):
        release = friendly_core(points([*others, last]), MAP, **BUDGET, distance=distance, random_state=noise)
        ends.append(release.theta)
    plan = release.details["plan"]
    assert 1200 < release.details["size"] <= n
    moved = max(np.linalg.norm(a - b) for a in ends for b in ends)
    assert 0 < moved <= plan.mean_sensitivity(n)
    np.testing.assert_allclose(ends[0], others.mean(axis=0), atol=0.05)


def test_friendly_core_gives_up_on_scattered_users():
    scattered = np.random.default_rng(0).normal(size=(300, 2)) * 100
    release = friendly_core(points(scattered), MAP, **BUDGET, distance=1.0, random_state=0)
    assert release.theta.tolist() == [0.0, 0.0]


def test_hadamard_is_orthonormal_and_its_own_inverse():
    rows = np.random.default_rng(0).normal(size=(3, 8))
    np.testing.assert_allclose(hadamard(hadamard(rows)), rows, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(hadamard(rows), axis=1), np.linalg.norm(rows, axis=1))


def test_levy_budget_from_definitions():
    """ρ of all choices and all means together gives (ε, δ) by the standard conversion."""
    plan = LevyPlan.of(6, 1.0, 1e-6, 30, 0.1, 1.0)
    rho = 30 * (plan.width * plan.choice_epsilon**2 / 8 + plan.mean_gdp**2 / 2)
    assert plan.width == 8
    assert rho + 2 * math.sqrt(rho * math.log(1e6)) <= 1.0
    assert rho + 2 * math.sqrt(rho * math.log(1e6)) > 0.999


def test_levy_worst_neighbour():
    """Given the ranges, the rotated mean moves by at most 4τ√D/n; costs move by at most 1."""
    plan = LevyPlan.of(2, 60.0, 0.1, 1, 0.2, 2.0)
    signs, others, n = np.array([1.0, -1.0]), cloud(19, spread=0.05), 20
    ends = []
    for last in ([9.0, 9.0], [-9.0, -9.0], [9.0, -9.0], [0.0, 0.0]):
        channel = Channel(friendly_budget(), Recorder())
        ends.append(winsorized_mean(np.vstack([others, last]), signs, plan, channel, "mean"))
    moved = max(np.linalg.norm(a - b) for a in ends for b in ends)
    assert 0.4 * plan.sensitivity(n) < moved <= plan.sensitivity(n)
    assert plan.sensitivity(n) >= 4 * 0.2 * math.sqrt(2) / 20


def friendly_budget():
    return FriendlyPlan.of(20, 60.0, 0.5, 1.0).budget


def test_exponential_choice_has_its_law():
    scores, noise = np.array([0.0, -1.0, -3.0]), SeededNoise(0)
    draws = np.bincount([exponential_choice(noise, scores, 2.0) for _ in range(4000)], minlength=3)
    law = np.exp(scores) / np.exp(scores).sum()
    assert stats.chisquare(draws, 4000 * law).pvalue > 1e-6


def test_laplace_has_its_law():
    noise = SeededNoise(1)
    assert stats.kstest([laplace(noise, 3.0) for _ in range(3000)], stats.laplace(scale=3.0).cdf).pvalue > 1e-6


def test_asi_liu_score_needs_twice_the_printed_noise():
    """One user out of the crowd moves the concentration score by 2(n−1)/n, not 1."""
    n, rows = 30, np.zeros((30, 2))
    far = rows.copy()
    far[0] = 9.0
    change = (friend_counts(rows, 1.0).sum() - friend_counts(far, 1.0).sum()) / n
    assert change == pytest.approx(2 * (n - 1) / n)
    plan = AsiLiuPlan.of(20000, 1.0, 1e-6, 5, 0.1)
    assert plan.threshold_scale == pytest.approx(2 * (2 * 19999 / 20000) / 0.5)
    assert plan.query_scale == pytest.approx(2 * plan.threshold_scale)


def test_asi_liu_plan_covers_its_bad_events():
    n, steps = 20000, 5
    plan = AsiLiuPlan.of(n, 1.0, 1e-6, steps, 0.1)
    chance = 1 / (2 * n / 3 - n / 2 - 1)
    many = stats.binom.sf(plan.differing, n - 1, chance)
    slack = (0.4 * n - plan.smallest - plan.differing - 2) / 3 - 2
    low = stats.laplace.sf(slack / 3, scale=plan.threshold_scale) + stats.laplace.sf(
        2 * slack / 3, scale=plan.query_scale
    )
    assert 2 * steps * math.e * (many + low) <= 0.5e-6 * (1 + 1e-6)
    assert delta_of(0.5, plan.budget.gdp) <= 0.5e-6


def test_asi_liu_worst_neighbour_of_the_mean():
    """Same uniform numbers on both sides, the last user anywhere: the mean stays within the planned sensitivity."""
    n, tau, rng = 3000, 1.0, np.random.default_rng(0)
    plan = AsiLiuPlan.of(n, 8.0, 1e-3, 1, tau)
    others, draws = cloud(n - 1, spread=0.8), rng.random(n)
    ends = []
    for last in ([0.0, 0.0], [1.2, 0.0], [-2.0, 0.5], [1e4, 0.0]):
        rows = np.vstack([others, last])
        kept = draws < plan.keep(friend_counts(rows, 2 * tau))
        spread = np.linalg.norm(rows[kept][:, None, ::1][:200] - rows[kept][None, :200], axis=2)
        assert spread.max() <= 4 * tau
        ends.append(rows[kept].mean(axis=0))
    assert 0 < max(np.linalg.norm(a - b) for a in ends for b in ends) <= plan.sensitivity


def test_asi_liu_refuses_few_users_before_touching_data():
    model = LinearModel(Logistic(), FeatureMap.identity(2))
    with pytest.raises(ValueError, match="too few"):
        asi_liu2024(random_users(50, 3, 2), model, epsilon=1.0, delta=1e-6, concentration=1.0)


def test_ball_sampling_law_on_a_line():
    """Probabilities of the bucket and of every level, on one dimension where the volumes are known."""
    plan = BallPlan.of(4, 2.0, 0.05, 1.0)
    rows = np.array([[0.0], [0.2], [0.4], [5.0]])
    noise = SeededNoise(0)
    draws = [sample_ball(rows, plan, noise) for _ in range(4000)]
    grid = np.linspace(-2, 7, 90001)
    score = np.sum(np.abs(grid[:, None] - rows.T) <= 1.0, axis=1)
    weight = np.where(score > 0, np.exp([plan.log_weight(int(f)) for f in score]), 0.0) * 1e-4 / 2
    bucket = math.exp(plan.log_bucket)
    law = np.array([bucket, *(weight[score == f].sum() for f in (1, 2, 3))])
    seen = [0 if c is None else int(np.sum(np.abs(rows - c) <= 1.0)) for c in draws]
    assert stats.chisquare(np.bincount(seen, minlength=4), 4000 * law / law.sum()).pvalue > 1e-6


@pytest.mark.parametrize("epsilon", [0.2, 2.0])
def test_ball_sampling_worst_neighbour(epsilon):
    """sup of P(S) − e^ε P'(S), computed on a fine grid of the line, is at most δ for moved, lost and stacked users."""
    delta = 0.05
    plan = BallPlan.of(4, epsilon, delta, 1.0)
    grid = np.linspace(-12, 12, 24001)

    def law(rows):
        score = np.sum(np.abs(grid[:, None] - np.array(rows)[None]) <= 1.0, axis=1)
        weight = np.where(score > 0, np.exp([plan.log_weight(int(f)) for f in score]), 0.0) * 1e-3 / 2
        full = np.append(weight, math.exp(plan.log_bucket))
        return full / full.sum()

    lasts = [0.0, 1.5, 10.0, -10.0]
    laws = [law([0.0, 0.1, 0.2, last]) for last in lasts]
    divergences = [np.maximum(p - math.exp(epsilon) * q, 0).sum() for p in laws for q in laws]
    assert max(divergences) <= delta


@pytest.mark.parametrize(
    ("method", "hints"),
    [
        (levy2021, {"concentration": 0.4, "bound": 1.0, "rate": 0.5}),
        (asi_liu2024, {"concentration": 1.0, "steps": 5}),
        (narayanan2022, {"radius": 0.3}),
    ],
)
def test_descents_learn(method, hints):
    """At a generous budget every method beats the zero model."""
    data = random_users(1500, 30, 2)
    model = LinearModel(Logistic(), FeatureMap.identity(2))
    release = method(data, model, epsilon=30.0, delta=1e-3, random_state=0, **hints)
    assert model.user_losses(data.blocks[0], release.theta).mean() < math.log(2) - 0.02
    assert release.guarantee.epsilon == 30.0
    assert release.guarantee.delta == 1e-3
