"""Exact privacy check of Algorithm 1 on tiny instances.

On one dataset the output law is ⊥ with probability Pr[R < s] and otherwise one Gaussian, so the hockey-stick divergence
between neighbours is a one-dimensional integral. It is computed for many pairs, adversarial ones included, in both
directions, and compared with δ; the same check must reject noise, κ and radii that are too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest

from userdp.accounting.deletion import DeletionCalibration, calibrate_deletion, deletion_delta
from userdp.accounting.gdp import delta_of
from userdp.mechanisms.deletion_search import deletion_steps, smallest_stable
from userdp.mechanisms.tdlap import TDLap

Dataset = tuple[float, ...]
Function = Callable[[Dataset], float]

TARGET = 1.0
# κ = 3 (literal), κ = 2 (tight, exact).
BUDGET = {"literal": (30.0, 1e-3), "tight": (8.0, 1e-2), "exact": (8.0, 1e-2)}


@dataclass(frozen=True)
class Law:
    """⊥ with probability 1 − mass, else N(centre, σ²)."""

    mass: float
    bottom: float
    centre: float


def mean(users: Dataset) -> float:
    return sum(users) / len(users) if users else 0.0


def median(users: Dataset) -> float:
    if not users:
        return 0.0
    ordered, half = sorted(users), len(users) // 2
    return ordered[half] if len(users) % 2 else (ordered[half - 1] + ordered[half]) / 2


def majority(users: Dataset) -> float:
    """Votes −1 and +1: unstable while both kinds are present, else TARGET per vote.

    The smallest stable deletion removes the minority; moving one vote flips which side that is, and the released values
    are then as far apart as the proof allows.
    """
    minus, plus = users.count(-1.0), users.count(1.0)
    return 1e6 * (-1) ** len(users) if minus and plus else TARGET * (plus - minus)


@lru_cache(maxsize=4096)
def stable_set(f: Function, users: Dataset, reach: int, slope: int, largest: int) -> tuple[int, float] | None:
    """Size of the deleted set and value of f without it, for radius(s) = reach − slope·s."""
    steps = deletion_steps(lambda rest: np.array([f(rest)]), users, min(reach, len(users)))
    deleted = smallest_stable(steps, len(users), TARGET, lambda size: reach - slope * size, largest)
    if deleted is None:
        return None
    return len(deleted), f(tuple(user for position, user in enumerate(users) if position not in deleted))


def law_of(
    f: Function, users: Dataset, calibration: DeletionCalibration, reach: int | None = None, slope: int | None = None
) -> Law:
    tail = TDLap(calibration.tail_epsilon, calibration.tail_delta).pmf()
    reach = calibration.radius(0) if reach is None else reach
    slope = calibration.radius(0) - calibration.radius(1) if slope is None else slope
    found = stable_set(f, users, reach, slope, len(tail) - 1)
    if found is None:
        return Law(0.0, 1.0, 0.0)
    size, centre = found
    return Law(float(tail[size:].sum()), float(tail[:size].sum()), centre)


def hockey_stick(one: Law, other: Law, sigma: float, epsilon: float) -> float:
    """sup_E Pr[one ∈ E] − e^ε Pr[other ∈ E], by the trapezoidal rule."""
    scale = math.exp(epsilon)
    divergence = max(one.bottom - scale * other.bottom, 0.0)
    if not one.mass:
        return divergence
    if not other.mass:
        return divergence + one.mass
    grid = np.linspace(one.centre - 12 * sigma, one.centre + 12 * sigma, 20_001)
    normal = 1 / (sigma * math.sqrt(2 * math.pi))
    height = normal * (
        one.mass * np.exp(-0.5 * ((grid - one.centre) / sigma) ** 2)
        - np.exp(math.log(other.mass) + epsilon - 0.5 * ((grid - other.centre) / sigma) ** 2)
    )
    return divergence + float(np.trapezoid(np.maximum(height, 0.0), grid))


def divergence(
    f: Function, pair: tuple[Dataset, Dataset], calibration: DeletionCalibration, shrink: float = 1.0, **radius: int
) -> float:
    """The larger of the two directions at the calibrated σ times ``shrink``."""
    one, other = (law_of(f, users, calibration, **radius) for users in pair)
    sigma = calibration.noise_multiplier * TARGET * shrink
    return max(
        hockey_stick(one, other, sigma, calibration.epsilon), hockey_stick(other, one, sigma, calibration.epsilon)
    )


def clustered(n: int, outliers: int, seed: int) -> Dataset:
    """A cluster that is stable by itself, and users far from it."""
    generator = np.random.default_rng(seed)
    cluster = np.round(generator.uniform(-1.0, 1.0, n - outliers), 3).tolist()
    return tuple([100.0 * (1 + k % 2) * (-1) ** k for k in range(outliers)] + cluster)


def replacements(n: int, kappa: int) -> list[tuple[Dataset, Dataset]]:
    """Pairs that differ in one user, with 0 … 2κ + 1 users to delete before the rest is stable."""
    pairs = []
    for outliers in range(2 * kappa + 2):
        users = clustered(n, outliers, seed=outliers)
        pairs += [(users, (*users[:-1], value)) for value in (1e3, users[-1] + 2.5)]
    return pairs


def removals(n: int, kappa: int) -> list[tuple[Dataset, Dataset]]:
    """Pairs of which one lacks a user: an outlier or a member of the cluster."""
    pairs = []
    for outliers in range(2 * kappa + 2):
        users = clustered(n, outliers, seed=outliers)
        pairs += [(users, users[1:]), (users, users[:-1])]
    return pairs


def flips(n: int, kappa: int) -> list[tuple[Dataset, Dataset]]:
    """Pairs for ``majority`` under replacement that attain |s − s'| = 1 and s = s' with the largest distances."""
    pairs = []
    for votes in range(1, 2 * kappa + 1):
        neutral = (0.0,) * (n - 2 * votes)
        pairs.append(
            ((-1.0,) * votes + (1.0,) * votes + neutral, (-1.0,) * votes + (-1.0,) + (1.0,) * (votes - 1) + neutral)
        )
        minus, plus, rest = (-1.0,) * (votes - 1), (1.0,) * (votes - 1), (0.0,) * (n - 2 * votes + 1)
        pairs.append(((*minus, *plus, 1.0, *rest), (*minus, *plus, -1.0, *rest)))
    return pairs


def departures(n: int, kappa: int) -> list[tuple[Dataset, Dataset]]:
    """The same for add/remove."""
    pairs = []
    for votes in range(1, 2 * kappa + 1):
        neutral = (0.0,) * (n - 2 * votes)
        whole = (-1.0,) * votes + (1.0,) * votes + neutral
        pairs.append((whole, whole[:votes] + whole[votes + 1 :]))
        more = (1.0,) * votes + (-1.0,) * (votes - 1) + neutral
        pairs.append((more, more[1:]))
    return pairs


@pytest.mark.parametrize("constants", ["literal", "tight", "exact"])
@pytest.mark.parametrize("f", [mean, median, majority])
def test_replacement_is_private(constants: str, f: Function) -> None:
    calibration = calibrate_deletion(*BUDGET[constants], constants, "replace")
    n = 4 * calibration.kappa + 2
    pairs = flips(n, calibration.kappa) if f is majority else replacements(n, calibration.kappa)
    assert max(divergence(f, pair, calibration) for pair in pairs) <= calibration.delta


@pytest.mark.parametrize("constants", ["literal", "tight", "exact"])
@pytest.mark.parametrize("f", [mean, median, majority])
def test_add_remove_is_private(constants: str, f: Function) -> None:
    """Also with so few users that the test runs into the public value (0, on the empty dataset)."""
    calibration = calibrate_deletion(*BUDGET[constants], constants, "add-remove")
    sizes = [12] if constants == "literal" else [6 * calibration.kappa + 1, 9]
    pairs = [
        pair
        for n in sizes
        for pair in (departures if f is majority else removals)(n, min(calibration.kappa, n // 2 - 1))
    ]
    assert max(divergence(f, pair, calibration) for pair in pairs) <= calibration.delta


def test_every_size_of_deletion_occurs() -> None:
    """The pairs above reach s = 0, …, 2κ and ⊥ for certain: the check is not about s = 0 alone."""
    calibration = calibrate_deletion(*BUDGET["exact"], "exact", "replace")
    laws = [law_of(mean, users, calibration) for pair in replacements(10, 2) for users in pair]
    tail = TDLap(calibration.tail_epsilon, calibration.tail_delta).pmf()
    expected = {round(float(tail[:size].sum()), 9) for size in range(len(tail) + 1)}
    assert {round(law.bottom, 9) for law in laws} == expected


@pytest.mark.parametrize(("adjacency", "pairs"), [("replace", flips(10, 2)), ("add-remove", departures(13, 2))])
def test_exact_constants_cannot_be_improved(adjacency: str, pairs: list[tuple[Dataset, Dataset]]) -> None:
    """The adversarial pairs attain the calculated curve, and one percent less noise is not private."""
    calibration = calibrate_deletion(*BUDGET["exact"], "exact", adjacency)
    tail = TDLap(calibration.tail_epsilon, calibration.tail_delta).pmf()
    attained = max(divergence(majority, pair, calibration) for pair in pairs)
    curve = deletion_delta(calibration.epsilon, tail, calibration.noise_multiplier, adjacency)
    assert attained == pytest.approx(curve, rel=1e-4)
    assert curve == pytest.approx(calibration.delta, rel=2e-3)
    assert max(divergence(majority, pair, calibration, shrink=0.99) for pair in pairs) > calibration.delta


@pytest.mark.parametrize("constants", ["literal", "tight"])
@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_noise_for_a_single_deletion_is_caught(constants: str, adjacency: str) -> None:
    calibration = calibrate_deletion(*BUDGET[constants], constants, adjacency)
    n = 4 * calibration.kappa + 2
    pairs = flips(n, calibration.kappa) if adjacency == "replace" else departures(12, calibration.kappa)
    shrink = 1 / calibration.sensitivity
    assert max(divergence(majority, pair, calibration, shrink) for pair in pairs) > calibration.delta


@pytest.mark.parametrize("constants", ["tight", "exact"])
def test_half_the_noise_is_caught(constants: str) -> None:
    calibration = calibrate_deletion(*BUDGET[constants], constants, "replace")
    assert max(divergence(majority, pair, calibration, 0.4) for pair in flips(10, 2)) > calibration.delta


def test_small_kappa_is_caught() -> None:
    """κ = 2 where κ(ε/2, δ̄) = 11 is due: Pr[R = 0] is far above δ, and one outlier decides between ⊥ and an answer."""
    epsilon, delta = 2.0, 1e-3
    due = calibrate_deletion(epsilon, delta, "literal")
    broken = DeletionCalibration("literal", "replace", epsilon, delta, due.tail_epsilon, 0.9, due.noise_multiplier)
    assert due.kappa > broken.kappa == 2
    assert max(divergence(mean, pair, broken) for pair in replacements(10, 2)) > delta


@pytest.mark.parametrize("constants", ["literal", "tight", "exact"])
def test_small_radius_is_caught(constants: str) -> None:
    """Testing single deletions only: two medians that look stable, far apart, on neighbouring datasets."""
    calibration = calibrate_deletion(*BUDGET[constants], constants, "replace")
    far = 40.0 * calibration.noise_multiplier
    one = (far,) * 6 + (0.0,) * 8
    other = (far,) * 6 + (0.0,) * 7 + (far,)
    broken = divergence(median, (one, other), calibration, reach=0, slope=0)
    assert broken > calibration.delta
    assert divergence(median, (one, other), calibration) <= calibration.delta


def camps(users: Dataset) -> float:
    """Unstable while both camps are present, far to one side with one of them, 0 with none."""
    minus, plus = users.count(-1.0), users.count(1.0)
    if minus and plus:
        return 1e9 * (-1) ** len(users)
    return 1e6 * (plus > 0) - 1e6 * (minus > 0)


@pytest.mark.parametrize("constants", ["tight", "exact"])
@pytest.mark.parametrize(("adjacency", "less"), [("replace", 2), ("add-remove", 4)])
def test_a_slightly_smaller_radius_is_caught(constants: str, adjacency: str, less: int) -> None:
    """Deleting either of two camps looks stable until the test reaches the last member of the other one.

    The proof needs a radius of 4κ − 1 at least (only sets of 2κ users, which R allows with probability δ₁, need the
    last step): two less leaks. Under add/remove this pair needs four less.
    """
    calibration = calibrate_deletion(*BUDGET[constants], constants, adjacency)
    size, slope = 2 * calibration.kappa, 1 if adjacency == "replace" else 2
    whole = (-1.0,) * size + (1.0,) * size + (0.0,) * (2 if adjacency == "replace" else 5)
    other = whole[:size] + ((-1.0,) if adjacency == "replace" else ()) + whole[size + 1 :]
    reach = calibration.radius(0)
    assert divergence(camps, (whole, other), calibration) <= calibration.delta
    assert divergence(camps, (whole, other), calibration, reach=reach - less + 1, slope=slope) <= calibration.delta
    assert divergence(camps, (whole, other), calibration, reach=reach - less, slope=slope) > calibration.delta


@pytest.mark.parametrize("constants", ["tight", "exact"])
def test_replacement_radius_leaks_under_add_remove(constants: str) -> None:
    """With the paper's radius 4κ − |S| a threshold function tells n users from n − 1 with certainty."""
    calibration = calibrate_deletion(*BUDGET[constants], constants, "add-remove")
    n, kappa = 12, calibration.kappa

    def threshold(users: Dataset) -> float:
        return 1000.0 * TARGET if len(users) < n - 4 * kappa - 1 else 0.0

    pair = ((0.0,) * n, (0.0,) * (n - 1))
    assert divergence(threshold, pair, calibration, reach=4 * kappa, slope=1) == 1.0
    for size in range(1, n + 1):
        pair = ((0.0,) * size, (0.0,) * (size - 1))
        assert divergence(threshold, pair, calibration) <= calibration.delta


def test_integration_agrees_with_the_closed_form() -> None:
    for epsilon, distance in ((0.5, 1.0), (3.0, 2.0), (8.0, 4.0)):
        numeric = hockey_stick(Law(1.0, 0.0, 0.0), Law(1.0, 0.0, distance), 1.0, epsilon)
        assert numeric == pytest.approx(delta_of(epsilon, distance), rel=1e-5)
