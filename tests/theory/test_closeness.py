"""Stability bounds against exact computations and against random permutations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from userdp.mechanisms.deletion import deletion_sensitivity
from userdp.theory import (
    certified_sensitivity,
    deletion_stability,
    distance_after_deletion,
    erm_closeness,
    neighbourhood_stability,
    user_gradient,
    vector_concentration,
)


def median_ridge(rest: tuple[float, ...]) -> float:
    """Minimizer of mean(|θ − x|) + θ²/2 on [−0.4, 0.4]: strongly convex, non-smooth, the constraint may bind.

    The stationarity condition θ + mean sign(θ − x) ∋ 0 is monotone, so bisection finds the root exactly enough.
    """
    low, high = -0.4, 0.4
    values = np.asarray(rest)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if middle + np.sign(middle - values).mean() > 0 else (middle, high)
    return high


def test_certificate_bounds_the_exact_sensitivity_of_clipped_means() -> None:
    """h_k(θ) = (μ/2)(θ − x_k)² on an interval: the minimizer is the clipped mean; γ is measured there."""
    for seed in range(6):
        generator = np.random.default_rng(seed)
        users = tuple((generator.normal(size=8) + 0.5 * (seed % 3)).tolist())
        curvature, edge = 2.0, 0.4

        def clipped(rest: tuple[float, ...], edge: float = edge) -> float:
            return float(np.clip(np.mean(rest), -edge, edge))

        optimum = clipped(users)
        gradients = curvature * (optimum - np.asarray(users))
        for radius in range(5):
            exact = deletion_sensitivity(clipped, users, radius)
            force = float(np.abs(gradients).max())
            centred = float(np.abs(gradients - gradients.mean()).max())
            assert exact <= certified_sensitivity(force, curvature, 8, radius) * (1 + 1e-12)
            assert exact <= certified_sensitivity(centred, curvature, 8, radius) * (1 + 1e-12)
            assert exact <= certified_sensitivity(force, curvature, 8, radius, smoothness=curvature) * (1 + 1e-12)


def test_certificate_bounds_a_constrained_non_smooth_problem() -> None:
    """|θ − x| + θ²/2: every subgradient at θ* is within 1 + |θ*|, whichever certifies optimality."""
    for seed in range(4):
        users = tuple(np.random.default_rng(seed).normal(0.3 * seed, 0.5, size=8).tolist())
        force = 1 + abs(median_ridge(users))
        for radius in (0, 2, 4):
            assert deletion_sensitivity(median_ridge, users, radius) <= certified_sensitivity(force, 1.0, 8, radius)


def test_residual_covers_an_approximate_optimum() -> None:
    users = tuple(np.random.default_rng(5).normal(size=9).tolist())
    approximate = float(np.mean(users)) + 0.05
    gradients = approximate - np.asarray(users)
    force, residual = float(np.abs(gradients).max()), abs(float(gradients.mean()))
    assert residual == pytest.approx(0.05)
    for gone in range(1, 6):
        worst = max(abs(approximate - float(np.mean(np.delete(users, range(k, k + gone))))) for k in range(9 - gone))
        assert worst <= distance_after_deletion(force, 1.0, 9, gone, residual=residual)
    for radius in range(5):
        exact = deletion_sensitivity(np.mean, users, radius)
        assert exact <= certified_sensitivity(force, 1.0, 9, radius, residual=residual)
        assert exact <= certified_sensitivity(force, 1.0, 9, radius, residual=residual, smoothness=1.0)


def test_certificate_formulas() -> None:
    n, r, force, curvature, residual, smoothness = 300, 40, 0.7, 0.3, 1e-4, 2.0
    plain = certified_sensitivity(force, curvature, n, r, residual=residual)
    assert plain <= ((2 * r + 1) * force + 2 * n * residual) / (curvature * (n - r - 1))
    smooth = certified_sensitivity(force, curvature, n, r, smoothness=smoothness)
    assert smooth == pytest.approx(force * (1 + smoothness * r / (curvature * (n - r))) / (curvature * (n - r - 1)))
    rough = certified_sensitivity(force, curvature, n, r, smoothness=1e9)
    assert rough == certified_sensitivity(force, curvature, n, r)


@pytest.mark.parametrize("seed", range(3))
def test_random_permutations_stay_below_the_bounds(seed: int) -> None:
    """200 permutations of adversarial vectors at β = 0.05: the expected count above is at most 10; none is seen."""
    generator = np.random.default_rng(seed)
    n, m, dimension, beta = 12, 9, 3, 0.05
    rows = generator.standard_normal((n * m, dimension))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if seed == 1:
        rows = np.repeat([[1.0, 0, 0], [-1.0, 0, 0]], n * m // 2, axis=0)
    centred = rows - rows.mean(axis=0)
    above = {"vector": 0, "stability": 0, "neighbourhood": 0, "user": 0}
    for _ in range(200):
        order = generator.permutation(n * m)
        users = rows[order].reshape(n, m, dimension).mean(axis=1)
        above["vector"] += np.linalg.norm(centred[order[:m]].sum(axis=0)) > vector_concentration(1.0, m, beta)
        shift = np.linalg.norm(users.mean(axis=0) - users[:-1].mean(axis=0))
        above["stability"] += shift > deletion_stability(1.0, 1.0, n, m, beta)
        forces = np.linalg.norm(users - users.mean(axis=0), axis=1)
        above["user"] += forces.max() > user_gradient(1.0, n, m, beta)
    users = tuple(rows[generator.permutation(n * m)].reshape(n, m, dimension).mean(axis=1))
    local = deletion_sensitivity(lambda rest: np.mean(rest, axis=0), users, 2)
    above["neighbourhood"] += local > neighbourhood_stability(1.0, 1.0, n, m, beta, radius=2)
    assert above == dict.fromkeys(above, 0)


def test_union_bound_counts_every_pair() -> None:
    for n in range(3, 30):
        for r in range(1, n - 1):
            assert sum(math.comb(n, s) * (n - s) for s in range(r + 1)) <= n ** (r + 1)


def test_erm_closeness_on_bounded_means() -> None:
    """Mean of rows in [−1, 1]: (θ − x)²/2 is 2-Lipschitz there; 200 datasets at β = 0.05, none beyond the bound."""
    generator = np.random.default_rng(0)
    bound = erm_closeness(2.0, 1.0, n=20, m=5, beta=0.05)
    means = generator.choice([-1.0, 1.0], size=(200, 100)).mean(axis=1)
    assert np.abs(means).max() <= bound
    assert bound == pytest.approx(60 * math.sqrt(math.log(40) / 100))


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1/e"):
        vector_concentration(1.0, 5, 0.5)
    with pytest.raises(ValueError, match="at least 12 users"):
        certified_sensitivity(1.0, 1.0, 11, 10)
    with pytest.raises(ValueError, match="at least 12 users"):
        neighbourhood_stability(1.0, 1.0, 11, 5, 0.1, radius=10)
