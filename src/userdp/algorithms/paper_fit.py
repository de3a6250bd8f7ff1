"""The paper's Algorithms 2–6 behind the estimators.

Units, typical numbers of rows, curvature and one cap are learnt as in the default fit, at a public share of the
Gaussian budget. The rest goes to the chosen algorithm with the capped release, in coordinates of about unit curvature:

    minimize (1/n) Σ_k h̃_k(θ) + ½⟨w, l2·w⟩ + (ρ/2)‖θ − start‖²   over ‖θ − start‖ ≤ 10,   w = Pθ.

ρ is 0 for the phased algorithms; the others need strong convexity and get the ridge that balances its bias with the
noise (``ridge_for``). The proof of the composition: docs/proofs/estimators.md, "The paper's algorithms".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from userdp.accounting import sum_sensitivity
from userdp.algorithms.default import Task, size_bins
from userdp.algorithms.default_plan import DefaultPlan
from userdp.algorithms.output_perturbation import plan_output_perturbation
from userdp.algorithms.path import Path
from userdp.algorithms.phased import plan_phased_erm, plan_phased_sco
from userdp.algorithms.plan import Plan, PublicNumbers
from userdp.algorithms.problem import Problem
from userdp.algorithms.run import PaperRelease, run
from userdp.algorithms.strongly_convex import plan_strongly_convex_erm, plan_strongly_convex_sco
from userdp.data import UserDataset
from userdp.engines import Engine
from userdp.losses import FeatureMap
from userdp.losses.base import ConvexModel, Floats
from userdp.losses.vector import VectorModel
from userdp.mechanisms.gaussian import Channel
from userdp.solvers import smallest_cap
from userdp.solvers.constrained import Quadratic
from userdp.solvers.sets import Ball

PHASED = ("phased-erm", "phased-sco")
PAPER_ALGORITHMS = (*PHASED, "strongly-convex-erm", "strongly-convex-sco", "output-perturbation")
# Rows and targets are clamped closer than in the default fit: the certified distance of a minimizer pays for the
# rounding of the largest row that is allowed.
ROW_BOUND, TARGET_BOUND = 16.0, 64.0
# Kinks are smoothed over this width, in private units: sharper ones take the certified solver very long.
SMOOTHING = 0.05
# In coordinates of unit curvature: the distance to the optimum to expect, the farthest that is searched, and how far
# from zero a start may lie.
TO_GO, RADIUS, FARTHEST_START = 2.0, 10.0, 1e3
# More coefficients than this would make a matrix for every capped user too large.
MOST_COEFFICIENTS = 200


def clamped(features: FeatureMap) -> FeatureMap:
    """The same map with the closer clamps."""
    return replace(features, bound=ROW_BOUND, target_bound=TARGET_BOUND)


@dataclass(frozen=True)
class PaperFit:
    """What is known before data: the algorithm, the relation and the shares. ``plan`` is that of the first part."""

    algorithm: str
    plan: DefaultPlan

    @classmethod
    def of(
        cls, algorithm: str, plan: DefaultPlan, task: Task, data: UserDataset | Engine, force_cap: float | None
    ) -> PaperFit:
        """Take the budget of the default's later caps, curvatures and phases; refuse what cannot be planned.

        The second part is planned after the cap is released. Whether that is possible does not depend on the cap:
        both ends of what may be released are tried here.
        """
        if plan.coefficients > MOST_COEFFICIENTS:
            raise ValueError(
                f"algorithm={algorithm!r} works with up to {MOST_COEFFICIENTS} coefficients, this model has "
                f"{plan.coefficients}: use algorithm='auto'"
            )
        if algorithm.endswith("sco") and not isinstance(data, UserDataset):
            raise ValueError(f"algorithm={algorithm!r} deals out users to blocks: that needs rows of this process")
        n_features = data.n_features
        fit = cls(algorithm, replace(plan, moments=min(plan.moments, 1), caps=plan.caps[:1]))
        features = FeatureMap.identity(n_features, intercept=plan.dimension > n_features)
        model = task.model(features, None)
        start = np.zeros(model.dimension)
        bins = size_bins(plan.expected_pull).centers
        for cap in (float(bins[0]), float(bins[-1])) if force_cap is None else (force_cap,):
            fit.second_part(fit.problem(model, start, np.zeros((0, 0)), cap), cap)
        return fit

    @property
    def chunk_users(self) -> int:
        """Users that a worker takes at a time: their matrices stay within 32 MB."""
        return max(16, min(4096, 2**22 // self.plan.coefficients**2))

    def ridge_for(self, cap: float) -> float:
        """ρ with equal expected bias ½ρ²R² and noise ½d·(s/ρ)², s = 2γ/(nμ_G) (γ/(nμ_G)), for unit curvature."""
        noise = sum_sensitivity(cap, self.plan.adjacency) / (self.plan.n_users * self.plan.gdp)
        return math.sqrt(math.sqrt(self.plan.coefficients) * noise / (TO_GO * math.sqrt(self.plan.phase_share)))

    def problem(self, model: ConvexModel, start: Floats, l2: Floats, cap: float) -> Problem:
        """The problem in the coordinates of the model; ``l2`` is the matrix of ½⟨θ, l2·θ⟩, empty for none."""
        curved = isinstance(model, VectorModel) and model.curvature > 0
        ridge = 0.0 if self.algorithm in PHASED or curved else self.ridge_for(cap)
        common = Quadratic(l2, np.zeros(len(l2))) if l2.size else None
        return Problem(model, cap, Ball(start, RADIUS), ridge, start, common)

    def second_part(self, problem: Problem, cap: float) -> Plan:
        """The chosen algorithm with what is left of the budget.

        m = 1 is declared: formulas then hold for one row a user, and no number of rows enters.
        """
        plan = self.plan
        public: PublicNumbers = {
            "epsilon": plan.epsilon,
            "delta": plan.delta,
            "rows_per_user": 1,
            "adjacency": plan.adjacency,
            "force_cap": cap,
            "share": plan.phase_share,
        }
        if self.algorithm == "phased-erm":
            return plan_phased_erm(problem, plan.n_users, radius=TO_GO, **public)
        if self.algorithm == "phased-sco":
            return plan_phased_sco(problem, plan.n_users, radius=TO_GO, **public)
        if self.algorithm == "strongly-convex-erm":
            return plan_strongly_convex_erm(problem, plan.n_users, **public)
        if self.algorithm == "strongly-convex-sco":
            return plan_strongly_convex_sco(problem, plan.n_users, **public)
        return plan_output_perturbation(problem, plan.n_users, **public)

    def run(
        self,
        model: ConvexModel,
        path: Path,
        l2: Floats,
        cap: float,
        data: UserDataset | Engine,
        engine: Callable[[UserDataset], Engine],
        channel: Channel,
    ) -> PaperEnd:
        """Carry out the second part; the cap is raised where it would be lost in the rounding of gradients."""
        start = path.absolute(np.zeros(model.dimension))
        start *= min(1.0, FARTHEST_START / max(float(np.linalg.norm(start)), 1e-300))
        norm = float(np.linalg.norm(start)) + RADIUS
        cap = max(cap, 2 * smallest_cap(model, 1.0, norm, 4 * RADIUS))
        pull = path.geometry.pulled(l2)
        common = np.kron(np.eye(len(path.start)), pull) if l2.any() else np.zeros((0, 0))
        problem = self.problem(model, start, np.asarray(common, dtype=np.float64), cap)
        plan = self.second_part(problem, cap)
        released = run(data, problem, plan, progress=False, channel=channel, engine=engine)
        theta = released.theta - path.absolute(np.zeros(model.dimension))
        own = 0.0 if isinstance(model, VectorModel) else 1.0
        return PaperEnd(released, theta, noise_variance(released, own), cap)

    def describe(self, plan: Plan) -> str:
        """The plan of the whole fit."""
        *first, _ = str(self.plan).splitlines()
        where = f"in coordinates of unit curvature, within {RADIUS:g} of the start"
        share = f"{100 * self.plan.phase_share:5.1f} %  {self.algorithm}, {where}:"
        steps = [str(step) for stage in plan.stages for step in stage.steps]
        return "\n".join([*first, share, *steps])


@dataclass(frozen=True, eq=False)
class PaperEnd:
    """What was released, the model relative to the start, its noise variance by coordinate, and the cap."""

    released: PaperRelease
    theta: Floats
    variance: float
    cap: float


def noise_variance(released: PaperRelease, own: float) -> float:
    """Of each coordinate, for users' losses of curvature ``own`` beyond what the plan counts as strong convexity Λ: a
    phase with λ passes on λ/(own + Λ) of its centre's noise.
    """
    steps = [step for stage in released.plan.stages for step in stage.steps]
    variance = 0.0
    for step, sigma in zip(steps, released.sigmas, strict=True):
        variance = variance * (step.regularization / (own + step.strong_convexity)) ** 2 + sigma**2
    return variance
