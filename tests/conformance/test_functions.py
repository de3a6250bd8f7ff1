"""Every loss × algorithm × release × relation keeps the same promises. Seeded: no test can fail by chance.

One class of tests, inherited by the two releases. What cannot be combined stands in ``IMPOSSIBLE`` with the reason, and
is refused before data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from scipy.optimize import minimize

from tests.losses.own import SoftWorst
from userdp.accounting import Budget
from userdp.algorithms import (
    Problem,
    output_perturbation,
    phased_erm,
    phased_sco,
    plan_output_perturbation,
    plan_phased_erm,
    plan_phased_sco,
    plan_strongly_convex_erm,
    plan_strongly_convex_sco,
    run,
    strongly_convex_erm,
    strongly_convex_sco,
)
from userdp.algorithms.plan import CappedShare
from userdp.data import UserDataset
from userdp.engines import LocalEngine
from userdp.losses import Absolute, FeatureMap, GeneralModel, Hinge, Huber, LinearModel, Logistic, Pinball, Squared
from userdp.losses.distance import DistanceModel
from userdp.losses.softmax import SoftmaxModel
from userdp.losses.vector import VectorModel
from userdp.losses.weighted import RowWeighted
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.noise import SeededNoise
from userdp.mechanisms.slots import assign_slots
from userdp.solvers.sets import Ball

BOUND, WIDTH, RADIUS, RIDGE = 1.0, 0.2, 2.0, 0.2
MODELS = {
    "logistic": lambda features: LinearModel(Logistic(), features),
    "squared": lambda features: LinearModel(Squared(), features),
    "huber": lambda features: LinearModel(Huber(0.5), features),
    "absolute": lambda features: LinearModel(Absolute(WIDTH), features),
    "pinball": lambda features: LinearModel(Pinball(0.8, WIDTH), features),
    "hinge": lambda features: LinearModel(Hinge(WIDTH), features),
    "softmax": lambda features: SoftmaxModel(3, features),
    "mean": lambda features: VectorModel(1.0, 1.0, features),
    "distance": lambda features: DistanceModel(features, WIDTH),
    "weighted": lambda features: RowWeighted(LinearModel(Logistic(), features), 4.0),
    "own": lambda features: GeneralModel(SoftWorst(WIDTH), features),
}
PLANS = {
    "phased-erm": lambda problem, n, **o: plan_phased_erm(problem, n, radius=1.0, phases=o.pop("phases", 2), **o),
    "phased-sco": lambda problem, n, phases=None, **o: plan_phased_sco(problem, n, radius=1.0, **o),
    "strongly-convex-erm": lambda problem, n, phases=2, **o: plan_strongly_convex_erm(problem, n, phases=phases, **o),
    "strongly-convex-sco": lambda problem, n, phases=None, **o: plan_strongly_convex_sco(problem, n, **o),
    "output-perturbation": lambda problem, n, phases=None, **o: plan_output_perturbation(problem, n, **o),
}
RELATIONS = ("replace", "add-remove")
# What → (how to ask for it, what is said before data, why).
IMPOSSIBLE = {
    "no strong convexity": (
        lambda: [PLANS[name](problem("logistic", ridge=0.0), 40, **CAPPED) for name in ("output-perturbation",)],
        "strong convexity is 0",
        "the minimizer of a merely convex risk is not stable",
    ),
    "no strong convexity, Algorithm 5": (
        lambda: PLANS["strongly-convex-erm"](problem("distance", ridge=0.0), 40, **CAPPED),
        "needs a strongly convex loss",
        "as above",
    ),
    "no strong convexity, Algorithm 6": (
        lambda: PLANS["strongly-convex-sco"](problem("softmax", ridge=0.0), 40, **CAPPED),
        "needs a strongly convex loss",
        "as above",
    ),
    "blocks of 2 users": (
        lambda: PLANS["phased-sco"](problem("mean"), 2, **CAPPED),
        "15 users in all, got 2",
        "half of 2 users is no sample",
    ),
    "deletion test of 2 users": (
        lambda: PLANS["output-perturbation"](problem("mean"), 2, **DELETION),
        r"needs at least \d+ users .* got 2",
        "the test deletes up to 4κ + 1 users",
    ),
    "deletion test of tangents": (
        lambda: plan_phased_erm(problem("logistic"), 40, radius=1.0, schedule="linear", **DELETION),
        "needs release='capped'",
        "a tangent has no minimizer",
    ),
    "deletion test of part of a budget": (
        lambda: PLANS["output-perturbation"](problem("mean"), 40, **DELETION | {"share": 0.5}),
        "be 1 for the deletion test",
        "it is accounted for by (ε, δ), not by μ",
    ),
}
CAPPED = {"epsilon": 1.0, "delta": 1e-6, "rows_per_user": 1, "force_cap": 0.25}
# κ = 2 and a declared G of four times the truth: the certificate always finds its proof, no search is needed.
DELETION = {"epsilon": 400.0, "delta": 0.2, "rows_per_user": 1, "release": "deletion-test"}


class Silent(SeededNoise):
    """Releases the value itself."""

    def gaussian(self, values: np.ndarray, scale: float) -> np.ndarray:
        return np.asarray(values)


def problem(loss: str, d: int = 2, ridge: float = RIDGE, scale: float = 1.0) -> Problem:
    model = MODELS[loss](FeatureMap.identity(d, bound=BOUND))
    row = BOUND * math.sqrt(d)
    steepest = {"squared": row * (row * RADIUS + BOUND), "mean": RADIUS + row, "softmax": 1.5 * row}.get(loss, row)
    return Problem(model, scale * (steepest + ridge * 2 * RADIUS), Ball(np.zeros(model.dimension), RADIUS), ridge)


def rows(n: int, m: int = 4, d: int = 2, seed: int = 0, same: bool = False) -> list[tuple[np.ndarray, np.ndarray]]:
    """Users with rows and targets that suit every loss: 0, 1 and 2 are classes, labels and numbers."""
    rng = np.random.default_rng(seed)
    users = []
    for _ in range(n):
        X = 0.4 * rng.normal(size=(m, d)) + 0.2
        users.append((X, (X[:, 0] + 0.5 * rng.normal(size=m) > 0).astype(float)))
    return [users[0]] * n if same else users


def dataset(users: list[tuple[np.ndarray, np.ndarray]], order: np.ndarray | None = None) -> UserDataset:
    X, y = np.concatenate([X for X, _ in users]), np.concatenate([y for _, y in users])
    groups = np.repeat(np.arange(len(users)), [len(y) for _, y in users])
    order = np.arange(len(y)) if order is None else order
    return UserDataset.from_arrays(X[order], y[order], groups[order])


def evil(d: int = 2) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Users that pull as hard as they can, whatever the loss."""
    many = np.random.default_rng(1).normal(size=(10_000, d)) + 5.0
    return {
        "far": (np.full((1, d), 1e6), np.array([-1e6])),
        "opposite": (np.full((3, d), -1e6), np.array([1e6, 2.0, 1e6])),
        "10^4 rows": (many, np.zeros(10_000)),
    }


@dataclass(frozen=True)
class Case:
    """One combination; ``users`` is the smallest number that its plan takes."""

    loss: str
    algorithm: str
    release: str
    adjacency: str

    @property
    def options(self) -> dict:
        return (CAPPED if self.release == "capped" else DELETION) | {"adjacency": self.adjacency}

    @property
    def users(self) -> int:
        blocks = self.algorithm.endswith("sco")
        return (16 if blocks else 6) if self.release == "capped" else (40 if blocks else 20)

    def problem(self, d: int = 2) -> Problem:
        if self.release == "capped":
            return problem(self.loss, d)
        declared = problem(self.loss, d, scale=4.0)
        if isinstance(declared.model, RowWeighted):  # nobody has more rows than this: G is true for all
            return replace(declared, model=RowWeighted(declared.model.model, 10_000.0))
        return declared

    def plan(self, target: Problem, **changes):
        return PLANS[self.algorithm](target, self.users, **self.options | changes)

    def run(self, data: UserDataset, target: Problem | None = None, noise=None, **changes):
        target = target or self.problem(data.n_features)
        plan = self.plan(target, **changes)
        budget = Budget(plan.settings.epsilon, plan.settings.delta, self.adjacency, plan.settings.gdp)
        channel = Channel(budget, noise or Silent(7))
        return run(data, target, plan, channel=channel, allow_exponential=True, progress=False)


def every(release: str):
    """All combinations; of every loss and algorithm one relation is quick, in turn, the other one slow."""
    return [
        pytest.param(
            Case(loss, algorithm, release, adjacency),
            id=f"{loss}, {algorithm}, {adjacency}",
            marks=[pytest.mark.slow] if (i + j + k) % 2 else [],
        )
        for i, loss in enumerate(MODELS)
        for j, algorithm in enumerate(PLANS)
        for k, adjacency in enumerate(RELATIONS)
    ]


@cache
def optimum(loss: str, same: bool = False) -> tuple[Problem, list, float]:
    """The non-private optimum of the empirical risk, by another solver."""
    target, users = problem(loss), rows(16, same=same)
    data = dataset(users)
    best = minimize(lambda theta: target.risk(data, theta), target.start, method="BFGS", options={"gtol": 1e-8})
    assert np.linalg.norm(best.x) < RADIUS
    return target, users, best.fun


class Promises:
    """What every combination keeps; subclasses say which combinations."""

    def test_no_neighbour_moves_a_release_by_more_than_its_sensitivity(self, case: Case) -> None:
        """Noise is left out and slots are the same, so the first release that reads the changed user moves by what the
        minimizers move."""
        users = rows(case.users)
        base = case.run(dataset(users))
        steps = [step for stage in base.plan.stages for step in stage.steps]
        limits = [sensitivity(step, sigma) for step, sigma in zip(steps, base.sigmas)]
        moved = {}
        for name, user in evil().items():
            if case.adjacency == "replace":
                other = case.run(dataset([user, *users[1:]]))
            else:
                other = case.run(dataset([*users, user]))
            changed = [np.linalg.norm(a - b) for a, b in zip(base.points, other.points)]
            first = next((i for i, move in enumerate(changed) if move > 0), 0)
            assert changed[first] <= limits[first], name
            moved[name] = changed[first] / limits[first]
        self.teeth(case, moved)

    def teeth(self, case: Case, moved: dict[str, float]) -> None:
        """How near to the limit the search must come."""

    def test_the_certified_distance_is_true(self, case: Case) -> None:
        """Against an independent solver, with a cap that binds nobody."""
        changes = {"force_cap": 10.0} if case.release == "capped" else {}
        target = case.problem()
        data = dataset(rows(case.users))
        found = case.run(data, target, **changes)
        stage = found.plan.stages[0]
        step = stage.steps[0]
        if stage.parallel:
            slots = [step.slots for step in stage.steps]
            data = assign_slots(data, slots, case.users, case.adjacency, Silent(7))[0]
        normalizer = data.n_users if case.release == "deletion-test" else step.n_users
        # A curvature that all users share counts once, however many of the declared users there are.
        shared = target.strong_convexity - target.ridge
        common = target.ridge + step.regularization + shared * (1 - data.n_users / normalizer)

        def objective(theta):
            losses = LocalEngine(data).each(lambda block: target.model.user_losses(block, theta))
            return losses.sum() / normalizer + common / 2 * float(theta @ theta)

        best = minimize(objective, target.start, method="BFGS", options={"gtol": 1e-9})
        close = 0.01 * sensitivity(step, found.sigmas[0]) if case.release == "capped" else step.release.inexactness
        # The independent solver is itself no nearer than √(2·gap/λ), its gap about 1e-12.
        assert np.linalg.norm(found.points[0] - best.x) <= close + math.sqrt(2e-11 / step.strong_convexity)

    def test_order_of_rows_and_users_does_not_matter(self, case: Case) -> None:
        """Blocks of users are dealt out by position: there only the order of rows is free."""
        users = rows(case.users)
        data = dataset(users)
        order = np.random.default_rng(3).permutation(data.n_rows)
        if case.algorithm.endswith("sco"):
            order = np.concatenate([4 * k + np.random.default_rng(k).permutation(4) for k in range(case.users)])
        first, again = case.run(data), case.run(dataset(users, order))
        for a, b, sigma in zip(first.points, again.points, first.sigmas):
            assert np.linalg.norm(a - b) <= 0.02 * sigma

    def test_strange_data_is_no_failure(self, case: Case) -> None:
        """Constant columns, and more features than users."""
        users = [(np.hstack([X[:, :1], 0 * X[:, 1:] + 0.7]), y) for X, y in rows(case.users)]
        assert np.isfinite(case.run(dataset(users), noise=SeededNoise(0)).theta).all()
        wide = [(X, y) for X, y in rows(case.users, d=case.users + 1)] if case.users <= 6 else []
        if wide:
            assert np.isfinite(case.run(dataset(wide), noise=SeededNoise(0)).theta).all()


def sensitivity(step, sigma: float) -> float:
    if isinstance(step.release, CappedShare):
        return sigma * step.release.gdp
    return step.release.calibration.sensitivity * step.release.threshold + 2 * step.release.inexactness


@pytest.mark.parametrize("case", every("capped"))
class TestCapped(Promises):
    def teeth(self, case, moved):
        """The worst of three users comes within a factor 4 of the bound where all users are in one release."""
        if case.algorithm in ("output-perturbation", "phased-erm"):
            assert max(moved.values()) > 0.25

    def test_without_noise_the_risk_is_the_least(self, case):
        """ε → ∞ and no user capped. Blocks of users get equal users, so that every block has the same optimum; under
        add/remove they have random sizes, which no ε removes, and nothing is promised.
        """
        if case.algorithm.endswith("sco") and case.adjacency == "add-remove":
            case = replace(case, adjacency="replace")
        target, users, best = optimum(case.loss, same=case.algorithm.endswith("sco"))
        changes = {"epsilon": 1e6, "force_cap": 10.0, "phases": 8, "rows_per_user": 10**8}
        for data in (dataset(users), dataset(users + users)):  # duplicated users have the same optimum
            plan = PLANS[case.algorithm](target, data.n_users, **case.options | changes)
            budget = Budget(1e6, 1e-6, case.adjacency, plan.settings.gdp)
            found = run(data, target, plan, channel=Channel(budget, Silent(0)), progress=False)
            assert target.risk(data, found.theta) <= best + 1e-3


@pytest.mark.parametrize("case", every("deletion-test"))
class TestDeletionTest(Promises):
    pass


@pytest.mark.parametrize("loss", MODELS)
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_two_users(loss, adjacency):
    users = dataset(rows(2))
    public = CAPPED | {"adjacency": adjacency, "random_state": 0}
    if adjacency == "add-remove":
        public["n_users"] = 2
    for algorithm in (output_perturbation, strongly_convex_erm):
        assert np.isfinite(algorithm(users, problem(loss), **public).theta).all()
    assert np.isfinite(phased_erm(users, problem(loss), radius=1.0, **public).theta).all()
    for algorithm in (phased_sco, strongly_convex_sco):
        with pytest.raises(ValueError, match="15 users in all, got 2"):
            algorithm(users, problem(loss), **public | ({"radius": 1.0} if algorithm is phased_sco else {}))


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_is_impossible_is_refused_before_data(name):
    ask, message, _ = IMPOSSIBLE[name]
    with pytest.raises(ValueError, match=message) as caught:
        ask()
    assert "\n" not in str(caught.value)
