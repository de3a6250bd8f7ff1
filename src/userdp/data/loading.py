"""Tables on disk: CSV and Parquet, one file or a folder of Parquet parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from userdp.data.tables import DataError


def read_table(path: str | Path, columns: Sequence[str] | None = None) -> pa.Table:
    """An Arrow table; only ``columns`` if given. The format follows the ending: .csv, .csv.gz, .parquet or a folder."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"no such file: {path}")
    try:
        if path.is_dir() or path.suffix == ".parquet":
            names = pyarrow.parquet.ParquetDataset(path).schema.names
            _check_columns(names, columns, path)
            return pyarrow.parquet.read_table(path, columns=None if columns is None else list(columns))
        if path.name.endswith((".csv", ".csv.gz")):
            table = pyarrow.csv.read_csv(path)
            _check_columns(table.column_names, columns, path)
            return table if columns is None else table.select(list(columns))
    except pa.ArrowException as error:
        raise DataError(f"cannot read {path}: {str(error).splitlines()[0]}") from None
    raise DataError(f"cannot tell the format of {path}: expected .csv, .csv.gz, .parquet or a folder of Parquet files")


def split_columns(
    path: str | Path, user: str | None, target: str | None, features: Sequence[str] | None
) -> tuple[pa.Table, Any, Any]:
    """Feature table, target column and user column of a file; ``features`` defaults to every other column."""
    special = [name for name in (user, target) if name is not None]
    table = read_table(path, None if features is None else [*features, *special])
    _check_columns(table.column_names, special, Path(path))
    names = [name for name in (features or data_columns(table.schema)) if name not in special]
    if not names:
        raise DataError(f"{path} has no feature columns besides {', '.join(map(repr, special))}")
    return (
        table.select(names),
        None if target is None else table.column(target),
        None if user is None else table.column(user),
    )


def data_columns(schema: pa.Schema) -> list[str]:
    """All columns but those that pandas or Dask wrote as the index of a DataFrame."""
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in schema.names if name not in index]


def _check_columns(present: Sequence[str], wanted: Sequence[str] | None, path: Path) -> None:
    missing = [name for name in wanted or [] if name not in present]
    if missing:
        shown = ", ".join(map(repr, present[:12])) + (", …" if len(present) > 12 else "")
        raise DataError(f"no column {missing[0]!r} in {path}; it has {shown}")
