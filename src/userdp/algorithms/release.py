"""What a fit publishes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from userdp.accounting import GaussianEvent, Guarantee
from userdp.losses.base import Floats


@dataclass(frozen=True, eq=False)
class LinearRelease:
    """A private linear model and all that may be published with it.

    ``coef`` and ``intercept`` act on the features as they came. ``noise_covariance`` is the covariance of the privacy noise
    in (coef, intercept): public, because the plan and the releases determine it; it says nothing about sampling error.
    ``details`` holds the other released values (locations, scales, caps) by name.
    """

    coef: Floats
    intercept: float
    guarantee: Guarantee
    events: tuple[GaussianEvent, ...]
    noise_covariance: Floats
    plan: str
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def noise_error(self) -> Floats:
        """Standard error of the privacy noise on each coefficient, the intercept last."""
        return np.sqrt(np.diag(self.noise_covariance))
