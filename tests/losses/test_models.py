"""User models beyond one linear prediction: gradients against differences, weights, independence of the others."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from tests.losses.own import SoftWorst
from userdp.data import UserDataset
from userdp.losses import FeatureMap, LinearModel, Logistic
from userdp.losses.distance import DistanceModel
from userdp.losses.general import GeneralModel
from userdp.losses.softmax import SoftmaxModel, contrasts
from userdp.losses.vector import VectorModel
from userdp.losses.weighted import CurvedRowWeighted, RowWeighted

RNG = np.random.default_rng(0)
MAP = FeatureMap(np.array([0.5, 0.0, -1.0]), np.array([1.0, 2.0, 0.5]), 3.0)
PLAIN = FeatureMap(MAP.center, MAP.scale, 3.0, intercept=False)
SHEAR = np.linalg.qr(RNG.normal(size=(4, 4)))[0] @ np.diag([1.0, 2.0, 0.5, 1.0])
MODELS = {
    "softmax": SoftmaxModel(4, MAP),
    "softmax in a geometry": SoftmaxModel(4, MAP, SHEAR),
    "distance": DistanceModel(PLAIN, 0.5),
    "sharp distance": DistanceModel(PLAIN),
}
every = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def example(sparse=False):
    X = np.where(RNG.random((80, 3)) < 0.6, RNG.normal(size=(80, 3)), 0.0)
    return UserDataset.from_arrays(
        scipy.sparse.csr_array(X) if sparse else X, RNG.integers(0, 4, 80), RNG.integers(0, 9, 80)
    ).blocks[0]


@every
def test_gradient_is_the_slope_of_the_loss(model):
    block, theta, step = example(), RNG.normal(size=model.dimension), 1e-6
    gradients = model.user_gradients(block, theta)
    for i in range(model.dimension):
        move = step * np.eye(model.dimension)[i]
        slope = (model.user_losses(block, theta + move) - model.user_losses(block, theta - move)) / (2 * step)
        np.testing.assert_allclose(gradients[:, i], slope, atol=1e-7)


@every
def test_convex_along_lines(model):
    block = example()
    for _ in range(20):
        a, b = RNG.normal(size=(2, model.dimension)) * 3
        middle = model.user_losses(block, (a + b) / 2)
        assert np.all(middle <= (model.user_losses(block, a) + model.user_losses(block, b)) / 2 + 1e-12)


@every
def test_what_is_computed_for_a_user_depends_on_nobody_else(model):
    block, theta = example(), RNG.normal(size=model.dimension)
    together = model.user_gradients(block, theta)
    for k in range(block.n_users):
        alone = model.user_gradients(block.users(k, k + 1), theta)
        assert alone[0].tobytes() == together[k].tobytes()


def test_two_classes_are_the_logistic_loss():
    block = example()
    block.target[:] = block.target > 1
    theta = RNG.normal(size=4)
    logistic = LinearModel(Logistic(), MAP).user_losses(block, np.sqrt(2) * theta)
    np.testing.assert_allclose(SoftmaxModel(2, MAP).user_losses(block, theta), logistic, rtol=1e-12)


def test_contrasts_are_orthonormal_and_sum_to_zero():
    for classes in range(2, 8):
        basis = contrasts(classes)
        np.testing.assert_allclose(basis.T @ basis, np.eye(classes - 1), atol=1e-14)
        np.testing.assert_allclose(basis.sum(axis=0), 0.0, atol=1e-14)


def test_curvature_of_softmax_is_the_mean_over_directions():
    block, model = example(), SoftmaxModel(4, MAP)
    theta, step = RNG.normal(size=model.dimension), 1e-5
    own = block.users(0, 1)
    rows, weights = model.curved_rows(own, theta)
    expected = rows.T @ (weights[:, None] * rows) / own.n_rows
    found = np.zeros((4, 4))
    for i in range(model.dimension):
        move = step * np.eye(model.dimension)[i]
        change = (model.user_gradients(own, theta + move) - model.user_gradients(own, theta - move))[0] / (2 * step)
        copy, column = divmod(i, 4)
        found[:, column] += change.reshape(3, 4)[copy] / 3
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_weights_are_numbers_of_rows():
    block, plain = example(), LinearModel(Logistic(), MAP)
    theta, counts = RNG.normal(size=4), np.diff(block.offsets)
    weighted = RowWeighted(plain, 2.0).user_gradients(block, theta)
    np.testing.assert_allclose(weighted, plain.user_gradients(block, theta) * counts[:, None] / 2, rtol=1e-14)
    _, curvature = CurvedRowWeighted(plain, 2.0).curved_rows(block, theta)
    np.testing.assert_allclose(curvature, plain.curved_rows(block, theta)[1] * np.repeat(counts, counts) / 2)


SPARSE = MODELS | {
    "linear": LinearModel(Logistic(), MAP, SHEAR),
    "mean": VectorModel(1.0, 1.0, PLAIN),
    "general": GeneralModel(SoftWorst(), PLAIN),
}


@pytest.mark.parametrize("model", SPARSE.values(), ids=SPARSE.keys())
def test_sparse_rows_give_the_same_numbers(model):
    features = np.where(RNG.random((60, 3)) < 0.4, 10 * RNG.normal(size=(60, 3)), 0.0)
    y, users = RNG.integers(0, 2, 60), RNG.integers(0, 7, 60)
    dense, sparse = (
        UserDataset.from_arrays(X, y, users).blocks[0] for X in (features, scipy.sparse.csr_array(features))
    )
    theta = RNG.normal(size=model.dimension)
    np.testing.assert_allclose(model.user_losses(sparse, theta), model.user_losses(dense, theta), rtol=1e-12)
    gradients = model.user_gradients(sparse, theta)
    np.testing.assert_allclose(gradients, model.user_gradients(dense, theta), rtol=1e-11, atol=1e-13)
    for k in range(sparse.n_users):
        assert model.user_gradients(sparse.users(k, k + 1), theta)[0].tobytes() == gradients[k].tobytes()
