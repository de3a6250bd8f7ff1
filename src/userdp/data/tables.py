"""From whatever table the user holds to plain arrays, with errors that name the column and the fix."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from userdp.data.blocks import Floats, Rows
from userdp.data.sparse import SparseRows


class DataError(ValueError):
    """Input that cannot be used; raised before any privacy budget is spent."""


def plain_array(values: Any, name: str) -> NDArray[Any]:
    """NumPy view or copy of an array, list, pandas/Polars Series or Arrow column."""
    if isinstance(values, np.ndarray):
        return values
    to_numpy = getattr(values, "to_numpy", None)
    if to_numpy is not None:
        try:
            return np.asarray(to_numpy(zero_copy_only=False))  # Arrow
        except TypeError:
            return np.asarray(to_numpy())
    try:
        return np.asarray(values)
    except ValueError:  # ragged or mixed: keep the objects
        array = np.empty(len(values), dtype=object)
        array[:] = values
        if array.ndim != 1:
            raise DataError(f"{name} must be one-dimensional") from None
        return array


def feature_matrix(X: Any) -> tuple[Rows, tuple[str, ...]]:
    """Rows × features in C order (float32 stays float32, the rest becomes float64) and the feature names."""
    names = column_names(X)
    if names is not None:
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"X has several columns named {twice!r}: give every column a name of its own")
        columns = [_numeric(plain_array(_column(X, name), name), f"column {name!r}") for name in names]
        if not columns:
            raise DataError("X has no feature columns")
        single = all(column.dtype == np.float32 for column in columns)
        matrix = np.empty((len(columns[0]), len(columns)), dtype=np.float32 if single else np.float64)
        for j, column in enumerate(columns):
            matrix[:, j] = column
        _check_finite(matrix, names)
        return matrix, names
    if issparse(X):
        return _sparse_matrix(X)
    array = _numeric(plain_array(X, "X"), "X")
    if array.ndim != 2:
        raise DataError(f"X must be two-dimensional, rows × features, got shape {array.shape}. Reshape your data")
    if array.shape[1] == 0:
        raise DataError(
            f"X has no feature columns: 0 feature(s) (shape={array.shape}) while a minimum of 1 is required."
        )
    names = tuple(f"x{j}" for j in range(array.shape[1]))
    matrix = np.ascontiguousarray(array, dtype=np.float32 if array.dtype == np.float32 else np.float64)
    _check_finite(matrix, names)
    return matrix, names


def _sparse_matrix(X: Any) -> tuple[Rows, tuple[str, ...]]:
    if X.ndim != 2 or X.shape[1] == 0:
        raise DataError(f"X must be two-dimensional with at least one column, got shape {X.shape}. Reshape your data")
    _numeric(X.tocsr().data, "X")
    rows = SparseRows.of(X)
    bad = int(np.count_nonzero(~np.isfinite(rows.data)))
    if bad:
        raise DataError(f"X has {bad} missing (NaN) or infinite values: drop those rows or fill them in")
    return cast(Rows, rows), tuple(f"x{j}" for j in range(X.shape[1]))


def column_names(X: Any) -> tuple[str, ...] | None:
    """Names of a DataFrame's or Arrow table's columns, None for arrays."""
    names = getattr(X, "column_names", None)
    if names is None:
        names = getattr(X, "columns", None)
    return None if names is None else tuple(str(name) for name in names)


def numeric_vector(values: Any, name: str) -> Floats:
    """One finite float64 a row."""
    array = _numeric(plain_array(values, name), name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"{name} must hold one number for each row, got shape {array.shape}")
    array = np.ascontiguousarray(array, dtype=np.float64)
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        raise DataError(f"{name} has {bad} missing or infinite values: drop those rows or fill them in")
    return array


def is_missing(value: Any) -> bool:
    """Whether a value of an object array stands for none: None, NaN, NaT, pandas' NA, a masked entry."""
    if value is None or value is np.ma.masked:
        return True
    try:
        return bool(value != value)
    except TypeError:  # NA compares to NA
        return True
    except ValueError:  # an array: hashing will refuse it
        return False


def _column(X: Any, name: str) -> Any:
    if hasattr(X, "column_names"):
        return X.column(name)
    for original in X.columns:
        if str(original) == name:
            return X[original]
    raise DataError(f"no column {name!r}")


def _numeric(array: NDArray[Any], name: str) -> NDArray[Any]:
    if array.dtype.kind in "fiub":
        return array
    if array.dtype.kind == "O":
        try:
            return array.astype(np.float64)
        except ValueError:
            pass
        except TypeError as error:
            raise TypeError(f"{name}: argument must be a string or a number ({error})") from None
    if array.dtype.kind == "c":
        raise DataError(f"Complex data not supported: {name} has type {array.dtype}")
    raise DataError(f"{name} is not numeric (type {array.dtype}): encode it as numbers first, e.g. one-hot")


def _check_finite(matrix: Rows, names: tuple[str, ...]) -> None:
    # A sum is finite unless a value is not (or the values overflow it): one cheap pass for the usual case.
    with np.errstate(all="ignore"):
        if np.isfinite(matrix.sum()):
            return
    bad = [int(np.count_nonzero(~np.isfinite(matrix[:, j]))) for j in range(matrix.shape[1])]
    wrong = [f"{name!r} ({count})" for name, count in zip(names, bad) if count]
    if wrong:
        shown = ", ".join(wrong[:5]) + (", …" if len(wrong) > 5 else "")
        raise DataError(f"missing or infinite values in column {shown}: drop those rows or fill them in")
