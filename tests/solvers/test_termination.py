"""Problems on which the search for a capped user's point once stalled, so that the certificate was never reached."""

from __future__ import annotations

import numpy as np
import pytest

from userdp.algorithms import output_perturbation
from userdp.algorithms.problem import Problem
from userdp.data import UserDataset
from userdp.engines import LocalEngine
from userdp.losses import Absolute, FeatureMap, LinearModel
from userdp.losses.hinge import Hinge
from userdp.solvers import CappedObjective, minimize
from userdp.solvers.capped import _capped_hessian


@pytest.mark.parametrize("first", [0.0, 1.0])
def test_a_direction_without_curvature(first):
    problem = Problem(LinearModel(Absolute(), FeatureMap.identity(1, bound=1.0)), lipschitz=1.0, ridge=0.04)
    data = UserDataset.from_arrays([[first], [0.0], [0.0]], [1.0, 0.0, 0.0], [0, 1, 2])
    release = output_perturbation(
        data, problem, epsilon=1.0, delta=1e-6, rows_per_user=1, force_cap=0.011, random_state=0
    )
    assert np.isfinite(release.theta).all()


@pytest.mark.parametrize("seed", [1, 4])
def test_a_narrow_kink(seed):
    rng = np.random.default_rng(seed)
    n, m, d, cap, strength = 200, 20, 10, 0.1, 0.01
    X, w = rng.normal(size=(n * m, d)), rng.normal(size=d)
    y = (X @ w + rng.normal(size=n * m) > 0).astype(float)
    data = UserDataset.from_arrays(X, y, np.repeat(np.arange(n), m))
    model = LinearModel(Hinge(width=0.01), FeatureMap.identity(d, bound=20.0))
    objective = CappedObjective(LocalEngine(data), model, cap, strength, np.zeros(d), n)
    distance = 0.01 * 2 * cap / (strength * n)
    assert minimize(objective, distance).distance <= distance


class Flat:
    """One user on a flat piece of a kinked loss."""

    def hessians(self, points):
        return np.zeros((len(points), points.shape[1], points.shape[1]))


@pytest.mark.parametrize("distance", [1e-3, 1e-8, 1e-14])
def test_the_curvature_of_a_flat_user_at_theta_is_finite(distance):
    """γ/‖θ − u‖ was once cut down to nothing there, and the system that gives the curvature was singular."""
    curvature = _capped_hessian(Flat(), np.full((1, 12), distance), np.zeros(1), np.zeros(12), 12.0)
    assert np.isfinite(curvature).all()
    assert np.abs(curvature).max() <= 1e-3
