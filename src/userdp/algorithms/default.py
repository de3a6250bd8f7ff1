"""The default fit: what ``algorithm="auto"`` does.

1. Units: private histograms of every feature, one vote a user, give its location and scale; where n allows it, further
   histograms zoom in (a column like "year" needs that).
2. Geometry: a private second moment of the scaled features, its Frobenius cap from a private histogram, gives coordinates
   in which every direction is about equally curved.
3. Phases: T linear phases (docs/proofs/capped-release.md, Theorem 6): users' gradients capped at γ, averaged, released with
   noise. γ is chosen from a private histogram of gradient lengths, a few times as θ moves.
4. The model is a precision-weighted average of the later phases, shrunk where noise dominates: post-processing.

The plan (budget shares, number of phases) is a function of n, d, ε, δ alone; what depends on data is a counted release.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from userdp.accounting import Adjacency, Budget, Unit
from userdp.algorithms.calibration import (
    FIRST_LOOK,
    Geometry,
    choose_cap,
    clean,
    closer_look,
    denoise,
    first_look,
    gradient_sizes,
    shrink,
)
from userdp.algorithms.release import LinearRelease
from userdp.data import UserDataset
from userdp.engines import Engine, LocalEngine
from userdp.losses import FeatureMap, LinearModel, Loss
from userdp.losses.base import Floats
from userdp.mechanisms.capped import clipped_mean
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.histogram import Bins, linear_bins, log_bins, row_histograms, user_histogram
from userdp.mechanisms.moments import clipped_moment, moment_sizes
from userdp.mechanisms.noise import noise_from

DEFAULT_ALGORITHM = "auto"
ALGORITHMS = (DEFAULT_ALGORITHM,)

ROW_BOUND = 64.0  # rows are clamped to ±64 private units a feature: public, and far outside ordinary data
RADIUS = 20.0  # in coordinates of unit curvature: a coefficient vector this long predicts with certainty
PULL_ALIGNMENT = 0.12  # share of the pull lost to a cap that does not cancel between users
MOMENT_ALIGNMENT = 0.5
LARGEST_MOMENT = 400  # beyond this many features a full second moment costs more than it brings


@dataclass(frozen=True)
class DefaultPlan:
    """Shares of the squared Gaussian budget, and the number of phases; all from public numbers."""

    n_users: int
    dimension: int
    epsilon: float
    delta: float
    adjacency: Adjacency
    gdp: float
    looks: int
    look: float
    moments: int
    second: int
    moment_cap: float
    moment: float
    caps: tuple[int, ...]
    cap: float
    phases: int

    @classmethod
    def of(cls, n_users: int, n_features: int, dimension: int, budget: Budget, *, learn_cap: bool) -> DefaultPlan:
        """Histograms get what makes their noise about a twelfth (scales) or a thirtieth (caps) of n, within limits."""
        units = math.sqrt(2 if budget.adjacency == "replace" else 1)
        resolution = units / (n_users * budget.gdp)
        look = float(np.clip((25 * resolution) ** 2 * n_features, 0.005, 0.08))
        looks = 3 if look < 0.01 else 2 if look < 0.03 else 1
        cap = float(np.clip((21 * resolution) ** 2, 0.002, 0.03))
        difficulty = dimension**1.5 / (n_users * budget.gdp)
        moments = 0 if dimension > LARGEST_MOMENT else 2 if difficulty < 0.05 else 1
        moment = float(np.clip((8 * difficulty) ** 2, 0.005, 0.08))
        return cls(
            n_users,
            dimension,
            budget.epsilon,
            budget.delta,
            budget.adjacency,
            budget.gdp,
            looks,
            look,
            moments,
            10,
            0.005,
            moment,
            (0, 4, 10, 20) if learn_cap else (),
            cap,
            40,
        )

    @property
    def phase_share(self) -> float:
        """What is left for the phases."""
        return 1 - self.looks * self.look - self.moments * (self.moment_cap + self.moment) - len(self.caps) * self.cap

    def phase_gdps(self) -> Floats:
        """Budget of each phase: μ_t² grows like √t, because later phases weigh more in the result."""
        weights = np.sqrt(np.arange(1, self.phases + 1))
        return np.asarray(self.gdp * np.sqrt(self.phase_share * weights / weights.sum()) * (1 - 1e-14))

    def __str__(self) -> str:
        lines = [
            f"n = {self.n_users} users, {self.dimension} coefficients, ε = {self.epsilon:g}, δ = {self.delta:g} "
            f"({self.adjacency}): Gaussian budget μ = {self.gdp:.4f}",
            f"{100 * self.looks * self.look:5.1f} %  units of every feature, from histograms with one vote a user",
        ]
        if self.moments:
            share = 100 * self.moments * (self.moment_cap + self.moment)
            lines.append(f"{share:5.1f} %  curvature of the loss, {self.moments} times")
        if self.caps:
            lines.append(f"{100 * self.cap * len(self.caps):5.1f} %  cap on a user's pull, {len(self.caps)} times")
        lines.append(f"{100 * self.phase_share:5.1f} %  {self.phases} phases of capped, noisy mean gradients")
        return "\n".join(lines)


def fit_linear(
    dataset: UserDataset,
    loss: Loss,
    *,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "replace",
    algorithm: str = DEFAULT_ALGORITHM,
    force_cap: float | None = None,
    fit_intercept: bool = True,
    unit: Unit = "user",
    random_state: Any = None,
    verbose: bool = False,
    engine: Engine | None = None,
) -> tuple[LinearRelease, dict[str, Any]]:
    """Fit a linear model; returns the release and the diagnostics (not private).

    **Formal guarantee.** The release is (ε, δ)-DP for the unit under ``adjacency``, for every dataset
    (docs/proofs/default-fit.md): each numbered release is Gaussian with a proved sensitivity, the budget is charged
    before noise is drawn, and the rest is post-processing.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(map(repr, ALGORITHMS))}, got {algorithm!r}")
    if force_cap is not None and not (force_cap > 0 and math.isfinite(force_cap)):
        raise ValueError(f"force_cap must be a positive number or None, got {force_cap}")
    noise = noise_from(random_state)
    budget = Budget.of(epsilon, delta, adjacency)
    fit = _Fit(engine or LocalEngine(dataset), Channel(budget, noise), adjacency)
    n_features = dataset.n_features
    plan = DefaultPlan.of(fit.n_users, n_features, n_features + fit_intercept, budget, learn_cap=force_cap is None)
    with _progress(verbose, plan.phases + 1) as advance:
        features = fit.units(plan, n_features, fit_intercept)
        advance("learning units")
        path = fit.phases(plan, loss, features, force_cap, advance)
    theta, variance = path.estimate(decay=0.96)
    model = LinearModel(loss, features, path.geometry.matrix)
    coef, intercept = features.unfold(model.coefficients(theta))
    covariance = _unfold_covariance(features, variance * path.geometry.matrix @ path.geometry.matrix.T)
    release = LinearRelease(
        coef,
        intercept,
        budget.guarantee(fit.n_users, unit=unit, reproducible=noise.reproducible),
        tuple(budget.events),
        covariance,
        str(plan),
        {"center": features.center, "scale": features.scale, "caps": path.caps},
    )
    sizes = fit.engine.each(gradient_sizes, model, theta)
    return release, {"gradient_sizes": sizes, "capped_users": int(np.sum(sizes > path.caps[-1]))}


@dataclass(frozen=True)
class _Fit:
    """The steps that touch data."""

    engine: Engine
    channel: Channel
    adjacency: Adjacency

    @property
    def n_users(self) -> int:
        return self.engine.n_users

    def _gdp(self, share: float) -> float:
        return math.sqrt(share) * self.channel.budget.gdp * (1 - 1e-14)

    def _sizes(
        self, statistic: Any, arguments: tuple[Any, ...], expected: float, share: float, label: str
    ) -> tuple[Floats, Bins]:
        """A cleaned private histogram of one size a user, in half octaves around what is expected."""
        gdp, bins = self._gdp(share), log_bins(expected * 2.0**-8, expected * 2.0**8, math.sqrt(2))
        noisy = user_histogram(self.engine, statistic, arguments, bins, gdp, self.adjacency, self.channel, label)
        return clean(*noisy, bins, expected), bins

    def units(self, plan: DefaultPlan, n_features: int, intercept: bool) -> FeatureMap:
        """Private location and scale of every feature: a first look over all magnitudes, then zooms around the last."""
        center, scale, bins = np.zeros(n_features), np.ones(n_features), FIRST_LOOK
        for look in range(plan.looks):
            counts, sigma = row_histograms(
                self.engine,
                center,
                scale,
                bins,
                self._gdp(plan.look),
                self.adjacency,
                self.channel,
                f"units {look + 1}",
            )
            if look == 0:
                center, scale = first_look(counts, sigma, bins, plan.n_users)
            else:
                center, scale = closer_look(counts, sigma, bins, center, scale, plan.n_users)
            bins = linear_bins(-4.0, 4.0, 64)
        if not intercept:  # a shift of the features would be an intercept in disguise
            center, scale = np.zeros(n_features), np.hypot(center, scale)
        return FeatureMap(center, scale, ROW_BOUND, intercept)

    def curvature(self, plan: DefaultPlan, model: LinearModel, theta: Floats, label: str) -> Floats:
        """A private estimate of the Hessian at θ, in the coordinates of θ."""
        expected = plan.dimension**0.75 * (model.loss.smoothness if model.geometry is None else 1.0)
        shares, bins = self._sizes(moment_sizes, (model, theta), expected, plan.moment_cap, f"{label} cap")
        gdp = self._gdp(plan.moment)
        units = math.sqrt((2 if self.adjacency == "replace" else 1) * plan.dimension * (plan.dimension + 1) / 2)
        cap, common = choose_cap(shares, bins, units / (plan.n_users * gdp), MOMENT_ALIGNMENT)
        moment, sigma = clipped_moment(
            self.engine, model, theta, cap, gdp, plan.n_users, self.adjacency, self.channel, label
        )
        return denoise(moment / common, sigma / common)

    def phases(
        self, plan: DefaultPlan, loss: Loss, features: FeatureMap, force_cap: float | None, advance: Any
    ) -> _Path:
        """All phases; what comes back was released or follows from it."""
        gdps = plan.phase_gdps()
        units = (2 if self.adjacency == "replace" else 1) * math.sqrt(plan.dimension)
        expected = math.sqrt(plan.dimension) / 2
        theta = np.zeros(plan.dimension)
        path = _Path(Geometry(np.full(plan.dimension, loss.smoothness), np.eye(plan.dimension)))
        plain = LinearModel(loss, features)
        if plan.moments:
            path = _Path(Geometry.of(self.curvature(plan, plain, theta, "curvature")))
        caps: list[float] = []
        common = 1.0
        for t, gdp in enumerate(gdps):
            if plan.moments == 2 and t == plan.second:
                model = LinearModel(loss, features, path.geometry.matrix)
                inverse = path.geometry.inverse
                moment = inverse.T @ self.curvature(plan, model, theta, "curvature") @ inverse
                path, old = _Path(Geometry.of(moment)), path.geometry
                theta = path.geometry.inverse @ (old.matrix @ theta)
            model = LinearModel(loss, features, path.geometry.matrix)
            if t in plan.caps:
                shares, bins = self._sizes(gradient_sizes, (model, theta), expected, plan.cap, "cap")
                cap, common = choose_cap(
                    shares, bins, units / (plan.n_users * self._gdp(plan.phase_share)), PULL_ALIGNMENT
                )
                caps.append(cap)
            mean = clipped_mean(
                self.engine,
                model,
                theta,
                caps[-1] if force_cap is None else force_cap,
                float(gdp),
                plan.n_users,
                self.adjacency,
                self.channel,
                f"phase {t + 1}",
            )
            path.points.append(theta - mean.value / common)
            path.sigmas.append(mean.sigma / common)
            keep = min(1.0, 0.25 / (plan.dimension * path.sigmas[-1] ** 2))
            theta, _ = path.estimate(decay=min(max((1 - keep) / (1 + keep), 0.4), 0.92), caution=0.5)
            advance(f"phase {t + 1} of {plan.phases}")
        path.caps.extend(caps if force_cap is None else [force_cap])
        return path


@dataclass
class _Path:
    """Released proposals in one geometry."""

    geometry: Geometry
    points: list[Floats] = field(default_factory=list)
    sigmas: list[float] = field(default_factory=list)
    caps: list[float] = field(default_factory=list)

    def estimate(self, decay: float, caution: float = 1.0) -> tuple[Floats, float]:
        """Precision-weighted mean with weights that decay with age, shrunk where noise dominates; and its noise variance."""
        variance = np.square(self.sigmas)
        weights = decay ** np.arange(len(self.points))[::-1] / variance
        weights /= weights.sum()
        spread = float(weights**2 @ variance)
        point = shrink(weights @ np.array(self.points), caution * spread, self.geometry.values)
        return point * min(1.0, RADIUS / max(float(np.linalg.norm(point)), 1e-300)), spread


def _unfold_covariance(features: FeatureMap, covariance: Floats) -> Floats:
    """Covariance of (coef, intercept) on the original features from that on the mapped ones."""
    size = len(features.center)
    jacobian = np.zeros((size + 1, features.dimension))
    jacobian[:size, :size] = np.diag(features.target_scale / features.scale)
    jacobian[size, :size] = -features.center / features.scale * features.target_scale
    if features.intercept:
        jacobian[size, size] = features.target_scale
    return np.asarray(jacobian @ covariance @ jacobian.T)


@contextmanager
def _progress(verbose: bool, total: int) -> Iterator[Any]:
    if not verbose:
        yield lambda text: None
        return
    columns = (TextColumn("{task.description:24}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task("starting", total=total)
        yield lambda text: progress.update(task, advance=1, description=text)
