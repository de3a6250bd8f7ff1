"""The budget of one fit: how much Gaussian privacy there is, what was spent on what, and the refusal to overspend."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from userdp.accounting.events import GaussianEvent, Sequential
from userdp.accounting.gdp import compose, gdp_of
from userdp.accounting.guarantee import Adjacency, Guarantee, Unit

# Share of δ that pays for noise living on a grid instead of the real line (docs/proofs/gaussian.md, Theorem 2).
GRID_SHARE = 2.0**-10
# That theorem's price of one released number.
GRID_PRICE = 2.0**-89
# Up to this ε the price holds for adaptive releases (docs/proofs/gaussian.md, Theorem 3).
LARGEST_EPSILON = 64.0
# Below this, rounding values to the grid would no longer be covered by the margin on the sensitivity (same theorem).
SMALLEST_GDP = 2.0**-20


class BudgetExceeded(RuntimeError):
    """A release would have cost more than what is left; nothing was released."""


@dataclass
class Budget:
    """Gaussian-DP budget equivalent to (ε, δ); releases are charged before their noise is drawn.

    >>> budget = Budget.of(1.0, 1e-6)
    >>> budget.charge(0.6 * budget.gdp, "phase 1", numbers=10)
    >>> round(budget.left / budget.gdp, 3)
    0.8
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    gdp: float
    events: list[GaussianEvent] = field(default_factory=list)
    numbers: int = 0

    @classmethod
    def of(cls, epsilon: float, delta: float, adjacency: Adjacency = "replace") -> Budget:
        """The largest Gaussian budget that (ε, δ) allows."""
        if not 0 < delta < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1, got {delta}")
        if epsilon > LARGEST_EPSILON:
            raise ValueError(f"epsilon = {epsilon:g} protects nobody: choose at most {LARGEST_EPSILON:g}")
        return cls(epsilon, delta, adjacency, gdp_of(epsilon, delta * (1 - GRID_SHARE)))

    @property
    def left(self) -> float:
        """GDP parameter of what may still be released."""
        return math.sqrt(max(self.gdp**2 - compose(event.gdp for event in self.events) ** 2, 0.0))

    def charge(self, gdp: float, label: str, numbers: int) -> None:
        """Record a Gaussian release of ``numbers`` values, or raise if the budget does not cover it."""
        if not SMALLEST_GDP <= gdp < math.inf:
            raise ValueError(f"a release must cost a gdp of ordinary size, got {gdp} for {label!r}")
        spent = compose([*(event.gdp for event in self.events), gdp])
        if spent > self.gdp * (1 + 1e-13):  # rounding of √Σμ² when the plan spends everything
            raise BudgetExceeded(f"{label} needs gdp {gdp:g}, but only {self.left:g} of {self.gdp:g} is left")
        if (self.numbers + numbers) * GRID_PRICE > self.delta * GRID_SHARE:
            raise BudgetExceeded(f"{label} would release more numbers than delta = {self.delta:g} covers")
        self.events.append(GaussianEvent(gdp, label))
        self.numbers += numbers

    @property
    def event(self) -> Sequential:
        """Everything charged so far."""
        return Sequential(tuple(self.events))

    def guarantee(self, n_users: int, *, unit: Unit = "user", reproducible: bool = False) -> Guarantee:
        """The promise of the whole fit: the (ε, δ) that was asked for, and the GDP actually spent."""
        spent = compose(event.gdp for event in self.events)
        return Guarantee(self.epsilon, self.delta, unit, self.adjacency, spent, n_users, reproducible)
