"""Calibration of the deletion test (Algorithm 1): κ, the budget split and the noise per unit of deletion sensitivity.

Algorithm 1 draws R ~ TDLap(ε₁, δ₁), looks for the smallest set S of at most R users whose deletion leaves a dataset
with deletion sensitivity at most Δ in a neighbourhood, and releases f there with Gaussian noise σ, or ⊥ if there is no
such S. On neighbouring datasets the sizes s, s' of the chosen sets differ by at most one and the released centres by at
most (s + s' + 2)Δ (replacement) or (s + s' + 1)Δ (add/remove). Three calibrations rest on these two facts:

* ``"literal"``: the constants printed in the paper, σ = 2√ln(2/δ̄)·8κΔ/ε̄ with ε̄ = ε/2, δ̄ = δ/(e^ε̄ + 2);
* ``"tight"``: the same proof with the sensitivity it gives, (4κ+1)Δ or 4κΔ, the analytic Gaussian condition and the
  best split ε₁ + ε₂ ≤ ε, 2 Pr[R = 0] + e^ε₁ δ₂ ≤ δ;
* ``"exact"``: the hockey-stick divergence of the mixture itself, maximized over (s, s'): large s is unlikely, so the
  large distances that come with it need less noise.

Proofs: docs/proofs/deletion.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtr

from userdp.accounting.budget import GRID_SHARE
from userdp.accounting.gdp import gdp_of
from userdp.accounting.guarantee import Adjacency, check_adjacency

Floats = NDArray[np.float64]
Constants = Literal["literal", "tight", "exact"]

# The deletion test compares rounded norms; sensitivities of the calibrated variants are inflated by this much.
ROUNDING = 1 + 1e-9
# e^ε must be an ordinary number.
LARGEST_EPSILON = 500.0


def half_width(epsilon: float, delta: float) -> int:
    """κ(ε, δ) = 1 + ⌈ln(1/δ)/ε⌉, the half-width of TDLap (Definition 3.4).

    >>> half_width(0.5, 1e-6)
    29
    """
    _check(epsilon, delta)
    return 1 + math.ceil(math.log(1 / delta) / epsilon)


@dataclass(frozen=True)
class DeletionCalibration:
    """Public parameters of Algorithm 1 per unit of target sensitivity; (ε, δ)-DP for every f and every dataset."""

    constants: Constants
    adjacency: Adjacency
    epsilon: float
    delta: float
    tail_epsilon: float
    tail_delta: float
    noise_multiplier: float

    @property
    def kappa(self) -> int:
        """κ(ε₁, δ₁)."""
        return half_width(self.tail_epsilon, self.tail_delta)

    @property
    def sensitivity(self) -> int:
        """Largest distance, in units of Δ, between the centres released on neighbours (as far as the proof charges it).

        The literal variant charges 8κ; the proof needs 4κ+1 (replacement) or 4κ (add/remove).
        """
        if self.constants == "literal":
            return 8 * self.kappa
        return 4 * self.kappa + (1 if self.adjacency == "replace" else 0)

    def radius(self, deleted: int) -> int:
        """How many further deletions must be harmless after ``deleted`` of them: 4κ − s, or 6κ − 2s for add/remove."""
        return 4 * self.kappa - deleted if self.adjacency == "replace" else 6 * self.kappa - 2 * deleted


@lru_cache(maxsize=256)
def calibrate_deletion(
    epsilon: float, delta: float, constants: Constants = "literal", adjacency: Adjacency = "replace"
) -> DeletionCalibration:
    """Noise and tail of Algorithm 1 at (ε, δ).

    Formal guarantee: Algorithm 1 with these parameters is (ε, δ)-DP under ``adjacency`` (docs/proofs/deletion.md,
    Theorems 1–4). Searches over splits only decide how much noise is needed, never whether the guarantee holds.

    >>> calibrate_deletion(1.0, 1e-6).kappa
    32
    >>> [round(calibrate_deletion(1.0, 1e-6, constants).noise_multiplier, -1) for constants in ("literal", "tight")]
    [4070.0, 950.0]
    """
    _check(epsilon, delta)
    check_adjacency(adjacency)
    if constants == "literal":
        return _literal(epsilon, delta, adjacency)
    if constants == "tight":
        return _tight(epsilon, delta, adjacency)
    if constants == "exact":
        return _exact(epsilon, delta, adjacency)
    raise ValueError(f"constants must be one of {', '.join(map(repr, get_args(Constants)))}, got {constants!r}")


def deletion_delta(epsilon: float, tail: Floats, noise_multiplier: float, adjacency: Adjacency = "replace") -> float:
    """Smallest δ that the facts of the module docstring imply at ε, for the law ``tail`` of R and σ/Δ given.

    With q_s = Pr[R ≥ s], this is the largest, over |s − s'| ≤ 1, of the hockey-stick divergence between "⊥ with
    probability 1 − q_s, else N(0, σ²)" and "⊥ with probability 1 − q_s', else N(D, σ²)", D = (s + s' + 2)Δ (or + 1):

        [(1 − q_s) − e^ε (1 − q_s')]₊ + q_s · δ_Gauss(ε + ln(q_s'/q_s); D/σ).

    The "majority" functions of tests/mechanisms/test_deletion_privacy.py attain it, so no smaller noise is private.
    """
    size = len(tail)
    reach = np.append(np.cumsum(tail[::-1])[::-1], 0.0)
    bottom = np.append(0.0, np.cumsum(tail))
    extra = 2 if adjacency == "replace" else 1
    worst = 0.0
    for shift in (-1, 0, 1):
        here = np.arange(max(0, -shift), min(size, size - shift) + 1)
        there = here + shift
        divergence = np.maximum(bottom[here] - math.exp(epsilon) * bottom[there], 0.0)
        divergence += np.where(there == size, reach[here], 0.0)
        both = (here < size) & (there < size)
        s, t = here[both], there[both]
        shifted = epsilon + np.log(reach[t] / reach[s])
        divergence[both] += reach[s] * _gaussian_delta(shifted, (s + t + extra) / noise_multiplier)
        worst = max(worst, float(divergence.max()))
    return worst


def _literal(epsilon: float, delta: float, adjacency: Adjacency) -> DeletionCalibration:
    half = epsilon / 2
    share = delta / (math.exp(half) + 2)
    multiplier = 2 * math.sqrt(math.log(2 / share)) * 8 * half_width(half, share) / half
    return DeletionCalibration("literal", adjacency, epsilon, delta, half, share, multiplier)


def _tight(epsilon: float, delta: float, adjacency: Adjacency) -> DeletionCalibration:
    budget = delta * (1 - GRID_SHARE)
    extra = 1 if adjacency == "replace" else 0

    def multiplier(tail_epsilon: float, kappa: int, _: float) -> float:
        end_mass = float(_tail(tail_epsilon, kappa)[0])
        gaussian_delta = (budget - 2 * end_mass * ROUNDING) * math.exp(-tail_epsilon)
        if tail_epsilon >= epsilon * (1 - 1e-6) or gaussian_delta <= 1e-6 * delta * math.exp(-tail_epsilon):
            return math.inf
        return (4 * kappa + extra) * ROUNDING / gdp_of(epsilon - tail_epsilon, gaussian_delta)

    tail_epsilon, kappa, best = _best_split(multiplier, epsilon, delta)
    return DeletionCalibration("tight", adjacency, epsilon, delta, tail_epsilon, _tail_delta(tail_epsilon, kappa), best)


def _exact(epsilon: float, delta: float, adjacency: Adjacency) -> DeletionCalibration:
    budget = delta * (1 - GRID_SHARE) * (1 - 1e-9)

    def least_noise(tail_epsilon: float, kappa: int, ceiling: float, accuracy: float) -> float:
        tail = _tail(tail_epsilon, kappa)
        if tail_epsilon >= epsilon * (1 - 1e-6) or deletion_delta(epsilon, tail, ceiling, adjacency) > budget:
            return math.inf
        low, high = 0.0, ceiling
        while high - low > accuracy * high:
            middle = (low + high) / 2
            private = deletion_delta(epsilon, tail, middle, adjacency) <= budget
            low, high = (low, middle) if private else (middle, high)
        return high

    def multiplier(tail_epsilon: float, kappa: int, best: float) -> float:
        ceiling = 0.9999 * best if math.isfinite(best) else 1e4 * (kappa + 1) / min(epsilon, 1.0)
        return least_noise(tail_epsilon, kappa, ceiling, 1e-3)

    tail_epsilon, kappa, best = _best_split(multiplier, epsilon, delta)
    noise = least_noise(tail_epsilon, kappa, best, 1e-9) * ROUNDING
    return DeletionCalibration(
        "exact", adjacency, epsilon, delta, tail_epsilon, _tail_delta(tail_epsilon, kappa), noise
    )


def _tail(tail_epsilon: float, kappa: int) -> Floats:
    """Probabilities of TDLap with the given ε₁ and κ, in floating point (relative error far below ROUNDING)."""
    weights = np.exp(-tail_epsilon * np.abs(np.arange(2 * kappa + 1) - kappa))
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _tail_delta(tail_epsilon: float, kappa: int) -> float:
    """The δ₁ for which κ(ε₁, δ₁) = κ: e^(−ε₁(κ−1)), a hair above so that the ceiling cannot round up."""
    return math.exp(-tail_epsilon * (kappa - 1)) * (1 + 1e-9)


def _best_split(
    multiplier: Callable[[float, int, float], float], epsilon: float, delta: float
) -> tuple[float, int, float]:
    """Minimize ``multiplier(ε₁, κ, best so far)``: a coarse grid over κ and the tail's share of δ, then a local search.

    The share v puts δ₁ = e^(−ε₁(κ−1)) = vδ.
    """
    best = (math.nan, 0, math.inf)

    def attempt(kappa: int, share: float) -> bool:
        nonlocal best
        tail_epsilon = -math.log(share * delta) / (kappa - 1)
        if tail_epsilon <= 0:
            return False
        value = multiplier(tail_epsilon, kappa, best[2])
        if value >= best[2]:
            return False
        best = (tail_epsilon, kappa, value)
        return True

    smallest = 1 + math.ceil(math.log(1 / delta) / epsilon)
    kappas = sorted({math.ceil(smallest * 1.12**power) for power in range(17)} | set(range(smallest, smallest + 4)))
    for kappa in kappas:
        for share in np.logspace(-3.0, 2.0, 26).tolist():
            attempt(kappa, share)
    if not best[1]:
        raise ValueError(
            f"no split of epsilon = {epsilon:g}, delta = {delta:g} makes the deletion test private; "
            "use constants='literal'"
        )
    step = 1.5
    while step > 1.01:
        share = math.exp(-best[0] * (best[1] - 1)) / delta
        jump = max(1, round(best[1] * (step - 1) / 4))
        moves = [(best[1] + dk, share * scale) for dk in (-jump, -1, 0, 1, jump) for scale in (1 / step, 1.0, step)]
        if not any(attempt(max(kappa, 2), trial) for kappa, trial in moves):
            step = math.sqrt(step)
    return best


def _gaussian_delta(epsilon: Floats, gdp: Floats) -> Floats:
    """``gdp.delta_of`` for arrays; ε may be negative."""
    near, far = epsilon / gdp - gdp / 2, epsilon / gdp + gdp / 2
    plain = ndtr(-near) - np.exp(epsilon + log_ndtr(-far))
    close = np.maximum(near, 0.0)
    mills = erfcx(close / math.sqrt(2)) - erfcx(np.maximum(far, 0.0) / math.sqrt(2))
    exact = np.where(near <= 0, plain, np.exp(-close * close / 2) / 2 * mills)
    return np.asarray(np.maximum(exact, 0.0), dtype=np.float64)


def _check(epsilon: float, delta: float) -> None:
    if not 0 < epsilon <= LARGEST_EPSILON:
        raise ValueError(f"epsilon must be positive and at most {LARGEST_EPSILON:g}, got {epsilon}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta}")
