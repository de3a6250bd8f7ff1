"""Proximal points of many user losses at once.

For every user k of a block: argmin_u h_k(u) + (a_k/2)‖u − q_k‖², by Newton's method with a line search, all users in step.
The problems are a_k-strongly convex and smooth, so the damped iteration converges from anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from userdp.data.blocks import UserBlock
from userdp.losses.base import Floats
from userdp.losses.linear import LinearModel


@dataclass(frozen=True)
class UserProblems:
    """The users of a block with their rows transformed: values, gradients and Hessians at one point a user.

    Points are given relative to a common centre, whose predictions are in ``base``: near it nothing cancels.
    """

    model: LinearModel
    base: Floats
    rows: Floats
    target: Floats
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, model: LinearModel, block: UserBlock, center: Floats) -> UserProblems:
        """Transform a block's rows."""
        rows = model.features.rows(block.features)
        return cls(model, rows @ center, rows, model.features.targets(block.target), block.offsets)

    def select(self, users: NDArray[np.intp]) -> UserProblems:
        """Only these users (given in increasing order)."""
        counts = np.diff(self.offsets)
        kept = np.zeros(len(counts), dtype=bool)
        kept[users] = True
        rows = np.repeat(kept, counts)
        offsets = np.concatenate([[0], np.cumsum(counts[users])]).astype(np.int64)
        return UserProblems(self.model, self.base[rows], self.rows[rows], self.target[rows], offsets)

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.offsets) - 1

    def _predictions(self, points: Floats) -> Floats:
        out = np.empty(len(self.rows))
        _predict(self.rows, self.offsets, points, out)
        return out + self.base

    def _means(self, rows: Floats, weights: Floats) -> Floats:
        out = np.zeros((self.n_users, rows.shape[1]))
        _mean_by_user(rows, weights, self.offsets, out)
        return out

    def values(self, points: Floats) -> Floats:
        """h_k(u_k)."""
        losses = self.model.loss.value(self._predictions(points), self.target)
        return self._means(np.ones((len(self.rows), 1)), losses)[:, 0]

    def minima(self) -> Floats:
        """Lower bounds on min h_k."""
        return self._means(np.ones((len(self.rows), 1)), self.model.loss.minimum(self.target))[:, 0]

    def gradients(self, points: Floats) -> Floats:
        """∇h_k(u_k)."""
        return self._means(self.rows, self.model.loss.derivative(self._predictions(points), self.target))

    def gradient_error(self, points: Floats) -> Floats:
        """First-order bound on the rounding error of ``gradients``: a few units of (1/m_k) Σ_j |φ'_j|·‖x̃_j‖."""
        derivative = np.abs(self.model.loss.derivative(self._predictions(points), self.target))
        lengths = np.sqrt(np.einsum("ji,ji->j", self.rows, self.rows))
        return 8 * float(np.finfo(np.float64).eps) * self._means(lengths[:, None], derivative)[:, 0]

    def hessians(self, points: Floats) -> Floats:
        """∇²h_k(u_k)."""
        curvature = self.model.loss.curvature(self._predictions(points), self.target)
        out = np.zeros((self.n_users, self.rows.shape[1], self.rows.shape[1]))
        _mean_outer_by_user(self.rows, curvature, self.offsets, out)
        return out

    def hessian_sum(self, point: Floats) -> Floats:
        """Σ_k ∇²h_k at one point for all: one matrix product instead of one matrix a user."""
        counts = np.diff(self.offsets)
        weights = self.model.loss.curvature(self.base + self.rows @ point, self.target) / np.repeat(counts, counts)
        return np.asarray((self.rows * weights[:, None]).T @ self.rows)


def prox(problems: UserProblems, anchors: Floats, weights: Floats, start: Floats) -> Floats:
    """argmin_u h_k(u) + (a_k/2)‖u − q_k‖² for every user, as accurately as floating point allows.

    ``anchors`` q and ``start`` are (users, d), ``weights`` a is (users,), all positive.
    """
    points = start.copy()
    slopes = problems.gradients(points) + weights[:, None] * (points - anchors)
    norms = np.linalg.norm(slopes, axis=1)
    active = np.flatnonzero(norms > 0)
    while active.size:
        part, q, a = problems.select(active), anchors[active], weights[active]
        u, g, before = points[active], slopes[active], norms[active]
        hessians = part.hessians(u)
        ridge = a + 1e-15 * np.trace(hessians, axis1=1, axis2=2)  # the second term keeps the solve regular, no more
        hessians[:, np.arange(u.shape[1]), np.arange(u.shape[1])] += ridge[:, None]
        steps = np.linalg.solve(hessians, g[:, :, None])[:, :, 0]
        length = np.ones(len(active))
        improved = np.zeros(len(active), dtype=bool)
        for _ in range(40):
            trial = u - length[:, None] * steps
            gradient = part.gradients(trial) + a[:, None] * (trial - q)
            after = np.linalg.norm(gradient, axis=1)
            better = ~improved & (after <= (1 - 0.25 * length) * before)
            chosen = active[better]
            points[chosen], slopes[chosen], norms[chosen] = trial[better], gradient[better], after[better]
            improved |= better
            if improved.all():
                break
            length[~improved] *= 0.5
        # A gradient that no step can shorten is as short as floating point makes it.
        active = active[improved & (norms[active] > 1e-15 * (a * np.linalg.norm(points[active] - q, axis=1)))]
    return points


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _predict(rows: Floats, offsets: NDArray[np.int64], points: Floats, out: Floats) -> None:
    for k in range(len(offsets) - 1):
        for j in range(offsets[k], offsets[k + 1]):
            total = 0.0
            for i in range(rows.shape[1]):
                total += rows[j, i] * points[k, i]
            out[j] = total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _mean_by_user(rows: Floats, weights: Floats, offsets: NDArray[np.int64], out: Floats) -> None:
    for k in range(len(offsets) - 1):
        for j in range(offsets[k], offsets[k + 1]):
            for i in range(rows.shape[1]):
                out[k, i] += weights[j] * rows[j, i]
        count = max(offsets[k + 1] - offsets[k], 1)
        for i in range(rows.shape[1]):
            out[k, i] /= count


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _mean_outer_by_user(rows: Floats, weights: Floats, offsets: NDArray[np.int64], out: Floats) -> None:
    dimension = rows.shape[1]
    for k in range(len(offsets) - 1):
        count = max(offsets[k + 1] - offsets[k], 1)
        for j in range(offsets[k], offsets[k + 1]):
            for i in range(dimension):
                scaled = weights[j] * rows[j, i] / count
                for l in range(i + 1):
                    out[k, i, l] += scaled * rows[j, l]
        for i in range(dimension):
            for l in range(i):
                out[k, l, i] = out[k, i, l]
