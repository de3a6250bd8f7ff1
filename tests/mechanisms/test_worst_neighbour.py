"""Search for the worst neighbour: sensitivities must hold, must nearly be reached, and a broken cap must be caught.

The replaced user is searched for: its row's direction and length and its target, by compass search on how far the
released value moves. ``check`` is the test of the library; the last tests show that it rejects a cap that is off by 2.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from userdp.accounting import Adjacency, Budget, sum_sensitivity
from userdp.data import UserBlock, UserDataset
from userdp.engines import LocalEngine
from userdp.losses import FeatureMap, LinearModel, Logistic, Squared
from userdp.mechanisms import capped as capped_module
from userdp.mechanisms.capped import clipped_mean, plan_capped
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.histogram import log_bins, row_histograms, user_histogram, vote_sensitivity
from userdp.mechanisms.noise import SeededNoise
from userdp.solvers import CappedObjective, minimize
from userdp.solvers import newton as newton_module
from userdp.solvers.capped import Cap

CAP, REGULARIZATION, USERS = 0.4, 0.5, 5
CENTER = np.array([0.1, -0.2])
User = tuple[np.ndarray, np.ndarray]
Release = Callable[[list[User]], np.ndarray]


class Silent(SeededNoise):
    """Releases the value itself."""

    def __init__(self) -> None:
        super().__init__(0)

    def gaussian(self, values: np.ndarray, scale: float) -> np.ndarray:
        return np.asarray(values)


def engine(users: list[User]) -> LocalEngine:
    offsets = np.concatenate([[0], np.cumsum([len(y) for _, y in users])]).astype(np.int64)
    block = UserBlock(np.concatenate([X for X, _ in users]), np.concatenate([y for _, y in users]), offsets)
    return LocalEngine(UserDataset((block,), tuple(range(len(users))), ("a", "b")), 1)


def others(count: int = USERS - 1) -> list[User]:
    """Users with little curvature, so that they give way."""
    rng = np.random.default_rng(0)
    return [(0.3 * rng.normal(size=(4, 2)), (rng.random(4) < 0.5).astype(float)) for _ in range(count)]


def minimizer(loss: Logistic | Squared) -> tuple[Release, float]:
    model = LinearModel(loss, FeatureMap.identity(2, bound=30.0))
    distance = 1e-4 * CAP / (REGULARIZATION * USERS)

    def release(users: list[User]) -> np.ndarray:
        return minimize(CappedObjective(engine(users), model, CAP, REGULARIZATION, CENTER, USERS), distance).theta

    return release, distance


def mean(loss: Logistic | Squared) -> Release:
    model = LinearModel(loss, FeatureMap.identity(2, bound=30.0))

    def release(users: list[User]) -> np.ndarray:
        channel = Channel(Budget.of(8.0, 1e-3), Silent())
        return clipped_mean(engine(users), model, CENTER, CAP, 0.1, USERS, "replace", channel, "mean").value

    return release


def one_row(parameters: np.ndarray, positive: bool) -> User:
    """A user with one row of direction parameters[0] and log-length parameters[1]."""
    angle, size = parameters
    return np.exp(size) * np.array([[np.cos(angle), np.sin(angle)]]), np.array([20.0 if positive else -20.0])


def worst_move(release: Release, adjacency: Adjacency, target: float) -> float:
    """The farthest that a release moves between neighbours, by compass search over the changed user."""
    rest = others()

    def move(parameters: np.ndarray) -> float:
        first = release([*rest, one_row(parameters, True)])
        second = release(rest if adjacency == "add-remove" else [*rest, one_row(parameters, False)])
        return float(np.linalg.norm(first - second))

    best, at, steps = -1.0, np.array([0.3, 0.0]), np.array([0.8, 1.0])
    while steps[0] > 0.15 and best < target:
        trials = [at + steps * np.array(sign) for sign in itertools.product((-1, 0, 1), repeat=2)]
        moves = [move(trial) for trial in trials]
        if max(moves) > best * (1 + 1e-6):
            best, at = max(moves), trials[int(np.argmax(moves))]
        else:
            steps = steps / 2
    return best


def check(moved: float, sensitivity: float) -> None:
    if moved > sensitivity:
        raise AssertionError(f"moved by {moved}, more than {sensitivity}")


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_minimizer_moves_as_far_as_its_sensitivity_and_no_farther(
    loss: Logistic | Squared, adjacency: Adjacency
) -> None:
    release, distance = minimizer(loss)
    stable = sum_sensitivity(CAP, adjacency) / (REGULARIZATION * USERS)
    moved = worst_move(release, adjacency, np.inf)
    check(moved, stable + 2 * distance)
    assert moved >= 0.5 * stable, "the search has teeth"


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_clipped_mean_moves_as_far_as_its_sensitivity_and_no_farther(
    loss: Logistic | Squared, adjacency: Adjacency
) -> None:
    sensitivity = sum_sensitivity(CAP, adjacency) / USERS
    moved = worst_move(mean(loss), adjacency, np.inf)
    check(moved, sensitivity * (1 + 1e-9))
    assert moved >= 0.5 * sensitivity, "the search has teeth"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
def test_random_replacements(loss: Logistic | Squared, seed: int) -> None:
    """Users of every size and temper, with many rows or none."""
    rng = np.random.default_rng(seed)
    release, distance = minimizer(loss)

    def user() -> User:
        rows = int(rng.integers(0, 30))
        X = rng.normal(size=(rows, 2)) * 10.0 ** rng.uniform(-3, 6)
        return X, 10.0 ** rng.uniform(-1, 3) * rng.normal(size=rows)

    rest = [user() for _ in range(USERS - 1)]
    moved = float(np.linalg.norm(release([*rest, user()]) - release([*rest, user()])))
    check(moved, 2 * CAP / (REGULARIZATION * USERS) + 2 * distance)
    alone = float(np.linalg.norm(release([*rest, user()]) - release(rest)))
    check(alone, CAP / (REGULARIZATION * USERS) + 2 * distance)


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_plan_pays_for_the_worst_neighbour(adjacency: Adjacency) -> None:
    model = LinearModel(Logistic(), FeatureMap.identity(2, bound=30.0))
    plan = plan_capped(
        model,
        USERS,
        adjacency,
        cap=CAP,
        regularization=REGULARIZATION,
        gdp=0.5,
        center_norm=float(np.linalg.norm(CENTER)),
        rounding=engine(others()).rounding,
    )
    stable = sum_sensitivity(CAP, adjacency) / (REGULARIZATION * USERS)
    assert plan.sensitivity >= stable + 2 * plan.distance
    assert plan.sensitivity <= 1.03 * stable
    check(worst_move(minimizer(Logistic())[0], adjacency, np.inf), plan.sensitivity)


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_a_cap_broken_by_two_is_caught_in_the_minimizer(adjacency: Adjacency, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newton_module, "Cap", lambda force, radius: Cap(2 * force, radius))
    release, distance = minimizer(Logistic())
    stable = sum_sensitivity(CAP, adjacency) / (REGULARIZATION * USERS) + 2 * distance
    with pytest.raises(AssertionError, match="more than"):
        check(worst_move(release, adjacency, 1.05 * stable), stable)


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_a_cap_broken_by_two_is_caught_in_the_mean(adjacency: Adjacency, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = capped_module._clipped_sum
    monkeypatch.setattr(capped_module, "_clipped_sum", lambda block, phase, cap: honest(block, phase, 2 * cap))
    sensitivity = sum_sensitivity(CAP, adjacency) / USERS * (1 + 1e-9)
    with pytest.raises(AssertionError, match="more than"):
        check(worst_move(mean(Logistic()), adjacency, 1.05 * sensitivity), sensitivity)


VALUES = [0.01, 0.5, 3.0, 1e300]


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_histogram_sensitivities_by_enumeration(adjacency: Adjacency) -> None:
    """All users with up to two rows from four values a feature, against all others and against absence."""
    bins = log_bins(0.1, 10.0, 4.0)
    candidates: list[User] = [
        (np.array(rows).reshape(-1, 2), np.zeros(len(rows)))
        for count in (1, 2)
        for rows in itertools.combinations_with_replacement(itertools.product(VALUES, VALUES), count)
    ]
    rest = others()

    def releases(user: list[User]) -> tuple[np.ndarray, np.ndarray]:
        source, shared = engine([*rest, *user]), (bins, 0.1, adjacency)
        largest, _ = user_histogram(source, largest_value, (), *shared, Channel(Budget.of(8, 1e-3), Silent()), "user")
        split, _ = row_histograms(
            source, np.zeros(2), np.ones(2), *shared, Channel(Budget.of(8, 1e-3), Silent()), "rows"
        )
        return largest.ravel(), split.ravel()

    absent = releases([])
    present = [releases([user]) for user in candidates]
    pairs = itertools.combinations(present, 2) if adjacency == "replace" else ((one, absent) for one in present)
    moves = np.array([[np.linalg.norm(a - b) for a, b in zip(one, other)] for one, other in pairs]).max(axis=0)
    for moved, histograms in zip(moves, (1, 2)):
        check(moved, vote_sensitivity(histograms, adjacency))
        assert moved >= vote_sensitivity(histograms, adjacency) * (1 - 1e-7), "and it is reached"


def largest_value(block: UserBlock) -> np.ndarray:
    return np.array([block.users(k, k + 1).features.max() for k in range(block.n_users)])
