"""The plan of the default fit: how its budget is shared, a function of public numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from userdp.accounting import Adjacency, Budget
from userdp.accounting.budget import GRID_PRICE, GRID_SHARE
from userdp.algorithms.calibration import FIRST_LOOK, threshold
from userdp.algorithms.schedule import PHASES, growing_shares
from userdp.losses.base import Floats
from userdp.mechanisms.histogram import linear_bins

ZOOMS = 8  # each narrows a column by a factor of up to 28
ZOOM = linear_bins(-4.0, 4.0, 64)
LARGEST_ZOOM = 0.02  # share of the budget for one of them
EASY = 0.05  # d^1.5/(nμ) below which the curvature is worth learning again near the optimum
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
    look: float
    moments: int
    second: int
    moment_cap: float
    moment: float
    caps: tuple[int, ...]
    cap: float
    phases: int
    copies: int = 1
    rows: float = 0.0
    columns: int = 0
    classes: int = 0
    rates: float = 0.0

    @classmethod
    def of(
        cls,
        n_users: int,
        n_features: int,
        dimension: int,
        budget: Budget,
        *,
        learn_cap: bool,
        copies: int = 1,
        learn_curvature: bool = True,
        learn_rows: bool = False,
        classes: int = 0,
    ) -> DefaultPlan:
        """Histograms get what makes their noise about a twelfth (scales) or a thirtieth (others) of n, within limits.

        Those of caps get a fiftieth of the budget at least: few users with long gradients, a rare class, then show.

        ``n_features`` counts the columns whose units are learnt (the target is one), ``dimension`` the coefficients of
        one class and ``copies`` how many of those vectors there are. Rates of ``classes`` are learnt to within a
        hundredth where a fiftieth of the budget can pay for that.
        """
        units = math.sqrt(2 if budget.adjacency == "replace" else 1)
        resolution = units / (n_users * budget.gdp)
        look = float(np.clip((25 * resolution) ** 2 * n_features, 0.005, 0.08))
        if n_features == 0 or resolution * math.sqrt(n_features / look) > 1:  # the noise of one count hides all users
            look = 0.0
        counted = float(np.clip((21 * resolution) ** 2, 0.002, 0.03))
        difficulty = dimension**1.5 / (n_users * budget.gdp)
        moments = 0 if dimension > LARGEST_MOMENT or not learn_curvature else 2 if difficulty < EASY else 1
        moment = float(np.clip((8 * difficulty) ** 2, 0.005, 0.08))
        return cls(
            n_users,
            dimension,
            budget.epsilon,
            budget.delta,
            budget.adjacency,
            budget.gdp,
            look,
            moments,
            10,
            0.005,
            moment,
            (0, 10) if learn_cap else (),
            max(counted, 0.02),
            PHASES,
            copies,
            counted if learn_rows else 0.0,
            n_features,
            classes,
            float(np.clip((70 * resolution) ** 2, 0.002, 0.02)) if classes else 0.0,
        )

    @property
    def coefficients(self) -> int:
        """Length of θ."""
        return self.dimension * self.copies

    def check_numbers(self, columns: int) -> None:
        """Refuse a δ that cannot pay for noise on a grid (docs/proofs/gaussian.md) in every number of this plan."""
        looks = 3 * len(FIRST_LOOK.centers) + ZOOMS * len(ZOOM.centers)
        histograms = columns * looks * (self.look > 0) + 40 * (len(self.caps) + self.moments + 1)
        moments = self.moments * self.dimension * (self.dimension + 1) // 2
        numbers = histograms + moments + self.classes + self.phases * self.coefficients
        if numbers * GRID_PRICE > self.delta * GRID_SHARE:
            raise ValueError(f"delta = {self.delta:g} is too small to release {numbers} numbers: raise it")

    @property
    def expected_pull(self) -> float:
        """Length of a user's gradient to expect, in coordinates of unit curvature."""
        return math.sqrt(self.coefficients) / 2

    @property
    def blind(self) -> bool:
        """Whether a histogram's noise would hide all users' votes in one bin, for one column at least."""
        if not (self.columns and self.look):
            return self.columns > 0
        units = math.sqrt(2 if self.adjacency == "replace" else 1)
        sigma = units * math.sqrt(3 * self.columns) / (self.gdp * math.sqrt(self.look))
        return sigma * threshold(len(FIRST_LOOK.centers), self.columns) > self.n_users

    @property
    def units(self) -> float:
        """Most that the units of all columns may cost: the first look, and zooms."""
        return self.look + ZOOMS * min(self.look, LARGEST_ZOOM)

    @property
    def blur(self) -> float:
        """Curvature, relative to the mean one, below which a direction is not worth its noise.

        A gradient of typical length √(tr H) is released with noise of about 2√(tr H)/(nμ) in each direction, and
        coefficients of total signal 1 have about 1/√(tr H) each: along curvature h noise wins where h < 2·tr H/(nμ).
        """
        return (2 if self.adjacency == "replace" else 1) * self.coefficients / (self.n_users * self.gdp)

    @property
    def phase_share(self) -> float:
        """What is left for the phases at least: zooms that were not needed leave more."""
        histograms = self.units + len(self.caps) * self.cap + self.rows + self.rates
        return 1 - histograms - self.moments * (self.moment_cap + self.moment)

    def phase_gdps(self, unused: float) -> Floats:
        """Budget of each phase, with a share that the units have left."""
        share = (self.phase_share + max(unused - 1e-12, 0.0)) * growing_shares(self.phases)
        return np.asarray(self.gdp * np.sqrt(share) * (1 - 1e-14))

    def __str__(self) -> str:
        lines = [
            f"n = {self.n_users} users, {self.coefficients} coefficients, ε = {self.epsilon:g}, δ = {self.delta:g} "
            f"({self.adjacency}): Gaussian budget μ = {self.gdp:.4f}"
        ]
        if self.look:
            lines.append(f"{100 * self.look:5.1f} %  units of every column, from histograms with one vote a user")
            zooms = 100 * (self.units - self.look)
            lines.append(f"{zooms:5.1f} %  at most, further ones of columns whose rows lie close together")
        if self.rows:
            lines.append(f"{100 * self.rows:5.1f} %  typical number of rows of a user")
        if self.rates:
            lines.append(f"{100 * self.rates:5.1f} %  rates of the classes")
        if self.moments:
            share = 100 * self.moments * (self.moment_cap + self.moment)
            lines.append(f"{share:5.1f} %  curvature of the loss, {self.moments} times")
        if self.caps:
            lines.append(f"{100 * self.cap * len(self.caps):5.1f} %  cap on a user's pull, {len(self.caps)} times")
        left = ", and what is left of the units" if self.look else ""
        lines.append(f"{100 * self.phase_share:5.1f} %  {self.phases} phases of capped, noisy mean gradients{left}")
        return "\n".join(lines)
