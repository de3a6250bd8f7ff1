"""Smoothed kinks: envelopes, derivatives, and the losses made of them."""

from __future__ import annotations

import numpy as np
import pytest

from userdp.losses.absolute import Absolute, Huber, Pinball
from userdp.losses.base import Loss
from userdp.losses.hinge import Hinge
from userdp.losses.kink import Kink

Z = np.linspace(-3, 3, 601)
LOSSES: dict[str, tuple[Loss, float]] = {
    "absolute": (Absolute(width=0.1), 0.4),
    "pinball": (Pinball(0.8, width=0.1), -0.3),
    "huber": (Huber(1.35), 0.2),
    "hinge, positive": (Hinge(width=0.1), 1.0),
    "hinge, negative": (Hinge(width=0.1), 0.0),
}


@pytest.mark.parametrize(("lower", "upper"), [(-1.0, 1.0), (0.0, 1.0), (-0.2, 0.8)])
def test_value_is_the_moreau_envelope(lower: float, upper: float) -> None:
    kink, grid = Kink(lower, upper, 0.3), np.linspace(-4, 4, 80_001)
    plain = np.maximum(lower * grid, upper * grid)
    for t in Z[::20]:
        envelope = float(np.min(plain + (t - grid) ** 2 / 0.6))
        assert float(kink.value(np.array([t]))[0]) == pytest.approx(envelope, abs=1e-7)
    gap = np.maximum(lower * Z, upper * Z) - kink.value(Z)
    assert np.all(gap >= -1e-15)
    assert np.all(gap <= kink.bias + 1e-15)


@pytest.mark.parametrize("name", LOSSES)
def test_derivatives_match_differences_and_constants(name: str) -> None:
    loss, y = LOSSES[name]
    target, step = np.full_like(Z, y), 1e-6
    numeric = (loss.value(Z + step, target) - loss.value(Z - step, target)) / (2 * step)
    slope = loss.derivative(Z, target)
    np.testing.assert_allclose(slope, numeric, atol=1e-4)
    assert np.max(np.abs(slope)) <= loss.lipschitz
    assert np.all(np.diff(slope) >= -1e-12), "convex"
    assert np.max(np.diff(slope) / np.diff(Z)) <= loss.smoothness * (1 + 1e-9)
    assert np.all(loss.value(Z, target) >= loss.minimum(target) - 1e-15)
    curvature = loss.curvature(Z, target)
    assert np.all((curvature == 0) | np.isclose(curvature, loss.smoothness))


def test_pinball_is_minimized_at_the_quantile() -> None:
    values = np.random.default_rng(0).exponential(size=4001)
    loss = Pinball(0.8, width=1e-3)
    risks = [float(loss.value(np.full_like(values, z), values).mean()) for z in np.linspace(1, 2.5, 301)]
    assert np.linspace(1, 2.5, 301)[int(np.argmin(risks))] == pytest.approx(np.quantile(values, 0.8), abs=0.02)


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="width must be positive"):
        Absolute(width=0.0)
    with pytest.raises(ValueError, match="quantile"):
        Pinball(1.0)
    with pytest.raises(ValueError, match="slopes"):
        Kink(0.5, 1.0, 1.0)
