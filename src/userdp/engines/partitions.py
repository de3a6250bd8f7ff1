"""Partitions of a table and how they become blocks of whole users; what a Dask worker runs while rows are shuffled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from userdp.data import DataError, UserDataset
from userdp.data.store import is_number

# Bytes of rows in a block, about: a worker holds several, and moves one at a time.
BLOCK_BYTES = 128 * 10**6


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are what."""

    user: str
    target: str | None
    features: tuple[str, ...]


def pieces(file: str) -> list[tuple[str, list[int], int]]:
    """Row groups of a file, gathered to pieces of about a block."""
    metadata = pyarrow.parquet.read_metadata(file)
    found: list[tuple[str, list[int], int]] = []
    groups, size = [], 0
    for group in range(metadata.num_row_groups):
        groups.append(group)
        size += metadata.row_group(group).total_byte_size
        if size >= BLOCK_BYTES or group == metadata.num_row_groups - 1:
            found.append((file, groups, size))
            groups, size = [], 0
    return found


def read(file: str, groups: list[int], columns: Columns) -> pd.DataFrame:
    """Some row groups of a file, the columns that are needed."""
    names = [*columns.features, columns.user, *([columns.target] if columns.target else [])]
    try:
        table = pyarrow.parquet.ParquetFile(file).read_row_groups(groups, columns=names)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot read {file}: {str(error).splitlines()[0]}") from None
    return table.to_pandas(types_mapper=pd.ArrowDtype if _is_text(table.schema.field(columns.user).type) else None)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def prepare(part: pd.DataFrame, number: int, columns: Columns, dtype: np.dtype[Any]) -> pa.Table:
    """Check one partition; add what decides the block of each row, a hash of its user, and its place in the whole."""
    names = [columns.user, *([columns.target] if columns.target else []), *columns.features]
    for name in names:
        if name not in part.columns:
            raise DataError(
                f"no column {name!r} in partition {number}; it has {', '.join(map(repr, part.columns[:12]))}"
            )
    if not len(part):
        return pa.table({})
    ids, kind = _ids(part[columns.user], columns.user, number)
    hashed = pd.util.hash_array(ids.to_numpy(zero_copy_only=False), categorize=False)
    place = np.int64(number) * 2**40 + np.arange(len(part))
    table = {"_hash": hashed.view(np.int64), "_place": place, "_user": ids}
    table["_target"] = (
        np.zeros(len(part)) if columns.target is None else _numbers(part, columns.target, number, "float64")
    )
    matrix = np.empty((len(part), len(columns.features)), dtype)
    for i, name in enumerate(columns.features):
        matrix[:, i] = _numbers(part, name, number, dtype)
    table["_features"] = _packed(matrix)
    return pa.table(table).replace_schema_metadata({"ids": kind, "spelling": _spelling(ids)})


def _packed(matrix: NDArray[Any]) -> pa.Array:
    """One entry a row, its bytes: a shuffle takes its time by the column."""
    starts = np.arange(len(matrix) + 1, dtype=np.int64) * matrix.strides[0]
    return pa.Array.from_buffers(pa.large_binary(), len(matrix), [None, pa.py_buffer(starts), pa.py_buffer(matrix)])


def _unpacked(column: Any, dtype: np.dtype[Any], width: int) -> NDArray[Any]:
    """The matrix that ``_packed`` was given."""
    rows = pa.array(column)
    rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    _, starts, content = rows.buffers()
    first = int(np.frombuffer(starts, np.int64)[rows.offset])
    size = len(rows) * width * dtype.itemsize
    return np.frombuffer(content, np.uint8)[first : first + size].view(dtype).reshape(-1, width)


def _spelling(ids: pa.Array) -> str:
    """How text ids write numbers: "1", "1.0", both or neither. Mixed columns become text that way, 1 and 1.0 apart."""
    if not _is_text(ids.type):
        return ""
    forms = {"1": r"^-?[0-9]+$", "1.0": r"^-?[0-9]+\.0*$"}
    return " ".join(form for form, pattern in forms.items() if pc.any(pc.match_substring_regex(ids, pattern)).as_py())


def _ids(values: pd.Series, name: str, number: int) -> tuple[pa.Array, str]:
    """User ids as one of four types, equal ids as equal bits; and a name of the type that ids must share.

    Whole numbers of all sizes are one type. Floats are not: a short one may stand for several long ones.
    """
    try:
        ids = pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"column {name!r} mixes types in partition {number} ({reason}): make all ids text") from None
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    if pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
    kind = str(ids.type)
    if pa.types.is_floating(ids.type):
        floats = ids.to_numpy(zero_copy_only=False).astype(np.float64) + 0.0  # −0 is 0
        ids = pa.array(floats, from_pandas=True)
    elif pa.types.is_integer(ids.type):
        ids = ids if pa.types.is_uint64(ids.type) else ids.cast(pa.int64())
    elif _is_text(ids.type):
        ids = ids.cast(pa.large_string())
    elif not pa.types.is_null(ids.type):
        raise DataError(
            f"user ids must be numbers or text, column {name!r} is {ids.type} in partition {number}: make it text"
        )
    if ids.null_count:
        raise DataError(
            f"groups has {ids.null_count} missing user ids in column {name!r} of partition {number}: drop those rows"
        )
    return ids, kind if pa.types.is_floating(ids.type) else str(ids.type)


def _numbers(part: pd.DataFrame, name: str, number: int, dtype: Any) -> Any:
    kind = pa.array(part[name].iloc[:0], from_pandas=True).type
    if not is_number(kind):
        raise DataError(
            f"column {name!r} is not numeric (type {kind}) in partition {number}: encode it as numbers first"
        )
    values = part[name].to_numpy(dtype=dtype, na_value=np.nan)
    bad = int(np.count_nonzero(~np.isfinite(values)))
    if bad:
        raise DataError(
            f"missing or infinite values in column {name!r} ({bad}) of partition {number}: fill or drop them"
        )
    return values


def id_kind(part: pa.Table) -> tuple[str, str]:
    """Type of the user ids and how they write numbers, nothing where there are none."""
    if not part.num_rows:
        return "", ""
    found = part.schema.metadata
    return found[b"ids"].decode(), found[b"spelling"].decode()


def one_kind(kinds: list[tuple[str, str]], name: str) -> str:
    """The type of all partitions' user ids, nothing if there are no ids; refuses what could take a user for two."""
    known = sorted({kind for kind, _ in kinds if kind})
    if len(known) > 1:
        raise DataError(
            f"column {name!r} is {known[0]} in one partition and {known[1]} in another: a user could be taken for two; "
            "give all partitions the same type"
        )
    if len({form for _, spelling in kinds for form in spelling.split()}) > 1:
        raise DataError(
            f"column {name!r} has text ids like '1' and like '1.0': a user could be taken for two; write numbers "
            "one way"
        )
    return known[0] if known else ""


def empty_frame(ids: str) -> pd.DataFrame:
    """A table without rows, with the types every partition has."""
    frame = {"_hash": np.empty(0, np.int64), "_place": np.empty(0, np.int64)}
    users = pd.Series(
        [],
        dtype=pd.ArrowDtype(pa.large_string())
        if ids == "large_string"
        else np.dtype(ids if ids in ("int64", "uint64") else "float64"),
    )
    rows = pd.Series([], dtype=pd.ArrowDtype(pa.large_binary()))
    return pd.DataFrame(frame | {"_user": users, "_target": np.empty(0), "_features": rows})


def typed(part: pa.Table, empty: pd.DataFrame) -> pd.DataFrame:
    """A partition with the types that every partition has."""
    kinds = {kind.pyarrow_dtype: kind for kind in empty.dtypes if isinstance(kind, pd.ArrowDtype)}
    return part.to_pandas(types_mapper=kinds.get) if part.num_rows else empty


def grouped(part: pd.DataFrame, columns: Columns, dtype: np.dtype[Any]) -> UserDataset | None:
    """A block of whole users; rows in their original order, so that a user's numbers are the local engine's bits."""
    if not len(part):
        return None
    part = part.sort_values("_place", kind="stable")
    matrix = _unpacked(part["_features"], dtype, len(columns.features))
    data = UserDataset.from_arrays(matrix, part["_target"].to_numpy(), part["_user"].to_numpy())
    return UserDataset(data.blocks, tuple(range(data.n_users)), columns.features)
