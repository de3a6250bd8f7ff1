"""Group privacy: an item-level mechanism with ε divided by the number of rows a user may have. The naive way.

Literal: at most m rows of every user, an item-level mechanism at (ε/m, δ/(m e^ε)). Derived: the mechanism is Gaussian
output perturbation with rows as individuals; missing rows are empty slots, so that the normalizer nm is public.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from userdp.accounting import Guarantee
from userdp.baselines.release import BaselineRelease, source_of
from userdp.baselines.worst_case_output import worst_case_output
from userdp.data import UserBlock, UserDataset
from userdp.losses import LinearModel
from userdp.mechanisms.sampling import sample_rows


def group_privacy(
    dataset: UserDataset,
    model: LinearModel,
    *,
    epsilon: float,
    delta: float,
    max_rows: int,
    radius: float = 3.0,
    random_state: Any = None,
) -> BaselineRelease:
    """Output perturbation of (1/nm) Σ_rows φ + (λ/2)‖θ‖² at (ε/m, δ/(m e^ε)) for rows; users weigh as their rows.

    **Formal guarantee.** (ε, δ)-DP at user level: a user fills at most m of nm slots, so replacing it replaces at
    most m slots. Through m item-level steps of (ε₀, δ₀) a probability grows by at most e^(mε₀), plus Σ_{i<m} e^(iε₀)
    δ₀ ≤ m e^(mε₀) δ₀; with ε₀ = ε/m and δ₀ = δ/(m e^ε) that is (ε, δ).
    """
    item_epsilon, item_delta = item_budget(epsilon, delta, max_rows)
    noise = source_of(random_state)
    rows = as_individuals(sample_rows(dataset, max_rows, noise), dataset.n_users * max_rows)
    item = worst_case_output(rows, model, epsilon=item_epsilon, delta=item_delta, radius=radius, random_state=noise)
    guarantee = Guarantee(epsilon, delta, n_users=dataset.n_users, reproducible=noise.reproducible)
    return BaselineRelease(item.theta, guarantee, item.details | {"item_level": item.guarantee})


def item_budget(epsilon: float, delta: float, max_rows: int) -> tuple[float, float]:
    """(ε/m, δ/(m e^ε)).

    >>> item_budget(1.0, 1e-6, 1) == (1.0, 1e-6 / math.e)
    True
    """
    if max_rows < 1:
        raise ValueError(f"max_rows must be at least 1, got {max_rows}")
    return epsilon / max_rows, delta / (max_rows * math.exp(epsilon))


def as_individuals(dataset: UserDataset, slots: int) -> UserDataset:
    """Every row a user of its own, followed by users without rows up to ``slots``."""
    features, target, _ = dataset.arrays()
    offsets = np.minimum(np.arange(slots + 1, dtype=np.int64), len(target))
    return UserDataset((UserBlock(features, target, offsets),), tuple(range(slots)), dataset.columns)
