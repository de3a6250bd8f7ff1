"""A convex loss of one's own that is no function of a linear prediction, with kinks and without."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, softmax


class Worst:
    """ℓ(θ; x) = max_i |θ_i − x_i|."""

    lipschitz, smoothness = 1.0, math.inf

    def dimension(self, columns):
        return columns

    def value(self, points, rows, targets):
        return np.abs(points - rows).max(axis=1)

    def subgradient(self, points, rows, targets):
        gap = points - rows
        worst = np.abs(gap).argmax(axis=1)[:, None] == np.arange(gap.shape[1])
        return np.where(worst, np.sign(gap), 0.0)

    def minimum(self, rows, targets):
        return np.zeros(len(rows))


@dataclass(frozen=True)
class SoftWorst(Worst):
    """Its soft maximum of width w."""

    width: float = 0.05

    @property
    def smoothness(self):
        return 1 / self.width

    def value(self, points, rows, targets):
        gap = (points - rows) / self.width
        return self.width * logsumexp(np.hstack([gap, -gap]), axis=1)

    def subgradient(self, points, rows, targets):
        gap = (points - rows) / self.width
        above, below = np.hsplit(softmax(np.hstack([gap, -gap]), axis=1), 2)
        return above - below
