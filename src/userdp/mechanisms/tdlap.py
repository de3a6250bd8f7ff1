"""Truncated discrete Laplace distribution TDLap(ε, δ): how many users the deletion test may drop.

Reference: "On User-Level Private Convex Optimization", Definition 3.4 (shifted truncated discrete Laplace). Proofs:
docs/proofs/deletion.md, section 1.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from userdp.accounting.deletion import half_width
from userdp.mechanisms.noise import Floats, Noise

# Weights are integers that start here; each step towards the middle is exact to one part in 2^WEIGHT_BITS.
WEIGHT_BITS = 128


@dataclass(frozen=True)
class TDLap:
    """Integer R on {0, …, 2κ} with Pr[R = x] ∝ e^(−ε|x − κ|), κ = 1 + ⌈ln(1/δ)/ε⌉.

    Formal guarantee, for the distribution actually sampled (integer weights, no floating point):

    * Pr[R = x] ≤ e^ε Pr[R = x ± 1] wherever both sides are in the support;
    * Pr[R = 0] = Pr[R = 2κ] ≤ δ.

    The weights differ from the formula by less than κ parts in 2^128, always in the direction that keeps both
    inequalities.

    >>> law = TDLap(epsilon=1.0, delta=1e-3)
    >>> law.kappa, len(law.pmf()), bool(law.pmf()[0] <= 1e-3)
    (8, 17, True)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        _ = half_width(self.epsilon, self.delta)

    @property
    def kappa(self) -> int:
        """Half-width κ(ε, δ) of the support."""
        return half_width(self.epsilon, self.delta)

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """Integer weights of 0, …, 2κ; probabilities are weight / sum(weights) exactly.

        From the tail inwards every weight is ⌊previous · q⌋ with a rational 1 ≤ q ≤ e^ε: ratios never exceed e^ε.
        """
        growth, unit = exp_below(Fraction(self.epsilon), WEIGHT_BITS), 1 << WEIGHT_BITS
        side = [unit]
        for _ in range(self.kappa):
            side.append(side[-1] * growth // unit)
        weights = (*side, *reversed(side[:-1]))
        if weights[0] > Fraction(self.delta) * sum(weights):  # docs/proofs/deletion.md, Lemma 1: cannot happen
            raise ArithmeticError(f"tail of TDLap({self.epsilon}, {self.delta}) is heavier than delta")
        return weights

    @cached_property
    def _cumulative(self) -> tuple[int, ...]:
        return tuple(itertools.accumulate(self.weights))

    def pmf(self) -> Floats:
        """Probabilities of 0, …, 2κ, each rounded once."""
        total = self._cumulative[-1]
        return np.array([weight / total for weight in self.weights])  # int / int is correctly rounded

    def sample(self, noise: Noise) -> int:
        """One exact draw: a uniform integer below the total weight, located among the cumulative weights."""
        return bisect_right(self._cumulative, noise.integer_below(self._cumulative[-1]))


def exp_below(exponent: Fraction, bits: int) -> int:
    """Integer q ≤ 2^bits · e^exponent, for exponent ≥ 0, short of it by at most one unit per term of the series.

    Every term of the exponential series is positive and rounded down, so the sum is a lower bound.

    >>> exp_below(Fraction(1), 20) / 2**20
    2.71827...
    """
    term = total = 1 << bits
    for k in itertools.count(1):
        term = term * exponent.numerator // (exponent.denominator * k)
        if term == 0:
            return total
        total += term
    raise AssertionError("unreachable")
