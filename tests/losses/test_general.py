"""Users' losses from value and subgradient alone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.losses.own import SoftWorst, Worst
from userdp.algorithms import Problem, output_perturbation, phased_erm, phased_sco
from userdp.algorithms.fit import fit_location
from userdp.data import UserDataset
from userdp.losses import FeatureMap, GeneralModel, SubgradientModel
from userdp.losses.distance import DistanceModel
from userdp.solvers.sets import Ball


class Distance(SoftWorst):
    """That of ``DistanceModel``, from value and gradient."""

    def value(self, points, rows, targets):
        length = np.linalg.norm(points - rows, axis=1)
        return np.where(length > self.width, length - self.width / 2, length**2 / (2 * self.width))

    def subgradient(self, points, rows, targets):
        length = np.linalg.norm(points - rows, axis=1, keepdims=True)
        return (points - rows) / np.maximum(length, self.width)


def data(n_users=60, seed=0):
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(n_users), rng.integers(1, 9, n_users))
    return UserDataset.from_arrays(rng.normal([0.5, -0.5, 0.0], size=(len(users), 3)), None, users)


def test_the_same_numbers_as_a_model_written_by_hand():
    features = FeatureMap.identity(3, bound=10.0)
    general, reference = GeneralModel(Distance(0.2), features), DistanceModel(features, 0.2)
    (block,) = data().blocks
    theta, points = np.array([0.1, 0.2, 0.3]), np.random.default_rng(1).normal(size=(block.n_users, 3))
    np.testing.assert_allclose(general.user_losses(block, theta), reference.user_losses(block, theta))
    np.testing.assert_allclose(general.user_gradients(block, theta), reference.user_gradients(block, theta))
    ours, theirs = general.at_points(block, theta), reference.at_points(block, theta)
    np.testing.assert_allclose(ours.values(points), theirs.values(points))
    np.testing.assert_allclose(ours.hessians(points), theirs.hessians(points), atol=1e-5)
    np.testing.assert_allclose(ours.hessian_sum(theta), theirs.hessian_sum(theta), atol=1e-4)
    public = {"epsilon": 4.0, "delta": 1e-6, "rows_per_user": 4, "random_state": 0, "force_cap": 0.5}
    first, again = (
        phased_erm(data(), Problem(model, 1.0, Ball(np.zeros(3), 4.0)), radius=1.0, **public)
        for model in (general, reference)
    )
    np.testing.assert_allclose(first.theta, again.theta, atol=0.05 * first.sigmas[-1])


def test_users_do_not_depend_on_each_other():
    model = GeneralModel(SoftWorst(), FeatureMap.identity(3))
    (block,) = data().blocks
    problems, points = model.at_points(block, np.zeros(3)), np.full((block.n_users, 3), 0.3)
    some = np.array([3, 4, 17])
    np.testing.assert_array_equal(problems.select(some).gradients(points[some]), problems.gradients(points)[some])


@pytest.mark.parametrize("loss", [SoftWorst(0.05), SoftWorst(1e-3), Distance(0.2), Distance(1e-3)])
def test_gradient_error_bounds_the_rounding_of_gradients(loss):
    """Against arithmetic with eleven more bits, at the points where the loss bends."""
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((50, 4)) < 0.5, 1e3, 1.0) * rng.normal(size=(50, 4))
    problems = GeneralModel(loss, FeatureMap.identity(4)).at_points(
        UserDataset.from_arrays(rows).blocks[0], np.full(4, 0.3)
    )
    points = rows - 0.3 + loss.width * rng.normal(size=(50, 4))
    exact = loss.subgradient(np.longdouble(0.3) + points.astype(np.longdouble), rows.astype(np.longdouble), None)
    error = np.linalg.norm((problems.gradients(points) - exact).astype(float), axis=1)
    assert np.all(error <= problems.gradient_error(points))


def test_kinks_are_for_linear_phases():
    features = FeatureMap.identity(3, bound=10.0)
    with pytest.raises(ValueError, match="finite smoothness"):
        GeneralModel(Worst(), features)
    kinks = Problem(SubgradientModel(Worst(), features), 1.0, Ball(np.zeros(3), 4.0), ridge=0.1)
    public = {"epsilon": 4.0, "delta": 1e-6, "rows_per_user": 4, "random_state": 0}
    assert np.isfinite(phased_erm(data(), kinks, radius=1.0, schedule="linear", **public).theta).all()
    for ask in (
        lambda: phased_erm(data(), kinks, radius=1.0, **public),
        lambda: phased_sco(data(), kinks, radius=1.0, **public),
        lambda: output_perturbation(data(), kinks, **public),
    ):
        with pytest.raises(ValueError, match="Worst loss has subgradients only: use schedule='linear', or smooth it"):
            ask()


@pytest.mark.parametrize("algorithm", ["auto", "phased-erm", "output-perturbation"])
def test_a_location_in_any_units(algorithm):
    rng = np.random.default_rng(0)
    X = 1e6 * rng.normal([3.0, -2.0], size=(3000, 2))
    rows = UserDataset.from_arrays(X, None, np.repeat(np.arange(600), 5))
    release, _ = fit_location(rows, SoftWorst(), epsilon=8.0, delta=1e-6, algorithm=algorithm, random_state=0)
    np.testing.assert_allclose(release.location / 1e6, [3.0, -2.0], atol=0.3)
    assert "SoftWorst loss" in release.plan


def test_a_location_has_a_coefficient_for_every_feature():
    class Wide(Worst):
        def dimension(self, columns):
            return columns + 1

    with pytest.raises(ValueError, match="3 coefficients, one a feature: this loss has 4"):
        fit_location(data(), Wide(), epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match="finite smoothness"):
        fit_location(data(), Worst(), epsilon=1.0, delta=1e-6, algorithm="phased-erm")
