"""Appendix D: constants traced by hand, conditions, and the generator of hard instances."""

from __future__ import annotations

import math

import numpy as np
import pytest

from userdp.accounting.gdp import gdp_of
from userdp.theory import (
    HardInstance,
    convex_erm,
    convex_hard_instance,
    convex_sco,
    strongly_convex_erm,
    strongly_convex_sco,
)
from userdp.theory.lower_bounds import LowerBoundConstants


def test_private_constants_traced_by_hand() -> None:
    """(μ/2)(dσ/(aεn√m))² with σ = G/(2μ·w√d): G²d/(8 μ w² a² ε² n² m)."""
    n, m, d, epsilon, delta, lipschitz, curvature = 400, 7, 30, 0.5, 1e-7, 3.0, 0.2
    for constants, width, spread in (("paper", 1000, 100), ("sharp", 20, 24.5)):
        bound = strongly_convex_sco(
            n, m, d, epsilon, delta, lipschitz=lipschitz, strong_convexity=curvature, constants=constants
        )
        expected = lipschitz**2 * d / (8 * curvature * (width * spread * epsilon * n) ** 2 * m)
        assert bound.private == pytest.approx(expected)
        assert bound.applies
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


@pytest.mark.parametrize("constants", ["paper", "sharp"])
def test_convex_constants_are_the_best_of_the_reduction(constants: LowerBoundConstants) -> None:
    """Maximize (RG/2s)·(error² − (s − ‖mean‖)²) numerically over the constant coordinate, for both terms.

    The mean has length between ℓ and √(ℓ² + L²); s is the middle. Private: error α = L/√c. Statistical: for half-width
    πrσ/√(nm) van Trees gives error² = L²/(π²(1 + r²)), in units of σ√((d−1)/(nm)) = L/(πr), best at r² = ½.
    """
    n, m, d, epsilon, delta, radius, lipschitz = 4000, 9, 30, 0.5, 1e-7, 2.0, 3.0
    width, spread, share = {"paper": (1000, 100, 12), "sharp": (20, 24.5, 6.1)}[constants]
    bound = convex_sco(n, m, d, epsilon, delta, radius=radius, lipschitz=lipschitz, constants=constants)
    assert bound.applies
    assert bound.value == max(bound.private, bound.statistical)
    offsets = np.linspace(0.0, 4.0, 4001)
    low, high = offsets, np.sqrt(offsets**2 + 1)

    def best(error_squared: float) -> float:
        return float(np.max((error_squared - ((high - low) / 2) ** 2) / (low + high)))

    alpha = math.sqrt((d - 1) / m) / (width * spread * epsilon * n)
    assert bound.private == pytest.approx(radius * lipschitz * alpha * math.sqrt(share) * best(1 / share), rel=1e-3)
    statistical = max(math.pi * r * best(1 / (math.pi**2 * (1 + r * r))) for r in np.linspace(0.5, 1.0, 101))
    expected = radius * lipschitz * statistical / (width * math.sqrt(n * m))
    assert bound.statistical == pytest.approx(expected, rel=1e-3)


def test_a_good_linear_minimizer_is_a_good_estimate_of_the_centre() -> None:
    """‖s·θ/R − mean‖² ≤ (s − ‖mean‖)² + 2s·excess/(RG) for θ in the ball: the step that makes the bound convex."""
    generator = np.random.default_rng(0)
    instance = convex_hard_instance(50, 4, 6, 1.0, "private", radius=2.0, lipschitz=3.0, constants="sharp")
    for _ in range(200):
        mean = instance.draw_centre(generator)
        theta = generator.standard_normal(6)
        theta *= 2.0 * generator.random() ** 0.2 / np.linalg.norm(theta)
        s = float(np.linalg.norm(mean)) * generator.uniform(0.5, 2.0)
        error = float(np.sum((s * theta / 2.0 - mean) ** 2))
        assert error <= (s - np.linalg.norm(mean)) ** 2 + 2 * s * instance.excess(theta, mean) / 6.0 + 1e-18


def test_convex_conditions() -> None:
    assert not convex_sco(100, 4, 1, 0.5, 1e-6).applies
    assert convex_sco(100, 4, 25, 0.5, 1e-3).applies  # the narrow box asks less of δ than Theorem D.7
    assert not convex_sco(1, 4, 10_000, 0.5, 1e-6).applies
    assert not convex_erm(1000, 4, 25, 0.5, 1e-6).applies
    bound = convex_erm(60, 4, 10**8, 1.0, 1e-6, constants="sharp")
    assert not bound.conditions["n ≥ √(cd) / (aε)"]
    wide = convex_erm(2000, 4, 10**8, 1.0, 1e-6, constants="sharp")
    assert wide.applies
    assert 0 < wide.value < convex_sco(2000, 4, 10**8, 1.0, 1e-6, constants="sharp").private


def test_convex_instances_have_rows_of_length_one_at_most() -> None:
    generator = np.random.default_rng(0)
    for term in ("private", "statistical"):
        instance = convex_hard_instance(20, 3, 5, 1.0, term, constants="sharp")
        rows = instance.sample(generator, 20, instance.draw_centre(generator))
        assert rows.shape == (20, 3, 5)
        assert np.linalg.norm(rows, axis=2).max() <= 1
        assert instance.excess(np.append(np.zeros(4), 1.0), np.append(np.zeros(4), 0.3)) == pytest.approx(0.0)


def test_private_directions_stay_above_the_convex_bound() -> None:
    """The direction of a noisy clipped mean, on the family of the private term: expected risk above that term."""
    n, m, d, epsilon, delta = 200, 5, 20, 1.0, 1e-7
    bound = convex_sco(n, m, d, epsilon, delta, constants="sharp")
    instance = convex_hard_instance(n, m, d, epsilon, "private", constants="sharp")
    assert bound.applies
    generator = np.random.default_rng(1)
    cap = instance.sigma * (math.sqrt(d) + 6) / math.sqrt(m) + instance.box * math.sqrt(d) + instance.constant
    risks = []
    for _ in range(50):
        centre = instance.draw_centre(generator)
        means = instance.sample(generator, n, centre).mean(axis=1)
        means *= np.minimum(1.0, cap / np.linalg.norm(means, axis=1, keepdims=True))
        released = means.mean(axis=0) + 2 * cap / (n * gdp_of(epsilon, delta)) * generator.standard_normal(d)
        risks.append(instance.excess(released / np.linalg.norm(released), centre))
    assert np.mean(risks) > bound.private


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
    instance = HardInstance(d, m, width=20.0)
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


@pytest.mark.parametrize("bad", [{"dimension": 0}, {"rows": 0}, {"lipschitz": 0.0}, {"width": 10.0}])
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
