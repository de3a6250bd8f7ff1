"""Appendix D: constants traced by hand, conditions, and the generator of hard instances."""

from __future__ import annotations

import math

import numpy as np
import pytest

from userdp.accounting.gdp import gdp_of
from userdp.theory import HardInstance, convex_erm, convex_sco, strongly_convex_erm, strongly_convex_sco


def test_private_constants_traced_by_hand() -> None:
    """(μ/2)(dσ/(aεn√m))² with σ = G/(2μ·w√d): G²d/(8 μ w² a² ε² n² m)."""
    n, m, d, epsilon, delta, lipschitz, curvature = 400, 7, 30, 0.5, 1e-7, 3.0, 0.2
    for constants, width, spread in (("paper", 1000, 100), ("sharp", 102, 51)):
        bound = strongly_convex_sco(
            n, m, d, epsilon, delta, lipschitz=lipschitz, strong_convexity=curvature, constants=constants
        )
        expected = lipschitz**2 * d / (8 * curvature * (width * spread * epsilon * n) ** 2 * m)
        assert bound.private == pytest.approx(expected)
        assert bound.applies
        assert bound.explicit
        assert bound.value == max(bound.private, bound.statistical)


def test_conditions_fail_where_they_should() -> None:
    assert strongly_convex_sco(100, 5, 10, 0.5, 1e-9).applies
    assert not strongly_convex_sco(100, 5, 10, 1.5, 1e-9).applies
    assert not strongly_convex_sco(100, 5, 10, 0.5, 1e-2).applies
    starved = strongly_convex_sco(1, 5, 10**6, 0.5, 1e-9)
    assert not starved.applies
    assert starved.value == starved.statistical


def test_erm_bound_needs_many_dimensions() -> None:
    assert not strongly_convex_erm(1000, 5, 10_000, 1.0, 1e-9).applies
    bound = strongly_convex_erm(120, 5, 10**7, 1.0, 1e-9)
    assert bound.applies
    sco = strongly_convex_sco(120, 5, 10**7, 1.0, 1e-9)
    assert sco.private / 4 <= bound.value <= sco.private / 2


def test_convex_bounds_have_the_stated_shape() -> None:
    assert convex_sco(100, 4, 25, 0.5, 1e-6, radius=2, lipschitz=3).private == pytest.approx(6 * 5 / (0.5 * 100 * 2))
    assert convex_sco(100, 4, 25, 0.5, 1e-6).statistical == pytest.approx(1 / 20)
    assert not convex_sco(100, 4, 25, 0.5, 1e-6).explicit
    assert convex_erm(100, 4, 25, 0.5, 1e-6).applies
    assert not convex_erm(101, 4, 25, 0.5, 1e-6).applies
    assert not convex_erm(9, 4, 25, 0.5, 1e-6).applies


def test_instance_is_lipschitz_strongly_convex_and_in_the_ball() -> None:
    instance = HardInstance(dimension=6, rows=3, lipschitz=2.0, strong_convexity=0.5)
    generator = np.random.default_rng(0)
    centre = instance.draw_centre(generator)
    data = instance.sample(generator, 50, centre)
    assert data.shape == (50, 3, 6)
    assert np.abs(centre).max() <= instance.box == instance.sigma / math.sqrt(3)
    assert np.linalg.norm(data, axis=2).max() <= instance.ball
    # The largest gradient μ‖θ − x‖ over the ball is exactly G.
    assert instance.strong_convexity * 2 * instance.ball == instance.lipschitz
    assert instance.truncation_error < 1e-300


def test_truncation_replaces_rows_outside_the_ball_by_zero() -> None:
    instance = HardInstance(dimension=2, rows=1)
    data = instance.sample(np.random.default_rng(0), 200, np.array([instance.ball, 0.0]))
    norms = np.linalg.norm(data, axis=2)
    assert 0.3 < (norms == 0).mean() < 0.7
    assert norms.max() <= instance.ball


def test_excess_risks() -> None:
    instance = HardInstance(dimension=2, rows=2, strong_convexity=4.0)
    data = np.array([[[0.0, 0.0], [0.1, 0.0]], [[0.0, 0.1], [0.1, 0.1]]])
    assert instance.excess_empirical([0.05, 0.05], data) == pytest.approx(0.0)
    assert instance.excess_population([0.1, 0.0], [0.0, 0.0]) == pytest.approx(2 * 0.01)
    loss = 2.0 * ((np.array([0.0, 0.0]) - data.reshape(-1, 2)) ** 2).sum(axis=1).mean()
    best = 2.0 * ((data.reshape(-1, 2).mean(axis=0) - data.reshape(-1, 2)) ** 2).sum(axis=1).mean()
    assert instance.excess_empirical([0.0, 0.0], data) == pytest.approx(loss - best)


def test_a_private_mean_stays_above_the_bound() -> None:
    """Clipped mean with Gaussian noise on the hard instance: expected excess risk exceeds both lower bounds."""
    n, m, d, epsilon, delta = 200, 5, 20, 1.0, 1e-7
    instance = HardInstance(d, m, width=102.0)
    generator = np.random.default_rng(1)
    centre = instance.draw_centre(generator)
    cap = instance.sigma * (math.sqrt(d) + 6) / math.sqrt(m) + instance.box * math.sqrt(d)
    sigma = 2 * cap / (n * gdp_of(epsilon, delta))
    risks = []
    for _ in range(50):
        means = instance.sample(generator, n, centre).mean(axis=1)
        means *= np.minimum(1.0, cap / np.linalg.norm(means, axis=1, keepdims=True))
        risks.append(instance.excess_population(means.mean(axis=0) + sigma * generator.standard_normal(d), centre))
    bound = strongly_convex_sco(n, m, d, epsilon, delta, constants="sharp")
    assert bound.applies
    assert np.mean(risks) > bound.value


@pytest.mark.parametrize("bad", [{"dimension": 0}, {"rows": 0}, {"lipschitz": 0.0}, {"width": 100.0}])
def test_bad_instances_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        HardInstance(**({"dimension": 3, "rows": 2} | bad))


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="'paper' or 'sharp'"):
        strongly_convex_sco(10, 1, 2, 1.0, 0.1, constants="best")
    with pytest.raises(ValueError, match="delta must be positive"):
        convex_sco(10, 1, 2, 1.0, 0.0)
    with pytest.raises(ValueError, match="centre must have shape"):
        HardInstance(3, 2).sample(np.random.default_rng(0), 5, np.zeros(2))
