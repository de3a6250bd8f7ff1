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
