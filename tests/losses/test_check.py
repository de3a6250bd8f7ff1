"""``check_loss`` passes every loss of the library and catches every broken promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.losses.own import SoftWorst, Worst
from userdp.losses import Absolute, Hinge, Huber, Logistic, LossError, Pinball, Squared, check_loss
from userdp.losses.blur import blurred

LOSSES = [
    Logistic(),
    Squared(),
    Absolute(),
    Absolute(width=0.5),
    Huber(),
    Huber(0.1),
    Pinball(0.9),
    Pinball(0.01),
    Hinge(),
    Hinge(1.0),
]


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_every_loss_passes(loss):
    check_loss(loss)


class Broken(Squared):
    """Squared loss with one method replaced."""

    def __init__(self, **changes):
        super().__init__()
        for name, change in changes.items():
            object.__setattr__(self, name, change)


BROKEN = {
    "not convex": ({"value": lambda z, y: np.cos(z), "derivative": lambda z, y: -np.sin(z)}, "not convex"),
    "wrong derivative": ({"derivative": lambda z, y: 1.01 * (z - y)}, "derivative"),
    "wrong curvature": ({"curvature": lambda z, y: np.full_like(z, 0.9)}, "curvature is not the slope"),
    "negative curvature": ({"curvature": lambda z, y: np.full_like(z, -1.0)}, "curvature is negative"),
    "lipschitz": ({"lipschitz": 5.0}, r"\|derivative\| exceeds 5"),
    "smoothness": ({"smoothness": 0.5}, "exceeds smoothness 0.5"),
    "minimum": ({"minimum": lambda y: np.ones_like(y)}, "below the declared minimum"),
    "overflow": ({"value": lambda z, y: np.exp(z)}, "value is not finite"),
    "not vectorized": ({"value": lambda z, y: 1.0}, "must work on arrays"),
    "constant": ({"lipschitz": math.nan}, "lipschitz must be a positive number"),
}


@pytest.mark.parametrize(("changes", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_promises_are_caught(changes, message):
    with pytest.raises(LossError, match=message):
        check_loss(Broken(**changes))


def test_a_general_loss_passes():
    check_loss(Worst())
    for width in (1e-3, 0.05, 1.0):
        check_loss(SoftWorst(width), columns=2)


class Dents(Worst):
    """Not convex."""

    def value(self, points, rows, targets):
        return np.cos(points).sum(axis=1)

    def subgradient(self, points, rows, targets):
        return -np.sin(points)


GENERAL = {
    "not convex": (Dents, {"lipschitz": 2.0}, "not convex"),
    "wrong subgradient": (Worst, {"subgradient": lambda p, x, y: np.sign(p - x) / 2}, "does not fit"),
    "lipschitz": (Worst, {"lipschitz": 0.5}, "exceeds lipschitz 0.5"),
    "smoothness": (Worst, {"smoothness": 1e3}, "outruns smoothness"),
    "minimum": (Worst, {"minimum": lambda x, y: np.ones(len(x))}, "below the declared minimum"),
    "shape": (Worst, {"subgradient": lambda p, x, y: np.zeros(len(x))}, "subgradient must work on arrays"),
    "overflow": (Worst, {"value": lambda p, x, y: np.exp(1e4 * np.abs(p[:, 0]))}, "not finite"),
    "other rows": (Worst, {"value": lambda p, x, y: np.abs(p - x).max(axis=1) + len(x)}, "depends on other rows"),
    "constant": (Worst, {"lipschitz": 0.0}, "lipschitz must be a positive number"),
}


@pytest.mark.parametrize(("base", "changes", "message"), GENERAL.values(), ids=GENERAL.keys())
def test_broken_promises_of_a_general_loss_are_caught(base, changes, message):
    loss = base()
    vars(loss).update(changes)
    with pytest.raises(LossError, match=message):
        check_loss(loss)


def test_curvature_that_a_step_meets_is_that_of_reweighted_least_squares():
    loss = blurred(Absolute(width=1e-3), 0.05)
    z = np.linspace(-4, 4, 2001)
    ratio = loss.curvature(z, np.zeros_like(z)) * np.maximum(np.abs(z), 0.05)
    assert np.all(ratio <= 1 + 1e-12)
    assert np.all(ratio >= 0.7)
    assert np.all(loss.curvature(z, np.zeros_like(z)) <= loss.smoothness)
    assert blurred(Squared(), 0.05) == Squared()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Pinball(0.0), "quantile"),
        (lambda: Pinball(1.0), "quantile"),
        (lambda: Pinball(math.nan), "quantile"),
        (lambda: Huber(0.0), "threshold"),
        (lambda: Absolute(-1.0), "width"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()
