"""Where randomness comes from. Nothing outside this package draws any.

``SecureNoise`` is the default: OpenDP's exact discrete Gaussian on a grid 2^90 times finer than the noise, driven by
the operating system's randomness. ``SeededNoise`` is for tests and experiments; what it protects can be recomputed by
anyone who knows the seed, so its releases are marked ``reproducible``.
"""

from __future__ import annotations

import math
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features

Floats = NDArray[np.float64]

enable_features("contrib")

# Noise lives on multiples of 2^k with 2^k ≤ σ·2^-GRID_BITS (docs/proofs/gaussian.md).
GRID_BITS = 90
# Draws that are worth a thread of their own: about 10 µs each.
_LEAST_DRAWS = 16


class Noise(Protocol):
    """Source of randomness for mechanisms."""

    reproducible: bool

    def gaussian(self, values: Floats, scale: float) -> Floats:
        """``values`` plus independent Gaussian noise of standard deviation ``scale``."""

    def integer_below(self, bound: int) -> int:
        """Uniform integer in [0, bound)."""

    def permutation(self, size: int) -> NDArray[np.intp]:
        """Uniform permutation of range(size)."""


class SecureNoise:
    """Cryptographic randomness; floating-point safe Gaussian noise."""

    reproducible = False

    def gaussian(self, values: Floats, scale: float) -> Floats:
        """Add discrete Gaussian noise on a grid far below ``scale``; the sum is formed in exact arithmetic.

        Coordinates are independent, so long vectors are cut and all cores draw.
        """
        _check_scale(scale)
        flat = np.asarray(values, dtype=np.float64).ravel()
        first, *others = np.array_split(flat, min(os.cpu_count() or 1, max(flat.size // _LEAST_DRAWS, 1)))
        drawn = [_pool().submit(_noisy, part, scale) for part in others]
        return np.concatenate([_noisy(first, scale), *(part.result() for part in drawn)]).reshape(values.shape)

    def integer_below(self, bound: int) -> int:
        """Uniform integer in [0, bound)."""
        return secrets.randbelow(bound)

    def permutation(self, size: int) -> NDArray[np.intp]:
        """Fisher–Yates shuffle on the system's randomness."""
        order = list(range(size))
        secrets.SystemRandom().shuffle(order)
        return np.asarray(order, dtype=np.intp)


def _noisy(values: Floats, scale: float) -> Floats:
    if not values.size:
        return values
    grid = math.floor(math.log2(scale)) - GRID_BITS
    release = make_gaussian(*_space(values.size), scale=float(scale), k=grid)
    return np.asarray(release(values.tolist()), dtype=np.float64)


@lru_cache(maxsize=64)
def _space(size: int) -> Any:
    """Vectors of so many numbers, and their distance: phase after phase asks for the same."""
    return vector_domain(atom_domain(T=float, nan=False), size=size), l2_distance(T=float)


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    """Threads that draw besides the one that asks; a process that is forked starts its own."""
    return ThreadPoolExecutor(max((os.cpu_count() or 1) - 1, 1), "userdp-noise")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


class SeededNoise:
    """Reproducible randomness for tests and experiments: not private."""

    reproducible = True

    def __init__(self, seed: int | np.random.Generator | np.random.RandomState) -> None:
        if isinstance(seed, np.random.RandomState):
            seed = int(seed.randint(2**31 - 1))
        self.generator = np.random.default_rng(seed)

    def gaussian(self, values: Floats, scale: float) -> Floats:
        """Add continuous Gaussian noise."""
        _check_scale(scale)
        return np.asarray(values + scale * self.generator.standard_normal(np.shape(values)), dtype=np.float64)

    def integer_below(self, bound: int) -> int:
        """Uniform integer in [0, bound)."""
        return int(self.generator.integers(bound)) if bound < 2**63 else self._large_below(bound)

    def _large_below(self, bound: int) -> int:
        bits = bound.bit_length()
        while True:
            draw = int.from_bytes(self.generator.bytes((bits + 7) // 8), "big") >> (-bits % 8)
            if draw < bound:
                return draw

    def permutation(self, size: int) -> NDArray[np.intp]:
        """Uniform permutation of range(size)."""
        return self.generator.permutation(size).astype(np.intp)


def noise_from(random_state: int | np.random.Generator | np.random.RandomState | None) -> Noise:
    """Secure noise for None, seeded noise otherwise."""
    return SecureNoise() if random_state is None else SeededNoise(random_state)


def _check_scale(scale: float) -> None:
    if not 2.0**-900 <= scale <= 2.0**900:
        raise ValueError(f"noise scale must be a positive number of ordinary size, got {scale}")
