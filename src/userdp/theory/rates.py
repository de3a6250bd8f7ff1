"""Table 1 of the paper: every row as a function of n, m, d, ε, δ and as exponents.

Constants and polylogarithmic factors of n and m are 1. The scale is RG for convex and G²/μ for strongly convex losses.
How ε and δ enter is hidden in the table; the powers used here are those that Section 6 of the paper states for the
convex case (ln²(1/δ)/ε^2.5 for the new results, √ln(1/δ)/ε for earlier ones), squared for strongly convex losses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Problem = Literal["ERM", "SCO"]
Curvature = Literal["convex", "strongly convex"]
Level = Literal["item", "user"]


@dataclass(frozen=True)
class Term:
    """n^n · m^m · d^d · ln(1/δ)^log_delta · ε^epsilon."""

    n: float
    m: float
    d: float
    log_delta: float = 0.0
    epsilon: float = 0.0

    def value(self, n: float, m: float, d: float, epsilon: float, delta: float) -> float:
        """The term at given sizes and budget."""
        sizes = n**self.n * m**self.m * d**self.d
        return float(sizes * math.log(1 / delta) ** self.log_delta * epsilon**self.epsilon)


@dataclass(frozen=True)
class Rate:
    """One entry of Table 1: excess risk ≲ scale · Σ terms; the first term is the one privacy pays for."""

    problem: Problem
    curvature: Curvature
    smooth: bool
    level: Level
    source: str
    private: Term
    others: tuple[Term, ...] = ()
    users: str = "n ≥ Ω̃_ε(1)"

    @property
    def exponents(self) -> dict[str, float]:
        """Log–log slopes in n, m and d where privacy dominates."""
        return {"n": self.private.n, "m": self.private.m, "d": self.private.d}

    def value(
        self,
        n: float,
        m: float,
        d: float,
        epsilon: float,
        delta: float,
        *,
        radius: float = 1.0,
        lipschitz: float = 1.0,
        strong_convexity: float = 1.0,
    ) -> float:
        """The bound with all constants 1.

        >>> row = find_rate("ERM", "convex", source="paper")
        >>> row.value(100, 4, 16, 1.0, math.exp(-1))
        0.02
        """
        for name, number in (("n", n), ("m", m), ("d", d), ("epsilon", epsilon)):
            if not number > 0:
                raise ValueError(f"{name} must be positive, got {number}")
        if not 0 < delta < 1:
            raise ValueError(f"delta must lie strictly between 0 and 1, got {delta}")
        scale = radius * lipschitz if self.curvature == "convex" else lipschitz**2 / strong_convexity
        return scale * sum(term.value(n, m, d, epsilon, delta) for term in (self.private, *self.others))


# How (ε, δ) enter: powers of ln(1/δ) and ε, in the convex and in the strongly convex case.
_EARLIER, _EARLIER_STRONG = (0.5, -1.0), (1.0, -2.0)
_PAPER, _PAPER_STRONG = (2.0, -2.5), (4.0, -5.0)

TABLE_1: tuple[Rate, ...] = (
    Rate("ERM", "convex", False, "item", "BassilyST14", Term(-1, 0, 0.5, *_EARLIER)),
    Rate("ERM", "convex", True, "user", "NarayananME22", Term(-1, -0.5, 0.5, *_EARLIER), (Term(-0.5, 0, 0),)),
    Rate("ERM", "convex", False, "user", "paper", Term(-1, -0.5, 0.5, *_PAPER)),
    Rate("ERM", "strongly convex", False, "item", "BassilyST14", Term(-2, 0, 1, *_EARLIER_STRONG)),
    Rate("ERM", "strongly convex", True, "user", "NarayananME22", Term(-2, -1, 1, *_EARLIER_STRONG)),
    Rate("ERM", "strongly convex", False, "user", "paper", Term(-2, -1, 1, *_PAPER_STRONG)),
    Rate("SCO", "convex", False, "item", "BassilyFTT19", Term(-1, 0, 0.5, *_EARLIER), (Term(-0.5, 0, 0),)),
    Rate(
        "SCO",
        "convex",
        True,
        "user",
        "NarayananME22",
        Term(-1, -0.5, 0.5, *_EARLIER),
        (Term(-0.5, -0.5, 0),),
        users="n ≥ Ω̃_ε(min{m^(1/3), √m/d})",
    ),
    Rate("SCO", "convex", False, "user", "paper", Term(-1, -0.5, 0.5, *_PAPER), (Term(-0.5, -0.5, 0),)),
    Rate("SCO", "strongly convex", False, "item", "FeldmanKT20", Term(-2, 0, 1, *_EARLIER_STRONG), (Term(-1, 0, 0),)),
    Rate("SCO", "strongly convex", False, "user", "paper", Term(-2, -1, 1, *_PAPER_STRONG), (Term(-1, -1, 0),)),
)


def find_rate(problem: Problem, curvature: Curvature, *, source: str = "paper") -> Rate:
    """The row of Table 1 for a problem, by source ("paper" or the citation key of earlier work)."""
    for rate in TABLE_1:
        if (rate.problem, rate.curvature, rate.source) == (problem, curvature, source):
            return rate
    known = ", ".join(sorted({rate.source for rate in TABLE_1}))
    raise ValueError(f"Table 1 has no {curvature} {problem} row from {source!r}; sources are {known}")
