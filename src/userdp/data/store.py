"""Data larger than memory: rows are grouped by user once, by DuckDB, into a file that fits stream from."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from userdp.data.blocks import Floats, Rows, UserBlock
from userdp.data.loading import data_columns
from userdp.data.tables import DataError

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
# What an interpreter with this library loaded and the buffers outside DuckDB's accounting need.
_BASE = 550 * 10**6
_LEAST = 128 * 10**6
# A sort may be so many times larger than the memory of the database.
_SORTED = 8
_BATCH_NUMBERS = 1 << 21


class StoredBlock(UserBlock):
    """A block whose rows lie in a file, sorted by user; ``users`` reads the few that are asked for.

    ``features`` and ``target`` map the whole file: for code that insists on arrays, and has the address space.
    """

    def __init__(self, folder: Path, dtype: np.dtype[Any], n_features: int, offsets: NDArray[np.int64]) -> None:
        for name, value in (("folder", folder), ("dtype", dtype), ("n_features", n_features), ("offsets", offsets)):
            object.__setattr__(self, name, value)

    folder: Path
    dtype: np.dtype[Any]
    n_features: int

    @property
    def features(self) -> Rows:
        """All rows, mapped."""
        if not self.n_rows:
            return np.empty((0, self.n_features), self.dtype)
        return np.memmap(self.folder / "features", self.dtype, "r", shape=(self.n_rows, self.n_features))

    @property
    def target(self) -> Floats:
        """All targets, mapped."""
        return np.memmap(self.folder / "target", np.float64, "r", shape=(self.n_rows,)) if self.n_rows else np.empty(0)

    def users(self, start: int, stop: int) -> UserBlock:
        """The users start..stop−1, read from disk."""
        first, last = int(self.offsets[start]), int(self.offsets[stop])
        size = self.n_features * self.dtype.itemsize
        try:
            rows = np.fromfile(
                self.folder / "features", self.dtype, (last - first) * self.n_features, offset=first * size
            )
            target = np.fromfile(self.folder / "target", np.float64, last - first, offset=8 * first)
        except OSError as error:
            raise DataError(f"cannot read the grouped rows in {self.folder}: {error}") from None
        if len(target) != last - first or len(rows) != (last - first) * self.n_features:
            raise DataError(f"the grouped rows in {self.folder} were cut short while in use")
        return UserBlock(rows.reshape(-1, self.n_features), target, self.offsets[start : stop + 1] - first)

    def __repr__(self) -> str:
        return f"StoredBlock({str(self.folder)!r}, {self.n_users} users, {self.n_rows} rows)"


@dataclass(frozen=True)
class Source:
    """Parquet files with one schema, and the columns taken from them."""

    files: tuple[str, ...]
    user: str
    target: str | None
    columns: tuple[str, ...]
    dtype: np.dtype[Any]
    float_ids: bool = False

    @classmethod
    def of(cls, path: str | Path, user: str, target: str | None, features: Sequence[str] | None) -> Source:
        """Look at schemas only; every file must have the columns, with the same types."""
        path = Path(path)
        if not path.exists():
            raise DataError(f"no such file: {path}")
        files = sorted(map(str, path.rglob("*.parquet"))) if path.is_dir() else [str(path)]
        if not files:
            raise DataError(f"no Parquet files in {path}")
        opened = [(file, _metadata(file)) for file in files]
        files = [file for file, metadata in opened if metadata.num_rows]  # empty parts often lost their types
        schemas = [metadata.schema.to_arrow_schema() for _, metadata in opened if metadata.num_rows]
        if not files:
            raise DataError(f"no rows in {path}")
        special = [name for name in (user, target) if name is not None]
        columns = [name for name in (features or data_columns(schemas[0])) if name not in special]
        if not columns:
            raise DataError(f"{path} has no feature columns besides {', '.join(map(repr, special))}")
        for file, schema in zip(files, schemas):
            check_schema(schema, schemas[0], [*special, *columns], features is None, file, files[0])
        types = [schemas[0].field(name).type for name in columns]
        for name, kind in zip([*columns, *special[1:]], [*types, *(schemas[0].field(n).type for n in special[1:])]):
            if not is_number(kind):
                raise DataError(
                    f"column {name!r} is not numeric (type {kind}): encode it as numbers first, e.g. one-hot"
                )
        single = all(pa.types.is_float32(kind) for kind in types)
        dtype = np.dtype(np.float32 if single else np.float64)
        floating = pa.types.is_floating(schemas[0].field(user).type)
        return cls(tuple(files), user, target, tuple(columns), dtype, floating)


def is_number(kind: pa.DataType) -> bool:
    """Types that become a float without being told how."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def check_schema(
    schema: pa.Schema, expected: pa.Schema, wanted: Sequence[str], whole: bool, file: str, first: str
) -> None:
    """Raise unless the wanted columns are there, with the types of the first file."""
    for name in wanted:
        if name not in schema.names:
            shown = ", ".join(map(repr, schema.names[:12])) + (", …" if len(schema.names) > 12 else "")
            raise DataError(f"no column {name!r} in {file}; it has {shown}")
        if schema.field(name).type != expected.field(name).type:
            raise DataError(
                f"column {name!r} is {schema.field(name).type} in {file} but {expected.field(name).type} in {first}: "
                f"write all parts with the same types"
            )
    extra = [name for name in schema.names if name not in expected.names]
    if whole and extra:
        raise DataError(f"column {extra[0]!r} is in {file} but not in {first}: name the features, or write equal parts")


def group_by_user(
    source: Source, memory_limit: int | str, scratch: str | Path | None = None
) -> tuple[StoredBlock, list[Hashable]]:
    """Rows sorted by user, users in order of first appearance, in a temporary folder that lives as long as the block.

    DuckDB finds each user's first row, joins and sorts, spilling to ``scratch`` beyond its share of ``memory_limit``;
    what comes out is written as plain rows of ``source.dtype``, checked on the way.
    """
    import duckdb  # here and below: a tenth of the time to import the library, for those who need it

    limit = max(parse_bytes(memory_limit) - _BASE, _LEAST)
    parent = Path(scratch) if scratch is not None else Path(tempfile.gettempdir())
    if not parent.is_dir():
        raise DataError(f"no such folder for temporary files: {parent}")
    folder = Path(tempfile.mkdtemp(prefix="userdp-", dir=parent))
    try:
        block, users = _group(source, folder, limit)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, DataError) or not isinstance(
            error, duckdb.Error | pa.ArrowException | OSError | MemoryError
        ):
            raise
        raise _readable(error, memory_limit, parent) from None
    weakref.finalize(block, shutil.rmtree, folder, ignore_errors=True)
    return block, users


def _readable(error: Exception, memory_limit: int | str, parent: Path) -> DataError:
    """What went wrong in the database, on the way out of it, or on the disk, and what to do about it."""
    import duckdb

    reason = (str(error).splitlines() or [type(error).__name__])[0]
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or re.search("no space|disk full|temp_directory_size", str(error), re.IGNORECASE):
        return DataError(
            f"the disk of {parent} is full while grouping rows by user: free about twice the size of the data, "
            "or choose another folder with scratch="
        )
    if isinstance(error, MemoryError | duckdb.OutOfMemoryException) or "out of memory" in reason.lower():
        return DataError(f"{memory_limit} is too little memory to group these rows: raise it ({reason})")
    return DataError(f"cannot group the rows: {reason}")


def _group(source: Source, folder: Path, limit: int) -> tuple[StoredBlock, list[Hashable]]:
    """Number the users in order of first appearance; sort the rows by that, streaming them into the file.

    A sort of far more than the memory fails: the files are read several times, for so many users at a time.
    """
    import duckdb

    settings: dict[str, Any] = {
        "memory_limit": f"{limit // 10**6}MB",
        "threads": max(min(os.cpu_count() or 1, limit // (250 * 10**6)), 1),
        "temp_directory": str(folder / "spill"),
        "preserve_insertion_order": True,  # else Arrow readers may return sorted rows out of order
    }
    with duckdb.connect(str(folder / "work.duckdb"), config=settings) as database:
        database.execute("SET enable_progress_bar = false")
        database.execute("SET disable_parquet_prefetching = true")  # row groups may be larger than the memory
        database.execute("CREATE TABLE files (filename VARCHAR, number BIGINT)")
        database.executemany("INSERT INTO files VALUES (?, ?)", [[file, i] for i, file in enumerate(source.files)])
        kind = "FLOAT" if source.dtype == np.float32 else "DOUBLE"
        columns = ", ".join(f"CAST({_quoted(name)} AS {kind}) AS f{i}" for i, name in enumerate(source.columns))
        target = "0.0::DOUBLE" if source.target is None else f"CAST({_quoted(source.target)} AS DOUBLE)"
        # A row's place: its file's number, then its own; 2^40 rows a file.
        rows = (
            f"SELECT {_quoted(source.user)} AS id, number * {2**40} + file_row_number AS place, {target} AS y, "
            f"{columns} FROM read_parquet(?, filename=true, file_row_number=true, hive_partitioning=false) "
            "JOIN files USING (filename)"
        )
        files = [list(source.files)]
        database.execute(
            f"CREATE TABLE people AS SELECT id, count(*) AS n, min(place) AS first FROM ({rows}) GROUP BY id", files
        )
        absent = "id IS NULL OR isnan(id)" if source.float_ids else "id IS NULL"
        missing = database.execute(f"SELECT n FROM people WHERE {absent}").fetchall()
        if missing:
            raise DataError(
                f"groups has {sum(n for (n,) in missing)} missing user ids: drop those rows or give every row an id"
            )
        table: Any = database.sql("SELECT id, n, first FROM people ORDER BY first").to_arrow_table()
        offsets = np.concatenate([[0], np.cumsum(table.column("n").to_numpy())]).astype(np.int64)
        users = table.column("id").to_pylist()
        firsts = table.column("first").to_numpy()
        names = ", ".join(f"f{i}" for i in range(len(source.columns)))
        query = f"SELECT first, place, y, {names} FROM ({rows}) JOIN people USING (id) "
        query += "WHERE first BETWEEN ? AND ? ORDER BY first, place"
        batch = max(_BATCH_NUMBERS // (len(source.columns) + 3), 1)
        most = _SORTED * limit // (source.dtype.itemsize * len(source.columns) + 24)
        whole = UserBlock(np.empty((0, 0)), np.empty(0), offsets)
        with (folder / "features").open("wb") as features, (folder / "target").open("wb") as targets:
            writer = _Writer(source, features, targets)
            for start, stop in whole.cuts(most, len(users)):
                between = [*files, int(firsts[start]), int(firsts[stop - 1])]
                for sorted_rows in database.sql(query, params=between).to_arrow_reader(batch):
                    writer.add(sorted_rows)
    writer.finish(int(offsets[-1]))
    for leftover in ("work.duckdb", "work.duckdb.wal"):
        (folder / leftover).unlink(missing_ok=True)
    return StoredBlock(folder, source.dtype, len(source.columns), offsets), users


class _Writer:
    """Appends batches of columns as rows, checking values and order on the way."""

    def __init__(self, source: Source, features: IO[bytes], target: IO[bytes]) -> None:
        self.source, self.features, self.target = source, features, target
        self.written, self.bad_target, self.bad = 0, 0, np.zeros(len(source.columns), dtype=np.int64)
        self.last = (-1, -1)

    def add(self, batch: pa.RecordBatch) -> None:
        """The next rows."""
        first, place, target, *columns = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        self.last = _check_order(first, place, self.last)
        matrix = np.empty((batch.num_rows, len(columns)), self.source.dtype)
        for i, column in enumerate(columns):
            matrix[:, i] = column
        if not np.isfinite(matrix.sum(dtype=np.float64)):
            self.bad += np.count_nonzero(~np.isfinite(matrix), axis=0)
        self.bad_target += int(np.count_nonzero(~np.isfinite(target)))
        _append(self.features, matrix)
        _append(self.target, np.ascontiguousarray(target, dtype=np.float64))
        self.written += batch.num_rows

    def finish(self, rows: int) -> None:
        """Raise unless all is well."""
        wrong = [f"{name!r} ({count})" for name, count in zip(self.source.columns, self.bad) if count]
        if wrong:
            shown = ", ".join(wrong[:5]) + (", …" if len(wrong) > 5 else "")
            raise DataError(f"missing or infinite values in column {shown}: drop those rows or fill them in")
        if self.bad_target:
            raise DataError(f"y has {self.bad_target} missing or infinite values: drop those rows or fill them in")
        if self.written != rows:
            raise DataError(f"read {self.written} rows of {rows}: the files changed while being grouped")


def _check_order(first: NDArray[Any], place: NDArray[Any], last: tuple[int, int]) -> tuple[int, int]:
    """Privacy rests on a user's rows being together: do not take the database's word for it."""
    first, place = np.concatenate([[last[0]], first]), np.concatenate([[last[1]], place])
    if np.any((first[1:] < first[:-1]) | ((first[1:] == first[:-1]) & (place[1:] <= place[:-1]))):
        raise DataError("the database returned rows out of order: nothing was trained; please report this as a bug")
    return int(first[-1]), int(place[-1])


def _append(file: IO[bytes], array: NDArray[Any]) -> None:
    file.write(array.view(np.uint8).data if array.size else b"")


def parse_bytes(size: int | str) -> int:
    """A number of bytes from 1500000000, "1.5GB" or "800 MiB".

    >>> parse_bytes("1.5 GB")
    1500000000
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?I?B?)\s*", str(size).upper())
    unit = None if match is None else match[2] if not match[2] or match[2].endswith("B") else match[2] + "B"
    if match is None or unit not in _UNITS:
        raise DataError(f"memory_limit must be a number of bytes or text like '1GB', got {size!r}")
    return int(float(match[1]) * _UNITS[unit])


def _metadata(file: str) -> Any:
    try:
        return pyarrow.parquet.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot read {file}: {str(error).splitlines()[0]}") from None


def _text(path: Path) -> str:
    return str(path).replace("'", "''")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
