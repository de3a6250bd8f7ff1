"""Sparse rows (CSR): sliced like an array, turned dense a chunk at a time or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from userdp.data.blocks import Floats, Rows


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Row j holds ``data[p]`` in column ``indices[p]`` for p = indptr[j], …, indptr[j + 1] − 1, zeros elsewhere.

    Slices share memory. It stands wherever a block has an array of rows.
    """

    data: Floats
    indices: NDArray[np.int64]
    indptr: NDArray[np.int64]
    n_columns: int

    @classmethod
    def of(cls, matrix: Any) -> SparseRows:
        """From any SciPy sparse matrix or array; entries of the same place are added up."""
        rows = csr_array(matrix)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        return cls(
            np.ascontiguousarray(rows.data, dtype=np.float64),
            rows.indices.astype(np.int64),
            rows.indptr.astype(np.int64),
            rows.shape[1],
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.indptr) - 1, self.n_columns

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    @property
    def dtype(self) -> np.dtype[np.float64]:
        """Of the entries."""
        return self.data.dtype

    @property
    def nbytes(self) -> int:
        """Memory of the entries of these rows."""
        return int(self.indptr[-1] - self.indptr[0]) * 16 + self.indptr.nbytes

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, rows: Any) -> SparseRows:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return SparseRows(self.data, self.indices, self.indptr[start : max(stop, start) + 1], self.n_columns)
        return SparseRows.of(self._matrix()[rows])

    def __matmul__(self, weights: Floats) -> Floats:
        return np.asarray(self._matrix() @ weights)

    def dense(self) -> Floats:
        """As an array."""
        return np.asarray(self._matrix().toarray(), dtype=np.float64)

    def _matrix(self) -> Any:
        first, last = self.indptr[0], self.indptr[-1]
        parts = self.data[first:last], self.indices[first:last], self.indptr - first
        return csr_array(parts, shape=self.shape)


def as_sparse(rows: object) -> SparseRows | None:
    """``rows`` if they are sparse."""
    return rows if isinstance(rows, SparseRows) else None


def dense(rows: Rows) -> Rows:
    """``rows`` as an array, for steps that need all columns of a chunk."""
    sparse = as_sparse(rows)
    return rows if sparse is None else sparse.dense()
