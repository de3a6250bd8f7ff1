"""Problems on which the search for a capped user's point once stalled, so that the certificate was never reached."""

from __future__ import annotations

import numpy as np
import pytest

from userdp.algorithms import output_perturbation
from userdp.algorithms.problem import Problem
from userdp.data import UserDataset
from userdp.engines import LocalEngine
from userdp.losses import Absolute, FeatureMap, LinearModel, Logistic
from userdp.losses.hinge import Hinge
from userdp.mechanisms.constrained import plan_on_set
from userdp.solvers import CappedObjective, minimize
from userdp.solvers.capped import _capped_hessian
from userdp.solvers.constrained import SetObjective, minimize_on_set
from userdp.solvers.sets import Ball


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


def on_a_ball(X, y, radius, center, cap, strength, lipschitz):
    """Solve as planned; at most 300 steps."""
    engine, model = (
        LocalEngine(UserDataset.from_arrays(X, y, np.arange(len(y)) // 3)),
        LinearModel(Logistic(), FeatureMap.identity(X.shape[1], bound=10 * lipschitz)),
    )
    users, ball = len(y) // 3, Ball(center, radius)
    plan = plan_on_set(
        model,
        users,
        "replace",
        cap=cap,
        regularization=strength,
        gdp=1.0,
        center=center,
        domain=ball,
        rounding=engine.rounding,
        lipschitz=lipschitz,
    )
    objective = SetObjective(engine, model, cap, strength, center, users, ball, None, plan.users, lipschitz)
    steps: list[float] = []

    def count(gap):
        steps.append(gap)
        assert len(steps) < 300, "the certificate is never reached"

    return minimize_on_set(objective, plan.distance, on_step=count).distance <= plan.distance


def test_a_cap_far_below_the_pull_on_a_small_ball():
    X = np.array([[0.241961199], [0.182859174], [0.173102166], [0.20438771], [0.195949039], [0.139630874]])
    y = np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    assert on_a_ball(X, y, 0.001453517753233873, np.zeros(1), 0.0001103417193744047, 96.46207, 0.181544637754101)


@pytest.mark.parametrize("seed", range(6))
def test_a_ball_far_from_zero(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(24, 2)) * 0.2 + [1.0, 0.0], rng.integers(0, 2, 24).astype(float)
    center = 1e3 * rng.normal(size=2)
    assert on_a_ball(X, y, 1.0, center, 0.1, 0.05, 1.0)
