"""Carrying out a plan: the one loop behind Algorithms 2–6."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from userdp.accounting import Adjacency, Budget, Guarantee, total
from userdp.algorithms.plan import CappedShare, Plan, Stage, Step
from userdp.algorithms.problem import Problem
from userdp.algorithms.schedule import FINAL_DECAY, decay_for, precision_mean
from userdp.data import UserDataset
from userdp.engines import LocalEngine
from userdp.losses.base import Floats
from userdp.mechanisms.constrained import constrained_minimizer, plan_on_set
from userdp.mechanisms.deletion import SearchTooLarge
from userdp.mechanisms.deletion_minimizer import deletion_minimizer, refuse_large_search
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.noise import Noise, noise_from
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
    data: UserDataset,
    problem: Problem,
    plan: Plan,
    *,
    random_state: int | np.random.Generator | None = None,
    allow_exponential: bool = False,
    progress: bool = True,
) -> PaperRelease:
    """Carry out ``plan`` on data.

    θ̂ starts at the problem's public starting point. After ⊥ the algorithm continues from the previous release, which is
    public, and the ⊥ has been paid for like any other answer. Every centre is projected onto the set before it is used.

    **Formal guarantee.** (ε, δ)-DP for the user under the plan's relation, for every dataset
    (docs/proofs/algorithms.md, Theorem 3). ``random_state`` makes the result reproducible and voids the guarantee.
    """
    if problem.dimension != plan.dimension or data.n_features != problem.model.features.center.size:
        raise ValueError(f"the plan is for {plan.dimension} coefficients, the data has {data.n_features} features")
    if plan.settings.adjacency == "replace" and data.n_users != plan.n_users:
        raise ValueError(f"the plan is for {plan.n_users} users, the data has {data.n_users}")
    for stage in plan.stages:
        for step in stage.steps:
            if not isinstance(step.release, CappedShare):
                refuse_large_search(step.release, allow_exponential)
    noise = noise_from(random_state)
    runner = _Runner(problem, plan, noise, allow_exponential, progress)
    theta = problem.start
    for stage in plan.stages:
        theta = runner.stage(data, stage, theta)
    cost = total(plan.event)
    settings = plan.settings
    guarantee = Guarantee(
        settings.epsilon,
        settings.delta,
        "user",
        settings.adjacency,
        cost.gdp if settings.release == "capped" else None,
        plan.n_users,
        noise.reproducible,
    )
    diagnostics = tuple(runner.diagnostics)
    return PaperRelease(theta, tuple(runner.points), tuple(runner.sigmas), plan, guarantee, diagnostics)


@dataclass(eq=False)
class _Runner:
    problem: Problem
    plan: Plan
    noise: Noise
    allow_exponential: bool
    progress: bool
    points: list[Floats | None] = field(default_factory=list)
    sigmas: list[float] = field(default_factory=list)
    diagnostics: list[str] = field(default_factory=list)

    def stage(self, data: UserDataset, stage: Stage, theta: Floats) -> Floats:
        domain = self.problem.domain
        center = domain.project(theta)
        if np.isfinite(stage.radius):
            domain = Within(domain, Ball(center, stage.radius))
        if stage.parallel:
            parts = assign_slots(
                data, [step.slots for step in stage.steps], self.plan.n_users, self.adjacency, self.noise
            )
        else:
            parts = [data] * len(stage.steps)
        proposals: list[Floats] = []
        for step, part in zip(stage.steps, parts, strict=True):
            released = self.release(part, step, domain, center)
            self.points.append(released)
            if released is None:
                continue
            proposals.append(released)
            if math.isfinite(stage.to_go):
                last = step is stage.steps[-1]
                decay = FINAL_DECAY if last else decay_for(len(center) * (self.sigmas[-1] / stage.to_go) ** 2)
                released, _ = precision_mean(proposals, self.sigmas[-len(proposals) :], decay)
            center = domain.project(released)
        return center

    def release(self, data: UserDataset, step: Step, domain: ConvexSet, center: Floats) -> Floats | None:
        model, weight, middle = self.problem.around(center, step.regularization, tangent=step.tangent)
        if not isinstance(step.release, CappedShare):
            inside = Within(domain, Ball(center, step.ball)) if np.isfinite(step.ball) else domain
            found = deletion_minimizer(
                data,
                model,
                weight,
                middle,
                inside,
                center,
                step.release,
                self.noise,
                self.allow_exponential,
                self.progress,
            )
            self.sigmas.append(step.sigma)
            skipped = "certified" if found.diagnostics.certified else f"searched, deleted {found.diagnostics.deleted}"
            self.diagnostics.append(f"{step.label}: {skipped}")
            return found.value
        engine = LocalEngine(data)
        budget = Budget(self.plan.settings.epsilon, self.plan.settings.delta, self.adjacency, step.release.gdp)
        capped = plan_on_set(
            model,
            step.n_users,
            self.adjacency,
            cap=step.release.cap,
            regularization=weight,
            gdp=step.release.gdp,
            center=middle,
            domain=domain,
            rounding=engine.rounding,
        )
        channel = Channel(budget, self.noise)
        if data.n_users == 0:  # an empty random block under add/remove: the minimizer is the centre
            self.sigmas.append(capped.sigma)
            self.diagnostics.append(f"{step.label}: no users")
            return channel.release(domain.project(middle), capped.sensitivity, capped.gdp, step.label)
        value, solution = constrained_minimizer(
            engine, model, middle, domain, capped, step.n_users, channel, step.label
        )
        self.sigmas.append(capped.sigma)
        self.diagnostics.append(f"{step.label}: {solution.capped} capped, {solution.steps} steps")
        return value

    @property
    def adjacency(self) -> Adjacency:
        return self.plan.settings.adjacency
