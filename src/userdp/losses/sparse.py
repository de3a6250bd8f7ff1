"""Predictions, sums and distances over sparse rows, at a cost of their entries.

A mapped row is x̃ = z + (x̃ − z), z the map of a row of zeros: the difference is as sparse as the row, and z enters once.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from userdp.data.sparse import SparseRows
from userdp.losses.base import Floats


def sparse_predictions(rows: SparseRows, center: Floats, inverse: Floats, bound: float, weights: Floats) -> Floats:
    """⟨x̃_j, weights⟩; weights beyond the features belong to constants 1."""
    zero = np.clip(-center * inverse, -bound, bound)
    constant = float(np.sum(weights[: len(center)] * zero) + weights[len(center) :].sum())
    out = np.full(len(rows), constant)
    _predict(rows.data, rows.indices, rows.indptr, center, inverse, bound, zero, weights, out)
    return out


def sparse_add_sums(
    rows: SparseRows,
    center: Floats,
    inverse: Floats,
    bound: float,
    weights: Floats,
    offsets: NDArray[np.int64],
    out: Floats,
) -> None:
    """out[k] += Σ_j weights[j]·x̃_j over the rows of user k."""
    zero = np.clip(-center * inverse, -bound, bound)
    _add(rows.data, rows.indices, rows.indptr, center, inverse, bound, zero, weights, offsets, out)


def sparse_squared_distances(rows: SparseRows, center: Floats, inverse: Floats, bound: float, point: Floats) -> Floats:
    """‖x̃_j − point‖², that of a row of zeros corrected where there are entries; a point has no constants."""
    zero = np.clip(-center * inverse, -bound, bound)
    out = np.full(len(rows), float(np.sum((point - zero) ** 2)))
    _correct_squares(rows.data, rows.indices, rows.indptr, center, inverse, bound, zero, point, out)
    return np.asarray(np.maximum(out, 0.0))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _correct_squares(
    data: Floats,
    indices: NDArray[np.int64],
    indptr: NDArray[np.int64],
    center: Floats,
    inverse: Floats,
    bound: float,
    zero: Floats,
    point: Floats,
    out: Floats,
) -> None:
    for j in range(len(indptr) - 1):
        total = 0.0
        for p in range(indptr[j], indptr[j + 1]):
            i = indices[p]
            mapped = min(max((data[p] - center[i]) * inverse[i], -bound), bound)
            total += (mapped - zero[i]) * (mapped + zero[i] - 2 * point[i])
        out[j] += total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _predict(
    data: Floats,
    indices: NDArray[np.int64],
    indptr: NDArray[np.int64],
    center: Floats,
    inverse: Floats,
    bound: float,
    zero: Floats,
    weights: Floats,
    out: Floats,
) -> None:
    for j in range(len(indptr) - 1):
        total = 0.0
        for p in range(indptr[j], indptr[j + 1]):
            i = indices[p]
            mapped = min(max((data[p] - center[i]) * inverse[i], -bound), bound)
            total += weights[i] * (mapped - zero[i])
        out[j] += total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add(
    data: Floats,
    indices: NDArray[np.int64],
    indptr: NDArray[np.int64],
    center: Floats,
    inverse: Floats,
    bound: float,
    zero: Floats,
    weights: Floats,
    offsets: NDArray[np.int64],
    out: Floats,
) -> None:
    for k in range(len(offsets) - 1):
        common = 0.0
        for j in range(offsets[k], offsets[k + 1]):
            common += weights[j]
            for p in range(indptr[j], indptr[j + 1]):
                i = indices[p]
                mapped = min(max((data[p] - center[i]) * inverse[i], -bound), bound)
                out[k, i] += weights[j] * (mapped - zero[i])
        for i in range(len(zero)):
            out[k, i] += common * zero[i]
        for i in range(len(zero), out.shape[1]):
            out[k, i] += common
