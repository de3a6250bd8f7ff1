"""Coordinate-wise clipping: the textbook private mean.

Literal: clip every coordinate of every user's mean to a declared interval, average, add Gaussian noise. Derived:
nothing; the noise is the same on every coordinate after dividing by the width of its interval.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from userdp.baselines.release import BaselineRelease, open_channel, user_gradients
from userdp.data import UserDataset
from userdp.engines import LocalEngine
from userdp.losses.linear import FeatureMap
from userdp.losses.vector import VectorModel
from userdp.mechanisms.gaussian import mean_sensitivity


def coordinate_clipping(
    dataset: UserDataset,
    features: FeatureMap,
    *,
    epsilon: float,
    delta: float,
    bound: float,
    random_state: Any = None,
) -> BaselineRelease:
    """Mean over users of their mean rows, each coordinate clipped to ±``bound`` in mapped units.

    **Formal guarantee.** (ε, δ)-DP: a clipped mean row has L2-norm at most bound·√d, so replacing a user moves the
    mean by at most 2·bound·√d/n.
    """
    channel = open_channel(epsilon, delta, random_state)
    engine, n, d = LocalEngine(dataset), dataset.n_users, features.dimension
    points = -user_gradients(engine, VectorModel(1.0, 1.0, features), np.zeros(d))
    mean = np.clip(points, -bound, bound).mean(axis=0)
    sensitivity = mean_sensitivity(bound * float(np.sqrt(d)), n, "replace", engine.rounding)
    gdp = channel.budget.gdp * (1 - 1e-14)
    center = channel.release(mean, sensitivity, gdp, "mean")
    guarantee = channel.budget.guarantee(n, reproducible=channel.noise.reproducible)
    return BaselineRelease(center, guarantee, {"sigma": sensitivity / gdp})
