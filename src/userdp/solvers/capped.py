"""The capped user loss and its certificate.

h̃_k(θ) = min { h_k(u) + γ‖θ − u‖ : ‖u − c‖ ≤ R } is convex and γ-Lipschitz, and equals h_k(θ) where ‖∇h_k(θ)‖ ≤ γ: the user
pulls on the model with a force of at most γ (docs/proofs/capped-release.md, Lemma 1). The ball keeps every number that
enters a certificate within public bounds, whatever the data.

For a capped user the minimizer is the proximal point of h_k whose step ρ makes the pull γ; a second root search finds the
multiplier ν of the ball where that binds. Whatever u comes out, the slack η_k computed from it is a true bound: a bad u
costs accuracy of the certificate, never its validity. All points here are relative to c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from userdp.data.blocks import UserBlock
from userdp.losses.base import Floats
from userdp.losses.linear import LinearModel
from userdp.solvers.prox import UserProblems, prox

_EPS = float(np.finfo(np.float64).eps)
_TINY = 1e-300


@dataclass(frozen=True)
class Cap:
    """How hard a user may pull (``force`` γ), and how far from the centre its u may go (``radius`` R)."""

    force: float
    radius: float


@dataclass(frozen=True)
class Pulls:
    """What a block's users do to the model at θ.

    ``forces`` v_k, ‖v_k‖ ≤ γ, is an η_k-subgradient of h̃_k at θ with η_k in ``slacks``; ``hessian`` is the sum of second
    derivatives of h̃_k; ``capped`` counts users with ‖∇h_k(θ)‖ > γ.
    """

    forces: Floats
    slacks: Floats
    hessian: Floats
    capped: int


def pulls(block: UserBlock, model: LinearModel, center: Floats, theta: Floats, cap: Cap) -> Pulls:
    """A certified force at c + θ for every user of the block; needs ‖θ‖ ≤ R."""
    problems = UserProblems.of(model, block, center)
    forces = problems.gradients(np.broadcast_to(theta, (block.n_users, len(theta))))
    slacks = np.zeros(block.n_users)
    over = np.linalg.norm(forces, axis=1) > cap.force * (1 - 16 * _EPS)
    capped = np.flatnonzero(over)
    hessian = problems.select(np.flatnonzero(~over)).hessian_sum(theta)
    if capped.size:
        part = problems.select(capped)
        points, multipliers = _capped_points(part, theta, cap)
        forces[capped], slacks[capped] = _certify(part, points, multipliers, theta, cap)
        hessian += _capped_hessian(part, points, multipliers, theta, cap.force)
    return Pulls(forces, slacks, hessian, capped.size)


def _capped_points(problems: UserProblems, theta: Floats, cap: Cap) -> tuple[Floats, Floats]:
    """u_k and the multiplier ν_k of its ball: ∇h_k(u) + νu = γ(θ − u)/‖θ − u‖, ν ≥ 0, ν·(R − ‖u‖) = 0."""
    multipliers = np.zeros(problems.n_users)
    points = _pulled_points(problems, theta, cap, multipliers)
    outside = np.flatnonzero(np.linalg.norm(points, axis=1) > cap.radius)
    if outside.size:
        part = problems.select(outside)

        def reach(log_multiplier: Floats, users: NDArray[np.intp], _: Floats) -> tuple[Floats, Floats, Floats]:
            found = _pulled_points(part.select(users), theta, cap, np.exp(log_multiplier))
            length = np.maximum(np.linalg.norm(found, axis=1), _TINY)
            return np.log(length / cap.radius), np.full(users.size, -1.0), found

        logs, points[outside] = _decreasing_root(
            reach, np.full(outside.size, np.log(cap.force / cap.radius)), points[outside], exact=1e-12
        )
        multipliers[outside] = np.exp(logs)
    reached = np.maximum(np.linalg.norm(points, axis=1), _TINY)
    points *= np.minimum(1.0, cap.radius / reached)[:, None]
    return points, multipliers


def _pulled_points(problems: UserProblems, theta: Floats, cap: Cap, multipliers: Floats) -> Floats:
    """argmin_u h_k(u) + (ν_k/2)‖u‖² + γ‖θ − u‖ for fixed ν.

    The proximal point u(ρ) pulls with force ‖θ − u(ρ)‖/ρ, which falls as ρ grows; the ρ is sought where it equals γ, less
    the rounding error of a gradient, so that the force does not have to be scaled down afterwards.
    """
    everywhere = np.broadcast_to(theta, (problems.n_users, len(theta)))
    pull = problems.gradients(everywhere) + multipliers[:, None] * theta
    lengths = np.linalg.norm(pull, axis=1)
    diagonal = np.arange(len(theta))

    def force(log_step: Floats, users: NDArray[np.intp], start: Floats) -> tuple[Floats, Floats, Floats]:
        part, extra, inverse = problems.select(users), multipliers[users], np.exp(-log_step)
        weights = inverse + extra
        anchors = (inverse / weights)[:, None] * theta
        found = prox(part, anchors, weights, start)
        gaps = theta - found
        length = np.maximum(np.linalg.norm(gaps, axis=1), _TINY)
        target = np.maximum(cap.force - 2 * part.gradient_error(found), 0.5 * cap.force)
        # d log‖θ − u‖ / d log ρ = ⟨p, (H + (1/ρ + ν)I)⁻¹ p⟩/(ρ‖p‖²) lies in (0, 1]; the force's slope is that minus 1.
        hessians = part.hessians(found)
        hessians[:, diagonal, diagonal] += (weights + 1e-15 * np.trace(hessians, axis1=1, axis2=2))[:, None]
        moved = np.linalg.solve(hessians, gaps[:, :, None])[:, :, 0]
        slope = np.einsum("ki,ki->k", gaps, moved) * inverse / length**2 - 1.0
        return np.log(length * inverse / target), slope, found

    guess = np.log(np.maximum(lengths / cap.force, 1.0)) - 2.0
    points = _decreasing_root(force, guess, everywhere.copy(), exact=1e-14)[1]
    # With its multiplier a user may pull too weakly to leave θ at all.
    return np.where((lengths <= cap.force)[:, None], theta, points)


def _decreasing_root(
    function: Callable[[Floats, NDArray[np.intp], Floats], tuple[Floats, Floats, Floats]],
    guess: Floats,
    points: Floats,
    exact: float,
) -> tuple[Floats, Floats]:
    """Zeros of decreasing functions, one a user: Newton steps of length at most 3, kept inside a bracket.

    ``function(x, users, points)`` returns value, slope and new point for the users still sought. A user is done when its
    value is within ``exact`` of zero or its bracket cannot shrink further.
    """
    x, points = guess.copy(), points.copy()
    low, high, last = np.full(len(x), -np.inf), np.full(len(x), np.inf), np.full(len(x), np.inf)
    active = np.arange(len(x))
    while active.size:
        value, slope, points[active] = function(x[active], active, points[active])
        stuck = (np.abs(value) < 1e-9) & (np.abs(value) >= 0.5 * last[active])  # at the rounding error of ``function``
        last[active] = np.abs(value)
        low[active] = np.where(value > 0, x[active], low[active])
        high[active] = np.where(value > 0, high[active], x[active])
        bottom, top = low[active], high[active]
        middle = np.where(np.isinf(bottom), top - 3.0, np.where(np.isinf(top), bottom + 3.0, 0.5 * (bottom + top)))
        step = x[active] + np.clip(value / np.maximum(-slope, 1e-3), -3.0, 3.0)
        open_ = (np.abs(value) > exact) & ~stuck & ~(top - bottom <= 8 * _EPS * np.maximum(np.abs(x[active]), 1.0))
        open_ &= np.abs(x[active]) < 600  # beyond e^±600 the multiplier or step is 0 or ∞ for every purpose
        x[active] = np.where(open_, np.where((step > bottom) & (step < top), step, middle), x[active])
        active = active[open_]
    return x, points


def _certify(
    problems: UserProblems, points: Floats, multipliers: Floats, theta: Floats, cap: Cap
) -> tuple[Floats, Floats]:
    """Forces and slacks that are valid for any points in the ball and any multipliers ≥ 0 (Lemma 3).

    v = s·(∇h_k(u) + νu) with s ≤ 1 such that ‖v‖ ≤ γ. The slack γ‖p‖ − ⟨v, p⟩, p = θ − u, is a difference of nearly
    equal numbers; ‖p‖(γ² − ‖v‖² + ‖v − γp/‖p‖‖²)/(2γ) is the same number without the cancellation.
    """
    gaps = theta - points
    lengths, reach = np.maximum(np.linalg.norm(gaps, axis=1), _TINY), np.linalg.norm(points, axis=1)
    gradients = problems.gradients(points)
    multipliers = _best_multipliers(gradients, points, gaps, multipliers, cap.force - 2 * problems.gradient_error(points))
    forces = gradients + multipliers[:, None] * points
    error = problems.gradient_error(points) + 8 * _EPS * multipliers * reach
    norms = np.linalg.norm(forces, axis=1)
    scale = np.minimum(1.0, cap.force * (1 - 8 * _EPS) / np.maximum(norms + error, _TINY))
    forces *= scale[:, None]
    turned = np.linalg.norm(forces - cap.force * gaps / lengths[:, None], axis=1)
    short = (cap.force - scale * norms) * (cap.force + scale * norms)
    misaligned = lengths * ((short + turned**2) / (2 * cap.force) + error)
    unbound = multipliers * reach * np.maximum(cap.radius - reach, 8 * _EPS * cap.radius)
    rescaled = (1 - scale) * (problems.values(points) - problems.minima())
    return forces, misaligned + unbound + rescaled


def _best_multipliers(gradients: Floats, points: Floats, gaps: Floats, multipliers: Floats, force: Floats) -> Floats:
    """Where the ball binds, the ν ≥ 0 that gives ∇h + νu the wanted length and the direction nearest to p."""
    length = np.maximum(np.einsum("ki,ki->k", points, points), _TINY)
    radial = np.einsum("ki,ki->k", gradients, points) / length
    along = gradients - radial[:, None] * points
    room = np.sqrt(np.maximum(force**2 - np.einsum("ki,ki->k", along, along), 0.0) / length)
    outward = np.sign(np.einsum("ki,ki->k", gaps, points))
    return np.where(multipliers > 0, np.maximum(outward * room - radial, 0.0), 0.0)


def _capped_hessian(
    problems: UserProblems, points: Floats, multipliers: Floats, theta: Floats, force: float
) -> Floats:
    """Σ_k of A − A(A + H)⁻¹A with A = (γ/‖p‖)(I − ppᵀ/‖p‖²), H = ∇²h_k(u) + νI: the Hessian of an infimal convolution."""
    gaps = theta - points
    lengths = np.maximum(np.linalg.norm(gaps, axis=1), _TINY)
    unit = gaps / lengths[:, None]
    eye = np.eye(len(theta))
    spread = (force / lengths)[:, None, None] * (eye - unit[:, :, None] * unit[:, None, :])
    own = problems.hessians(points) + multipliers[:, None, None] * eye
    ridge = 1e-12 * (np.trace(own, axis1=1, axis2=2) + force / lengths)[:, None, None] * eye
    return np.asarray((spread - spread @ np.linalg.solve(spread + own + ridge, spread)).sum(axis=0))
