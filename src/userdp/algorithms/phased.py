"""Phased-ERM: Algorithm 3 of the paper with the capped release.

θ̂_i ≈ argmin_θ (1/n) Σ_k h̃_k(θ) + (λ_i/2)‖θ − θ̂_{i−1}‖², released with Gaussian noise, i = 1..T. The plan fixes every λ_i,
cap, tolerance and share of the budget before the data is touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from userdp.accounting import Adjacency, Budget, Guarantee, check_adjacency
from userdp.data import UserDataset
from userdp.engines import Engine, LocalEngine
from userdp.losses import FeatureMap, LinearModel, Loss
from userdp.losses.base import Floats
from userdp.mechanisms.capped import CappedPlan, capped_minimizer, plan_capped
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.noise import noise_from


@dataclass(frozen=True)
class Phase:
    """One phase: how strongly it holds on to the last release, how hard a user may pull, its share of the budget."""

    regularization: float
    cap: float
    gdp: float


@dataclass(frozen=True)
class PhasedPlan:
    """Phased-ERM, decided from public numbers; ``str(plan)`` is meant to be read."""

    n_users: int
    dimension: int
    epsilon: float
    delta: float
    adjacency: Adjacency
    phases: tuple[Phase, ...]

    def noise(self, phase: Phase) -> float:
        """Standard deviation per coefficient, without the small term for inexact minimization."""
        units = 2 if self.adjacency == "replace" else 1
        return units * phase.cap / (phase.regularization * self.n_users * phase.gdp)

    def __str__(self) -> str:
        head = (
            f"Phased-ERM, {len(self.phases)} phases, n = {self.n_users} users, d = {self.dimension}, "
            f"ε = {self.epsilon:g}, δ = {self.delta:g} ({self.adjacency})"
        )
        rows = [
            f"  {i:3d}  λ {phase.regularization:10.4g}  cap {phase.cap:9.4g}  gdp {phase.gdp:8.4g}  "
            f"noise {self.noise(phase):9.4g} a coefficient"
            for i, phase in enumerate(self.phases, 1)
        ]
        return "\n".join([head, *rows])


def plan_phased_erm(
    n_users: int,
    dimension: int,
    *,
    epsilon: float,
    delta: float,
    radius: float,
    lipschitz: float = 1.0,
    rows_per_user: int = 1,
    adjacency: str = "replace",
    force_cap: float | None = None,
    regularization: float | None = None,
    phases: int | None = None,
    growth: float = 4.0,
) -> PhasedPlan:
    """Plan Algorithm 3: T = ⌈ln(nm)⌉ phases with λ_i = λ·4^i and equal shares μ_G/√T of the Gaussian budget.

    ``radius`` R bounds the distance from the start to the optimum, ``lipschitz`` G a row's gradient, ``rows_per_user`` m is
    *declared* (the real number of rows is not public). Defaults: cap γ = min(G, 5G√(ln(nT/β)/m)) with β = 1/(nm), which
    leaves every user uncapped with probability 1 − β when rows are exchangeable, and λ = γ√(dT)/(R·n·μ_G)/growth
    (docs/proofs/rates.md); ``growth=1`` keeps λ constant.

    >>> print(plan_phased_erm(1000, 5, epsilon=1.0, delta=1e-6, radius=3.0, force_cap=0.2, phases=2))
    Phased-ERM, 2 phases, n = 1000 users, d = 5, ε = 1, δ = 1e-06 (replace)
        1  λ  ...  cap       0.2  gdp   0.1674  noise ... a coefficient
        2  λ  ...  cap       0.2  gdp   0.1674  noise ... a coefficient
    """
    for name, value in (("n_users", n_users), ("dimension", dimension), ("radius", radius), ("lipschitz", lipschitz)):
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")
    relation = check_adjacency(adjacency)
    budget = Budget.of(epsilon, delta, relation)
    count = phases or max(math.ceil(math.log(n_users * rows_per_user)), 1)
    cap = force_cap
    if cap is None:
        failure = 1.0 / (n_users * rows_per_user)
        cap = lipschitz * min(1.0, 5 * math.sqrt(math.log(n_users * count / failure) / rows_per_user))
    if regularization is None:
        regularization = cap * math.sqrt(dimension * count) / (radius * n_users * budget.gdp) / growth
    share = budget.gdp / math.sqrt(count)
    made = tuple(Phase(regularization * growth**i, cap, share) for i in range(1, count + 1))
    return PhasedPlan(n_users, dimension, epsilon, delta, relation, made)


@dataclass(frozen=True)
class PhasedRelease:
    """What Phased-ERM publishes: every point it released, the last one being the model."""

    points: tuple[Floats, ...]
    sigmas: tuple[float, ...]
    plan: PhasedPlan
    guarantee: Guarantee

    @property
    def theta(self) -> Floats:
        """The model."""
        return self.points[-1]


def phased_erm(
    dataset: UserDataset,
    loss: Loss,
    plan: PhasedPlan,
    *,
    features: FeatureMap | None = None,
    start: Floats | None = None,
    engine: Engine | None = None,
    random_state: int | np.random.Generator | None = None,
    on_phase: Callable[[int, CappedPlan], None] = lambda phase, plan: None,
) -> PhasedRelease:
    """Run a plan on data.

    **Formal guarantee.** (ε, δ)-DP for the user under the plan's neighbouring relation, for every dataset: each phase is
    μ_i-GDP given the earlier ones (docs/proofs/capped-release.md, Theorem 5) and Σμ_i² is the budget
    (docs/proofs/composition.md). ``random_state`` makes it reproducible and voids the guarantee.
    """
    engine = engine or LocalEngine(dataset)
    model = LinearModel(loss, features or FeatureMap.identity(dataset.n_features))
    if model.dimension != plan.dimension:
        raise ValueError(f"the plan is for {plan.dimension} coefficients, the data has {model.dimension}")
    if plan.adjacency == "replace" and engine.n_users != plan.n_users:
        raise ValueError(f"the plan is for {plan.n_users} users, the data has {engine.n_users}")
    noise = noise_from(random_state)
    channel = Channel(Budget.of(plan.epsilon, plan.delta, plan.adjacency), noise)
    points: list[Floats] = []
    sigmas: list[float] = []
    center = np.zeros(plan.dimension) if start is None else np.asarray(start, dtype=np.float64)
    for i, phase in enumerate(plan.phases, 1):
        step = plan_capped(
            model,
            plan.n_users,
            plan.adjacency,
            cap=phase.cap,
            regularization=phase.regularization,
            gdp=phase.gdp,
            center_norm=float(np.linalg.norm(center)),
            rounding=engine.rounding,
        )
        on_phase(i, step)
        center, _ = capped_minimizer(engine, model, center, step, plan.n_users, channel, f"phase {i}")
        points.append(center)
        sigmas.append(step.sigma)
    guarantee = channel.budget.guarantee(plan.n_users, reproducible=noise.reproducible)
    return PhasedRelease(tuple(points), tuple(sigmas), plan, guarantee)
