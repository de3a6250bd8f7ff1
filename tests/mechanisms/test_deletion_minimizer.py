"""The minimizers that the deletion test compares: every subset's is as exact as the release pays for."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from userdp.accounting.deletion import Constants
from userdp.data import UserDataset
from userdp.losses import FeatureMap, LinearModel, Logistic
from userdp.losses.base import Floats
from userdp.losses.vector import LinearPart, VectorModel
from userdp.mechanisms.deletion import DeletionPlan, plan_deletion
from userdp.mechanisms.deletion_minimizer import _join, _OneBlock, deletion_minimizer, reachable
from userdp.mechanisms.noise import noise_from
from userdp.solvers.constrained import SetObjective, minimize_on_set
from userdp.solvers.sets import Ball, Box, ConvexSet, WholeSpace, Within

D = 3
DOMAINS: dict[str, ConvexSet] = {
    "space": WholeSpace(),
    "ball": Ball(np.full(D, 5.0), 0.4),
    "box": Box(np.full(D, -0.2), np.full(D, 0.3)),
    "ball in ball": Within(Ball(np.zeros(D), 1.0), Ball(np.array([1.0, 0.0, 0.0]), 0.01)),
}


def rows(seed: int, n: int, scale: float) -> UserDataset:
    generator = np.random.default_rng(seed)
    features = scale * generator.standard_normal((4 * n, D)) * generator.choice([1e-6, 1.0, 1.0, 1e3], size=(4 * n, 1))
    target = (generator.random(4 * n) < 0.5).astype(float)
    return UserDataset.from_arrays(features, target, np.repeat(np.arange(n), 4))


@pytest.mark.parametrize("name", DOMAINS)
@pytest.mark.parametrize("strength", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("scale", [1e-3, 10.0])
def test_the_reachable_distance_is_reached(name: str, strength: float, scale: float) -> None:
    """Separable, badly scaled, clamped rows, one user or many, a binding set: the solver ends at the public one."""
    model, center = LinearModel(Logistic(), FeatureMap.identity(D, bound=20.0)), np.full(D, 0.1)
    for seed, n in itertools.product(range(2), (1, 40)):
        (block,) = rows(seed, n, scale).blocks
        wanted = reachable(model, strength, center, DOMAINS[name], n)
        objective = SetObjective(_OneBlock(block), model, math.inf, strength, center, n, DOMAINS[name])
        assert minimize_on_set(objective, wanted).distance <= wanted


def release(plan: DeletionPlan, data: UserDataset, domain: ConvexSet) -> tuple[DeletionPlan, bool, Floats | None]:
    part, center = LinearPart(VectorModel.mean(D, zeta=0.5, bound=1.0), np.zeros(D)), np.zeros(D)
    found = deletion_minimizer(data, part, 1.0, center, domain, center, plan, noise_from(0), True, False)
    return found.plan, found.diagnostics.certified, found.value


def test_an_inexactness_below_rounding_is_raised_and_paid_for() -> None:
    """α = 1e-18 cannot be proved in floating point: the threshold and the noise grow to what can."""
    data = UserDataset.from_arrays(np.random.default_rng(0).uniform(-0.1, 0.1, (12, D)))
    plan = plan_deletion(12, 60.0, 0.1, 0.5, constants="tight", inexactness=1e-18)
    paid, certified, _ = release(plan, data, Ball(np.zeros(D), 0.05))
    assert certified
    part = LinearPart(VectorModel.mean(D, bound=1.0), np.zeros(D))
    floor = 4 * reachable(part, 1.0, np.zeros(D), Ball(np.zeros(D), 0.05), 12)
    assert paid.inexactness == floor > 1e-18
    assert paid.threshold == plan.target + 2 * floor
    assert paid.sigma == pytest.approx(plan.sigma * paid.threshold / plan.threshold)


@pytest.mark.parametrize("constants", ["tight", "exact"])
@pytest.mark.parametrize("radius", [0.02, 1.0])
def test_a_certificate_holds_for_every_subset_as_computed(constants: Constants, radius: float) -> None:
    """Where the search is skipped, all steps of the *computed* minimizers are within Δ + 2α, the set binding or not.

    The exact minimizer of a subset is the projection of its mean, so each subset's own error is known as well.
    """
    n, domain = 10, Ball(np.zeros(D), radius)
    data = UserDataset.from_arrays(0.3 + 0.01 * np.random.default_rng(3).uniform(-1, 1, (n, D)))
    plan = plan_deletion(n, 60.0, 0.1, 0.5, constants=constants, inexactness=1e-4)
    paid, certified, _ = release(plan, data, domain)
    assert certified
    users = [user for block in data.blocks for user in block.chunks(1, 1)]
    part = LinearPart(VectorModel.mean(D, zeta=0.5, bound=1.0), np.zeros(D))
    values: dict[tuple[int, ...], Floats] = {}
    for size in range(n - paid.radius - 1, n + 1):
        for kept in itertools.combinations(range(n), size):
            block = _join(tuple(users[i] for i in kept))
            objective = SetObjective(_OneBlock(block), part, math.inf, 1.0, np.zeros(D), len(kept), domain)
            values[kept] = minimize_on_set(objective, paid.inexactness / 4).theta
            exact = domain.project(data.blocks[0].features[list(kept)].mean(axis=0))
            assert np.linalg.norm(values[kept] - exact) <= paid.inexactness / 4
    for kept, value in values.items():
        for rest in (tuple(k for k in kept if k != i) for i in kept):
            assert rest not in values or np.linalg.norm(value - values[rest]) <= paid.threshold
