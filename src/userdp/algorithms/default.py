"""The default fit: what ``algorithm="auto"`` does.

1. Units: private histograms of every feature, one vote a user, give its location and scale; further histograms zoom in
   on the columns whose rows lie close together (one like "year" needs that), and only on them.
2. Geometry: a private second moment of the scaled features, its Frobenius cap from a private histogram, gives
   coordinates in which every direction is about equally curved.
3. Start: for classes, the model without features that fits their rates, from a private histogram of the labels.
4. Phases: T linear phases (docs/proofs/capped-release.md, Theorem 6): users' gradients capped at γ, averaged, released
   with noise. γ is chosen from a private histogram of gradient lengths, a few times as θ moves.
5. Steps are as long as noise allows and hold to the start where it will exceed the signal; the model is a mean of the
   points of the way, less what their noise adds to its length: post-processing.

The plan (``default_plan``: budget shares, number of phases) is a function of n, d, ε, δ alone; what depends on data is
a counted release.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from userdp.accounting import Adjacency
from userdp.accounting.budget import SMALLEST_GDP
from userdp.algorithms.calibration import (
    FIRST_LOOK,
    Geometry,
    choose_cap,
    class_rates,
    clean,
    closer_look,
    denoise,
    first_look,
    gradient_sizes,
    hidden_scale,
    lost_spread,
    raised,
)
from userdp.algorithms.default_plan import LARGEST_ZOOM, ZOOM, ZOOMS, DefaultPlan
from userdp.algorithms.path import Path
from userdp.engines import Engine
from userdp.losses import FeatureMap
from userdp.losses.base import ConvexModel, CurvedModel, Floats, UserModel
from userdp.losses.weighted import CurvedRowWeighted, RowWeighted, row_counts
from userdp.mechanisms.capped import clipped_mean
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.histogram import (
    Bins,
    Columns,
    linear_bins,
    log_bins,
    magnitude_histograms,
    row_histograms,
    user_histogram,
)
from userdp.mechanisms.moments import clipped_moment, moment_sizes

ROW_BOUND = 64.0  # rows are clamped to ±64 private units a feature: public, and far outside ordinary data
BLIND_BOUND = 8.0  # the same where histograms cannot see: columns in odd units then do less harm
WINDOW = 0.05  # smallest distance, in private units of the prediction, over which a kink counts as curvature
# Share of the pull lost to a cap that does not cancel between users: of users with many rows, and with one. Where the
# curvature is 1 a gradient of m rows has a squared length of about d/m. Among few directions more pulls agree.
PULL_ALIGNMENT, FEW_DIRECTIONS = (0.07, 0.3), 20
MOMENT_ALIGNMENT = 0.5
# A later cap as a share of the one before at least. Where a class is rare, most users' pulls vanish as θ moves, and
# those of the few, which all point the same way, grow: a histogram sees the many only.
CAP_FLOOR = math.sqrt(0.5)
SHORTER = 0.75  # gradients of a phase or ten later over those at the start, where noise hides them
NEVER = 5  # a column 10^6 spreads from zero shows its width in the fifth zoom
# Share of ``blur`` with which the curvature at the start counts near the optimum: what is flat there may be curved
# where noise leads.
REMEMBERED = 3.0


def size_bins(expected: float) -> Bins:
    """Half octaves around what is expected."""
    return log_bins(expected * 2.0**-8, expected * 2.0**8, math.sqrt(2))


@dataclass(frozen=True)
class Task:
    """What the phases fit: user models over mapped features, in any coordinates.

    ``model(features, P)`` gives gradients, ``curved(features, P)`` the curvature that shapes P; None where that is
    public, the identity. ``smoothness`` is the curvature of a row of length 1 to expect. θ is made of ``copies``
    vectors with one geometry. Predictions with noise of variance v pull as those without, divided by √(1 + ``flat``·v).
    ``constant`` gives the intercepts, one a copy, that fit the rates of ``classes``; None where targets are no classes.
    Of a ``kinked`` loss they lie where the common class has its kink: the curvature there would hold them fast.
    """

    model: Callable[[FeatureMap, Floats | None], ConvexModel]
    curved: Callable[[FeatureMap, Floats | None], CurvedModel] | None
    smoothness: float = 1.0
    copies: int = 1
    flat: float = 0.0
    classes: int = 0
    constant: Callable[[Floats], Floats] | None = None
    kinked: bool = False

    def weighted(self, typical: float) -> Task:
        """The same with users weighted by their rows."""
        plain, curved = self.model, self.curved
        return replace(
            self,
            model=lambda features, geometry: RowWeighted(plain(features, geometry), typical),
            curved=None
            if curved is None
            else lambda features, geometry: CurvedRowWeighted(curved(features, geometry), typical),
        )


class LearntCap(NamedTuple):
    """A cap, the share of the users' length that it keeps, and their typical length."""

    size: float
    common: float
    typical: float


@dataclass(frozen=True)
class Descent:
    """The steps that touch data."""

    engine: Engine
    channel: Channel
    adjacency: Adjacency
    plan: DefaultPlan

    def _gdp(self, share: float) -> float:
        return math.sqrt(share) * self.channel.budget.gdp * (1 - 1e-14)

    def _sizes(
        self,
        statistic: Any,
        arguments: tuple[Any, ...],
        expected: float,
        share: float,
        label: str,
        likely: float | None = None,
    ) -> tuple[Floats, Bins]:
        """A cleaned private histogram of one size a user, on bins around the ``expected`` one; noise is read as what is
        near the ``likely`` one, the same by default.
        """
        gdp, bins = self._gdp(share), size_bins(expected)
        counts, sigma = user_histogram(
            self.engine, statistic, arguments, bins, gdp, self.adjacency, self.channel, label
        )
        # Users in the lowest bin pull on nothing, whatever the cap: they count only where nobody else is seen.
        if np.convolve(counts[1:], [0.5, 1.0, 0.5], "same").max() > 5 * sigma:
            counts[0] = 0.0
        return clean(counts, sigma, bins, expected if likely is None else likely), bins

    def units(self, n_features: int, columns: Columns) -> tuple[Floats, Floats]:
        """Private location and scale of every column: a first look over all magnitudes, then zooms around the last.

        Columns that are not looked at get 0 and 1; the target comes last.
        """
        looked = np.arange(n_features + 1)
        looked = looked[:-1] if columns == "features" else looked[-1:] if columns == "target" else looked
        center, scale, plan = np.zeros(len(looked)), np.ones(len(looked)), self.plan
        if plan.look:
            gdp = self._gdp(plan.look)
            counts, sigma = magnitude_histograms(
                self.engine, columns, len(looked), FIRST_LOOK, gdp, self.adjacency, self.channel, "units 1"
            )
            center, scale, narrow = first_look(counts, sigma, FIRST_LOOK, plan.n_users)
            self._zoom(center, scale, np.flatnonzero(narrow), columns, n_features if columns != "target" else 0)
        centers, scales = np.zeros(n_features + 1), np.ones(n_features + 1)
        centers[looked], scales[looked] = center, scale
        return centers, scales

    def _zoom(self, center: Floats, scale: Floats, chosen: NDArray[np.intp], columns: Columns, features: int) -> None:
        """Look closer at ``chosen`` columns as long as they show in a bin or two; then again at those that noise hides.

        A column that never shows its width has most of its rows at one value. The others matter then; where not even
        they are seen, and its place does not tell of them, it keeps the scale of its first zoom. The place of a target
        tells nothing: it is no flag.
        """
        plan, left, zooms = self.plan, self.plan.units - self.plan.look, 0
        first = scale.copy()
        at, unit = center.copy(), scale.copy()  # where the next look looks; what all looks there saw:
        sums, precision = np.zeros((len(center), len(ZOOM.centers))), np.zeros(len(center))
        narrow, unclear, thin, whole = np.zeros((4, len(center)), dtype=bool)
        narrow[chosen] = True
        # Of each column: the unit in which users may have been lost (0: the look was the last), their share, its noise.
        seen: dict[int, list[tuple[float, float, float]]] = {column: [] for column in chosen.tolist()}

        def hidden(column: int) -> float | None:
            if not thin[column] or len(seen[column]) < 2 or column >= features:
                return None
            sizes, missing, noise = np.array(seen[column]).T
            return hidden_scale(center[column], whole[column], sizes, missing, noise, plan.n_users)

        while zooms < ZOOMS and len(chosen := np.flatnonzero(narrow if narrow.any() else unclear)):
            share = min(plan.look * math.sqrt(len(chosen) / len(center)), LARGEST_ZOOM)
            if share > left or self._gdp(share) < SMALLEST_GDP:
                break
            zooms, left, gdp, label = zooms + 1, left - share, self._gdp(share), f"units {zooms + 2}"
            counts, sigma = row_histograms(
                self.engine, at, unit, ZOOM, gdp, self.adjacency, self.channel, label, columns, chosen
            )
            sums[chosen] += counts / sigma**2
            precision[chosen] += 1 / sigma**2
            mean, error = sums[chosen] / precision[chosen, None], 1 / np.sqrt(precision[chosen])
            look = closer_look(mean, error, ZOOM, at[chosen], unit[chosen], plan.n_users, chosen < features)
            center[chosen], scale[chosen] = look.center, look.scale
            narrow[chosen], unclear[chosen] = look.narrow, look.unclear
            thin[chosen], whole[chosen] = look.thin, look.whole
            for i in np.flatnonzero(~look.unclear):
                size = float(look.narrow[i] * unit[chosen[i]])
                seen[int(chosen[i])].append((size, float(look.missing[i]), float(look.noise[i])))
            if zooms == 1:
                first[chosen] = look.scale
            for column in np.flatnonzero(narrow & ~whole).tolist():  # flags near zero are done with
                narrow[column] = len(seen[column]) < NEVER or hidden(column) is None
            on = chosen[narrow[chosen]]
            at[on], unit[on], sums[on], precision[on] = center[on], scale[on], 0.0, 0.0
        for column, looks in seen.items():
            found, lost = hidden(column), lost_spread(*np.array(looks).T) if looks else 0.0
            if found is None:
                never = narrow[column] and len(looks) >= NEVER and not lost
                found = first[column] if never else math.hypot(scale[column], lost)
            scale[column] = found

    def typical_rows(self) -> float:
        """A private mean number of rows a user."""
        bins = log_bins(1.0, 2.0**24, 2.0)
        noisy = user_histogram(
            self.engine, row_counts, (), bins, self._gdp(self.plan.rows), self.adjacency, self.channel, "rows a user"
        )
        return float(clean(*noisy, bins, 8.0) @ bins.centers)

    def rates(self) -> Floats:
        """Private rates of the classes 0, 1, …: every user has one vote, split over its rows."""
        bins = linear_bins(-0.5, self.plan.classes - 0.5, self.plan.classes)
        gdp, place = self._gdp(self.plan.rates), (np.zeros(1), np.ones(1), bins)
        counts, sigma = row_histograms(
            self.engine, *place, gdp, self.adjacency, self.channel, "rates of the classes", "target"
        )
        return class_rates(counts[0], sigma, self.plan.n_users)

    def curvature(self, task: Task, features: FeatureMap, old: Geometry | None, theta: Floats) -> Floats:
        """A private estimate of the Hessian on the mapped features at θ; in the coordinates ``old`` users' matrices are
        measured and noise is added.
        """
        if task.curved is None:
            raise ValueError("the curvature of this task is public")
        plan, model = self.plan, task.curved(features, None if old is None else old.matrix)
        expected = plan.dimension**0.75 * (task.smoothness if old is None else 1.0)
        shares, bins = self._sizes(moment_sizes, (model, theta), expected, plan.moment_cap, "curvature cap")
        gdp = self._gdp(plan.moment)
        units = math.sqrt((2 if self.adjacency == "replace" else 1) * plan.dimension * (plan.dimension + 1) / 2)
        cap, common = choose_cap(shares, bins, units / (plan.n_users * gdp), MOMENT_ALIGNMENT)
        moment, sigma = clipped_moment(
            self.engine, model, theta, cap, gdp, plan.n_users, self.adjacency, self.channel, "curvature"
        )
        estimate = denoise(moment / common, sigma / common)
        if old is not None:
            estimate = old.inverse.T @ estimate @ old.inverse
        return raised(estimate, plan.blur)

    def neutral(self, start: Floats) -> Floats:
        """Where the first cap is read, and the first curvature of a kinked loss: where the start fits the rates of
        classes, 0 instead. There users of all classes pull alike; at the start those of a rare one pull harder, and are
        too few to be seen.
        """
        return np.zeros_like(start) if self.plan.rates else start

    def learn_cap(
        self, model: UserModel, theta: Floats, last: LearntCap | None = None, few: int = FEW_DIRECTIONS
    ) -> LearntCap:
        """A private cap on users' gradients at θ; after the ``last`` one it falls by no more than ``CAP_FLOOR``.

        The fewer directions than ``few`` there are, the more pulls count as agreeing.
        """
        plan = self.plan
        likely, least = (None, 0.0) if last is None else (SHORTER * last.typical, CAP_FLOOR * last.size)
        shares, bins = self._sizes(gradient_sizes, (model, theta), plan.expected_pull, plan.cap, "cap", likely)
        units = (2 if self.adjacency == "replace" else 1) * math.sqrt(plan.coefficients)
        per_cap = units / (plan.n_users * self._gdp(plan.phase_share))
        many, one = PULL_ALIGNMENT
        rows = min(1.0, 2 * bins.quantile(shares, 0.5) ** 2 / plan.coefficients)
        alignment = (many + (one - many) * rows) * max(1.0, few / plan.coefficients)
        size, common = choose_cap(shares, bins, per_cap, min(alignment, 1.0), least)
        return LearntCap(size, common, float(np.exp(shares @ np.log(bins.centers))))

    def first_path(self, task: Task, features: FeatureMap, start: Floats, l2: Floats) -> Path:
        """Coordinates in which the loss has about unit curvature at the start, from a private moment where planned."""
        if not self.plan.moments:
            return Path(Geometry(task.smoothness + l2), start)
        here = start.ravel()
        moment = self.curvature(task, features, None, self.neutral(here) if task.kinked else here)
        return Path(Geometry.of(moment + np.diag(l2)), start)

    def phases(
        self,
        task: Task,
        features: FeatureMap,
        start: Floats,
        l2: Floats,
        force_cap: float | None,
        advance: Callable[[str], None],
    ) -> Path:
        """All phases; what comes back was released or follows from it.

        ``start`` is public or released, (copies, dimension) on the mapped features; ``l2`` the strength of ½ Σ l2_i
        w_i², the same for every copy. Points of the path are relative to the start.
        """
        plan, spent = self.plan, 1 - (self.channel.budget.left / self.plan.gdp) ** 2
        gdps = plan.phase_gdps(plan.units + plan.rows + plan.rates - spent)
        theta = np.zeros(plan.coefficients)
        path = self.first_path(task, features, start, l2)
        learnt: list[LearntCap] = []
        for t, gdp in enumerate(gdps):
            if plan.moments == 2 and t == plan.second:
                moment = self.curvature(task, features, path.geometry, path.absolute(theta))
                moment += REMEMBERED * plan.blur * path.geometry.inverse.T @ path.geometry.inverse
                old, path = path, Path(Geometry.of(moment + np.diag(l2)), start)
                theta = path.relative(old.coefficients(theta))
            model, here = task.model(features, path.map), path.absolute(theta)
            if t in plan.caps:
                last = learnt[-1] if learnt else None
                learnt.append(self.learn_cap(model, here if learnt else self.neutral(here), last))
            cap, common = learnt[-1][:2] if force_cap is None else (force_cap, 1.0)
            mean = clipped_mean(
                self.engine,
                model,
                here,
                cap,
                float(gdp),
                plan.n_users,
                self.adjacency,
                self.channel,
                f"phase {t + 1}",
            )
            gradient, left = mean.value / common + path.pull_back(l2, theta), plan.phases - t - 1
            theta = path.step(theta, gradient, mean.sigma / common, left)
            advance(f"phase {t + 1} of {plan.phases}")
        path.caps.extend([cap.size for cap in learnt] if force_cap is None else [force_cap])
        return path
