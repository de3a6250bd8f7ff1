"""The Gaussian release: every private number of the library leaves through this function or through Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from userdp.accounting import Adjacency, Budget, sum_sensitivity
from userdp.mechanisms.noise import Floats, Noise

# Values are rounded to the noise's grid, which moves neighbours apart by a hair (docs/proofs/gaussian.md, Theorem 2).
GRID_MARGIN = 1 + 2.0**-40


@dataclass(frozen=True)
class Channel:
    """Where releases go out: what pays for them and what hides them."""

    budget: Budget
    noise: Noise

    def release(self, values: Floats, sensitivity: float, gdp: float, label: str) -> Floats:
        """``values`` + N(0, (sensitivity/gdp)² I), charged before the noise is drawn.

        **Formal guarantee** (docs/proofs/gaussian.md). If the L2-distance of ``values`` between neighbouring datasets
        is at most ``sensitivity``, the release is ``gdp``-GDP up to the grid's share of δ that ``Budget`` set aside.
        """
        if not np.all(np.isfinite(values)):  # sensitivity means nothing then; models and solvers see to it before
            raise FloatingPointError(f"{label} is not a finite number: not released")
        self.budget.charge(gdp, label, values.size)
        return self.noise.gaussian(values, sensitivity * GRID_MARGIN / gdp)


def mean_sensitivity(cap: float, n_users: int, adjacency: Adjacency, rounding: float) -> float:
    """L2-sensitivity of (1/n) Σ_k v_k as an engine computes it, for vectors shortened to ``cap``.

    The first inflation covers the rounding of the shortening, the second term the engine's error on both sides, for up
    to 2n users (docs/proofs/capped-release.md, Theorem 6).
    """
    return (sum_sensitivity(cap, adjacency) * (1 + 1e-9) + 8 * rounding * n_users * cap) / n_users
