"""Fits behind the estimators: a linear model, a multinomial one, a location; each through the default algorithm.

**Formal guarantee** of all of them. The release is (ε, δ)-DP for the unit under ``adjacency``, for every dataset
(docs/proofs/default-fit.md): each numbered release is Gaussian with a proved sensitivity, the budget is charged before
noise is drawn, and the rest is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import numpy as np
from scipy.sparse import coo_array, diags_array, issparse, vstack

from userdp.accounting import Budget
from userdp.algorithms.calibration import gradient_sizes
from userdp.algorithms.default import BLIND_BOUND, ROW_BOUND, WINDOW, Descent, Task
from userdp.algorithms.default_plan import DefaultPlan
from userdp.algorithms.paper_fit import SMOOTHING, PaperFit, clamped
from userdp.algorithms.progress import progress_bar
from userdp.algorithms.release import LinearRelease, LocationRelease
from userdp.algorithms.settings import DEFAULT_ALGORITHM, FitSettings
from userdp.data import UserDataset
from userdp.data.blocks import UserBlock
from userdp.engines import Engine, Labelled, LocalEngine
from userdp.engines.base import Sums
from userdp.losses import FeatureMap, Hinge, LinearModel, Logistic, Loss
from userdp.losses.base import ConvexLoss, ConvexModel, Floats, UserModel
from userdp.losses.blur import blurred
from userdp.losses.distance import DistanceModel
from userdp.losses.general import GeneralModel, SubgradientModel
from userdp.losses.kink import widened
from userdp.losses.softmax import SoftmaxModel, contrasts
from userdp.losses.vector import VectorModel
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.histogram import Columns
from userdp.mechanisms.noise import Noise, noise_from
from userdp.mechanisms.sampling import sample_rows

Location = Literal["mean", "geometric-median"]
# Covariances of more numbers than this stay sparse where they are.
LARGEST_FULL = 1000
# Rows of this process, or an engine that knows where they are: a plan needs the numbers of users and features only.
Data = UserDataset | Engine


def fit_linear(
    data: Data, loss: Loss, *, scale_target: bool = False, labels: Floats | None = None, **settings: Any
) -> tuple[LinearRelease, dict[str, Any]]:
    """Minimize (1/n) Σ_k h_k(w) + (l2/2)‖w‖², h_k the mean loss φ(⟨w, x̃⟩, ỹ) of user k; see ``FitSettings``.

    ``scale_target`` learns location and scale of the target privately, as for features: φ then sees ỹ in private units.
    ``labels`` are targets that stand for 0, 1, … Returns the release and the diagnostics (not private).
    """
    chosen = FitSettings(**settings)
    center = chosen.start((data.n_features + chosen.fit_intercept,))
    if chosen.algorithm != DEFAULT_ALGORITHM:
        loss = widened(loss, SMOOTHING)
    seen = blurred(loss, WINDOW)
    task = Task(
        lambda features, geometry: LinearModel(loss, features, geometry),
        lambda features, geometry: LinearModel(seen, features, geometry),
        min(seen.smoothness, 1.0),  # a kink has its curvature in a few rows only
        flat=math.pi / 8 if isinstance(loss, Logistic) else 0.0,  # of a logistic function by a normal distribution
        classes=2 if isinstance(loss, Logistic | Hinge) else 0,
        constant=loss.constant if isinstance(loss, Logistic | Hinge) else None,
        kinked=isinstance(loss, Hinge),
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
        classes=classes,
        constant=lambda rates: basis.T @ np.log(rates),
    )
    fit = _Fit.of(chosen, data, task, intercept=chosen.fit_intercept, labels=labels)
    features = fit.units()
    end = fit.descend(features, basis.T @ np.array([features.fold(row) for row in center]))
    rows = [features.unfold(row) for row in basis @ end.coefficients]
    coef, intercept = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    covariance = (1 - 1 / classes) * _unfold_covariance(features, end.covariance)
    published = fit.published(features, covariance, end, f"multinomial loss of {classes} classes")
    return LinearRelease(coef, intercept, *features.limits, **published), end.diagnostics


def fit_location(
    data: Data, location: Location | ConvexLoss, **settings: Any
) -> tuple[LocationRelease, dict[str, Any]]:
    """Minimize (1/n) Σ_k h_k(θ), h_k the mean over user k's rows of ‖θ − x‖²/2 ("mean"), ‖θ − x‖ ("geometric-median")
    or of another convex loss ℓ(θ; x) of their difference.

    Distances other than the mean's are in the features as they came: all of them get one scale.
    """
    chosen = FitSettings(**settings, fit_intercept=False)
    center = chosen.start((data.n_features,))
    certified = chosen.algorithm != DEFAULT_ALGORITHM
    build: Callable[[FeatureMap], ConvexModel]
    if location == "mean":
        build = partial(VectorModel, 1.0, 1.0)
    elif location == "geometric-median":
        build = partial(DistanceModel, width=SMOOTHING) if certified else DistanceModel
    else:
        if (found := location.dimension(data.n_features)) != data.n_features:
            raise ValueError(f"a location has {data.n_features} coefficients, one a feature: this loss has {found}")
        # Phases of gradients need no more of a model than its subgradients.
        build = cast(Any, partial(GeneralModel if certified else SubgradientModel, location))
    task = Task(lambda features, geometry: build(features), None)
    fit = _Fit.of(chosen, data, task, intercept=False)
    features = fit.units(shift=True, one_scale=location != "mean")
    start = np.zeros(data.n_features) if chosen.center is None else (center - features.center) / features.scale
    end = fit.descend(features, start[None, :])
    point = features.center + features.scale * end.coefficients[0]
    scales = diags_array(features.scale)
    covariance = scales @ end.covariance @ scales
    loss = "squared distance" if location == "mean" else str(build(features))
    published = fit.published(features, covariance, end, loss)
    return LocationRelease(point, **published), end.diagnostics


@dataclass(frozen=True, eq=False)
class _End:
    """Where a descent ended: (copies, dimension) coefficients on mapped features, and the covariance of each copy."""

    coefficients: Floats
    covariance: Any
    caps: list[float]
    diagnostics: dict[str, Any]
    plan: str = ""


@dataclass(eq=False)
class _Fit:
    """One fit: the budget, the plan and the steps."""

    settings: FitSettings
    data: Data
    task: Task
    intercept: bool
    columns: Columns | None
    noise: Noise
    budget: Budget
    descent: Descent
    paper: PaperFit | None
    engine: Callable[[UserDataset], Engine]

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
            classes=task.classes if intercept and settings.center is None else 0,
        )
        plan.check_numbers(data.n_features + target)
        paper = None
        if settings.algorithm != DEFAULT_ALGORITHM:
            paper = PaperFit.of(settings.algorithm, plan, task, data, settings.force_cap)
            plan = paper.plan

        def engine(rows: Data) -> Engine:
            found = LocalEngine(rows) if isinstance(rows, UserDataset) else rows
            if paper is not None:
                found = found.chunked(paper.chunk_users)
            return found if labels is None else Labelled(found, labels)

        descent = Descent(engine(data), Channel(budget, noise), settings.adjacency, plan)
        return cls(settings, data, task, intercept, columns, noise, budget, descent, paper, engine)

    def units(self, *, shift: bool = False, one_scale: bool = False) -> FeatureMap:
        """Public or private units of every column; ``shift`` moves the features also without an intercept."""
        size = self.data.n_features
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
        bound = BLIND_BOUND if self.descent.plan.blind and self.columns is not None else ROW_BOUND
        found = FeatureMap(center[:-1], scale[:-1], bound, self.intercept, float(center[-1]), float(scale[-1]))
        return found if self.paper is None else clamped(found)

    def descend(self, features: FeatureMap, start: Floats) -> _End:
        """The phases and what they come to."""
        task, settings, plan = self.task, self.settings, self.descent.plan
        if plan.rows:
            task = task.weighted(self.descent.typical_rows())
        if plan.rates and task.constant is not None:
            start = start.copy()
            start[:, -1] = task.constant(self.descent.rates())
        l2 = np.full(plan.dimension, settings.l2)
        l2[self.data.n_features :] = 0.0
        if self.paper is not None:
            return self._paper(self.paper, task, features, start, l2)
        with progress_bar(settings.verbose, "learning units", plan.phases) as advance:
            path = self.descent.phases(task, features, start, l2, settings.force_cap, advance)
        theta, variance = path.mean()
        # Rows have a mean square of 1/smoothness in every direction of unit curvature; the points' noise flattens what
        # they predict, and the descent has made up for that.
        shrink = 1 / math.sqrt(1 + task.flat * path.excursion() / task.smoothness)
        coefficients = shrink * path.coefficients(theta)
        model = task.model(features, path.map)
        diagnostics = self._diagnostics(model, path.absolute(path.relative(coefficients)), path.caps[-1])
        covariance = shrink**2 * variance * path.geometry.covariance
        return _End(coefficients, covariance, path.caps, diagnostics)

    def _paper(self, paper: PaperFit, task: Task, features: FeatureMap, start: Floats, l2: Floats) -> _End:
        """Curvature and cap as in the default fit, then one of the paper's algorithms."""
        descent, cap = self.descent, self.settings.force_cap
        with progress_bar(self.settings.verbose, "learning units", 2) as advance:
            path = descent.first_path(task, features, start, l2)
            model = task.model(features, path.map)
            if cap is None:
                # Their noise is larger than that of the phases: less is worth what a wider cap costs.
                at = descent.neutral(path.absolute(np.zeros(model.dimension)))
                cap = descent.learn_cap(model, at, few=0).size
            advance(paper.algorithm)
            blocks = paper.algorithm.endswith("sco")  # they need the users one by one
            data = self.data if blocks else descent.engine
            end = paper.run(model, path, l2, cap, data, self.engine, descent.channel)
            advance("done")
        diagnostics = self._diagnostics(model, path.absolute(end.theta), end.cap) | {"steps": end.released.diagnostics}
        covariance = end.variance * path.geometry.covariance
        return _End(path.coefficients(end.theta), covariance, [end.cap], diagnostics, paper.describe(end.released.plan))

    def _diagnostics(self, model: UserModel, theta: Floats, cap: float) -> dict[str, Any]:
        """Not private. One number a user where the rows are in this process, their count from elsewhere."""
        engine = self.descent.engine
        if engine.remote:
            (count,) = engine.sum(_count_capped, model, theta, cap)
            return {"capped_users": int(count[0])}
        sizes = engine.each(gradient_sizes, model, theta)
        return {"gradient_sizes": sizes, "capped_users": int(np.sum(sizes > cap))}

    def published(self, features: FeatureMap, covariance: Any, end: _End, loss: str) -> dict[str, Any]:
        """What every release has besides its model; ``covariance`` is that of the noise in the model."""
        details = {"center": features.center, "scale": features.scale, "caps": end.caps}
        if self.columns in ("target", "both"):
            details |= {"target_center": features.target_center, "target_scale": features.target_scale}
        weights = f"loss: {loss}; users weighted by {_WEIGHTS[self.settings.weighting]}"
        return {
            "guarantee": self.budget.guarantee(
                self.descent.plan.n_users, unit=self.settings.unit, reproducible=self.noise.reproducible
            ),
            "events": tuple(self.budget.events),
            "noise_covariance": covariance.toarray()
            if issparse(covariance) and covariance.shape[0] <= LARGEST_FULL
            else covariance,
            "plan": f"{end.plan or self.descent.plan}\n{weights}",
            "details": details,
        }


def _count_capped(block: UserBlock, model: UserModel, theta: Floats, cap: float) -> Sums:
    return (np.array([np.sum(gradient_sizes(block, model, theta) > cap)], dtype=np.float64),)


_WEIGHTS = {"users": "1 each", "rows": "their rows"}


def _unfold_covariance(features: FeatureMap, covariance: Any) -> Any:
    """Covariance of (coef, intercept) on the original features from that on the mapped ones."""
    size, scale = len(features.center), features.target_scale / features.scale
    last = np.append(-features.center * scale, [features.target_scale] * features.intercept)
    jacobian = vstack([diags_array(scale, shape=(size, features.dimension)), coo_array(last[None, :])], format="csr")
    return jacobian @ covariance @ jacobian.T
