"""Does a loss keep the promises of the protocol? A numerical check for losses of one's own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from userdp.losses.base import Floats, Loss

_STEPS = (1e-6, 1e-4, 1e-2, 1.0, 30.0)
_FAR = 1e4  # predictions of this size must not overflow
_SLACK = 1e-9


class LossError(ValueError):
    """A loss that breaks the protocol; the message says where."""


def check_loss(
    loss: Loss,
    targets: Sequence[float] = (-3.0, -0.5, 0.0, 0.3, 1.0, 2.0, 40.0),
    predictions: Sequence[float] | None = None,
) -> None:
    """Raise ``LossError`` unless φ is convex in z and its derivative, curvature, constants and minimum are what they
    claim.

    ``targets`` are the values of y, ``predictions`` the values of z to try (by default a grid around 0 and around every
    target, and ±10⁴). Differential privacy needs φ to be convex and finite; accuracy needs the rest.

    The tests are inequalities that every convex function satisfies, so kinks and jumps of the curvature pass:
    h·φ'(z) ≤ φ(z + h) − φ(z) ≤ h·φ'(z + h), and φ'' between the slopes of φ' on either side.

    >>> from userdp.losses import Absolute
    >>> check_loss(Absolute())
    """
    y = np.asarray(targets, dtype=np.float64)
    if predictions is None:
        grid = np.concatenate([np.linspace(-8.0, 8.0, 129), np.array([-_FAR, -60.0, 60.0, _FAR])])
        pairs = [(z, t) for t in y for z in [*grid, *(t + grid[:129] / 8), *(t + grid[:129] / 4096)]]
    else:
        pairs = [(z, t) for t in y for z in np.asarray(predictions, dtype=np.float64)]
    z, t = (np.array(part) for part in zip(*pairs))
    value, slope, curvature = _evaluate(loss, z, t)
    _require(slope, np.abs(slope) <= loss.lipschitz * (1 + _SLACK), z, t, f"|derivative| exceeds {loss.lipschitz:g}")
    _require(curvature, curvature >= 0, z, t, "curvature is negative")
    _require(
        curvature,
        curvature <= loss.smoothness * (1 + _SLACK),
        z,
        t,
        f"curvature exceeds smoothness {loss.smoothness:g}",
    )
    for step in _STEPS:
        _check_increments(loss, z, t, value, slope, step)
    _check_curvature(loss, z, t, slope, curvature)
    least = _shaped("minimum", loss.minimum(t), t)
    _require(least, value >= least - _SLACK * (1 + np.abs(value)), z, t, "value lies below the declared minimum")


def _evaluate(loss: Loss, z: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    for name in ("lipschitz", "smoothness"):
        constant = getattr(loss, name)
        if not constant > 0:
            raise LossError(f"{name} must be a positive number (inf if unbounded), got {constant}")
    with np.errstate(all="ignore"):
        results = [_shaped(name, getattr(loss, name)(z, y), z) for name in ("value", "derivative", "curvature")]
    for name, result in zip(("value", "derivative", "curvature"), results):
        _require(result, np.isfinite(result), z, y, f"{name} is not finite")
    return results[0], results[1], results[2]


def _shaped(name: str, result: Floats, like: Floats) -> Floats:
    if np.shape(result) != np.shape(like):
        raise LossError(f"{name} must work on arrays: got shape {np.shape(result)} for {np.shape(like)} predictions")
    return np.asarray(result, dtype=np.float64)


def _check_increments(loss: Loss, z: Floats, y: Floats, value: Floats, slope: Floats, step: float) -> None:
    moved = z + step
    length = moved - z
    rise, end = loss.value(moved, y) - value, loss.derivative(moved, y)
    # Differences of large values lose digits: allow for what rounding takes.
    noise = 1e-12 * (np.abs(value) + np.abs(rise) + length * (np.abs(slope) + np.abs(end))) + 1e-14
    _require(slope, end >= slope - 1e-12 * (1 + np.abs(slope)), z, y, "not convex: the derivative decreases")
    _require(slope, rise >= length * slope - noise, z, y, "the derivative is too large for the values (or not convex)")
    _require(slope, rise <= length * end + noise, z, y, "the derivative is too small for the values (or not convex)")
    if math.isfinite(loss.smoothness):
        fits = end - slope <= loss.smoothness * length * (1 + 1e-6) + 1e-9 * (1 + np.abs(slope))
        _require(slope, fits, z, y, "the derivative grows faster than smoothness allows")


def _check_curvature(loss: Loss, z: Floats, y: Floats, slope: Floats, curvature: Floats) -> None:
    step = 1e-5
    left = (slope - loss.derivative(z - step, y)) / (z - (z - step))
    right = (loss.derivative(z + step, y) - slope) / ((z + step) - z)
    low, high = np.minimum(left, right), np.maximum(left, right)
    slack = 1e-3 * (1e-3 + high) + 1e-10 * np.abs(slope) / step
    inside = (curvature >= low - slack) & (curvature <= high + slack)
    _require(curvature, inside, z, y, "curvature is not the slope of the derivative")


def _require(shown: Floats, fine: np.ndarray, z: Floats, y: Floats, problem: str) -> None:
    if not np.all(fine):
        worst = int(np.argmin(fine))
        raise LossError(f"{problem}: {shown[worst]:.6g} at prediction {z[worst]:g}, target {y[worst]:g}")
