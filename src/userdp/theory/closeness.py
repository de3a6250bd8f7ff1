"""Stability and closeness bounds of the paper, and Appendix C's certificate, with explicit constants.

Losses are μ-strongly convex and G-Lipschitz on a convex set K (which may bind); x^π is a random permutation of n·m rows
among n users with m rows each. Logarithms are natural. Proofs: docs/proofs/deletion.md, sections 5–7.
"""

from __future__ import annotations

import math


def vector_concentration(bound: float, draws: int, beta: float) -> float:
    """t with Pr[‖Σ_{j ≤ m} v_π(j)‖ > t] ≤ β for vectors with Σv = 0, ‖v‖ ≤ G: t = 5G√(m ln 1/β) (Lemma 3.8).

    The same t holds when v_i = g_i − mean(g) with ‖g_i‖ ≤ G.

    >>> round(vector_concentration(1.0, 100, 0.01), 2)
    107.3
    """
    _check_beta(beta)
    return 5 * bound * math.sqrt(draws * math.log(1 / beta))


def user_gradient(lipschitz: float, n: int, m: int, beta: float) -> float:
    """γ such that, with probability 1 − β over π, every user's mean gradient at θ*(x) (centred) has norm at most γ.

    Union of ``vector_concentration`` over n users: γ = 5G√(ln(n/β)/m).
    """
    return vector_concentration(lipschitz, m, beta / n) / m


def deletion_stability(lipschitz: float, strong_convexity: float, n: int, m: int, beta: float) -> float:
    """Bound on ‖θ*(x^π) − θ*(x^π₋ₙ)‖ with probability 1 − β: 5G√(ln 1/β)/(μ(n−1)√m) (Theorem 3.6)."""
    _check_users(n, 2)
    return vector_concentration(lipschitz, m, beta) / (m * strong_convexity * (n - 1))


def neighbourhood_stability(
    lipschitz: float, strong_convexity: float, n: int, m: int, beta: float, radius: int
) -> float:
    """Bound on Δ̄_r θ*(x^π) with probability 1 − β: 5G√((r+1) ln n + ln 1/β)/(μ(n−r−1)√m) (Corollary 3.7, explicit).

    At most n^(r+1) pairs (S, i) are united; each is ``deletion_stability`` for the n − |S| remaining users.
    """
    _check_beta(beta)
    _check_users(n, radius + 2)
    exponent = (radius + 1) * math.log(n) + math.log(1 / beta)
    return 5 * lipschitz * math.sqrt(exponent / m) / (strong_convexity * (n - radius - 1))


def erm_closeness(lipschitz: float, strong_convexity: float, n: int, m: int, beta: float) -> float:
    """Bound on ‖θ*(x) − θ*(D)‖ with probability 1 − β over x ~ D^(nm): 30G√(ln 2/β)/(μ√(nm)) (Proposition B.1)."""
    _check_beta(beta)
    return 30 * lipschitz * math.sqrt(math.log(2 / beta) / (n * m)) / strong_convexity


def distance_after_deletion(
    force: float, strong_convexity: float, n: int, deleted: int, *, residual: float = 0.0
) -> float:
    """Bound on ‖θ̃ − θ*₋S‖, |S| = s: (sγ + nρ)/(μ(n−s)).

    θ̃ ∈ K has (1/n)Σ g_k + v = e with g_k ∈ ∂h_k(θ̃), v ∈ N_K(θ̃), ‖e‖ ≤ ρ (the residual; 0 at an exact minimizer), and
    ‖g_k‖ ≤ γ for all k, or ‖g_k + v‖ ≤ γ for all k.
    """
    _check_users(n, deleted + 1)
    return (deleted * force + n * residual) / (strong_convexity * (n - deleted))


def certified_sensitivity(
    force: float,
    strong_convexity: float,
    n: int,
    radius: int,
    *,
    smoothness: float | None = None,
    residual: float = 0.0,
) -> float:
    """Proven upper bound on Δ̄_r of the exact minimizer from the users' forces at one (nearly) optimal point.

    This is Appendix C with constants. ``force`` is γ ≥ ‖g_k‖ for the subgradients that certify optimality up to
    ``residual`` ρ (``distance_after_deletion``). Without smoothness

        Δ̄_r ≤ (rγ + nρ)/(μ(n−r)) + ((r+1)γ + nρ)/(μ(n−r−1)) ≤ ((2r+1)γ + 2nρ)/(μ(n−r−1)),

    and if every user loss is differentiable and β-smooth, with γ ≥ ‖∇h_k(θ̃)‖ (not centred unless K is the whole space),

        Δ̄_r ≤ (γ + β(rγ + nρ)/(μ(n−r)))/(μ(n−r−1)).

    Returns the smaller of the two when ``smoothness`` is given.

    >>> certified_sensitivity(1.0, 1.0, 102, 100) <= 201.0
    True
    >>> certified_sensitivity(1.0, 1.0, 10_000, 100, smoothness=1.0) < 1.1e-4
    True
    """
    _check_users(n, radius + 2)
    near = distance_after_deletion(force, strong_convexity, n, radius, residual=residual)
    plain = near + distance_after_deletion(force, strong_convexity, n, radius + 1, residual=residual)
    if smoothness is None:
        return plain
    return min(plain, (force + smoothness * near) / (strong_convexity * (n - radius - 1)))


def _check_beta(beta: float) -> None:
    if not 0 < beta < 1 / math.e:
        raise ValueError(f"the failure probability beta must lie between 0 and 1/e, got {beta}")


def _check_users(n: int, least: int) -> None:
    if n < least:
        raise ValueError(f"the bound needs at least {least} users, got {n}")
