"""Carrying out a plan: the one loop behind Algorithms 2–6."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from userdp.accounting import Adjacency, Budget, Guarantee, total
from userdp.algorithms.plan import CappedShare, Plan, Stage, Step
from userdp.algorithms.problem import Problem
from userdp.algorithms.schedule import step_length, way_weights
from userdp.data import UserBlock, UserDataset
from userdp.engines import Engine, LocalEngine
from userdp.losses.base import Floats
from userdp.mechanisms.constrained import constrained_minimizer, plan_on_set
from userdp.mechanisms.deletion import SearchTooLarge
from userdp.mechanisms.deletion_minimizer import deletion_minimizer, refuse_large_search
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.noise import noise_from
from userdp.mechanisms.slots import assign_slots
from userdp.solvers.sets import Ball, ConvexSet, Within

__all__ = ["PaperRelease", "SearchTooLarge", "run"]


@dataclass(frozen=True, eq=False)
class PaperRelease:
    """What an algorithm publishes: its plan and every released point (None for ⊥), the model being the last one on K.

    ``diagnostics`` tells, for each release, whether the certificate skipped the search (deletion test) or how many
    users were capped: it depends on the data, is not private, and must not be published.
    """

    theta: Floats
    points: tuple[Floats | None, ...]
    sigmas: tuple[float, ...]
    plan: Plan
    guarantee: Guarantee
    diagnostics: tuple[str, ...] = field(repr=False)


def run(
    data: UserDataset | Engine,
    problem: Problem,
    plan: Plan,
    *,
    random_state: int | np.random.Generator | None = None,
    allow_exponential: bool = False,
    progress: bool = True,
    channel: Channel | None = None,
    engine: Callable[[UserDataset], Engine] = LocalEngine,
) -> PaperRelease:
    """Carry out ``plan`` on data.

    Releases go through ``channel``, whose budget may have paid for others before; by default one of their own.
    ``engine`` is made for rows of this process; an engine may stand for data whose rows are elsewhere, as long as
    nothing needs blocks of users or single ones.

    θ̂ starts at the problem's public starting point. After ⊥ the algorithm continues from the previous release, which is
    public, and the ⊥ has been paid for like any other answer. Every centre is projected onto the set before it is used.

    **Formal guarantee.** (ε, δ)-DP for the user under the plan's relation, for every dataset
    (docs/proofs/algorithms.md, Theorem 3). ``random_state`` makes the result reproducible and voids the guarantee.
    """
    if problem.dimension != plan.dimension or data.n_features != problem.model.n_features:
        raise ValueError(f"the plan is for {plan.dimension} coefficients, the data has {data.n_features} features")
    if plan.settings.adjacency == "replace" and data.n_users != plan.n_users:
        raise ValueError(f"the plan is for {plan.n_users} users, the data has {data.n_users}")
    for stage in plan.stages:
        for step in stage.steps:
            if not isinstance(data, UserDataset) and (stage.parallel or not isinstance(step.release, CappedShare)):
                raise ValueError(f"{plan.algorithm} needs the users one by one: it works on rows of this process only")
            if not isinstance(step.release, CappedShare):
                refuse_large_search(step.release, allow_exponential)
    settings = plan.settings
    if channel is None:
        budget = Budget(settings.epsilon, settings.delta, settings.adjacency, settings.gdp)
        channel = Channel(budget, noise_from(random_state))
    runner = _Runner(problem, plan, channel, engine, allow_exponential, progress)
    theta = problem.start
    for stage in plan.stages:
        theta = runner.stage(data, stage, theta)
    cost = total(plan.event)
    guarantee = Guarantee(
        settings.epsilon,
        settings.delta,
        "user",
        settings.adjacency,
        cost.gdp if settings.release == "capped" else None,
        plan.n_users,
        channel.noise.reproducible,
    )
    diagnostics = tuple(runner.diagnostics)
    return PaperRelease(theta, tuple(runner.points), tuple(runner.sigmas), plan, guarantee, diagnostics)


@dataclass(eq=False)
class _Runner:
    problem: Problem
    plan: Plan
    channel: Channel
    engine: Callable[[UserDataset], Engine]
    allow_exponential: bool
    progress: bool
    points: list[Floats | None] = field(default_factory=list)
    sigmas: list[float] = field(default_factory=list)
    diagnostics: list[str] = field(default_factory=list)

    def stage(self, data: UserDataset | Engine, stage: Stage, theta: Floats) -> Floats:
        domain = self.problem.domain
        center = domain.project(theta)
        if np.isfinite(stage.radius):
            domain = Within(domain, Ball(center, stage.radius))
        budgets = [self.channel.budget] * len(stage.steps)
        parts = [data] * len(stage.steps)
        if stage.parallel and isinstance(data, UserDataset):
            slots = [step.slots for step in stage.steps]
            parts = [*assign_slots(data, slots, self.plan.n_users, self.adjacency, self.channel.noise)]
            budgets = self.disjoint(stage)
        way: list[Floats] = []
        for step, part, budget in zip(stage.steps, parts, budgets, strict=True):
            released = self.release(part, step, domain, center, Channel(budget, self.channel.noise))
            self.points.append(released)
            if released is None:
                continue
            if math.isfinite(stage.to_go):
                released = center + step_length(len(center) * (self.sigmas[-1] / stage.to_go) ** 2) * (
                    released - center
                )
            way.append(released)  # a mean of points on the boundary would lie inside
            center = domain.project(released)
        if math.isfinite(stage.to_go):
            center = domain.project(way_weights(self.sigmas[-len(way) :]) @ np.array(way))
        return center

    def disjoint(self, stage: Stage) -> list[Budget]:
        """Charge a stage on disjoint blocks of users once, as the joint release it is, and give every block its own."""
        gdp, steps = total(stage.event).gdp, stage.steps
        if gdp:
            label = f"{steps[0].label} to {len(steps)}, each on its own users" if len(steps) > 1 else steps[0].label
            self.channel.budget.charge(gdp, label, len(steps) * self.plan.dimension)
        budget = self.channel.budget
        return [
            Budget(budget.epsilon, budget.delta, self.adjacency, step.release.gdp)
            if isinstance(step.release, CappedShare)
            else budget
            for step in steps
        ]

    def release(
        self, data: UserDataset | Engine, step: Step, domain: ConvexSet, center: Floats, channel: Channel
    ) -> Floats | None:
        model, weight, middle = self.problem.around(center, step.regularization, tangent=step.tangent)
        if isinstance(data, UserDataset) and not isinstance(step.release, CappedShare):
            inside = Within(domain, Ball(center, step.ball)) if np.isfinite(step.ball) else domain
            found = deletion_minimizer(
                data,
                model,
                weight,
                middle,
                inside,
                center,
                step.release,
                channel.noise,
                self.allow_exponential,
                self.progress,
            )
            self.sigmas.append(found.plan.sigma)
            skipped = "certified" if found.diagnostics.certified else f"searched, deleted {found.diagnostics.deleted}"
            self.diagnostics.append(f"{step.label}: {skipped}")
            return found.value
        if not isinstance(step.release, CappedShare):
            raise ValueError(f"{step.label} needs the users one by one")
        if isinstance(data, UserDataset):
            data = self.engine(data if data.n_users else _nobody(data))
        common = self.problem.common
        lipschitz = math.inf if step.tangent else self.problem.lipschitz  # a tangent is one gradient step, no more
        capped = plan_on_set(
            model,
            step.n_users,
            self.adjacency,
            cap=step.release.cap,
            regularization=weight,
            gdp=step.release.gdp,
            center=middle,
            domain=domain,
            rounding=data.rounding,
            common=common,
            lipschitz=lipschitz,
        )
        value, solution = constrained_minimizer(
            data, model, middle, domain, capped, step.n_users, channel, step.label, common
        )
        self.sigmas.append(capped.sigma)
        self.diagnostics.append(f"{step.label}: {solution.capped} capped, {solution.steps} steps")
        return value

    @property
    def adjacency(self) -> Adjacency:
        return self.plan.settings.adjacency


def _nobody(data: UserDataset) -> UserDataset:
    """An empty random block under add/remove, as one user without rows: its loss is 0, nothing else changes."""
    features, target, _ = data.arrays()
    return UserDataset((UserBlock(features, target, np.zeros(2, dtype=np.int64)),), (None,), data.columns)
