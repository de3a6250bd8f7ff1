"""A small algebra of privacy events: what was released, at what cost.

Two leaves and two nodes. ``total`` folds a tree into its cost; an event it does not know is an error, never free.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from userdp.accounting.gdp import compose, epsilon_of


@dataclass(frozen=True)
class GaussianEvent:
    """A Gaussian release whose L2-sensitivity over noise is at most ``gdp``; ``label`` names it in reports."""

    gdp: float
    label: str = "gaussian release"


@dataclass(frozen=True)
class ApproximateEvent:
    """A release proved (ε, δ)-DP without a Gaussian-DP statement (the deletion test of Algorithm 1)."""

    epsilon: float
    delta: float
    label: str = "(ε, δ) release"


@dataclass(frozen=True)
class Sequential:
    """Releases on the same users, each free to look at the earlier ones."""

    events: tuple[Event, ...]


@dataclass(frozen=True)
class Parallel:
    """Releases on disjoint sets of users, when a neighbour differs in one set only."""

    events: tuple[Event, ...]


Event = GaussianEvent | ApproximateEvent | Sequential | Parallel


@dataclass(frozen=True)
class Cost:
    """Gaussian part (as GDP) and (ε, δ) part of a tree of events; the two add by basic composition."""

    gdp: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0

    def then(self, other: Cost) -> Cost:
        """Cost of this followed by ``other`` on the same users."""
        return Cost(compose([self.gdp, other.gdp]), self.epsilon + other.epsilon, self.delta + other.delta)

    def beside(self, other: Cost) -> Cost:
        """Cost of this and ``other`` on disjoint users: the worse of the two in every part."""
        return Cost(max(self.gdp, other.gdp), max(self.epsilon, other.epsilon), max(self.delta, other.delta))

    def epsilon_at(self, delta: float) -> float:
        """ε at total ``delta``: what the (ε, δ) part leaves of δ goes to the Gaussian part."""
        if self.delta > delta:
            raise ValueError(f"the releases alone cost delta = {self.delta:g}, more than {delta:g}")
        return self.epsilon + (epsilon_of(delta - self.delta, self.gdp) if self.gdp else 0.0)


def total(event: Event) -> Cost:
    """Cost of a tree of events.

    >>> round(total(Sequential((GaussianEvent(0.3), GaussianEvent(0.4)))).gdp, 12)
    0.5
    >>> total(Parallel((GaussianEvent(0.3), GaussianEvent(0.4)))).gdp
    0.4
    """
    match event:
        case GaussianEvent():
            return Cost(gdp=event.gdp)
        case ApproximateEvent():
            return Cost(epsilon=event.epsilon, delta=event.delta)
        case Sequential():
            return reduce(Cost.then, map(total, event.events), Cost())
        case Parallel():
            return reduce(Cost.beside, map(total, event.events), Cost())
        case _:
            raise TypeError(f"unknown privacy event {event!r}: it cannot be accounted for")
