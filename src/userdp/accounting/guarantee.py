"""What is promised: the unit, the neighbouring relation, (ε, δ) and the Gaussian-DP parameter behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from userdp.accounting.gdp import delta_of

Adjacency = Literal["replace", "add-remove"]
Unit = Literal["user", "row"]


def check_adjacency(adjacency: Any) -> Adjacency:
    """Return ``adjacency`` if it names a supported neighbouring relation, else raise."""
    for known in get_args(Adjacency):
        if isinstance(adjacency, str) and adjacency == known:
            return known  # type: ignore[no-any-return]
    got = repr(adjacency) if isinstance(adjacency, str) else type(adjacency).__name__
    raise ValueError(f"adjacency must be one of {', '.join(map(repr, get_args(Adjacency)))}, got {got}")


def sum_sensitivity(cap: float, adjacency: Adjacency) -> float:
    """L2-sensitivity of a sum in which every user's term has norm at most ``cap``.

    Replacing a user swaps two such terms (2·cap); adding or removing one changes a single term (cap).
    """
    return 2 * cap if adjacency == "replace" else cap


@dataclass(frozen=True)
class Guarantee:
    """A user-level differential-privacy guarantee.

    ``gdp`` is the Gaussian-DP parameter when every release was Gaussian, else None; ``reproducible`` marks releases
    drawn from a fixed seed, whose noise can be recomputed and subtracted: they promise nothing.
    """

    epsilon: float
    delta: float
    unit: Unit = "user"
    adjacency: Adjacency = "replace"
    gdp: float | None = None
    n_users: int | None = None
    reproducible: bool = False

    def delta_at(self, epsilon: float) -> float:
        """The δ of the same release at another ε; needs ``gdp``."""
        if self.gdp is None:
            raise ValueError("only releases with a Gaussian-DP parameter have a whole (ε, δ) curve")
        return delta_of(epsilon, self.gdp)

    def __str__(self) -> str:
        if self.reproducible:
            return "reproducible, not private: the noise came from a fixed random_state"
        whose = "all rows of any one person" if self.unit == "user" else "any single row"
        change = "replacing" if self.adjacency == "replace" else "adding or removing"
        return (
            f"(ε = {self.epsilon:g}, δ = {self.delta:g}) differential privacy: {change} {whose} changes the "
            f"probability of any result by a factor of at most {_factor(self.epsilon)}, up to {self.delta:g}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a model file."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit,
            "adjacency": self.adjacency,
            "gdp": self.gdp,
            "n_users": self.n_users,
            "reproducible": self.reproducible,
        }


def _factor(epsilon: float) -> str:
    return f"{math.exp(epsilon):.3g}" if epsilon < 10 else f"e^{epsilon:g}"
