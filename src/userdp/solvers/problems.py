"""The losses of a block's users, each at a point of its own: values, gradients, Hessians."""

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

    Points are given relative to a common centre, whose predictions are ``base`` + ``base_rest``, with twice the digits.
    """

    model: LinearModel
    base: Floats
    base_rest: Floats
    rows: Floats
    target: Floats
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, model: LinearModel, block: UserBlock, center: Floats) -> UserProblems:
        """Transform a block's rows."""
        rows = model.rows(block.features)
        nothing, base, rest = np.zeros(len(rows)), np.empty(len(rows)), np.empty(len(rows))
        everywhere = np.broadcast_to(center, (block.n_users, len(center)))
        _predict(rows, block.offsets, nothing, nothing, everywhere, base, rest)
        return cls(model, base, rest, rows, model.features.targets(block.target), block.offsets)

    def select(self, users: NDArray[np.intp]) -> UserProblems:
        """Only these users (given in increasing order)."""
        counts = np.diff(self.offsets)
        kept = np.zeros(len(counts), dtype=bool)
        kept[users] = True
        rows = np.repeat(kept, counts)
        offsets = np.concatenate([[0], np.cumsum(counts[users])]).astype(np.int64)
        base, rest = self.base[rows], self.base_rest[rows]
        return UserProblems(self.model, base, rest, self.rows[rows], self.target[rows], offsets)

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.offsets) - 1

    def _predictions(self, points: Floats) -> Floats:
        out, rest = np.empty(len(self.rows)), np.empty(len(self.rows))
        _predict(self.rows, self.offsets, self.base, self.base_rest, points, out, rest)
        return out

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
        """First-order bound on the rounding error of ``gradients``, for losses that evaluate φ' stably.

        A few units of (1/m_k) Σ_j (|φ'_j| + min(G, β(|z_j| + |y_j|)))·‖x̃_j‖, with the loss's constants G and β
        (docs/proofs/capped-release.md, section 4).
        """
        loss, predictions = self.model.loss, self._predictions(points)
        size = np.minimum(loss.lipschitz, loss.smoothness * (np.abs(predictions) + np.abs(self.target)))
        size += np.abs(loss.derivative(predictions, self.target))
        lengths = np.sqrt(np.einsum("ji,ji->j", self.rows, self.rows))
        return 8 * float(np.finfo(np.float64).eps) * self._means(lengths[:, None], size)[:, 0]

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


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _predict(
    rows: Floats,
    offsets: NDArray[np.int64],
    base: Floats,
    base_rest: Floats,
    points: Floats,
    out: Floats,
    rest: Floats,
) -> None:
    """base + ⟨row, point⟩ as out + rest, in twice the working precision (Ogita, Rump and Oishi's Dot2)."""
    splitter = 134217729.0  # 2^27 + 1
    for k in range(len(offsets) - 1):
        for j in range(offsets[k], offsets[k + 1]):
            total, lost = base[j], base_rest[j]
            for i in range(rows.shape[1]):
                x, p = rows[j, i], points[k, i]
                term = x * p
                x_high, p_high = splitter * x, splitter * p
                x_high, p_high = x_high - (x_high - x), p_high - (p_high - p)
                x_low, p_low = x - x_high, p - p_high
                lost += ((x_high * p_high - term) + x_high * p_low + x_low * p_high) + x_low * p_low
                added = total + term
                shown = added - total
                lost += (total - (added - shown)) + (term - shown)
                total = added
            out[j] = total + lost
            rest[j] = (total - out[j]) + lost


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _mean_by_user(rows: Floats, weights: Floats, offsets: NDArray[np.int64], out: Floats) -> None:
    """Means of weights[j]·rows[j] over a user's rows, with compensated additions: no growth with the number of rows."""
    lost = np.empty(rows.shape[1])
    for k in range(len(offsets) - 1):
        lost[:] = 0.0
        for j in range(offsets[k], offsets[k + 1]):
            for i in range(rows.shape[1]):
                term = weights[j] * rows[j, i]
                added = out[k, i] + term
                shown = added - out[k, i]
                lost[i] += (out[k, i] - (added - shown)) + (term - shown)
                out[k, i] = added
        count = max(offsets[k + 1] - offsets[k], 1)
        for i in range(rows.shape[1]):
            out[k, i] = (out[k, i] + lost[i]) / count


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _mean_outer_by_user(rows: Floats, weights: Floats, offsets: NDArray[np.int64], out: Floats) -> None:
    dimension = rows.shape[1]
    for k in range(len(offsets) - 1):
        count = max(offsets[k + 1] - offsets[k], 1)
        for j in range(offsets[k], offsets[k + 1]):
            for i in range(dimension):
                scaled = weights[j] * rows[j, i] / count
                for other in range(i + 1):
                    out[k, i, other] += scaled * rows[j, other]
        for i in range(dimension):
            for other in range(i):
                out[k, other, i] = out[k, i, other]
