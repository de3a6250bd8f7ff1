"""Fits behind the estimators: a linear model, a multinomial one, a location; each through the default algorithm.

**Formal guarantee** of all of them. The release is (ε, δ)-DP for the unit under ``adjacency``, for every dataset
(docs/proofs/default-fit.md): each numbered release is Gaussian with a proved sensitivity, the budget is charged before
noise is drawn, and the rest is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from userdp.accounting import Adjacency, Budget, Unit, check_adjacency
from userdp.algorithms.calibration import gradient_sizes
from userdp.algorithms.default import ROW_BOUND, WINDOW, DefaultPlan, Descent, Task
from userdp.algorithms.release import LinearRelease, LocationRelease
from userdp.algorithms.schedule import FINAL_DECAY
from userdp.data import UserDataset
from userdp.data.blocks import UserBlock
from userdp.engines import Engine, Labelled, LocalEngine
from userdp.engines.base import Sums
from userdp.losses import FeatureMap, LinearModel, Loss
from userdp.losses.base import Floats, UserModel
from userdp.losses.blur import blurred
from userdp.losses.distance import DistanceModel
from userdp.losses.softmax import SoftmaxModel, contrasts
from userdp.losses.vector import VectorModel
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.histogram import Columns
from userdp.mechanisms.noise import Noise, noise_from
from userdp.mechanisms.sampling import sample_rows

DEFAULT_ALGORITHM = "auto"
ALGORITHMS = (DEFAULT_ALGORITHM,)
WEIGHTINGS = ("users", "rows")
Location = Literal["mean", "geometric-median"]
# Rows of this process, or an engine that knows where they are: a plan needs the numbers of users and features only.
Data = UserDataset | Engine


@dataclass(frozen=True)
class FitSettings:
    """Public choices of a fit; bad ones are refused before anything is read.

    Args:
        epsilon: privacy parameter ε.
        delta: privacy parameter δ.
        adjacency: "replace" or "add-remove".
        n_users: public number of users; required under add/remove, where the real number is what is hidden.
        algorithm: "auto".
        force_cap: how hard a user may pull, in private units; None: learnt privately.
        fit_intercept: whether predictions have a constant term.
        weighting: "users" (each counts once) or "rows" (each counts as often as it has rows, as far as the cap allows).
        max_rows_per_user: sample so many rows of every user that has more; None: keep all.
        l2: strength of (l2/2)‖w‖² on coefficients in private units, the intercept's excepted.
        center: public coefficients to start from and to shrink towards, the intercept last; None: 0.
        feature_bounds: public (low, high), numbers or one of each a feature; None: units are learnt privately.
        unit: what one user is, for the guarantee.
        random_state: seed; reproducible, *not private*.
        verbose: show a progress bar.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency = "replace"
    n_users: int | None = None
    algorithm: str = DEFAULT_ALGORITHM
    force_cap: float | None = None
    fit_intercept: bool = True
    weighting: str = "users"
    max_rows_per_user: int | None = None
    l2: float = 0.0
    center: Any = None
    feature_bounds: Any = None
    unit: Unit = "user"
    random_state: Any = None
    verbose: bool = False

    def __post_init__(self) -> None:
        check_adjacency(self.adjacency)
        _check_name("algorithm", self.algorithm, ALGORITHMS)
        _check_name("weighting", self.weighting, WEIGHTINGS)
        if self.force_cap is not None and not (self.force_cap > 0 and math.isfinite(self.force_cap)):
            raise ValueError(f"force_cap must be a positive number or None, got {self.force_cap}")
        _check_count("max_rows_per_user", self.max_rows_per_user)
        _check_count("n_users", self.n_users)
        if self.adjacency == "add-remove" and self.n_users is None:
            raise ValueError('adjacency="add-remove" hides how many users there are: declare a public n_users')
        if not 0 <= self.l2 < math.inf:
            raise ValueError(f"l2 must be a number of at least 0, got {self.l2}")

    def public_users(self, present: int) -> int:
        """The number of users that formulas use: the declared one, or under replacement the real one."""
        if self.n_users is None:
            return present
        if self.adjacency == "replace" and present != self.n_users:
            raise ValueError(f"n_users = {self.n_users} was declared, but the data has {present} users")
        if present > 2 * self.n_users:
            raise ValueError(f"n_users = {self.n_users} was declared, but there are more than twice as many")
        return self.n_users

    def start(self, shape: tuple[int, ...]) -> Floats:
        """The public centre, intercept last."""
        if self.center is None:
            return np.zeros(shape)
        center = np.asarray(self.center, dtype=np.float64)
        if center.shape != shape or not np.all(np.isfinite(center)):
            raise ValueError(
                f"center must be finite numbers of shape {shape}, the intercept last, got shape {center.shape}"
            )
        return center

    def bounds(self, n_features: int) -> tuple[Floats, Floats] | None:
        """Low and high of every feature, if public."""
        if self.feature_bounds is None:
            return None
        try:
            low, high = (
                np.broadcast_to(np.asarray(end, dtype=np.float64), (n_features,)) for end in self.feature_bounds
            )
        except (TypeError, ValueError):
            raise ValueError(
                f"feature_bounds must be (low, high), numbers or {n_features} of each, got {self.feature_bounds!r}"
            ) from None
        if not np.all(np.isfinite(low) & np.isfinite(high) & (low < high)):
            raise ValueError("feature_bounds must be finite with low < high for every feature")
        return low, high


def fit_linear(
    data: Data, loss: Loss, *, scale_target: bool = False, labels: Floats | None = None, **settings: Any
) -> tuple[LinearRelease, dict[str, Any]]:
    """Minimize (1/n) Σ_k h_k(w) + (l2/2)‖w‖², h_k the mean loss φ(⟨w, x̃⟩, ỹ) of user k; see ``FitSettings``.

    ``scale_target`` learns location and scale of the target privately, as for features: φ then sees ỹ in private units.
    ``labels`` are targets that stand for 0, 1, … Returns the release and the diagnostics (not private).
    """
    chosen = FitSettings(**settings)
    center = chosen.start((data.n_features + chosen.fit_intercept,))
    seen = blurred(loss, WINDOW)
    task = Task(
        lambda features, geometry: LinearModel(loss, features, geometry),
        lambda features, geometry: LinearModel(seen, features, geometry),
        seen.smoothness if math.isfinite(seen.smoothness) else 1.0,
    )
    fit = _Fit.of(chosen, data, task, intercept=chosen.fit_intercept, target=scale_target, labels=labels)
    features = fit.units()
    start = np.zeros_like(center) if chosen.center is None else features.fold(center)
    end = fit.descend(features, start[None, :])
    coef, intercept = features.unfold(end.coefficients[0])
    covariance = _unfold_covariance(features, end.covariance)
    published = fit.published(features, covariance, end, str(loss))
    return LinearRelease(coef, intercept, *features.limits, **published), end.diagnostics


def fit_softmax(
    data: Data, classes: int, *, labels: Floats | None = None, **settings: Any
) -> tuple[LinearRelease, dict[str, Any]]:
    """Minimize (1/n) Σ_k h_k(W) + (l2/2)‖W‖², h_k user k's mean of −log softmax(W x̃)_y; targets are 0, …, K − 1,
    or ``labels``.

    The coefficients, (K, features), sum to zero over the classes; ``noise_covariance`` is that of any one class.
    """
    chosen = FitSettings(**settings)
    basis = contrasts(classes)
    center = chosen.start((classes, data.n_features + chosen.fit_intercept))
    task = Task(
        lambda features, geometry: SoftmaxModel(classes, features, geometry),
        lambda features, geometry: SoftmaxModel(classes, features, geometry),
        1 / classes,
        classes - 1,
    )
    fit = _Fit.of(chosen, data, task, intercept=chosen.fit_intercept, labels=labels)
    features = fit.units()
    end = fit.descend(features, basis.T @ np.array([features.fold(row) for row in center]))
    rows = [features.unfold(row) for row in basis @ end.coefficients]
    coef, intercept = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    covariance = (1 - 1 / classes) * _unfold_covariance(features, end.covariance)
    published = fit.published(features, covariance, end, f"multinomial loss of {classes} classes")
    return LinearRelease(coef, intercept, *features.limits, **published), end.diagnostics


def fit_location(data: Data, location: Location, **settings: Any) -> tuple[LocationRelease, dict[str, Any]]:
    """Minimize (1/n) Σ_k h_k(θ), h_k the mean over user k's rows of ‖θ − x‖²/2 ("mean") or ‖θ − x‖
    ("geometric-median").

    The median's distances are Euclidean in the features as they came: all of them get one scale.
    """
    chosen = FitSettings(**settings, fit_intercept=False)
    center = chosen.start((data.n_features,))
    models: dict[Location, Callable[[FeatureMap], UserModel]] = {
        "mean": lambda features: VectorModel(1.0, 1.0, features),
        "geometric-median": DistanceModel,
    }
    task = Task(lambda features, geometry: models[location](features), None)
    fit = _Fit.of(chosen, data, task, intercept=False)
    features = fit.units(shift=True, one_scale=location == "geometric-median")
    start = np.zeros(data.n_features) if chosen.center is None else (center - features.center) / features.scale
    end = fit.descend(features, start[None, :])
    point = features.center + features.scale * end.coefficients[0]
    covariance = end.covariance * np.outer(features.scale, features.scale)
    loss = "squared distance" if location == "mean" else str(DistanceModel(features))
    published = fit.published(features, covariance, end, loss)
    return LocationRelease(point, **published), end.diagnostics


@dataclass(frozen=True, eq=False)
class _End:
    """Where a descent ended: (copies, dimension) coefficients on mapped features, and the covariance of each copy."""

    coefficients: Floats
    covariance: Floats
    caps: list[float]
    diagnostics: dict[str, Any]


@dataclass(eq=False)
class _Fit:
    """One fit: the budget, the plan and the steps."""

    settings: FitSettings
    n_features: int
    task: Task
    intercept: bool
    columns: Columns | None
    noise: Noise
    budget: Budget
    descent: Descent

    @classmethod
    def of(
        cls,
        settings: FitSettings,
        data: Data,
        task: Task,
        *,
        intercept: bool,
        target: bool = False,
        labels: Floats | None = None,
    ) -> _Fit:
        """Plan; data is not looked at."""
        bounds = settings.bounds(data.n_features)
        noise = noise_from(settings.random_state)
        budget = Budget.of(settings.epsilon, settings.delta, settings.adjacency)
        if settings.max_rows_per_user is not None:
            if not isinstance(data, UserDataset):
                raise ValueError("max_rows_per_user works on rows of this process: sample them before a cluster does")
            data = sample_rows(data, settings.max_rows_per_user, noise)
        columns: Columns | None = ("both" if target else "features") if bounds is None else "target" if target else None
        plan = DefaultPlan.of(
            settings.public_users(data.n_users),
            (0 if bounds is not None else data.n_features) + target,
            data.n_features + intercept,
            budget,
            learn_cap=settings.force_cap is None,
            copies=task.copies,
            learn_curvature=task.curved is not None,
            learn_rows=settings.weighting == "rows",
        )
        engine = LocalEngine(data) if isinstance(data, UserDataset) else data
        if labels is not None:
            engine = Labelled(engine, labels)
        descent = Descent(engine, Channel(budget, noise), settings.adjacency, plan)
        return cls(settings, data.n_features, task, intercept, columns, noise, budget, descent)

    def units(self, *, shift: bool = False, one_scale: bool = False) -> FeatureMap:
        """Public or private units of every column; ``shift`` moves the features also without an intercept."""
        size = self.n_features
        if self.columns is None:
            center, scale = np.zeros(size + 1), np.ones(size + 1)
        else:
            center, scale = self.descent.units(size, self.columns)
        if (bounds := self.settings.bounds(size)) is not None:
            center[:-1], scale[:-1] = (bounds[0] + bounds[1]) / 2, (bounds[1] - bounds[0]) / math.sqrt(12)
        if not (self.intercept or shift):  # a shift of the features would be an intercept in disguise
            center, scale = np.zeros(size + 1), np.hypot(center, scale)
        if one_scale:
            scale[:-1] = np.linalg.norm(scale[:-1])
        return FeatureMap(center[:-1], scale[:-1], ROW_BOUND, self.intercept, float(center[-1]), float(scale[-1]))

    def descend(self, features: FeatureMap, start: Floats) -> _End:
        """The phases and what they come to."""
        task, settings, plan = self.task, self.settings, self.descent.plan
        if plan.rows:
            task = task.weighted(self.descent.typical_rows())
        l2 = np.full(plan.dimension, settings.l2)
        l2[self.n_features :] = 0.0
        with _progress(settings.verbose, plan.phases) as advance:
            path = self.descent.phases(task, features, start, l2, settings.force_cap, advance)
        theta, variance = path.estimate(FINAL_DECAY)
        diagnostics = self._diagnostics(task.model(features, path.map), path.absolute(theta), path.caps[-1])
        covariance = variance * path.geometry.matrix @ path.geometry.matrix.T
        return _End(path.coefficients(theta), covariance, path.caps, diagnostics)

    def _diagnostics(self, model: UserModel, theta: Floats, cap: float) -> dict[str, Any]:
        """Not private. One number a user where the rows are in this process, their count from elsewhere."""
        engine = self.descent.engine
        if engine.remote:
            (count,) = engine.sum(_count_capped, model, theta, cap)
            return {"capped_users": int(count[0])}
        sizes = engine.each(gradient_sizes, model, theta)
        return {"gradient_sizes": sizes, "capped_users": int(np.sum(sizes > cap))}

    def published(self, features: FeatureMap, covariance: Floats, end: _End, loss: str) -> dict[str, Any]:
        """What every release has besides its model; ``covariance`` is that of the noise in the model."""
        details = {"center": features.center, "scale": features.scale, "caps": end.caps}
        if self.columns in ("target", "both"):
            details |= {"target_center": features.target_center, "target_scale": features.target_scale}
        lines = [str(self.descent.plan), f"loss: {loss}; users weighted by {_WEIGHTS[self.settings.weighting]}"]
        return {
            "guarantee": self.budget.guarantee(
                self.descent.plan.n_users, unit=self.settings.unit, reproducible=self.noise.reproducible
            ),
            "events": tuple(self.budget.events),
            "noise_covariance": covariance,
            "plan": "\n".join(lines),
            "details": details,
        }


def _count_capped(block: UserBlock, model: UserModel, theta: Floats, cap: float) -> Sums:
    return (np.array([np.sum(gradient_sizes(block, model, theta) > cap)], dtype=np.float64),)


_WEIGHTS = {"users": "1 each", "rows": "their rows"}


def _unfold_covariance(features: FeatureMap, covariance: Floats) -> Floats:
    """Covariance of (coef, intercept) on the original features from that on the mapped ones."""
    size = len(features.center)
    jacobian = np.zeros((size + 1, features.dimension))
    jacobian[:size, :size] = np.diag(features.target_scale / features.scale)
    jacobian[size, :size] = -features.center / features.scale * features.target_scale
    if features.intercept:
        jacobian[size, size] = features.target_scale
    return np.asarray(jacobian @ covariance @ jacobian.T)


def _check_count(name: str, value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1):
        raise ValueError(f"{name} must be a whole number of at least 1 or None, got {value!r}")


def _check_name(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")


@contextmanager
def _progress(verbose: bool, total: int) -> Iterator[Callable[[str], None]]:
    if not verbose:
        yield lambda text: None
        return
    columns = (TextColumn("{task.description:24}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task("learning units", total=total)
        yield lambda text: progress.update(task, advance=1, description=text)
