"""Gradients in one reading of the rows: those of the declared loss, and the same bits whoever else is there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from userdp.data import UserBlock
from userdp.losses import Absolute, FeatureMap, Hinge, Huber, LinearModel, Logistic, Loss, Pinball, Squared
from userdp.losses.fused import slope_of

LOSSES = [Logistic(), Squared(), Huber(0.7), Pinball(0.8), Absolute(), Hinge()]
COUNTS = [0, 1, 3, 4, 5, 0, 20, 21, 700, 0]


def block(width: int, kind: type) -> UserBlock:
    rng = np.random.default_rng(width)
    offsets = np.concatenate([[0], np.cumsum(COUNTS)])
    features = rng.normal(2.0, 3.0, (offsets[-1], width)).astype(kind)
    features[::7] *= 1e30  # clamped
    return UserBlock(features, rng.normal(0.5, 1.0, offsets[-1]), offsets)


def mapped(width: int, *, intercept: bool = True) -> FeatureMap:
    rng = np.random.default_rng(1)
    return FeatureMap(rng.normal(size=width), rng.uniform(0.5, 2.0, width), 6.0, intercept, 0.1, 1.3)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 3, 50, 1500])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_the_gradient_is_that_of_the_loss(loss: Loss, width: int, kind: type) -> None:
    data, features = block(width, kind), mapped(width, intercept=width != 3)
    theta = np.random.default_rng(2).normal(size=features.dimension) / width
    rows = features.rows(data.features)
    slopes = loss.derivative(rows @ theta, features.targets(data.target))
    expected = [slopes[a:b] @ rows[a:b] / max(b - a, 1) for a, b in zip(data.offsets, data.offsets[1:])]
    assert slope_of(loss) is not None
    found = LinearModel(loss, features).user_gradients(data, theta)
    assert np.allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 7, 8, 31, 50, 64])
def test_a_user_has_the_same_bits_wherever_it_stands(width: int, kind: type) -> None:
    data, features = block(width, kind), mapped(width)
    geometry = np.random.default_rng(3).normal(size=(width + 1, width + 1))
    model, theta = LinearModel(Logistic(), features, geometry), np.linspace(-1, 1, width + 1)
    together = model.user_gradients(data, theta)
    for k in range(data.n_users):
        alone = data.users(k, k + 1)
        moved = replace(alone, features=np.concatenate([alone.features[:0], alone.features]).copy())
        assert np.array_equal(model.user_gradients(moved, theta)[0], together[k])


def test_the_chance_is_exact_to_the_last_digits() -> None:
    """With no features the slope is that of the intercept alone, 1/(1 + e^−θ) − y."""
    data = UserBlock(np.zeros((1, 1)), np.zeros(1), np.array([0, 1]))
    model = LinearModel(Logistic(), FeatureMap(np.zeros(1), np.ones(1)))
    points = np.concatenate([np.linspace(-700, 700, 4001), np.linspace(-1, 1, 4001), [-1e4, 1e4]])
    found = np.array([model.user_gradients(data, np.array([0.0, z]))[0, 1] for z in points])
    assert np.allclose(found, expit(np.clip(points, -700, 700)), rtol=4 * np.finfo(float).eps, atol=0.0)


@pytest.mark.parametrize("size", [1e300, np.finfo(float).max])
def test_rows_of_any_size_are_clamped(size: float) -> None:
    data = UserBlock(np.array([[size], [-size], [0.5]]), np.array([0.0, 1.0, 1.0]), np.array([0, 1, 2, 3]))
    features = FeatureMap(np.array([0.1]), np.array([0.5]), 64.0)
    found = LinearModel(Logistic(), features).user_gradients(data, np.array([0.01, 0.0]))
    expected = (expit(np.array([0.64, -0.64, 0.008])) - [0.0, 1.0, 1.0])[:, None] * [
        [64.0, 1.0],
        [-64.0, 1.0],
        [0.8, 1.0],
    ]
    assert np.allclose(found, expected, rtol=1e-14)


def test_a_loss_of_ones_own_goes_the_long_way() -> None:
    class Own(Squared):
        slope = None  # type: ignore[assignment]

    data, features = block(4, np.float64), mapped(4)
    theta = np.linspace(-1, 1, 5)
    found = LinearModel(Own(), features).user_gradients(data, theta)
    assert slope_of(Own()) is None
    assert np.allclose(found, LinearModel(Squared(), features).user_gradients(data, theta), rtol=1e-12, atol=1e-12)
