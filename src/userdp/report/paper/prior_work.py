"""Earlier user-level methods on the instances of Table 1: one private mean of the users' gradients, one step.

Gradients of the linear and the mean problem do not depend on θ up to a common part, so gradient descent is as good as
its first aggregate: a step of length 1 ends at the private mean (mean problem), a long one at its direction (linear
loss). What each method has to be told, the spread of user means, it is told exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from userdp.baselines import asi_liu2024, levy2021, narayanan2022
from userdp.baselines.release import BaselineRelease
from userdp.report.paper import instances
from userdp.report.paper.instances import Instance

DELTA = 1e-6
# A step so long that only the direction of the mean matters on the unit ball.
LONG = 1e3

Method = Callable[[Instance, float, float, int], BaselineRelease]


class Refused(Exception):
    """The method's own plan refuses the size before it looks at data; the message is the plan's."""


def levy(found: Instance, spread: float, epsilon: float, seed: int) -> BaselineRelease:
    """τ is five standard deviations of a rotated coordinate: nobody is clipped."""
    width = 1 << max(found.problem.dimension - 1, 0).bit_length()
    return _one_step(
        levy2021, found, epsilon, seed, concentration=5 * spread / math.sqrt(width), bound=found.problem.lipschitz
    )


def narayanan(found: Instance, spread: float, epsilon: float, seed: int) -> BaselineRelease:
    """R is √d times the spread, about the smallest ball around one user's surroundings that holds others."""
    return _one_step(narayanan2022, found, epsilon, seed, radius=spread * math.sqrt(found.problem.dimension))


def asi_liu(found: Instance, spread: float, epsilon: float, seed: int) -> BaselineRelease:
    """τ is twice the spread; users are √2 times it apart."""
    return _one_step(asi_liu2024, found, epsilon, seed, concentration=2 * spread)


def convex(method: Method, *, population: bool = False) -> Callable[[int, int, int, float, float, int], float]:
    """Excess risk of a method on the linear problem."""

    def run(n: int, m: int, d: int, epsilon: float, signal: float, seed: int) -> float:
        found = instances.linear(np.random.default_rng(seed), n, m, d, signal)
        theta = method(found, 1 / math.sqrt(m), epsilon, 1000 + seed).theta
        return found.excess(found.problem.domain.project(LONG * theta), population=population)

    return run


def strongly_convex(method: Method) -> Callable[[int, int, int, float, float, int], float]:
    """Excess risk of a method on the mean problem."""

    def run(n: int, m: int, d: int, epsilon: float, signal: float, seed: int) -> float:
        found = instances.mean(np.random.default_rng(seed), n, m, d, signal)
        theta = method(found, 0.5 / math.sqrt(m), epsilon, 1000 + seed).theta
        return found.excess(found.problem.domain.project(theta), population=False)

    return run


def _one_step(baseline: Any, found: Instance, epsilon: float, seed: int, **told: float) -> BaselineRelease:
    try:
        result: BaselineRelease = baseline(
            found.data, found.problem.model, epsilon=epsilon, delta=DELTA, steps=1, random_state=seed, **told
        )
    except ValueError as error:
        raise Refused(str(error)) from error
    return result
