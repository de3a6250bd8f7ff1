"""Every pointwise loss keeps the promises of the protocol: one suite for all of them."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from userdp.losses import Logistic, Loss, Squared

LOSSES: dict[str, Loss] = {"logistic": Logistic(), "squared": Squared()}
TARGETS = {"logistic": np.array([0.0, 0.25, 1.0, -20.0, 1e4]), "squared": np.array([-3.0, 0.0, 2.5])}
PREDICTIONS = np.concatenate([np.linspace(-40, 40, 161), [-750.0, -1e-9, 0.0, 1e-9, 750.0]])


@pytest.fixture(params=list(LOSSES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def grid(name: str) -> tuple[Loss, np.ndarray, np.ndarray]:
    predictions, targets = (part.ravel() for part in np.meshgrid(PREDICTIONS, TARGETS[name]))
    return LOSSES[name], predictions, targets


def test_derivative_is_the_slope(name: str) -> None:
    loss, z, y = grid(name)
    step = 1e-5
    slope = (loss.value(z + step, y) - loss.value(z - step, y)) / (2 * step)
    assert np.allclose(loss.derivative(z, y), slope, rtol=1e-6, atol=1e-7)


def test_curvature_is_the_slope_of_the_derivative(name: str) -> None:
    loss, z, y = grid(name)
    step = 1e-5
    slope = (loss.derivative(z + step, y) - loss.derivative(z - step, y)) / (2 * step)
    assert np.allclose(loss.curvature(z, y), slope, rtol=1e-6, atol=1e-8)


def test_convex(name: str) -> None:
    loss, z, y = grid(name)
    other = np.roll(z, 7)
    assert np.all(loss.curvature(z, y) >= 0)
    tangent = loss.value(z, y) + loss.derivative(z, y) * (other - z)
    assert np.all(loss.value(other, y) >= tangent - 1e-12 * (1 + np.abs(tangent)))


def test_declared_constants_hold(name: str) -> None:
    loss, z, y = grid(name)
    assert np.all(np.abs(loss.derivative(z, y)) <= loss.lipschitz)
    assert np.all(loss.curvature(z, y) <= loss.smoothness)
    assert loss.curvature(np.zeros(1), np.zeros(1))[0] == loss.smoothness, "and are tight"


def test_minimum_is_a_lower_bound_that_is_approached(name: str) -> None:
    loss, z, y = grid(name)
    assert np.all(loss.value(z, y) >= loss.minimum(y))
    for target in TARGETS[name]:
        here = y == target
        if 0 < target < 1:
            continue  # soft labels have positive entropy
        best = loss.value(np.append(z[here], target), np.full(here.sum() + 1, target)).min()
        assert best == pytest.approx(float(loss.minimum(np.array([target]))[0]), abs=1e-12)


def test_extreme_predictions_stay_finite(name: str) -> None:
    loss = LOSSES[name]
    z = np.array([-1e100, 1e100, -1e4, 1e4])
    for y in TARGETS[name]:
        for function in (loss.value, loss.derivative, loss.curvature):
            assert np.all(np.isfinite(function(z, np.full(4, y))))


def test_logistic_is_the_likelihood_to_many_digits() -> None:
    for z in (-30.0, -1.5, 0.3, 25.0):
        for y in (0.0, 1.0):
            with mpmath.workdps(50):
                p = 1 / (1 + mpmath.exp(-mpmath.mpf(z)))
                expected = float(-mpmath.log(p) if y else -mpmath.log(1 - p))
            assert Logistic().value(np.array([z]), np.array([y]))[0] == pytest.approx(expected, rel=1e-13, abs=1e-14)


def test_squared_has_no_lipschitz_constant() -> None:
    assert Squared().lipschitz == math.inf
