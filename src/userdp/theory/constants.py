"""κ, Δ, σ and minimum-n calculators: what every release mechanism costs, side by side.

All of them release the minimizer of a μ-strongly convex, G-Lipschitz empirical risk of n users with m rows each plus
N(0, σ²I); they differ in the sensitivity they may assume. References: Algorithms 1 and 2 and Appendix C of the paper;
docs/proofs/deletion.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from userdp.accounting.deletion import Constants, calibrate_deletion
from userdp.accounting.gdp import gdp_of
from userdp.accounting.guarantee import Adjacency, sum_sensitivity
from userdp.theory.closeness import certified_sensitivity, neighbourhood_stability, user_gradient

TargetRule = Literal["paper", "union"]


def kappa(epsilon: float, delta: float, constants: Constants = "literal", adjacency: Adjacency = "replace") -> int:
    """κ used by Algorithm 1 at total budget (ε, δ): of half the budget (literal constants) or of the best split.

    >>> kappa(1.0, 1e-6)
    32
    """
    return calibrate_deletion(epsilon, delta, constants, adjacency).kappa


def minimum_users(
    epsilon: float, delta: float, constants: Constants = "literal", adjacency: Adjacency = "replace"
) -> int:
    """Users below which the deletion test is not defined: 4κ + 2 (replacement), 6κ + 2 (add/remove).

    >>> minimum_users(1.0, 1e-6)
    130
    """
    return calibrate_deletion(epsilon, delta, constants, adjacency).radius(0) + 2


def deletion_target(
    rule: TargetRule,
    lipschitz: float,
    strong_convexity: float,
    n: int,
    m: int,
    beta: float,
    radius: int,
) -> float:
    """Δ of Algorithm 2.

    ``"paper"``: 10G√(ln 1/β)/(μn√m), as printed; it lacks the union bound that Corollary 3.7 needs, so deletions
    and ⊥ may be likelier than β. ``"union"``: ``neighbourhood_stability`` with r = ``radius`` (4κ): with probability
    1 − β over the allocation of rows to users nothing is deleted and ⊥ is never returned. Privacy holds with either.
    """
    if rule == "paper":
        if not 0 < beta < 1:
            raise ValueError(f"the failure probability beta must lie between 0 and 1, got {beta}")
        return 10 * lipschitz * math.sqrt(math.log(1 / beta) / m) / (strong_convexity * n)
    if rule == "union":
        return neighbourhood_stability(lipschitz, strong_convexity, n, m, beta, radius)
    raise ValueError(f"rule must be 'paper' or 'union', got {rule!r}")


def deletion_sigma(
    epsilon: float, delta: float, target: float, constants: Constants = "literal", adjacency: Adjacency = "replace"
) -> float:
    """σ of Algorithm 1 for target sensitivity Δ.

    >>> round(deletion_sigma(1.0, 1e-6, 1.0))
    4071
    """
    return calibrate_deletion(epsilon, delta, constants, adjacency).noise_multiplier * target


def worst_case_sigma(
    epsilon: float,
    delta: float,
    lipschitz: float,
    strong_convexity: float,
    n: int,
    adjacency: Adjacency = "replace",
) -> float:
    """σ of plain output perturbation: sensitivity 2G/(μn) (add/remove with a public normalizer: G/(μn)).

    >>> round(worst_case_sigma(1.0, 1e-6, lipschitz=1.0, strong_convexity=1.0, n=1), 2)
    8.45
    """
    return sum_sensitivity(lipschitz, adjacency) / (strong_convexity * n * gdp_of(epsilon, delta))


def capped_sigma(
    epsilon: float,
    delta: float,
    force_cap: float,
    regularization: float,
    n: int,
    adjacency: Adjacency = "replace",
) -> float:
    """σ of the capped-force release: sensitivity 2γ/(λn) on every dataset (add/remove: γ/(λn))."""
    return worst_case_sigma(epsilon, delta, force_cap, regularization, n, adjacency)


@dataclass(frozen=True)
class NoiseRow:
    """One mechanism at given (ε, δ, n, m): its noise, the users it needs, and when it beats worst-case noise.

    ``rows_to_win`` is the smallest m at which σ falls below that of plain output perturbation at the same n; inf if it
    never does. ``available`` says whether n is large enough for the mechanism to run.
    """

    mechanism: str
    sigma: float
    minimum_users: int
    rows_to_win: float
    available: bool


def noise_table(
    epsilon: float,
    delta: float,
    n: int,
    m: int,
    *,
    lipschitz: float = 1.0,
    strong_convexity: float = 1.0,
    beta: float = 0.01,
    smoothness: float | None = None,
    adjacency: Adjacency = "replace",
) -> tuple[NoiseRow, ...]:
    """σ of every release side by side; mechanisms that need more than n users have σ = inf.

    The certificate rows use Δ from ``certified_sensitivity`` at γ = ``user_gradient`` (the force every user stays below
    with probability 1 − β); the capped release uses that γ as its cap. ``smoothness`` enables the sharper certificate.
    """
    force = user_gradient(lipschitz, n, m, beta)
    worst = worst_case_sigma(epsilon, delta, lipschitz, strong_convexity, n, adjacency)

    def row(mechanism: str, sigma: float, least: int) -> NoiseRow:
        return NoiseRow(mechanism, sigma, least, rows_to_win(sigma, m, worst), n >= least)

    def deletion(mechanism: str, constants: Constants, rule: TargetRule | Literal["certificate"]) -> NoiseRow:
        calibration = calibrate_deletion(epsilon, delta, constants, adjacency)
        radius = calibration.radius(0)
        if n < radius + 2:
            return NoiseRow(mechanism, math.inf, radius + 2, math.inf, False)
        if rule == "certificate":
            target = certified_sensitivity(force, strong_convexity, n, radius, smoothness=smoothness)
        else:
            target = deletion_target(rule, lipschitz, strong_convexity, n, m, beta, radius)
        return row(mechanism, calibration.noise_multiplier * target, radius + 2)

    return (
        deletion("deletion test, literal, paper's Δ", "literal", "paper"),
        deletion("deletion test, literal, union Δ", "literal", "union"),
        deletion("deletion test, tight, union Δ", "tight", "union"),
        deletion("deletion test, exact, union Δ", "exact", "union"),
        deletion("deletion test, literal, certificate", "literal", "certificate"),
        deletion("deletion test, exact, certificate", "exact", "certificate"),
        row("capped release", capped_sigma(epsilon, delta, force, strong_convexity, n, adjacency), 1),
        NoiseRow("worst-case output perturbation", worst, 1, 1.0, True),
    )


def rows_to_win(sigma: float, m: int, worst_case: float) -> float:
    """Smallest m' at which a noise that is ``sigma`` at m and falls like 1/√m is below ``worst_case``."""
    if not math.isfinite(sigma):
        return math.inf
    return float(max(1, math.ceil(m * (sigma / worst_case) ** 2)))
