"""The schedule of linear phases: budgets that grow, one λ, steps as long as noise allows, a mean of the way.

The default fit and ``phased_erm(schedule="linear")`` share it. All of it is a function of public numbers and of earlier
releases; what it does with releases is post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from userdp.losses.base import Floats

Schedule = Literal["geometric", "linear"]
PHASES = 40
# Squared noise of a step over the squared distance to go: beyond this a loss is no longer like its tangents.
STEADY = 0.1


def growing_shares(phases: int) -> Floats:
    """Shares of μ²: proportional to √t, because later phases weigh more in the result.

    >>> growing_shares(4).round(3).tolist()
    [0.163, 0.23, 0.282, 0.325]
    """
    weights = np.sqrt(np.arange(1, phases + 1))
    return np.asarray(weights / weights.sum())


def step_length(noise: float) -> float:
    """How far to go towards a proposal with squared noise ``noise`` relative to the squared distance to go.

    All the way if there is little noise. Steps of length η spread the points by η/2 of the noise of a proposal.

    >>> step_length(0.01), step_length(1.0)
    (1.0, 0.1)
    """
    return min(1.0, STEADY / max(noise, 1e-300))


def way_weights(sigmas: Sequence[float]) -> Floats:
    """Weights of the points of a way, reached with noise of these sizes: precision, and more for later ones.

    A mean of points averages the noise of all steps behind them, whatever the curvature is (Polyak and Juditsky 1992).

    >>> way_weights([1.0, 1.0]).round(3).tolist()
    [0.414, 0.586]
    """
    weights = np.sqrt(np.arange(1.0, len(sigmas) + 1)) / np.square(sigmas)
    return np.asarray(weights / weights.sum())
