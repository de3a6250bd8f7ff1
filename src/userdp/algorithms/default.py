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
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from userdp.accounting import Adjacency, Budget, Unit
from userdp.algorithms.calibration import (
    FIRST_LOOK,
    choose_cap,
    clean,
    closer_look,
    first_look,
    gradient_sizes,
    whitening,
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
        moment = dimension <= LARGEST_MOMENT
        return cls(
            n_users,
            dimension,
            budget.epsilon,
            budget.delta,
            budget.adjacency,
            budget.gdp,
            looks,
            look,
            0.01 if moment else 0.0,
            0.10 if moment else 0.0,
            (0, 4, 10, 20) if learn_cap else (),
            cap,
            40,
        )

    @property
    def phase_share(self) -> float:
        """What is left for the phases."""
        return 1 - self.looks * self.look - self.moment_cap - self.moment - len(self.caps) * self.cap

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
        if self.moment:
            lines.append(f"{100 * (self.moment_cap + self.moment):5.1f} %  second moment of the scaled features")
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
    with _progress(verbose, plan.phases + 3) as advance:
        features = fit.units(plan, n_features, fit_intercept)
        advance("learning units")
        model = fit.geometry(plan, LinearModel(loss, features))
        advance("learning geometry")
        points, sigmas, caps = fit.phases(plan, model, force_cap, advance)
    theta, variance = _average(points, sigmas, decay=0.96)
    weights = model.coefficients(theta)
    coef, intercept = features.unfold(weights)
    spread = np.eye(model.dimension) if model.geometry is None else model.geometry
    covariance = _unfold_covariance(features, variance * spread @ spread.T)
    release = LinearRelease(
        coef,
        intercept,
        budget.guarantee(fit.n_users, unit=unit, reproducible=noise.reproducible),
        tuple(budget.events),
        covariance,
        str(plan),
        {"center": features.center, "scale": features.scale, "caps": caps},
    )
    sizes = fit.engine.each(gradient_sizes, model, theta)
    return release, {"gradient_sizes": sizes, "capped_users": int(np.sum(sizes > caps[-1]))}


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

    def _users(self, statistic: Any, arguments: tuple[Any, ...], bins: Bins, share: float, label: str) -> Floats:
        """A cleaned private histogram of one number a user."""
        gdp = self._gdp(share)
        return clean(*user_histogram(self.engine, statistic, arguments, bins, gdp, self.adjacency, self.channel, label))

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
        return FeatureMap(center, scale, ROW_BOUND, intercept)

    def geometry(self, plan: DefaultPlan, model: LinearModel) -> LinearModel:
        """Coordinates in which the loss is about equally curved in every direction at θ = 0."""
        if not plan.moment:
            return model
        start = np.zeros(model.dimension)
        curvature = model.loss.smoothness
        bins = log_bins(0.5 * curvature, 2 * curvature * ROW_BOUND**2 * plan.dimension, math.sqrt(2))
        shares = self._users(moment_sizes, (model, start), bins, plan.moment_cap, "moment cap")
        cap = bins.quantile(shares, 0.3)
        moment, sigma = clipped_moment(
            self.engine, model, start, cap, self._gdp(plan.moment), plan.n_users, self.adjacency, self.channel, "moment"
        )
        lost = min(3.0, float(shares @ bins.centers) / float(shares @ np.minimum(bins.centers, cap)))
        return LinearModel(model.loss, model.features, whitening(lost * moment, lost * sigma))

    def phases(
        self, plan: DefaultPlan, model: LinearModel, force_cap: float | None, advance: Any
    ) -> tuple[list[Floats], list[float], list[float]]:
        """Released proposals θ_t − ĝ_t, the standard deviation of their noise, and the caps."""
        size = math.sqrt(plan.dimension * model.loss.smoothness)
        bins = log_bins(size * 2.0**-8, size * 2.0**4, math.sqrt(2))
        gdps = plan.phase_gdps()
        per_cap = (2 if self.adjacency == "replace" else 1) / (plan.n_users * self._gdp(plan.phase_share))
        theta = np.zeros(model.dimension)
        points: list[Floats] = []
        sigmas: list[float] = []
        caps: list[float] = [] if force_cap is None else [force_cap]
        for t, gdp in enumerate(gdps):
            if t in plan.caps:
                shares = self._users(gradient_sizes, (model, theta), bins, plan.cap, "cap")
                caps.append(choose_cap(shares, bins, model.dimension, per_cap))
            mean = clipped_mean(
                self.engine,
                model,
                theta,
                caps[-1],
                float(gdp),
                plan.n_users,
                self.adjacency,
                self.channel,
                f"phase {t + 1}",
            )
            points.append(theta - mean.value)
            sigmas.append(mean.sigma)
            noise = model.dimension * mean.sigma**2
            keep = min(1.0, 0.25 / noise)
            theta, _ = _average(points, sigmas, decay=min(max((1 - keep) / (1 + keep), 0.4), 0.92))
            advance(f"phase {t + 1} of {plan.phases}")
        return points, sigmas, caps


def _average(points: list[Floats], sigmas: list[float], decay: float) -> tuple[Floats, float]:
    """Precision-weighted mean with weights that decay with age, and the variance of its noise."""
    variance = np.square(sigmas)
    weights = decay ** np.arange(len(points))[::-1] / variance
    weights /= weights.sum()
    return np.asarray(weights @ np.array(points)), float(weights**2 @ variance)


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
