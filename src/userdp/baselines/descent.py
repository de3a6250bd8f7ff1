"""Gradient descent on any private mean of the users' gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from userdp.losses.base import Floats, UserModel


def private_descent(
    model: UserModel, mean: Callable[[Floats, int], Floats | None], *, steps: int, rate: float
) -> Floats:
    """θ ← θ − rate·mean(θ, t) from 0; the mean of the points of the last half.

    A ``mean`` of None (the aggregation refused, itself a release) ends the descent: what was reached is averaged.
    """
    theta = np.zeros(model.dimension)
    points = [theta]
    for t in range(steps):
        gradient = mean(theta, t)
        if gradient is None:
            break
        theta = theta - rate * gradient
        points.append(theta)
    return np.asarray(np.mean(points[1 + (len(points) - 1) // 2 :] or points, axis=0))
