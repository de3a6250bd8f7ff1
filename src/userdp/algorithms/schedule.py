"""The schedule of linear phases: budgets that grow, one λ, and a mean of the proposals that forgets the early ones.

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
# How much of a proposal's weight in the final model is left one phase later.
FINAL_DECAY = 0.96


def growing_shares(phases: int) -> Floats:
    """Shares of μ²: proportional to √t, because later phases weigh more in the result.

    >>> growing_shares(4).round(3).tolist()
    [0.163, 0.23, 0.282, 0.325]
    """
    weights = np.sqrt(np.arange(1, phases + 1))
    return np.asarray(weights / weights.sum())


def decay_for(noise: float) -> float:
    """Decay for the next centre when a proposal has squared noise ``noise`` relative to the squared distance to go.

    Little noise: the last proposal counts alone, almost. Much noise: the mean of about the last 12.
    """
    keep = min(1.0, 0.25 / max(noise, 1e-300))
    return min(max((1 - keep) / (1 + keep), 0.4), 0.92)


def precision_mean(points: Sequence[Floats], sigmas: Sequence[float], decay: float) -> tuple[Floats, float]:
    """Mean of proposals, weighted by precision and decaying with age; and its noise variance.

    >>> point, variance = precision_mean([np.zeros(1), np.ones(1)], [1.0, 1.0], decay=1.0)
    >>> float(point[0]), variance
    (0.5, 0.5)
    """
    variance = np.square(sigmas)
    weights = decay ** np.arange(len(points))[::-1] / variance
    weights /= weights.sum()
    return np.asarray(weights @ np.array(points)), float(weights**2 @ variance)
