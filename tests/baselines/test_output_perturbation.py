"""Worst-case output perturbation, one row a user, group privacy: sensitivities against constructed neighbours."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tests.baselines.users import Recorder, dataset, random_users
from userdp.accounting import delta_of
from userdp.baselines import group_privacy, one_row_per_user, worst_case_output
from userdp.baselines.group_privacy import as_individuals, item_budget
from userdp.baselines.one_row_per_user import ObjectivePlan, minimize_objective
from userdp.baselines.worst_case_output import gradient_bound, phase_sizes
from userdp.losses import FeatureMap, LinearModel, Logistic, Squared
from userdp.mechanisms.noise import SeededNoise

MODEL = LinearModel(Logistic(), FeatureMap.identity(2, bound=1.0))
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture
def quiet():
    return Recorder()


def neighbours(n=8, seed=0):
    """Datasets that differ in their last user, small and pulling as hard as the bound allows."""
    rng = np.random.default_rng(seed)
    others = [rng.uniform(-0.2, 0.2, size=(2, 2)) for _ in range(n - 1)]
    labels = [np.array([0.0, 1.0])] * (n - 1)
    lasts = [(np.full((3, 2), 9.0), np.ones(3)), (np.full((1, 2), 9.0), np.zeros(1))]
    lasts += [(np.array([[1.0, -1.0]]), np.ones(1)), (np.zeros((0, 2)), np.zeros(0))]
    return [dataset([*others, rows], [*labels, target]) for rows, target in lasts]


def test_worst_neighbour_of_the_minimizer(quiet):
    """Minimizers move by at most 2G/(λn); strongly regularized opposite users come close to it."""
    ends = [worst_case_output(data, MODEL, **BUDGET, radius=0.01, random_state=quiet) for data in neighbours()]
    plan = ends[0].details["plans"][0]
    distances = [np.linalg.norm(a.theta - b.theta) for a in ends for b in ends]
    assert max(distances) <= plan.sensitivity
    assert max(distances) > 0.4 * plan.sensitivity  # |φ'| is ½ at 0, not 1
    assert plan.sensitivity == pytest.approx(2 * math.sqrt(2) / (plan.regularization * 8), rel=0.03)
    assert delta_of(1.0, plan.sensitivity / quiet.scales[0]) <= 1e-6


def test_phases_use_disjoint_users_and_all_of_the_budget_each(quiet):
    release = worst_case_output(random_users(64, 3, 2), MODEL, **BUDGET, phased=True, random_state=quiet)
    plans = release.details["plans"]
    assert phase_sizes(64) == [32, 16, 8, 4, 2, 1]
    assert len(plans) == 6
    for i, plan in enumerate(plans):
        rate = 2 / (plan.regularization * phase_sizes(64)[i])
        assert plan.sensitivity >= gradient_bound(MODEL) * rate  # 2G/(λn) = Gη
        assert delta_of(1.0, plan.sensitivity / quiet.scales[i]) <= 1e-6
    ratio = plans[0].sensitivity / plans[1].sensitivity
    assert ratio == pytest.approx(4.0, rel=1e-6)


def test_an_unbounded_loss_is_refused():
    with pytest.raises(ValueError, match="Lipschitz"):
        worst_case_output(random_users(5, 2, 2), LinearModel(Squared(), MODEL.features), **BUDGET)


def test_one_row_is_kept(quiet):
    release = one_row_per_user(random_users(30, 6, 2), MODEL, **BUDGET, random_state=quiet)
    plan = release.details["plans"][0]
    assert release.guarantee.n_users == 30
    assert delta_of(1.0, plan.sensitivity / quiet.scales[0]) <= 1e-6


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_objective_perturbation_changes_no_density_by_more_than_epsilon(epsilon):
    """log of density(w) on neighbours, from its definition: noise b(w) and Jacobian, over random w and neighbours."""
    rng = np.random.default_rng(0)
    plan = ObjectivePlan.of(MODEL, 12, epsilon, 3.0)
    strength = plan.regularization + plan.extra

    def log_density(rows, target, w):
        residual = -12 * strength * w - rows.T @ Logistic().derivative(rows @ w, target)
        jacobian = 12 * strength * np.eye(2) + (rows * Logistic().curvature(rows @ w, target)[:, None]).T @ rows
        return -plan.beta * np.linalg.norm(residual) + np.linalg.slogdet(jacobian)[1]

    worst = 0.0
    others = rng.normal(size=(11, 2)) * 0.1
    labels = rng.integers(0, 2, 12).astype(float)
    for _ in range(400):
        angle, w = rng.uniform(0, 2 * np.pi), rng.normal(size=2) * 10 ** rng.uniform(-1, 4)
        row = np.array([[np.cos(angle), np.sin(angle)]])
        pair = [(np.vstack([others, s * row]), np.append(labels[:11], y)) for s in (1, -1) for y in (0.0, 1.0)]
        values = [log_density(rows, target, w) for rows, target in pair]
        worst = max(worst, max(values) - min(values))
    assert worst <= epsilon * (1 + 1e-9)
    assert worst > 0.15 * epsilon


def test_objective_noise_has_its_density():
    """Length Gamma(d, 1/β); a false alarm has probability 1e-6."""
    plan = ObjectivePlan(100, 0.1, 0.0, 0.8)
    noise = SeededNoise(0)
    lengths = [np.linalg.norm(plan.draw(5, noise)) for _ in range(2000)]
    assert stats.kstest(lengths, stats.gamma(5, scale=2 / 0.8).cdf).pvalue > 1e-6


def test_objective_minimizer_is_stationary():
    rng = np.random.default_rng(1)
    rows, target = rng.normal(size=(20, 3)) / 3, rng.integers(0, 2, 20).astype(float)
    plan, b = ObjectivePlan(20, 0.05, 0.02, 1.0), rng.normal(size=3)
    w = minimize_objective(rows, target, Logistic(), plan, b)
    gradient = rows.T @ Logistic().derivative(rows @ w, target) / 20 + 0.07 * w + b / 20
    assert np.linalg.norm(gradient) < 1e-9


def test_objective_perturbation_end_to_end():
    release = one_row_per_user(random_users(2000, 3, 2), MODEL, **BUDGET, perturbation="objective", random_state=0)
    assert release.guarantee.delta == 0.0
    assert release.theta[0] - release.theta[1] > 0  # the direction of the data
    with pytest.raises(ValueError, match="φ''"):
        ObjectivePlan.of(LinearModel(Squared(), MODEL.features), 10, 1.0, 1.0)


def test_group_privacy_budget_composes_back():
    """m steps of (ε₀, δ₀), composed exactly, are at most (ε, δ)."""
    for rows in (1, 4, 20):
        epsilon, delta = item_budget(1.5, 1e-6, rows)
        assert rows * epsilon == pytest.approx(1.5)
        assert sum(math.exp(i * epsilon) * delta for i in range(rows)) <= 1e-6


def test_group_privacy_worst_neighbour(quiet):
    """A whole user moves the minimizer by at most m times the sensitivity that rows are charged."""
    ends = [group_privacy(data, MODEL, **BUDGET, max_rows=2, radius=0.01, random_state=quiet) for data in neighbours()]
    plan = ends[0].details["plans"][0]
    distances = [np.linalg.norm(a.theta - b.theta) for a in ends for b in ends]
    assert max(distances) <= 2 * plan.sensitivity
    assert max(distances) > 0.3 * 2 * plan.sensitivity
    epsilon, delta = item_budget(1.0, 1e-6, 2)
    assert delta_of(epsilon, plan.sensitivity / quiet.scales[0]) <= delta
    assert ends[0].details["item_level"].epsilon == 0.5


def test_rows_become_individuals_in_a_public_number_of_slots():
    data = as_individuals(neighbours()[0], 24)
    assert data.n_users == 24
    assert data.rows_per_user.tolist() == [1] * 17 + [0] * 7
