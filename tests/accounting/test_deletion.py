"""Calibration of the deletion test: the paper's constants, the tight ones and the exact ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from userdp.accounting.deletion import calibrate_deletion, deletion_delta, half_width
from userdp.accounting.gdp import delta_of, gdp_of
from userdp.mechanisms.tdlap import TDLap


def test_constants_at_epsilon_one() -> None:
    """σ/Δ at ε = 1, δ = 1e-6: 4071 as printed, 1109 with 4κ + 1 and the analytic Gaussian, 950 with the best split."""
    literal, tight, exact = (calibrate_deletion(1.0, 1e-6, name) for name in ("literal", "tight", "exact"))
    share = 1e-6 / (math.exp(0.5) + 2)
    assert literal.kappa == 32
    assert literal.noise_multiplier == pytest.approx(2 * math.sqrt(math.log(2 / share)) * 8 * 32 / 0.5)
    assert literal.noise_multiplier == pytest.approx(4071, rel=1e-3)
    assert (4 * 32 + 1) / gdp_of(0.5, share) == pytest.approx(1109, rel=1e-3)
    assert tight.noise_multiplier == pytest.approx(950, rel=5e-3)
    assert exact.noise_multiplier == pytest.approx(421, rel=1e-2)


def test_tight_split_satisfies_the_composition_of_the_proof() -> None:
    for epsilon, delta in ((1.0, 1e-6), (0.1, 1e-8), (20.0, 1e-3)):
        plan = calibrate_deletion(epsilon, delta, "tight")
        ends = TDLap(plan.tail_epsilon, plan.tail_delta).pmf()[0]
        gaussian = delta_of(epsilon - plan.tail_epsilon, plan.sensitivity / plan.noise_multiplier)
        assert 2 * ends + math.exp(plan.tail_epsilon) * gaussian <= delta


def test_tight_split_is_not_beaten_by_a_fine_grid() -> None:
    epsilon, delta = 1.0, 1e-6
    best = calibrate_deletion(epsilon, delta, "tight").noise_multiplier
    for kappa in range(24, 34):
        for tail_epsilon in np.linspace(0.4, 0.6, 21):
            weights = np.exp(-tail_epsilon * np.abs(np.arange(2 * kappa + 1) - kappa))
            left = delta - 2 * weights[0] / weights.sum()
            if left > 0:
                gdp = gdp_of(epsilon - tail_epsilon, left * math.exp(-tail_epsilon))
                assert best <= 1.01 * (4 * kappa + 1) / gdp


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_each_variant_needs_less_noise_than_the_one_before(adjacency: str) -> None:
    for epsilon, delta in ((1.0, 1e-6), (10.0, 1e-2)):
        literal, tight, exact = (
            calibrate_deletion(epsilon, delta, name, adjacency).noise_multiplier
            for name in ("literal", "tight", "exact")
        )
        assert literal > tight > exact > 0


def test_radius_and_sensitivity_know_the_relation() -> None:
    replace = calibrate_deletion(2.0, 1e-3, "tight", "replace")
    add_remove = calibrate_deletion(2.0, 1e-3, "tight", "add-remove")
    assert [replace.radius(s) for s in (0, 3)] == [4 * replace.kappa, 4 * replace.kappa - 3]
    assert [add_remove.radius(s) for s in (0, 3)] == [6 * add_remove.kappa, 6 * add_remove.kappa - 6]
    assert replace.sensitivity == 4 * replace.kappa + 1
    assert add_remove.sensitivity == 4 * add_remove.kappa
    assert calibrate_deletion(2.0, 1e-3, "literal", "add-remove").sensitivity == 8 * half_width(
        1.0, 1e-3 / (math.e + 2)
    )


def test_curve_decreases_with_noise_and_epsilon() -> None:
    tail = TDLap(0.5, 1e-3).pmf()
    by_noise = [deletion_delta(1.0, tail, noise) for noise in (10.0, 30.0, 100.0, 300.0)]
    by_epsilon = [deletion_delta(epsilon, tail, 30.0) for epsilon in (0.1, 0.5, 1.0, 2.0)]
    assert by_noise == sorted(by_noise, reverse=True)
    assert by_epsilon == sorted(by_epsilon, reverse=True)


@pytest.mark.parametrize(
    ("epsilon", "delta", "constants", "adjacency"),
    [
        (0.0, 1e-6, "literal", "replace"),
        (math.inf, 1e-6, "literal", "replace"),
        (1.0, 0.0, "tight", "replace"),
        (1.0, 1e-6, "loose", "replace"),
        (1.0, 1e-6, "tight", "swap"),
    ],
)
def test_bad_parameters_are_refused(epsilon: float, delta: float, constants: str, adjacency: str) -> None:
    with pytest.raises(ValueError, match="must"):
        calibrate_deletion(epsilon, delta, constants, adjacency)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 2.0, 5.0, 20.0, 100.0, 400.0])
@pytest.mark.parametrize("delta", [0.5, 1e-2, 1e-6, 1e-12])
def test_literal_gaussian_formula_holds_for_every_epsilon(epsilon: float, delta: float) -> None:
    """2√ln(2/δ̄)/ε̄ with δ̄ = δ/(e^ε̄ + 2) satisfies the analytic condition, also for ε̄ ≥ 1, with room to spare."""
    half = epsilon / 2
    share = delta / (math.exp(half) + 2)
    assert delta_of(half, half / (2 * math.sqrt(math.log(2 / share)))) <= 0.1 * share


@pytest.mark.parametrize("constants", ["literal", "tight", "exact"])
@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.3, 1e-4), (4.0, 1e-9)])
def test_calibrations_satisfy_the_exact_curve(constants: str, adjacency: str, epsilon: float, delta: float) -> None:
    calibration = calibrate_deletion(epsilon, delta, constants, adjacency)
    tail = TDLap(calibration.tail_epsilon, calibration.tail_delta).pmf()
    assert deletion_delta(epsilon, tail, calibration.noise_multiplier, adjacency) <= delta
    assert calibration.kappa == half_width(calibration.tail_epsilon, calibration.tail_delta) == len(tail) // 2
