"""The certified minimizer on a set: its distance bound against a reference, its sign, its determinism."""

from __future__ import annotations

import math

import numpy as np
import pytest

from userdp.data import UserDataset
from userdp.engines import LocalEngine
from userdp.losses import FeatureMap, LinearModel, Logistic
from userdp.losses.absolute import Absolute
from userdp.losses.base import Loss
from userdp.losses.vector import LinearPart, VectorModel
from userdp.solvers.constrained import SetObjective, minimize_on_set
from userdp.solvers.sets import Ball, Box, ConvexSet, WholeSpace, Within

N, M, D = 30, 8, 3
DOMAINS: dict[str, ConvexSet] = {
    "space": WholeSpace(),
    "ball": Ball(np.zeros(D), 0.4),
    "box": Box(np.full(D, -0.2), np.full(D, 0.3)),
    "box in ball": Within(Box(np.full(D, -0.3), np.full(D, 0.3)), Ball(np.zeros(D), 0.35)),
}


def data(seed: int = 0) -> UserDataset:
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(N * M, D))
    target = (rows @ np.array([1.0, -2.0, 0.5]) > generator.logistic(size=N * M)).astype(float)
    return UserDataset.from_arrays(rows, target, np.repeat(np.arange(N), M))


def objective(loss: Loss, cap: float, strength: float, domain: ConvexSet, center: float = 0.0) -> SetObjective:
    model = LinearModel(loss, FeatureMap.identity(D, bound=10.0))
    return SetObjective(LocalEngine(data(), threads=1), model, cap, strength, np.full(D, center), N, domain)


@pytest.mark.parametrize("name", DOMAINS)
@pytest.mark.parametrize("cap", [math.inf, 0.3])
@pytest.mark.parametrize("strength", [0.05, 2.0])
def test_the_certified_distance_is_true(name: str, cap: float, strength: float) -> None:
    """A loose solution is within its certified distance of a tight one, and no point certifies less than its
    distance.
    """
    made = objective(Logistic(), cap, strength, DOMAINS[name])
    tight = minimize_on_set(made, 1e-6)
    assert tight.distance <= 1e-6
    feasible = made.feasible
    for point in np.random.default_rng(1).normal(scale=0.5, size=(25, D)):
        state = made.evaluate(feasible.project(point), feasible)
        assert np.linalg.norm(state.point - tight.theta) <= state.distance + 1e-6


@pytest.mark.parametrize("name", DOMAINS)
def test_projected_gradient_agrees(name: str) -> None:
    """Twenty thousand plain projected gradient steps end at the same point."""
    made = objective(Logistic(), math.inf, 0.5, DOMAINS[name], center=0.1)
    point = made.origin
    for _ in range(400):
        state = made.evaluate(point, made.feasible)
        point = made.feasible.project(point - state.gradient / 2.0)
    np.testing.assert_allclose(minimize_on_set(made, 1e-8).theta, point, atol=1e-6)


def test_the_wrong_sign_would_certify_false_points() -> None:
    """Where the constraint pulls the other way (a point pushed to the wrong side of the ball) the distance stays
    large.
    """
    made = objective(Logistic(), math.inf, 0.5, DOMAINS["ball"])
    best = minimize_on_set(made, 1e-8).theta
    assert np.linalg.norm(best) == pytest.approx(0.4)
    opposite = made.evaluate(-best, made.feasible)
    assert opposite.distance >= 0.8


def test_kinked_losses_converge() -> None:
    for cap in (math.inf, 0.2):
        made = objective(Absolute(width=0.05), cap, 0.5, DOMAINS["box"])
        assert minimize_on_set(made, 1e-4).distance <= 1e-4


def test_linear_parts_have_a_closed_form() -> None:
    """F = ⟨ḡ, θ − c⟩ + (λ/2)‖θ − c‖²: the minimizer is the projection of c − ḡ/λ."""
    rows = data().blocks[0].features
    users = UserDataset.from_arrays(rows, None, np.repeat(np.arange(N), M))
    model, center = VectorModel.mean(D, zeta=0.5, bound=10.0), np.full(D, 0.05)
    forces = np.array([center - rows[k * M : (k + 1) * M].mean(axis=0) for k in range(N)])
    for cap in (math.inf, 0.4):
        lengths = np.linalg.norm(forces, axis=1)
        mean = (np.minimum(1.0, cap / lengths)[:, None] * forces).mean(axis=0)
        made = SetObjective(LocalEngine(users), LinearPart(model, center), cap, 1.0, center, N, DOMAINS["ball"])
        np.testing.assert_allclose(minimize_on_set(made, 1e-9).theta, DOMAINS["ball"].project(center - mean), atol=1e-9)


def test_equal_inputs_give_equal_bits() -> None:
    made = objective(Logistic(), math.inf, 0.5, DOMAINS["box in ball"])
    again = objective(Logistic(), math.inf, 0.5, DOMAINS["box in ball"])
    assert np.array_equal(minimize_on_set(made, 1e-7).theta, minimize_on_set(again, 1e-7).theta)


def test_a_centre_outside_the_set_is_allowed() -> None:
    made = objective(Logistic(), 0.2, 1.0, DOMAINS["ball"], center=1.0)
    found = minimize_on_set(made, 1e-6)
    assert np.linalg.norm(found.theta) <= 0.4 + 1e-9
    tight = minimize_on_set(made, 1e-7)
    assert np.linalg.norm(found.theta - tight.theta) <= 2e-6
