"""The certified minimizer on a set: its distance bound against a reference, its sign, its determinism."""

from __future__ import annotations

import math
from dataclasses import replace

import cvxpy as cp
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


def binding(kind: str, cap: float, strength: float = 0.05) -> tuple[SetObjective, list, Ball]:
    """Ten users who all push out of a ball around another point than 0, and their losses for cvxpy."""
    generator, ball = np.random.default_rng(3), Ball(np.array([0.2, -0.1, 0.1]), 0.4)
    rows = generator.normal(size=(40, D)) * (0.3 if kind == "linear" else 1.0) + (1.0 if kind == "linear" else 0.0)
    target = (rows @ np.array([4.0, 4.0, 4.0]) > generator.logistic(size=40)).astype(float)
    users = UserDataset.from_arrays(rows, target, np.repeat(np.arange(10), 4))
    center = ball.center + 0.1
    if kind == "linear":
        model = LinearPart(VectorModel.linear(D, bound=10.0), center)
        losses = [lambda u, x=x: -x @ u for x in rows.reshape(10, 4, D).mean(axis=1)]
    else:
        model = LinearModel(Logistic(), FeatureMap.identity(D, bound=10.0))
        parts = zip(rows.reshape(10, 4, D), target.reshape(10, 4))
        losses = [lambda u, X=X, y=y: cp.sum(cp.logistic(X @ u) - cp.multiply(y, X @ u)) / 4 for X, y in parts]
    engine = LocalEngine(users, threads=1)
    return (
        SetObjective(engine, model, cap, strength, center, 10, ball, None, None if math.isinf(cap) else ball, 3.0),
        losses,
        ball,
    )


@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("cap", [0.05, 0.15, 0.4, 1.0])
def test_users_stay_in_a_ball(kind: str, cap: float) -> None:
    """Against cvxpy: argmin (1/n) Σ_k min_{u ∈ K} h_k(u) + γ‖θ − u‖ + (λ/2)‖θ − c‖² over K."""
    made, losses, ball = binding(kind, cap)
    theta, points = cp.Variable(D), cp.Variable((10, D))
    capped = sum(loss(points[k]) + cap * cp.norm(theta - points[k]) for k, loss in enumerate(losses)) / 10
    inside = [
        cp.norm(theta - ball.center) <= ball.radius,
        *(cp.norm(points[k] - ball.center) <= 0.4 for k in range(10)),
    ]
    objective = capped + made.regularization / 2 * cp.sum_squares(theta - made.center)
    cp.Problem(cp.Minimize(objective), inside).solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10)
    for distance in (1e-2, 1e-5):
        found = minimize_on_set(made, distance)
        assert np.linalg.norm(found.theta - theta.value) <= found.distance + 2e-5


@pytest.mark.parametrize(("kind", "cap", "over"), [("linear", 0.5, 10), ("logistic", 0.445, 4)])
def test_a_ball_that_binds_costs_nothing(kind: str, cap: float, over: int) -> None:
    """These users pull with more than γ, but sideways with less: the answer is the one without a cap."""
    made, _, ball = binding(kind, cap)
    free, _, _ = binding(kind, math.inf)
    best, found = minimize_on_set(free, 1e-6), minimize_on_set(made, 1e-6)
    assert np.linalg.norm(best.theta - ball.center) == pytest.approx(0.4)
    forces = made.engine.each(getattr(made.model, "model", made.model).user_gradients, best.theta)
    assert np.count_nonzero(np.linalg.norm(forces, axis=1) > cap) == over
    assert np.linalg.norm(found.theta - best.theta) <= 2e-6


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_no_neighbour_moves_the_minimizer_on_a_binding_ball_by_more_than_the_cap(kind: str) -> None:
    """2γ/(λn), and the worst of many comes near it."""
    cap, strength = 0.15, 1.0
    made, _, _ = binding(kind, cap, strength)
    (block,) = made.engine.dataset.blocks
    base, generator, moved = minimize_on_set(made, 1e-5).theta, np.random.default_rng(0), []
    for _ in range(20):
        rows, target = np.array(block.features), np.array(block.target)
        rows[:4] = 10.0 ** generator.integers(-1, 2) * generator.normal(size=D)
        target[:4] = generator.integers(0, 2)
        other = UserDataset.from_arrays(rows, target, np.repeat(np.arange(10), 4))
        moved.append(np.linalg.norm(minimize_on_set(replace(made, engine=LocalEngine(other)), 1e-5).theta - base))
    assert 0.4 * 2 * cap / (strength * 10) < max(moved) <= 2 * cap / (strength * 10) + 2e-5


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
