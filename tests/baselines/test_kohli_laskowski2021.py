"""The ancestor of Algorithm 1: its noise and its worst neighbours."""

from __future__ import annotations

import math

import numpy as np
import pytest

from userdp.baselines import kohli_laskowski2021
from userdp.baselines.sampling import laplace
from userdp.mechanisms.deletion import SearchTooLarge
from userdp.mechanisms.deletion_search import deletion_steps, smallest_stable
from userdp.mechanisms.noise import SeededNoise
from userdp.mechanisms.tdlap import TDLap

BUDGET = {"epsilon": 12.0, "delta": 0.1}


def test_a_stable_function_is_released_with_the_stated_noise():
    """The second draw of the source is Laplace noise of scale (4κ+1)Δ/(ε/2), whose law test_means.py checks."""
    release = kohli_laskowski2021(np.mean, [0.25] * 10, **BUDGET, target=0.1, random_state=SeededNoise(5))
    law, noise = TDLap(6.0, 0.05), SeededNoise(5)
    law.sample(noise)
    scale = (4 * law.kappa + 1) * 0.1 / 6.0
    assert release.details["scale"] == pytest.approx(scale)
    assert release.theta[0] == pytest.approx(0.25 + laplace(noise, scale))


def test_worst_neighbour_of_the_released_centre():
    """Sizes differ by at most 1 and centres by at most (4κ+1)Δ, over random neighbours with jumps in f."""
    rng = np.random.default_rng(0)
    kappa, target = TDLap(6.0, 0.05).kappa, 0.5

    def centre(users):
        steps = deletion_steps(lambda rest: np.array([np.median(rest)]), users, 4 * kappa)
        deleted = smallest_stable(steps, len(users), target, lambda size: 4 * kappa - size, 2 * kappa)
        if deleted is None:
            return None
        rest = [user for i, user in enumerate(users) if i not in set(deleted)]
        return len(deleted), float(np.median(rest))

    answered = 0
    for _ in range(8):
        users = list(rng.choice([0.0, 0.3, 0.6, 5.0], size=10, p=[0.4, 0.3, 0.25, 0.05]))
        one, two = centre(tuple(users)), centre((*users[:-1], 100.0))
        if one is not None and two is not None:
            answered += 1
            assert abs(one[0] - two[0]) <= 1
            assert abs(one[1] - two[1]) <= (4 * kappa + 1) * target
    assert answered > 0


def test_an_unstable_function_gives_no_answer():
    release = kohli_laskowski2021(lambda rest: float(len(rest)), [0.0] * 10, **BUDGET, target=0.1, random_state=0)
    assert math.isnan(release.theta[0])


def test_refusals_come_before_data():
    with pytest.raises(ValueError, match="too few"):
        kohli_laskowski2021(np.mean, [0.0] * 5, **BUDGET, target=1.0)
    with pytest.raises(SearchTooLarge):
        kohli_laskowski2021(np.mean, [0.0] * 200, epsilon=1.0, delta=1e-6, target=1.0)
