"""Does a loss keep the promises of the protocol? A numerical check for losses of one's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from userdp.losses.base import ConvexLoss, Floats, Loss

_STEPS = (1e-6, 1e-4, 1e-2, 1.0, 30.0)
_FAR = 1e4  # predictions of this size must not overflow
_SLACK = 1e-9


class LossError(ValueError):
    """A loss that breaks the protocol; the message says where."""


def check_loss(
    loss: Loss | ConvexLoss,
    targets: Sequence[float] = (-3.0, -0.5, 0.0, 0.3, 1.0, 2.0, 40.0),
    predictions: Sequence[float] | None = None,
    columns: int = 3,
) -> None:
    """Raise ``LossError`` unless φ is convex in z and its derivative, curvature, constants and minimum are what they
    claim; a ``ConvexLoss`` ℓ(θ; x, y) is checked likewise.

    ``targets`` are the values of y, ``predictions`` the values of z to try (by default a grid around 0 and around every
    target, and ±10⁴). ℓ is tried at seeded random points and rows of ``columns`` numbers, of sizes from 10⁻³ to 10².
    Differential privacy needs convexity and finite numbers; accuracy needs the rest.

    The tests are inequalities that every convex function satisfies, so kinks and jumps of the curvature pass:
    h·φ'(z) ≤ φ(z + h) − φ(z) ≤ h·φ'(z + h), and φ'' between the slopes of φ' on either side.

    >>> from userdp.losses import Absolute
    >>> check_loss(Absolute())
    """
    if hasattr(loss, "subgradient"):
        _check_general(cast(ConvexLoss, loss), targets, columns)
        return
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


def _check_general(loss: ConvexLoss, targets: Sequence[float], columns: int) -> None:
    _check_constants(loss)
    rng = np.random.default_rng(0)
    dimension = loss.dimension(columns)
    y = np.repeat(np.asarray(targets, dtype=np.float64), 60)
    theta, rows, step = (rng.normal(size=(len(y), size)) for size in (dimension, columns, dimension))
    theta, rows = theta * 10 ** rng.uniform(-3, 2, (len(y), 1)), rows * 10 ** rng.uniform(-3, 2, (len(y), 1))
    theta[: len(y) // 10, : min(dimension, columns)] = rows[: len(y) // 10, : min(dimension, columns)]
    step *= 10 ** rng.uniform(-6, 2, (len(y), 1)) / np.linalg.norm(step, axis=1, keepdims=True)
    value, slope = _evaluate_general(loss, theta, rows, y)
    after, end = _evaluate_general(loss, theta + step, rows, y)
    step = (theta + step) - theta
    length, steepest = np.linalg.norm(step, axis=1), np.linalg.norm(slope, axis=1)

    def require(shown: Floats, fine: np.ndarray, problem: str) -> None:
        if not np.all(fine):
            worst = int(np.argmin(fine))
            where = f"theta = {theta[worst].tolist()}, row {rows[worst].tolist()}, target {y[worst]:g}"
            raise LossError(f"{problem}: {shown[worst]:.6g} at {where}")

    reach = np.linalg.norm(theta, axis=1) + np.linalg.norm(rows, axis=1) + np.abs(y)
    bound = np.full(len(y), loss.lipschitz) if math.isfinite(loss.lipschitz) else loss.smoothness * reach
    require(steepest, steepest <= bound * (1 + _SLACK), f"‖subgradient‖ exceeds lipschitz {loss.lipschitz:g}")
    start, finish = np.einsum("ji,ji->j", slope, step), np.einsum("ji,ji->j", end, step)
    noise = 1e-12 * (np.abs(value) + np.abs(after) + length * (steepest + np.linalg.norm(end, axis=1))) + 1e-14
    rise = after - value
    require(rise, (rise >= start - noise) & (rise <= finish + noise), "the subgradient does not fit (or not convex)")
    if math.isfinite(loss.smoothness):
        turned = np.linalg.norm(end - slope, axis=1)
        rounding = 1e-12 * loss.smoothness * reach + 1e-9 * steepest
        require(turned, turned <= loss.smoothness * length * (1 + 1e-6) + rounding, "the gradient outruns smoothness")
    least = _shaped("minimum", loss.minimum(rows, y), y)
    require(value, value >= least - _SLACK * (1 + np.abs(value)), "value lies below the declared minimum")
    alone = _evaluate_general(loss, theta[::7], rows[::7], y[::7])
    same = np.isclose(alone[0], value[::7], rtol=1e-12) & np.isclose(alone[1], slope[::7], rtol=1e-12).all(axis=1)
    if not same.all():
        raise LossError("a row's value or subgradient depends on other rows")


def _evaluate_general(loss: ConvexLoss, theta: Floats, rows: Floats, y: Floats) -> tuple[Floats, Floats]:
    with np.errstate(all="ignore"):
        value = _shaped("value", loss.value(theta, rows, y), y)
        slope = _shaped("subgradient", loss.subgradient(theta, rows, y), theta)
    if not (np.isfinite(value).all() and np.isfinite(slope).all()):
        raise LossError("value or subgradient is not finite")
    return value, slope


def _check_constants(loss: Loss | ConvexLoss) -> None:
    for name in ("lipschitz", "smoothness"):
        constant = getattr(loss, name)
        if not constant > 0:
            raise LossError(f"{name} must be a positive number (inf if unbounded), got {constant}")


def _evaluate(loss: Loss, z: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    _check_constants(loss)
    with np.errstate(all="ignore"):
        results = [_shaped(name, getattr(loss, name)(z, y), z) for name in ("value", "derivative", "curvature")]
    for name, result in zip(("value", "derivative", "curvature"), results):
        _require(result, np.isfinite(result), z, y, f"{name} is not finite")
    return results[0], results[1], results[2]


def _shaped(name: str, result: Floats, like: Floats) -> Floats:
    if np.shape(result) != np.shape(like):
        raise LossError(f"{name} must work on arrays: got shape {np.shape(result)} for {np.shape(like)}")
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
