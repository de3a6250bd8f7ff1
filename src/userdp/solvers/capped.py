"""The capped user loss and its certificate.

h̃_k(θ) = min { h_k(u) + γ‖θ − u‖ : ‖u − c‖ ≤ R } is convex and γ-Lipschitz, and equals h_k(θ) where ‖∇h_k(θ)‖ ≤ γ: the
user pulls on the model with a force of at most γ (docs/proofs/capped-release.md, Lemma 1). The ball keeps every number
that enters a certificate within public bounds, whatever the data.

For a capped user the minimizing u is found by Newton's method, with the multiplier ν of the ball where that binds. A
user whom the ball holds at u = θ is not capped: where the ball is the constraint set, it takes the outward part of its
pull (docs/proofs/algorithms.md, section 2).
Whatever u comes out, the slack η_k computed from it is a true bound: a bad u costs accuracy of the certificate, never
its validity. All points here are relative to c.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from userdp.data.blocks import UserBlock
from userdp.losses.base import ConvexModel, Floats, PointLosses, PointValues

_EPS = float(np.finfo(np.float64).eps)
_TINY = 1e-300
# Newton steps a user may take without halving its residual: many far from the solution, few near it.
_PATIENCE = 2000
_STALLED = 400
# Share of the curvature that stopped a step in the ridge of the next one.
_MET = 1 / 40


@dataclass(frozen=True)
class Cap:
    """How hard a user may pull (``force`` γ), and how far from the centre its u may go (``radius`` R)."""

    force: float
    radius: float


@dataclass(frozen=True)
class Pulls:
    """What a block's users do to the model at θ.

    ``forces`` v_k, ‖v_k‖ ≤ γ, is an η_k-subgradient of h̃_k at θ with η_k in ``slacks``, up to a rounding error of at
    most ``errors``; ``hessian`` is the sum of second derivatives of h̃_k; ``capped`` counts users with ‖∇h_k(θ)‖ > γ.
    """

    forces: Floats
    slacks: Floats
    errors: Floats
    hessian: Floats
    capped: int


def pulls(block: UserBlock, model: ConvexModel, center: Floats, theta: Floats, cap: Cap) -> Pulls:
    """A certified force at c + θ for every user of the block; needs ‖θ‖ ≤ R."""
    problems = model.at_points(block, center)
    everywhere = np.broadcast_to(theta, (block.n_users, len(theta)))
    forces, errors = problems.gradients(everywhere), problems.gradient_error(everywhere)
    slacks = np.zeros(block.n_users)
    over = np.linalg.norm(forces, axis=1) + errors > cap.force * (1 - 16 * _EPS)
    held, multipliers = _held(forces, errors, theta, cap)
    held &= over
    hessian = problems.select(np.flatnonzero(~over | held)).hessian_sum(theta)
    if held.any():
        users = np.flatnonzero(held)
        part, points = problems.select(users), everywhere[users]
        forces[users], slacks[users], errors[users] = _certify(part, points, multipliers[users], theta, cap)
        hessian += multipliers[users].sum() * np.eye(len(theta))
    capped = np.flatnonzero(over & ~held)
    if capped.size:
        part = problems.select(capped)
        points, multipliers = _capped_points(part, theta, cap)
        forces[capped], slacks[capped], errors[capped] = _certify(part, points, multipliers, theta, cap)
        hessian += _capped_hessian(part, points, multipliers, theta, cap.force)
    return Pulls(forces, slacks, errors, hessian, capped.size)


def linear_pulls(gradients: Floats, theta: Floats, cap: Cap) -> Pulls:
    """The same for h_k(u) = ⟨g_k, u⟩, whose u is found by bisection: for a multiplier ν of the ball

        argmin_u ⟨g, u⟩ + γ‖θ − u‖ + (ν/2)‖u‖² = θ − (‖w‖ − γ)/ν·w/‖w‖,  w = g + νθ, ‖w‖ > γ,

    is the shorter the larger ν is, and has length R for a ν between (‖g‖ − γ)/R and (‖g‖ + γ)/R.
    """
    size = np.linalg.norm(gradients, axis=1)
    over = size > cap.force * (1 - 16 * _EPS)
    held, multipliers = _held(gradients, np.zeros(len(gradients)), theta, cap)
    points = np.tile(theta, (len(gradients), 1))
    moved = np.flatnonzero(over & ~held)
    if moved.size:
        points[moved], multipliers[moved] = _linear_points(gradients[moved], size[moved], theta, cap)
    forces, slacks, errors = gradients.copy(), np.zeros(len(gradients)), np.zeros(len(gradients))
    users = np.flatnonzero(over)
    part = _Linear(gradients[users], cap.radius)
    forces[users], slacks[users], errors[users] = _certify(part, points[users], multipliers[users], theta, cap)
    unit, lengths = _directions(theta - points[moved])
    stiff = cap.force / lengths
    weights = stiff * multipliers[moved] / (stiff + multipliers[moved])
    straight = weights.sum() + multipliers[over & held].sum()
    hessian = straight * np.eye(len(theta)) - (unit * weights[:, None]).T @ unit
    return Pulls(forces, slacks, errors, hessian, moved.size)


def _linear_points(gradients: Floats, size: Floats, theta: Floats, cap: Cap) -> tuple[Floats, Floats]:
    """u_k and ν_k of linear losses with ‖g_k‖ > γ."""
    inner, square = gradients @ theta, float(theta @ theta)
    radius = cap.radius * (1 - 8 * _EPS)  # inside, whatever the rounding
    low, high = np.maximum(size - cap.force, 0.0) / radius, (size + cap.force) / radius

    def path(multiplier: Floats) -> tuple[Floats, Floats]:
        """Length of w, and of the way from θ to u."""
        length = np.sqrt(np.maximum(size**2 + 2 * multiplier * inner + multiplier**2 * square, 0.0))
        return length, np.maximum(length - cap.force, 0.0) / multiplier

    for _ in range(60):
        middle = (low + high) / 2
        length, way = path(middle)
        reached = square - 2 * way * (inner + middle * square) / np.maximum(length, _TINY) + way**2
        low, high = np.where(reached > radius**2, middle, low), np.where(reached > radius**2, high, middle)
    length, way = path(high)
    points = theta - (way / np.maximum(length, _TINY))[:, None] * (gradients + high[:, None] * theta)
    return _inside(points, cap.radius), high


@dataclass(frozen=True, eq=False)
class _Linear:
    """⟨g_k, u⟩ on the ball: what a certificate asks of a loss. The gradients are what they are: no rounding."""

    slopes: Floats
    radius: float

    def values(self, points: Floats) -> Floats:
        return np.asarray(np.einsum("ki,ki->k", self.slopes, points))

    def minima(self) -> Floats:
        return np.asarray(-np.linalg.norm(self.slopes, axis=1) * self.radius * (1 + 1e-9))

    def gradients(self, points: Floats) -> Floats:
        return self.slopes

    def gradient_error(self, points: Floats) -> Floats:
        return np.zeros(len(self.slopes))


def _held(gradients: Floats, errors: Floats, theta: Floats, cap: Cap) -> tuple[NDArray[np.bool_], Floats]:
    """Whom the ball holds at u = θ on its boundary: users who push outward, and sideways with at most γ.

    Also the smallest ν ≥ 0 with ‖∇h_k(θ) + νθ‖ ≤ γ: what more the ball can push serves all users alike.
    """
    reach = float(np.linalg.norm(theta))
    if reach < cap.radius * (1 - 1e-9):
        return np.zeros(len(gradients), dtype=bool), np.zeros(len(gradients))
    outward = -(gradients @ theta) / reach
    sideways = np.linalg.norm(gradients + outward[:, None] * (theta / reach), axis=1)
    wanted = cap.force * (1 - 16 * _EPS) - 2 * errors
    held = (sideways <= wanted * (1 - 1e-12)) & (outward > 0)
    rest = np.sqrt(np.maximum(wanted**2 - sideways**2, 0.0))
    return held, np.where(held, np.maximum(outward - rest, 0.0) / reach, 0.0)


def _capped_points(problems: PointLosses, theta: Floats, cap: Cap) -> tuple[Floats, Floats]:
    """u_k and the multiplier ν_k of its ball: ∇h_k(u) + νu = γ(θ − u)/‖θ − u‖, ν ≥ 0, ν·(R − ‖u‖) = 0.

    γ is lowered by the rounding error of the gradient, so that no force has to be scaled down afterwards.
    """
    force = np.full(problems.n_users, cap.force)
    points, _ = _newton(problems, theta, force, cap.radius, _first_points(problems, theta, cap), 1e-3 * force)
    rounding = problems.gradient_error(points)
    force = np.maximum(cap.force * (1 - 16 * _EPS) - 2 * rounding, 0.5 * cap.force)
    # No number next to u has a smaller residual than this: the spacing of u times the curvature of what is minimized.
    curvature = np.trace(problems.hessians(points), axis1=1, axis2=2) + force / _directions(theta - points)[1]
    spacing = _EPS * curvature * np.linalg.norm(points, axis=1)
    return _newton(problems, theta, force, cap.radius, points, _EPS * force + 0.25 * rounding + spacing)


def _newton(
    problems: PointLosses, theta: Floats, force: Floats, radius: float, points: Floats, enough: Floats
) -> tuple[Floats, Floats]:
    """argmin_u h_k(u) + γ_k‖θ − u‖ over the ball, and the ball's multiplier.

    A step goes towards the minimizer of the quadratic model in the ball, as far as the slope along it stays negative.
    Where kinks cut it short the model gets a ridge of the order of the curvature that was met, until steps are whole
    again. A user is done when its residual is ``enough``, or stops shrinking.
    """
    points = points.copy()
    best, multipliers, residuals = points.copy(), np.zeros(len(points)), np.full(len(points), np.inf)
    patience, ridge = np.full(len(points), _PATIENCE), np.zeros(len(points))
    active = np.arange(len(points))
    while active.size:
        part, u = problems.select(active), points[active]
        slope, multiplier, residual = _optimality(part, theta, force[active], radius, u)
        near = residual <= 1e-3 * force[active] + 1e-12 * np.linalg.norm(slope, axis=1)
        halved = residual < 0.5 * residuals[active]
        patience[active] -= np.where(halved, 0, np.where(near, _STALLED, 1))
        better = residual < residuals[active]
        kept = active[better]
        best[kept], multipliers[kept], residuals[kept] = u[better], multiplier[better], residual[better]
        open_ = (patience[active] > 0) & (residual > enough[active])
        part, u, slope, active = part.select(np.flatnonzero(open_)), u[open_], slope[open_], active[open_]
        unit, lengths = _directions(theta - u)
        own = part.hessians(u)
        model = own + _spread(unit, _stiffness(own, force[active] / lengths))
        model += ridge[active, None, None] * np.eye(len(theta))
        steps = _model_minimizers(model, slope, u, radius) - u
        lengths = _step_lengths(part, theta, force[active], radius, u, steps, slope, residual[open_])
        points[active] = u + lengths[:, None] * steps
        size, moved = np.linalg.norm(slope, axis=1), lengths * np.linalg.norm(steps, axis=1)
        met = size / np.maximum(moved, 1e-12 * radius)
        raised = np.minimum(np.maximum(4 * ridge[active], _MET * met), size / (1e-12 * radius))
        ridge[active] = np.where(lengths < 0.3, raised, np.where(lengths > 0.9, ridge[active] / 8, ridge[active]))
    return best, multipliers


def _optimality(
    problems: PointLosses, theta: Floats, force: Floats, radius: float, points: Floats
) -> tuple[Floats, Floats, Floats]:
    """Gradient of h_k(u) + γ_k‖θ − u‖, the multiplier that fits it best, and the length of what is left."""
    slope = problems.gradients(points) - force[:, None] * _directions(theta - points)[0]
    outer = np.linalg.norm(points, axis=1) >= radius * (1 - 1e-12)
    inward = np.maximum(-np.einsum("ki,ki->k", slope, points), 0.0) / radius**2
    multiplier = np.where(outer, inward, 0.0)
    return slope, multiplier, np.linalg.norm(slope + multiplier[:, None] * points, axis=1)


def _first_points(problems: PointLosses, theta: Floats, cap: Cap) -> Floats:
    """θ moved against the gradient to where a quadratic model would pull with γ, not far and not out of the ball."""
    everywhere = np.broadcast_to(theta, (problems.n_users, len(theta)))
    unit, lengths = _directions(problems.gradients(everywhere))
    curvature = np.einsum("ki,kij,kj->k", unit, problems.hessians(everywhere), unit)
    excess = np.maximum(lengths - cap.force, _EPS * cap.force)
    return _inside(
        theta - np.minimum(excess / np.maximum(curvature, _TINY), 0.4 * cap.radius)[:, None] * unit, cap.radius
    )


def _inside(points: Floats, radius: float) -> Floats:
    """The nearest points of the ball, whatever the rounding."""
    lengths = np.maximum(np.linalg.norm(points, axis=1), _TINY)
    return np.asarray(points * np.minimum(radius * (1 - 8 * _EPS) / lengths, 1.0)[:, None])


def _model_minimizers(model: Floats, slope: Floats, points: Floats, radius: float) -> Floats:
    """argmin of ⟨slope, y − u⟩ + ½⟨y − u, model(y − u)⟩ over ‖y‖ ≤ R, one a user."""
    radius *= 1 - 8 * _EPS  # inside, whatever the rounding
    diagonal = np.arange(points.shape[1])
    # Keeps the solve regular, no more: also without curvature a step is at most 10^12 radii long.
    ridge = 1e-15 * np.trace(model, axis1=1, axis2=2) + 1e-12 * np.linalg.norm(slope, axis=1) / radius + _TINY
    model[:, diagonal, diagonal] += ridge[:, None]
    found = points - np.linalg.solve(model, slope[:, :, None])[:, :, 0]
    outside = np.flatnonzero(~(np.linalg.norm(found, axis=1) <= radius))
    if outside.size:
        values, vectors = np.linalg.eigh(model[outside])
        values = np.maximum(values, ridge[outside, None])
        pull = np.einsum("kij,kj->ki", model[outside], points[outside]) - slope[outside]
        pull = np.einsum("kij,ki->kj", vectors, pull)
        multiplier = np.zeros(outside.size)
        for _ in range(60):  # Newton for 1/‖y(ν)‖ = 1/R, which converges from below
            shifted = values + multiplier[:, None]
            y = pull / shifted
            squared = np.einsum("ki,ki->k", y, y)
            gain = squared * (np.sqrt(squared) / radius - 1) / np.einsum("ki,ki->k", y, y / shifted)
            multiplier = np.maximum(multiplier + gain, 0.0)
            if np.all(gain <= 4 * _EPS * multiplier):
                break
        y = pull / (values + multiplier[:, None])
        y *= (radius / np.linalg.norm(y, axis=1))[:, None]
        found[outside] = np.einsum("kij,kj->ki", vectors, y)
    return found


def _step_lengths(
    problems: PointLosses,
    theta: Floats,
    force: Floats,
    radius: float,
    points: Floats,
    steps: Floats,
    slope: Floats,
    residual: Floats,
) -> Floats:
    """1 where that halves the residual or does not climb; else bisection for where the convex objective levels out."""
    start = np.einsum("ki,ki->k", slope, steps)
    low, high, length = np.zeros(len(steps)), np.ones(len(steps)), np.ones(len(steps))
    active = np.arange(len(steps))
    for _ in range(30):
        trial = points[active] + length[active, None] * steps[active]
        there, _, left = _optimality(problems.select(active), theta, force[active], radius, trial)
        end = np.einsum("ki,ki->k", there, steps[active])
        climbs = end > 0.1 * np.abs(start[active])
        level = ~climbs & ((length[active] == 1.0) | (end >= 0.7 * start[active]))
        settled = level | (left <= 0.5 * residual[active])
        high[active] = np.where(climbs, length[active], high[active])
        low[active] = np.where(climbs, low[active], length[active])
        length[active] = np.where(settled, length[active], 0.5 * (low[active] + high[active]))
        active = active[~settled]
        if not active.size:
            break
    return length


def _directions(vectors: Floats) -> tuple[Floats, Floats]:
    """Unit vectors and lengths."""
    lengths = np.maximum(np.linalg.norm(vectors, axis=1), _TINY)
    return vectors / lengths[:, None], lengths


def _stiffness(own: Floats, weights: Floats) -> Floats:
    """γ/‖θ − u‖, at most so large that its rounding does not drown the curvature along θ − u, as it does for u ≈ θ.

    Without any curvature there is nothing to drown.
    """
    trace = np.trace(own, axis1=1, axis2=2)
    return np.asarray(np.where(trace > 0, np.minimum(weights, 1e8 * np.maximum(trace, 1.0)), np.minimum(weights, 1e8)))


def _spread(unit: Floats, weights: Floats) -> Floats:
    """Hessians of γ‖θ − u‖: weight·(I − p̂p̂ᵀ)."""
    return np.asarray(weights[:, None, None] * (np.eye(unit.shape[1]) - unit[:, :, None] * unit[:, None, :]))


def _certify(
    problems: PointValues, points: Floats, multipliers: Floats, theta: Floats, cap: Cap
) -> tuple[Floats, Floats, Floats]:
    """Forces, slacks and rounding errors, valid for any points in the ball and any multipliers ≥ 0 (Lemma 3).

    v = s·(∇h_k(u) + νu) with s ≤ 1 such that ‖v‖ ≤ γ. The slack γ‖p‖ − ⟨v, p⟩, p = θ − u, is a difference of nearly
    equal numbers; ‖p‖(γ² − ‖v‖² + ‖v − γp/‖p‖‖²)/(2γ) is the same number without the cancellation.
    """
    gaps = theta - points
    lengths, reach = np.maximum(np.linalg.norm(gaps, axis=1), _TINY), np.linalg.norm(points, axis=1)
    gradients = problems.gradients(points)
    rounding = problems.gradient_error(points)
    # Room for the rounding of the gradient and, where the ball binds, of νu.
    room = 2 * rounding + 12 * _EPS * multipliers * reach
    wanted = np.maximum(cap.force * (1 - 16 * _EPS) - room, 0.5 * cap.force)
    multipliers = _best_multipliers(gradients, points, gaps, multipliers, wanted)
    forces = gradients + multipliers[:, None] * points
    error = rounding + 8 * _EPS * multipliers * reach
    norms = np.linalg.norm(forces, axis=1)
    scale = np.minimum(1.0, cap.force * (1 - 8 * _EPS) / np.maximum(norms + error, _TINY))
    forces *= scale[:, None]
    turned = np.linalg.norm(forces - cap.force * gaps / lengths[:, None], axis=1)
    short = (cap.force - scale * norms) * (cap.force + scale * norms)
    misaligned = lengths * ((short + turned**2) / (2 * cap.force) + error)
    unbound = multipliers * reach * (np.maximum(cap.radius - reach, 0.0) + 8 * _EPS * cap.radius)
    rescaled = (1 - scale) * np.maximum(problems.values(points) - problems.minima(), 0.0)
    return forces, misaligned + unbound + rescaled, error


def _best_multipliers(gradients: Floats, points: Floats, gaps: Floats, multipliers: Floats, force: Floats) -> Floats:
    """Where the ball binds, the ν ≥ 0 that gives ∇h + νu the wanted length and the direction nearest to p."""
    length = np.maximum(np.einsum("ki,ki->k", points, points), _TINY)
    radial = np.einsum("ki,ki->k", gradients, points) / length
    along = gradients - radial[:, None] * points
    room = np.sqrt(np.maximum(force**2 - np.einsum("ki,ki->k", along, along), 0.0) / length)
    outward = np.where(np.einsum("ki,ki->k", gaps, points) > 0, 1.0, -1.0)
    return np.where(multipliers > 0, np.maximum(outward * room - radial, 0.0), 0.0)


def _capped_hessian(problems: PointLosses, points: Floats, multipliers: Floats, theta: Floats, force: float) -> Floats:
    """Σ_k A − A(A + H)⁻¹A with A = (γ/‖p‖)(I − ppᵀ/‖p‖²), H = ∇²h_k(u) + νI: the Hessian of an infimal convolution."""
    unit, lengths = _directions(theta - points)
    eye = np.eye(len(theta))
    own = problems.hessians(points) + multipliers[:, None, None] * eye
    weights = _stiffness(own, force / lengths)
    spread = _spread(unit, weights)
    # A u on the boundary of the ball can only slide along it.
    outward, _ = _directions(points)
    stiff = np.where(multipliers > 0, 1e6 * (np.trace(own, axis1=1, axis2=2) + weights), 0.0)
    own += stiff[:, None, None] * outward[:, :, None] * outward[:, None, :]
    ridge = 1e-12 * (np.trace(own, axis1=1, axis2=2) + weights)[:, None, None] * eye
    each = spread - spread @ np.linalg.solve(spread + own + ridge, spread)
    each[~np.isfinite(each).all(axis=(1, 2))] = 0.0  # only the speed of the search depends on curvature
    return np.asarray(each.sum(axis=0))
