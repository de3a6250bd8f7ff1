"""Partitions of a table and how they become blocks of whole users; what a Dask worker runs while rows are shuffled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet

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
    ids = _ids(part[columns.user], columns.user, number)
    hashed = pd.util.hash_array(ids.to_numpy(zero_copy_only=False), categorize=False)
    place = np.int64(number) * 2**40 + np.arange(len(part))
    table = {"_hash": hashed.view(np.int64), "_place": place, "_user": ids}
    table["_target"] = (
        np.zeros(len(part)) if columns.target is None else _numbers(part, columns.target, number, "float64")
    )
    for i, name in enumerate(columns.features):
        table[f"f{i}"] = _numbers(part, name, number, dtype)
    return pa.table(table)


def _ids(values: pd.Series, name: str, number: int) -> pa.Array:
    """User ids as one of four types, equal ids as equal bits."""
    try:
        ids = pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"column {name!r} mixes types in partition {number} ({reason}): make all ids text") from None
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    if pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
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
    return ids


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


def id_kind(part: pa.Table) -> str:
    """Type of the user ids, nothing where there are none."""
    return str(part.schema.field("_user").type) if part.num_rows else ""


def empty_frame(columns: Columns, dtype: np.dtype[Any], ids: str) -> pd.DataFrame:
    """A table without rows, with the types every partition has."""
    frame = {"_hash": np.empty(0, np.int64), "_place": np.empty(0, np.int64)}
    users = pd.Series([], dtype=pd.ArrowDtype(pa.large_string()) if ids == "large_string" else np.dtype(ids))
    numbers = {"_target": np.empty(0)} | {f"f{i}": np.empty(0, dtype) for i in range(len(columns.features))}
    return pd.DataFrame(frame | {"_user": users} | numbers)


def typed(part: pa.Table, empty: pd.DataFrame) -> pd.DataFrame:
    """A partition with the types that every partition has."""
    return part.to_pandas().astype(empty.dtypes.to_dict()) if part.num_rows else empty


def grouped(part: pd.DataFrame, columns: Columns) -> UserDataset | None:
    """A block of whole users; rows in their original order, so that a user's numbers are the local engine's bits."""
    if not len(part):
        return None
    part = part.sort_values("_place", kind="stable")
    matrix = np.column_stack([part[f"f{i}"].to_numpy() for i in range(len(columns.features))])
    data = UserDataset.from_arrays(matrix, part["_target"].to_numpy(), part["_user"].to_numpy())
    return UserDataset(data.blocks, tuple(range(data.n_users)), columns.features)
