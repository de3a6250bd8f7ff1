"""Laplace noise, uniform numbers and the exponential mechanism, drawn from the library's source of randomness.

Comparison only: these work in floating point and are not hardened against attacks on its last bits; what the library
itself publishes goes through ``mechanisms.gaussian``.
"""

from __future__ import annotations

import math

import numpy as np

from userdp.losses.base import Floats
from userdp.mechanisms.noise import Noise


def uniform(noise: Noise) -> float:
    """Uniform in (0, 1), 53 bits."""
    return (noise.integer_below(2**53) + 0.5) / 2**53


def uniforms(noise: Noise, size: int) -> Floats:
    """Independent uniform numbers, from one seed of 128 bits."""
    return np.random.default_rng(noise.integer_below(2**128)).random(size)


def laplace(noise: Noise, scale: float) -> float:
    """One draw of density ∝ exp(−|x|/scale)."""
    u = uniform(noise) - 0.5
    return -scale * math.copysign(math.log1p(-2 * abs(u)), u)


def exponential_choice(noise: Noise, scores: Floats, epsilon: float, sensitivity: float = 1.0) -> int:
    """Index i with probability ∝ exp(ε·scores[i]/(2·sensitivity)).

    **Formal guarantee.** ε-DP when every score moves by at most ``sensitivity`` (McSherry, Talwar 2007), and
    ε²/8-zCDP (Cesar, Rogers 2021): log-probabilities range over an interval of length ε.
    """
    weights = np.exp(epsilon * (scores - scores.max()) / (2 * sensitivity))
    cumulative = np.cumsum(weights)
    return min(int(np.searchsorted(cumulative, uniform(noise) * cumulative[-1])), len(scores) - 1)
