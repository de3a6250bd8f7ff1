"""The way of a descent on a quadratic loss whose curvature is known. All is fixed by seeds."""

from __future__ import annotations

import numpy as np
import pytest

from userdp.algorithms.calibration import Geometry
from userdp.algorithms.path import RADIUS, Path
from userdp.algorithms.schedule import way_weights

D, PHASES = 6, 40
OPTIMUM = np.linspace(-1, 1, D)


def descend(sigma: float, seed: int, curvature: float = 1.0, optimum: np.ndarray = OPTIMUM) -> Path:
    """Phases on ½h‖θ − θ*‖², whose gradients are seen with noise."""
    rng, theta = np.random.default_rng(seed), np.zeros(D)
    path = Path(Geometry(np.ones(D)), np.zeros((1, D)))
    for t in range(PHASES):
        gradient = curvature * (theta - optimum) + sigma * rng.normal(size=D)
        theta = path.step(theta, gradient, sigma, PHASES - t - 1)
    return path


@pytest.mark.parametrize("curvature", [0.2, 1.0, 1.4])
def test_little_noise_leads_to_the_optimum_whatever_the_curvature(curvature):
    """The mean has the way in it, which is longer where the curvature is less than learnt."""
    path = descend(1e-6, 0, curvature)
    np.testing.assert_allclose(path.points[-1], OPTIMUM, atol=1e-3)
    np.testing.assert_allclose(path.mean()[0], OPTIMUM, atol=0.01 / curvature)


def test_more_curvature_than_was_learnt_is_braked():
    path = descend(0.01, 0, curvature=6.0)
    assert path.brake > 2
    np.testing.assert_allclose(path.mean()[0], OPTIMUM, atol=0.05)


@pytest.mark.parametrize(("sigma", "error"), [(0.05, 0.3), (0.3, 0.3), (1.0, 0.8)])
def test_the_variance_of_the_mean_is_that_of_many_runs(sigma, error):
    """The variance of 1,200 numbers is off by 20 % with probability 2e-6, were the steps fixed. They hardly vary, but
    where the noise of a step exceeds the signal they follow it (docs/proofs/default-fit.md, section 5).
    """
    found = [descend(sigma, seed).mean() for seed in range(200)]
    points = np.array([point for point, _ in found])
    claimed = np.mean([variance for _, variance in found])
    assert points.var(axis=0).mean() == pytest.approx(claimed, rel=error)


def test_noise_without_signal_stays_near_the_start():
    """Of the noise that the mean gradient has, most is held back."""
    lengths = [np.linalg.norm(descend(1.0, seed, optimum=np.zeros(D)).mean()[0]) for seed in range(50)]
    assert np.mean(np.square(lengths)) < 0.6 * D / PHASES
    assert max(np.linalg.norm(point) for point in descend(100.0, 1).points) <= RADIUS


@pytest.mark.parametrize("sigma", [0.02, 0.1])
def test_excursions_are_those_of_many_runs(sigma):
    """Mean squared distance from the way without noise, weighted as the mean is; 200 runs give it to a few %."""
    quiet = descend(1e-9, 0)
    weights = way_weights([sigma] * PHASES)
    runs = [descend(sigma, seed) for seed in range(200)]
    far = [weights @ np.square(np.array(run.points) - quiet.points).sum(axis=1) for run in runs]
    assert np.mean([run.excursion() for run in runs]) == pytest.approx(np.mean(far), rel=0.25)
