"""Losses of linear predictions, each user at a point of its own: values, gradients, Hessians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

from userdp.data.blocks import UserBlock
from userdp.losses.base import Floats

if TYPE_CHECKING:
    from userdp.losses.linear import LinearModel


@dataclass(frozen=True)
class LinearPoints:
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
    def of(cls, model: LinearModel, block: UserBlock, center: Floats) -> LinearPoints:
        """Transform a block's rows."""
        rows = model.rows(block.features)
        nothing = np.zeros(len(rows))
        base, rest = predict(rows, block.offsets, nothing, nothing, np.tile(center, (block.n_users, 1)))
        return cls(model, base, rest, rows, model.features.targets(block.target), block.offsets)

    def select(self, users: NDArray[np.intp]) -> LinearPoints:
        """Only these users (given in increasing order)."""
        rows, offsets = rows_of(users, self.offsets)
        base, rest = self.base[rows], self.base_rest[rows]
        return LinearPoints(self.model, base, rest, self.rows[rows], self.target[rows], offsets)

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.offsets) - 1

    def _predictions(self, points: Floats) -> Floats:
        return predict(self.rows, self.offsets, self.base, self.base_rest, points)[0]

    def _means(self, rows: Floats, weights: Floats) -> Floats:
        return mean_by_user(rows, weights, self.offsets)

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
        return mean_outer_by_user(self.rows, curvature, self.offsets)

    def hessian_sum(self, point: Floats) -> Floats:
        """Σ_k ∇²h_k at one point for all: one matrix product instead of one matrix a user."""
        counts = np.diff(self.offsets)
        weights = self.model.loss.curvature(self.base + self.rows @ point, self.target) / np.repeat(counts, counts)
        return np.asarray((self.rows * weights[:, None]).T @ self.rows)


def rows_of(users: NDArray[np.intp], offsets: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which rows are these users' (given in increasing order), and the offsets of what is left."""
    counts = np.diff(offsets)
    kept = np.zeros(len(counts), dtype=bool)
    kept[users] = True
    return np.repeat(kept, counts), np.concatenate([[0], np.cumsum(counts[users])]).astype(np.int64)


def predict(
    rows: Floats, offsets: NDArray[np.int64], base: Floats, base_rest: Floats, points: Floats
) -> tuple[Floats, Floats]:
    """base + ⟨row, point of its user⟩ and what rounding took from it."""
    out, rest = np.empty(len(rows)), np.empty(len(rows))
    _predict(rows, offsets, base, base_rest, points, out, rest)
    return out, rest


def mean_by_user(rows: Floats, weights: Floats, offsets: NDArray[np.int64]) -> Floats:
    """(1/m_k) Σ_j weights[j]·rows[j], shape (users, columns)."""
    out = np.zeros((len(offsets) - 1, rows.shape[1]))
    _mean_by_user(rows, weights, offsets, out)
    return out


def mean_outer_by_user(rows: Floats, weights: Floats, offsets: NDArray[np.int64]) -> Floats:
    """(1/m_k) Σ_j weights[j]·rows[j]·rows[j]ᵀ, shape (users, columns, columns)."""
    out = np.zeros((len(offsets) - 1, rows.shape[1], rows.shape[1]))
    _mean_outer_by_user(rows, weights, offsets, out)
    return out


def mean_squares(rows: Floats, offsets: NDArray[np.int64]) -> Floats:
    """(1/m_k) Σ_j ‖row_j‖², rounded up."""
    squares = np.concatenate([[0.0], np.cumsum(np.einsum("ji,ji->j", rows, rows))])
    return np.asarray(np.diff(squares[offsets]) / np.maximum(np.diff(offsets), 1) * (1 + 1e-9))


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
