"""From tables to arrays, with errors that name the column."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from userdp.data import DataError
from userdp.data.sparse import SparseRows
from userdp.data.tables import column_names, feature_matrix, numeric_vector


def frames(columns: dict[str, list[object]]) -> list[object]:
    return [pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)]


def test_integers_and_booleans_become_float64() -> None:
    for frame in frames({"age": [1, 2], "member": [True, False]}):
        matrix, names = feature_matrix(frame)
        assert matrix.tolist() == [[1.0, 1.0], [2.0, 0.0]]
        assert matrix.dtype == np.float64
        assert names == ("age", "member")


def test_float32_stays_only_if_all_columns_are() -> None:
    single, double = np.float32([1, 2]), np.float64([1, 2])
    assert feature_matrix(pd.DataFrame({"a": single, "b": single}))[0].dtype == np.float32
    assert feature_matrix(pl.DataFrame({"a": single, "b": single}))[0].dtype == np.float32
    assert feature_matrix(pd.DataFrame({"a": single, "b": double}))[0].dtype == np.float64
    assert feature_matrix(np.ones((2, 2), np.float32))[0].dtype == np.float32
    assert feature_matrix(np.ones((2, 2), np.float16))[0].dtype == np.float64


@pytest.mark.parametrize("order", ["C", "F"])
def test_result_is_in_row_order(order: str) -> None:
    matrix, _ = feature_matrix(np.asarray(np.arange(6.0).reshape(3, 2), order=order))  # type: ignore[call-overload]
    assert matrix.flags.c_contiguous
    assert matrix.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_column_labels_that_are_not_strings() -> None:
    matrix, names = feature_matrix(pd.DataFrame({0: [1.0], 7: [2.0]}))
    assert names == ("0", "7")
    assert matrix.tolist() == [[1.0, 2.0]]


def test_missing_and_infinite_values_are_counted_by_column() -> None:
    for frame in frames({"height": [1.0, None, 3.0], "weight": [1.0, 2.0, 3.0]}):
        with pytest.raises(DataError, match=r"column 'height' \(1\): drop those rows or fill them in"):
            feature_matrix(frame)
    with pytest.raises(DataError, match=r"'x1' \(2\), 'x2' \(1\)"):
        feature_matrix(np.array([[0, np.nan, 0], [0, np.inf, -np.inf]]))
    with pytest.raises(DataError, match="…"):
        feature_matrix(np.full((1, 9), np.nan))


def test_huge_finite_values_are_not_an_error() -> None:
    assert feature_matrix(np.full((4, 3), 1e308))[0].max() == 1e308
    assert feature_matrix(np.full((4, 3), 3e38, np.float32))[0].dtype == np.float32


def test_text_column_is_named() -> None:
    for frame in frames({"age": [1, 2], "city": ["x", "y"]}):
        with pytest.raises(
            DataError, match=r"column 'city' is not numeric .*: encode it as numbers first, e.g. one-hot"
        ):
            feature_matrix(frame)
    with pytest.raises(DataError, match="X is not numeric"):
        feature_matrix(np.array([["a", "b"]]))


def test_object_columns_of_numbers_are_read() -> None:
    assert feature_matrix(pd.DataFrame({"a": pd.Series([1, 2.5], dtype=object)}))[0].ravel().tolist() == [1, 2.5]


@pytest.mark.parametrize("empty", [np.empty((3, 0)), pd.DataFrame(index=[0, 1]), pl.DataFrame()])
def test_no_columns(empty: object) -> None:
    with pytest.raises(DataError, match="X has no feature columns"):
        feature_matrix(empty)


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2)])
def test_wrong_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="X must be two-dimensional, rows × features, got shape"):
        feature_matrix(np.ones(shape))


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sparse_matrices_stay_sparse(form: str) -> None:
    dense = np.where(np.random.default_rng(0).random((50, 8)) < 0.2, 1.5, 0.0)
    rows, names = feature_matrix(scipy.sparse.csr_array(dense).asformat(form))
    assert isinstance(rows, SparseRows)
    assert names == tuple(f"x{j}" for j in range(8))
    assert rows.dense().tolist() == dense.tolist()
    assert rows[10:20].dense().tolist() == dense[10:20].tolist()
    assert rows[10:20][3:5].dense().tolist() == dense[13:15].tolist()
    order = np.random.default_rng(1).permutation(50)
    assert rows[5:][order[order < 45]].dense().tolist() == dense[5:][order[order < 45]].tolist()


def test_sparse_entries_are_added_and_checked() -> None:
    twice = scipy.sparse.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(1, 2))
    assert isinstance(rows := feature_matrix(twice)[0], SparseRows)
    assert rows.dense().tolist() == [[0.0, 3.0]]
    with pytest.raises(DataError, match=r"1 missing \(NaN\) or infinite"):
        feature_matrix(scipy.sparse.csr_array(np.array([[0.0, np.nan]])))


def test_vector_accepts_a_single_column() -> None:
    assert numeric_vector(np.ones((3, 1)), "y").shape == (3,)
    assert numeric_vector([True, False], "y").tolist() == [1.0, 0.0]
    with pytest.raises(DataError, match="target has 1 missing or infinite values"):
        numeric_vector([1.0, np.nan], "target")


def test_column_names() -> None:
    assert [column_names(frame) for frame in frames({"a": [1]})] == [("a",)] * 3
    assert column_names(np.ones((1, 1))) is None
