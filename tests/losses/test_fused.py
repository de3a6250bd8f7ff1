"""Gradients of phases: those of the declared loss in the rows' precision, the same bits whoever else is there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from userdp.data import UserBlock
from userdp.losses import Absolute, FeatureMap, Hinge, Huber, LinearModel, Logistic, Loss, Pinball, Squared
from userdp.losses.base import Floats, phase_gradients
from userdp.losses.fused import slope_of
from userdp.losses.weighted import RowWeighted

LOSSES = [Logistic(), Squared(), Huber(0.7), Pinball(0.8), Absolute(), Hinge()]
COUNTS = [0, 1, 3, 4, 5, 0, 20, 21, 64, 65, 700, 0]
KINDS = pytest.mark.parametrize("kind", [np.float32, np.float64])
SINGLE = 2.0**-24  # what rounding to float32 may change, relatively


def block(width: int, kind: type) -> UserBlock:
    rng = np.random.default_rng(width)
    offsets = np.concatenate([[0], np.cumsum(COUNTS)])
    features = rng.normal(2.0, 3.0, (offsets[-1], width)).astype(kind)
    features[::7] *= 1e30  # clamped
    return UserBlock(features, rng.normal(0.5, 1.0, offsets[-1]), offsets)


def mapped(width: int, *, intercept: bool = True) -> FeatureMap:
    rng = np.random.default_rng(1)
    return FeatureMap(rng.normal(size=width), rng.uniform(0.5, 2.0, width), 6.0, intercept, 0.1, 1.3)


def plain(loss: Loss, features: FeatureMap, data: UserBlock, theta: Floats) -> Floats:
    """The formula, row after row."""
    rows = features.rows(data.features)
    slopes = loss.derivative(rows @ theta, features.targets(data.target))
    return np.array([slopes[a:b] @ rows[a:b] / max(b - a, 1) for a, b in zip(data.offsets, data.offsets[1:])])


@KINDS
@pytest.mark.parametrize("width", [1, 3, 15, 16, 40, 50, 64, 300, 1500])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_the_gradient_is_that_of_the_loss(loss: Loss, width: int, kind: type) -> None:
    data, features = block(width, kind), mapped(width, intercept=width != 3)
    theta = np.random.default_rng(2).normal(size=features.dimension) / width
    expected, model = plain(loss, features, data, theta), LinearModel(loss, features)
    assert slope_of(loss) is not None
    assert np.allclose(model.user_gradients(data, theta), expected, rtol=1e-9, atol=1e-11)
    found = model.phase(theta)(data)
    if kind is np.float64:
        assert np.allclose(found, expected, rtol=1e-9, atol=1e-11)
    steepness = min(loss.smoothness, 1e4)  # a rounded prediction moves the slope of a steep loss further
    assert np.abs(found - expected).max() <= 16 * SINGLE * (1 + steepness) * 6 * np.sqrt(width)


@KINDS
@pytest.mark.parametrize("width", [1, 7, 15, 16, 31, 40, 50, 64, 130, 200, 400])
def test_a_user_has_the_same_bits_wherever_it_stands(width: int, kind: type) -> None:
    data, features = block(width, kind), mapped(width)
    geometry = np.random.default_rng(3).normal(size=(width + 1, width + 1))
    model, theta = LinearModel(Logistic(), features, geometry), np.linspace(-1, 1, width + 1)
    phase = model.phase(theta)
    together, exact = phase(data), model.user_gradients(data, theta)
    for k in range(data.n_users):
        alone = data.users(k, k + 1)
        memory = np.empty(alone.features.size + 3, kind)  # another place in memory, differently aligned
        memory[3:] = alone.features.ravel()
        moved = replace(alone, features=memory[3:].reshape(alone.features.shape))
        assert phase(moved)[0].tobytes() == together[k].tobytes()
        assert np.array_equal(model.user_gradients(moved, theta)[0], exact[k])


@pytest.mark.parametrize(("kind", "far"), [(np.float32, 87), (np.float64, 700)])
def test_the_chance_is_exact_to_the_last_digits(kind: type, far: int) -> None:
    """With no features the slope is that of the intercept alone, 1/(1 + e^−θ) − y."""
    data = UserBlock(np.zeros((1, 1), kind), np.zeros(1), np.array([0, 1]))
    model = LinearModel(Logistic(), FeatureMap(np.zeros(1), np.ones(1)))
    points = np.concatenate([np.linspace(-far, far, 4001), np.linspace(-1, 1, 4001), [-1e4, 1e4]])
    found = np.array([model.phase(np.array([0.0, z]))(data)[0, 1] for z in points])
    expected = expit(np.clip(points, -far, far).astype(kind).astype(np.float64))
    assert np.allclose(found, expected, rtol=4 * np.finfo(kind).eps, atol=0.0)


@KINDS
@pytest.mark.parametrize("size", [1e30, 1e300, np.finfo(float).max])
def test_rows_of_any_size_are_clamped(size: float, kind: type) -> None:
    rows = np.clip([[size], [-size], [0.5]], -np.finfo(kind).max, np.finfo(kind).max).astype(kind)
    data = UserBlock(rows, np.array([0.0, 1.0, 1.0]), np.array([0, 1, 2, 3]))
    model = LinearModel(Logistic(), FeatureMap(np.array([0.1]), np.array([0.5]), 64.0))
    theta = np.array([0.01, 0.0])
    expected = (expit(np.array([0.64, -0.64, 0.008])) - [0.0, 1.0, 1.0])[:, None] * [
        [64.0, 1.0],
        [-64.0, 1.0],
        [0.8, 1.0],
    ]
    assert np.allclose(model.user_gradients(data, theta), expected, rtol=1e-14)
    assert np.allclose(model.phase(theta)(data), expected, rtol=1e-14 if kind is np.float64 else 8 * SINGLE)


@KINDS
@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e-35, 1.0, 1e35, 1e300])
@pytest.mark.parametrize("center", [0.0, -3e38, 1e300])
@pytest.mark.parametrize("theta", [0.0, 1.0, 1e30, -1e300])
@pytest.mark.parametrize("loss", [Logistic(), Squared(), Hinge()], ids=lambda loss: type(loss).__name__)
def test_nothing_overflows(loss: Loss, theta: float, center: float, scale: float, kind: type) -> None:
    largest = np.finfo(kind).max
    values = np.array([0.0, 1e-45, 1e-300, 1.0, 3e38, 1e300, largest]).clip(-largest, largest)
    rows = np.concatenate([values, -values]).astype(kind)[:, None].repeat(3, axis=1)
    data = UserBlock(rows, np.tile([1e308, -1e308], 7), np.array([0, 5, 14]))
    model = LinearModel(loss, FeatureMap(np.full(3, center), np.full(3, scale), 1e300, True, 1e308, 1e-320, 1e300))
    assert np.isfinite(model.phase(np.full(4, theta))(data)).all()


@KINDS
def test_columns_far_from_zero_keep_their_digits(kind: type) -> None:
    """10^6 spreads away: what float32 rows still hold of the difference is not lost on the way."""
    rng = np.random.default_rng(4)
    center, scale = np.array([2e6 + 0.123, -3e9]), np.array([2.0, 3e3])
    rows = (center + scale * rng.normal(size=(200, 2))).astype(kind)
    data = UserBlock(rows, rng.normal(size=200), np.array([0, 80, 200]))
    features, theta = FeatureMap(center, scale, 64.0), np.array([0.5, -0.3, 0.1])
    found = LinearModel(Squared(), features).phase(theta)(data)
    assert np.allclose(found, plain(Squared(), features, data, theta), rtol=0, atol=32 * SINGLE)


def test_a_bound_below_one_leaves_the_intercept_alone() -> None:
    data, theta = block(3, np.float64), np.array([0.5, -1.0, 0.2, 0.7])
    features = replace(mapped(3), bound=0.25)
    found = LinearModel(Squared(), features).phase(theta)(data)
    assert np.allclose(found, plain(Squared(), features, data, theta), atol=32 * SINGLE)


def test_users_weighted_by_rows_are_weighted_in_phases() -> None:
    data, theta = block(5, np.float32), np.linspace(-1, 1, 6)
    model = LinearModel(Logistic(), mapped(5))
    weighted = RowWeighted(model, 7.0)
    found = phase_gradients(weighted, theta)(data)
    assert np.array_equal(found, model.phase(theta)(data) * weighted.weights(data)[:, None])


def test_a_loss_of_ones_own_goes_the_long_way() -> None:
    class Own(Squared):
        slope = None  # type: ignore[assignment]

    data, features = block(4, np.float64), mapped(4)
    theta = np.linspace(-1, 1, 5)
    model = LinearModel(Own(), features)
    assert slope_of(Own()) is None
    assert np.array_equal(model.phase(theta)(data), model.user_gradients(data, theta))
    assert np.allclose(model.phase(theta)(data), plain(Squared(), features, data, theta), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_kink_narrower_than_float32_knows_harms_nobody(kind):
    """Its width is floored: a user whose slope were 0/0 would take its neighbours' gradients with it."""
    X = np.ones((6, 2), kind)
    block = UserBlock(X, np.ones(6), np.arange(7))
    for width in (1e-46, 1e-300):
        found = LinearModel(Absolute(width), FeatureMap.identity(2)).phase(np.full(2, 0.5))(block)
        assert np.all(np.isfinite(found))
