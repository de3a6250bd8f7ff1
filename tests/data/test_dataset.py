"""Grouping rows by user, in memory and without needless copies."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from userdp.data import DataError, UserDataset

X = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0], [5.0, 50.0]])
Y = np.array([0.0, 1.0, 0.0, 1.0, 1.0])
IDS = ["b", "a", "b", "c", "a"]

TABLES = {
    "numpy": (X, Y, np.array(IDS)),
    "lists": (X.tolist(), Y.tolist(), IDS),
    "pandas": (pd.DataFrame(X, columns=["x0", "x1"]), pd.Series(Y), pd.Series(IDS)),
    "pandas-categorical": (pd.DataFrame(X, columns=["x0", "x1"]), pd.Series(Y), pd.Series(IDS, dtype="category")),
    "polars": (pl.DataFrame({"x0": X[:, 0], "x1": X[:, 1]}), pl.Series(Y), pl.Series(IDS)),
    "arrow": (pa.table({"x0": X[:, 0], "x1": X[:, 1]}), pa.chunked_array([Y[:2], Y[2:]]), pa.array(IDS)),
}


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_of_table_gives_the_same_blocks(kind: str) -> None:
    data = UserDataset.from_arrays(*TABLES[kind])
    assert data.users == ("b", "a", "c")
    assert data.columns == ("x0", "x1")
    (block,) = data.blocks
    assert block.features.tolist() == [[1, 10], [3, 30], [2, 20], [5, 50], [4, 40]]
    assert block.target.tolist() == [0, 0, 1, 1, 1]
    assert block.offsets.tolist() == [0, 2, 4, 5]
    assert block.features.dtype == np.float64
    assert block.features.flags.c_contiguous
    assert (data.n_users, data.n_rows, data.n_features) == (3, 5, 2)
    assert data.rows_per_user.tolist() == [2, 2, 1]


@pytest.mark.parametrize(
    "ids",
    [
        ["x", 3, (1, 2), "x", 3],
        [3, "3", 3, "3", "x"],
        [2**63, -1, 2**63 + 1, -1, 2**63],
        [(0, 1), (0, 2), (0, 1), (0, 1), (0, 3)],
        [5, 3, 5, 1, 1],
        [b"u", b"v", b"u", b"u", b"w"],
        [True, False, True, False, True],
        [frozenset({1}), frozenset(), frozenset({1}), frozenset({2}), frozenset()],
        np.array(["2020-01-01", "2020-01-02", "2020-01-01", "2020-01-01", "2020-01-03"], dtype="datetime64[D]"),
    ],
    ids=["mixed", "number-and-text", "large", "tuples", "integers", "bytes", "booleans", "sets", "dates"],
)
def test_any_hashable_id(ids: list[Hashable]) -> None:
    data = UserDataset.from_arrays(X, Y, ids)
    plain = [value.item() if isinstance(value, np.generic) else value for value in ids]
    expected: dict[Hashable, list[float]] = {}
    for user, row in zip(plain, X):
        expected.setdefault(user, []).append(row[0])
    assert list(data.users) == list(expected)
    (block,) = data.blocks
    for k, rows in enumerate(expected.values()):
        assert block.users(k, k + 1).features[:, 0].tolist() == rows


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-3, 12), min_size=1, max_size=60))
def test_grouping_is_a_stable_sort_by_first_appearance(ids: list[int]) -> None:
    rows = np.arange(len(ids), dtype=float)
    data = UserDataset.from_arrays(rows[:, None], rows, ids)
    first = list(dict.fromkeys(ids))
    order = sorted(range(len(ids)), key=lambda j: (first.index(ids[j]), j))
    assert data.users == tuple(first)
    assert data.blocks[0].features[:, 0].tolist() == order
    assert data.blocks[0].target.tolist() == order
    assert data.rows_per_user.tolist() == [ids.count(user) for user in first]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_grouped_rows_are_not_copied_and_keep_their_type(dtype: type) -> None:
    features = np.ascontiguousarray(X, dtype=dtype)
    data = UserDataset.from_arrays(features, Y, ["z", "z", "a", "a", "q"])
    assert np.shares_memory(data.blocks[0].features, features)
    assert np.shares_memory(data.blocks[0].target, Y)
    assert data.blocks[0].features.dtype == dtype


def test_unsorted_float32_is_copied_once_as_float32() -> None:
    data = UserDataset.from_arrays(X.astype(np.float32), Y, IDS)
    assert data.blocks[0].features.dtype == np.float32


def test_without_groups_every_row_is_a_user() -> None:
    data = UserDataset.from_arrays(X)
    assert data.n_users == 5
    assert data.rows_per_user.tolist() == [1] * 5
    assert data.blocks[0].target.tolist() == [0.0] * 5


def test_without_deletes_whole_users() -> None:
    data = UserDataset.from_arrays(X, Y, IDS).without(["a"])
    assert data.users == ("b", "c")
    assert data.blocks[0].features[:, 0].tolist() == [1, 3, 4]
    assert data.blocks[0].offsets.tolist() == [0, 2, 3]
    with pytest.raises(DataError, match="no such user: 'nobody'"):
        data.without(["nobody"])


def test_split_keeps_users_whole_and_loses_nobody() -> None:
    ids = np.random.default_rng(0).integers(0, 30, 500)
    rows = np.arange(500.0)[:, None]
    data = UserDataset.from_arrays(rows, None, ids)
    left, right = data.split(0.4, seed=1)
    assert left.n_users == 12
    assert set(left.users).isdisjoint(right.users)
    assert set(left.users) | set(right.users) == set(data.users)
    for part in (left, right):
        for k, user in enumerate(part.users):
            assert part.blocks[0].users(k, k + 1).features[:, 0].tolist() == np.flatnonzero(ids == user).tolist()
    again, _ = data.split(0.4, seed=1)
    assert again.users == left.users
    with pytest.raises(DataError, match="fraction must lie strictly between 0 and 1"):
        data.split(1.0, seed=0)


@pytest.mark.parametrize("fraction", [1e-9, 1 - 1e-9])
def test_split_never_leaves_a_side_empty(fraction: float) -> None:
    left, right = UserDataset.from_arrays(X, Y, IDS).split(fraction, seed=0)
    assert left.n_users >= 1
    assert right.n_users >= 1


def test_chunks_never_cut_a_user() -> None:
    ids = np.repeat(np.arange(40), np.random.default_rng(3).integers(0, 9, 40))
    data = UserDataset.from_arrays(np.arange(len(ids), dtype=float)[:, None], None, ids)
    block = data.blocks[0]
    for rows, users in ((1, 100), (7, 3), (1000, 1000), (5, 1)):
        chunks = list(block.chunks(rows, users))
        assert np.concatenate([chunk.features[:, 0] for chunk in chunks]).tolist() == list(range(len(ids)))
        counts = [count for chunk in chunks for count in np.diff(chunk.offsets).tolist()]
        assert counts == data.rows_per_user.tolist()
        for chunk in chunks:
            assert chunk.n_users <= users
            assert chunk.n_rows <= rows or chunk.n_users == 1
            assert np.shares_memory(chunk.features, block.features)


@pytest.mark.parametrize(
    ("y", "groups", "message"),
    [
        (Y[:3], IDS, "X has 5 rows but y has 3: give one target for each row"),
        (Y, IDS[:4], "X has 5 rows but groups has 4: give one user id for each row"),
        ([0, 1, np.nan, 1, np.inf], IDS, "y has 2 missing or infinite values: drop those rows or fill them in"),
        (["u", "v", "u", "v", "u"], IDS, "y is not numeric .*: encode it as numbers first"),
        (np.ones((5, 2)), IDS, "y must hold one number for each row"),
        (Y, ["a", None, "b", None, "c"], "groups has 2 missing user ids: drop those rows or give every row an id"),
        (Y, [1.0, np.nan, 2.0, 1.0, 1.0], "groups has 1 missing user ids"),
        (Y, pd.Series(["a", pd.NA, "b", "a", None]), "groups has 2 missing user ids"),
        (Y, pl.Series(["a", None, "b", "a", "b"]), "groups has 1 missing user ids"),
        (Y, np.ones((5, 2)), "groups must hold one user id for each row, got an array of shape"),
        (Y, [[1], [2], [1], [1, 2], [3]], "user ids must be hashable"),
    ],
)
def test_bad_input_says_what_and_how_to_fix_it(y: object, groups: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        UserDataset.from_arrays(X, y, groups)


def test_arrays_round_trip() -> None:
    data = UserDataset.from_arrays(X, Y, IDS)
    features, target, owner = data.arrays()
    assert np.shares_memory(features, data.blocks[0].features)
    assert owner.tolist() == [0, 0, 1, 1, 2]
    twice = UserDataset(data.blocks + data.blocks, (*data.users, "d", "e", "f"), data.columns)
    features, target, owner = twice.arrays()
    assert features.shape == (10, 2)
    assert target.shape == (10,)
    assert owner.tolist() == [0, 0, 1, 1, 2, 3, 3, 4, 4, 5]


@pytest.mark.parametrize(
    "ids",
    [
        np.array([1, pd.NA], dtype=object),
        pd.array(["a", pd.NA], dtype="string"),
        np.ma.array([1, 2], mask=[False, True]),
        np.array([1, complex("nan")]),
        [1, None],
    ],
    ids=["NA", "text", "masked", "complex", "list"],
)
def test_every_kind_of_missing_id_is_seen(ids: Any) -> None:
    with pytest.raises(DataError, match="1 missing user ids"):
        UserDataset.from_arrays(np.zeros((2, 1)), None, ids)


@pytest.mark.parametrize("names", [["a", "a"], [1, "1"]])
def test_columns_with_one_name_are_refused(names: list[Any]) -> None:
    with pytest.raises(DataError, match="several columns named"):
        UserDataset.from_arrays(pd.DataFrame(np.arange(4.0).reshape(2, 2), columns=names), None, [0, 1])
