"""The instances on which Table 1 is measured.

Rates are statements about the worst instance, so convex losses come as a family with a free signal strength s: a
weak signal costs little because there is little to lose, a strong one because it is easily found. The measured risk
is the largest over a grid of s that is the same for all n, m and d. Strongly convex mean estimation is the same at
every s.

Rows of the linear and the mean problem have independent coordinates ±1/√d (times ½ for the mean) with mean s·u.
Their losses depend on a user's rows through the mean only, so a user is one row that holds the mean of m rows,
drawn from its exact law: a shifted binomial in every coordinate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from userdp.algorithms import Problem
from userdp.data import UserDataset
from userdp.losses import FeatureMap, LinearModel
from userdp.losses.absolute import Absolute
from userdp.losses.base import Floats
from userdp.losses.vector import VectorModel
from userdp.solvers.sets import Ball


@dataclass(frozen=True, eq=False)
class Instance:
    """Data of n users, the problem they pose, and the excess risks of a θ on the data and in the population."""

    data: UserDataset
    problem: Problem
    population_mean: Floats

    def excess(self, theta: Floats, *, population: bool) -> float:
        """Excess risk for the linear and the mean problem."""
        mean = self.population_mean if population else self.data.blocks[0].features.mean(axis=0)
        if self.problem.strong_convexity > 0:
            return 0.5 * self.problem.strong_convexity * float((theta - mean) @ (theta - mean))
        return float(np.linalg.norm(mean) - theta @ mean)


def linear(generator: np.random.Generator, n: int, m: int, d: int, signal: float) -> Instance:
    """ℓ(θ; x) = −⟨θ, x⟩ on the unit ball: R = G = 1, convex, the instance of the convex lower bound."""
    means, mean = _user_means(generator, n, m, d, signal, 1.0)
    problem = Problem(VectorModel.linear(d, bound=1.0), 1.0, Ball(np.zeros(d), 1.0))
    return Instance(UserDataset.from_arrays(means), problem, mean)


def mean(generator: np.random.Generator, n: int, m: int, d: int, signal: float) -> Instance:
    """ℓ(θ; x) = ½‖θ − x‖² on the ball of radius ½ with rows on its boundary: μ = G = 1."""
    means, centre = _user_means(generator, n, m, d, signal, 0.5)
    problem = Problem(VectorModel.mean(d, zeta=0.5, bound=1.0), 1.0, Ball(np.zeros(d), 0.5))
    return Instance(UserDataset.from_arrays(means), problem, centre)


def absolute(generator: np.random.Generator, n: int, m: int, d: int, signal: float) -> tuple[UserDataset, Problem]:
    """ℓ(θ; (x, y)) = |⟨x, θ⟩ − y| on the unit ball, ‖x‖ = 1: a share of rows fits y = ⟨x, θ*⟩ exactly, the rest has
    y = ±2 at random.

    The risk is a cone, about s·‖θ − θ*‖ + 2 with s = share·√(2/(πd)): nowhere smooth at its minimum. G = R = 1; the
    kink is smoothed over a hundredth of the spread of ⟨x, θ⟩.
    """
    rows = generator.standard_normal((n * m, d))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    optimum = generator.standard_normal(d)
    optimum *= 0.5 / np.linalg.norm(optimum)
    fits = generator.random(n * m) < min(signal * math.sqrt(math.pi * d / 2), 1.0)
    noise = generator.choice([-2.0, 2.0], size=n * m)
    target = np.where(fits, rows @ optimum, noise)
    data = UserDataset.from_arrays(rows, target, np.repeat(np.arange(n), m))
    model = LinearModel(Absolute(width=0.01 / math.sqrt(d)), FeatureMap.identity(d, bound=2.0))
    return data, Problem(model, 1.0, Ball(np.zeros(d), 1.0))


def _user_means(
    generator: np.random.Generator, n: int, m: int, d: int, signal: float, scale: float
) -> tuple[Floats, Floats]:
    direction = generator.standard_normal(d)
    mean = scale * signal * direction / np.linalg.norm(direction)
    edge = scale / math.sqrt(d)
    chance = np.clip((1 + mean / edge) / 2, 0.0, 1.0)
    counts = np.stack([generator.binomial(m, one, size=n) for one in chance], axis=1)
    return edge * (2 * counts / m - 1), edge * (2 * chance - 1)
