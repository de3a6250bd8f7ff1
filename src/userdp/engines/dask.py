"""Sum over users on a Dask cluster: blocks of users live on the workers, only sums travel.

Rows are shuffled by user id once, so that each user is whole on one worker. A sum over users is one task a block; the
blocks' results are merged in a tree whose shape depends on the number of blocks only, with compensation, so they agree
with the local engine's to the last digits and do not depend on who computed what. Blocks remember how they were made:
those of a lost worker are made again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.dataframe
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from distributed import Client, Future, LocalCluster, futures_of
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker
from distributed.shuffle._exceptions import P2POutOfDiskError

from userdp.data import DataError, UserDataset
from userdp.data.store import Source, is_number
from userdp.engines.base import Floats, Kernel, Sums
from userdp.engines.local import CompensatedSum, LocalEngine, rounding_of

CHUNK_ROWS, CHUNK_USERS = 8192, 4096
# How long a scheduler may take to answer.
CONNECT_SECONDS = 10
# Blocks' results merged by one task.
_FAN_IN = 8
# Bytes of rows in a block, about: a worker holds several, and moves one at a time.
_BLOCK_BYTES = 128 * 10**6
# How often a sum is asked for again when its blocks were lost together with the worker that held them.
_ATTEMPTS = 4


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are what."""

    user: str
    target: str | None
    features: tuple[str, ...]


class DaskEngine:
    """Runs kernels where the rows are. Make one with ``from_parquet``, ``from_dataframe`` or ``from_dataset``.

    ``client`` is a ``distributed.Client``, a scheduler's address, or None for two worker processes on this machine.
    Use it in a ``with`` statement, or ``close`` it, to stop what it started.
    """

    def __init__(self, make: Callable[[Client], list[Future]], columns: Sequence[str], client: Any = None) -> None:
        self.client, self._owned = _connect(client)
        self.columns = tuple(columns)
        self._make = make
        try:
            with _readable_errors():
                self._blocks = make(self.client)
                counts = self.client.gather([self.client.submit(_count, block, pure=False) for block in self._blocks])
        except BaseException:
            self.close()
            raise
        self.n_users = sum(counts)
        if not self.n_users:
            self.close()
            raise DataError("the data has no rows")

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.columns)

    @property
    def rounding(self) -> float:
        """As on one machine: the merging of blocks is compensated."""
        return rounding_of(CHUNK_USERS)

    @classmethod
    def from_parquet(
        cls,
        path: str | Path,
        *,
        user: str,
        target: str | None = None,
        features: Sequence[str] | None = None,
        client: Any = None,
        blocks: int | None = None,
    ) -> DaskEngine:
        """A Parquet file or folder, read by the workers (they must see the same path)."""
        source = Source.of(path, user, target, features)
        columns = Columns(user, target, source.columns)
        pieces = [piece for file in source.files for piece in _pieces(file)]
        parts = [dask.delayed(_read)(file, groups, columns) for file, groups, _ in pieces]
        size = sum(bytes_ for _, _, bytes_ in pieces)
        return cls._shuffled(parts, columns, source.dtype, client, blocks, size)

    @classmethod
    def from_dataframe(
        cls,
        frame: Any,
        *,
        user: str,
        target: str | None = None,
        features: Sequence[str] | None = None,
        client: Any = None,
        blocks: int | None = None,
    ) -> DaskEngine:
        """A Dask DataFrame."""
        special = [name for name in (user, target) if name is not None]
        for name in [*special, *(features or ())]:
            if name not in frame.columns:
                raise DataError(
                    f"no column {name!r}; the DataFrame has {', '.join(map(repr, list(frame.columns)[:12]))}"
                )
        names = tuple(name for name in (features or frame.columns) if name not in special)
        if not names:
            raise DataError(f"the DataFrame has no feature columns besides {', '.join(map(repr, special))}")
        dtypes = [frame.dtypes[name] for name in names]
        dtype = np.dtype(np.float32 if all(kind == np.float32 for kind in dtypes) else np.float64)
        return cls._shuffled(frame.to_delayed(), Columns(user, target, names), dtype, client, blocks, None)

    @classmethod
    def from_dataset(cls, dataset: UserDataset, *, client: Any = None, blocks: int | None = None) -> DaskEngine:
        """Data this process holds, cut into blocks and sent to the workers; kept here to be sent again."""

        def make(connected: Client) -> list[Future]:
            count = blocks or 2 * _workers(connected)
            rows = -(-dataset.n_rows // count) or 1
            cut = [
                UserDataset((piece,), tuple(range(piece.n_users)), dataset.columns)
                for block in dataset.blocks
                for piece in block.chunks(rows, dataset.n_users)
            ]
            return list(connected.scatter(cut, hash=False))

        return cls(make, dataset.columns, client)

    @classmethod
    def _shuffled(
        cls, parts: list[Any], columns: Columns, dtype: np.dtype[Any], client: Any, blocks: int | None, size: int | None
    ) -> DaskEngine:
        def make(connected: Client) -> list[Future]:
            count = blocks or max(2 * _workers(connected), -(-size // _BLOCK_BYTES) if size else len(parts))
            prepared = [
                dask.delayed(_prepare)(part, number, columns, dtype, count) for number, part in enumerate(parts)
            ]
            prepared = connected.persist(prepared)
            kinds = connected.gather([connected.submit(_id_kind, part, pure=False) for part in _futures(prepared)])
            known = sorted({kind for kind in kinds if kind})
            if len(known) > 1:
                raise DataError(
                    f"column {columns.user!r} is {known[0]} in one partition and {known[1]} in another: a user could "
                    "be taken for two; give all partitions the same type"
                )
            if not known:
                return []
            empty = _empty(columns, dtype, known[0])
            typed = [dask.delayed(_typed)(part, empty) for part in prepared]
            frame = dask.dataframe.from_delayed(typed, meta=empty, verify_meta=False)
            shuffled = frame.shuffle("_block", npartitions=count, shuffle_method="p2p")
            made = [dask.delayed(_group)(part, columns) for part in shuffled.to_delayed()]
            return _futures(connected.persist(made))

        return cls(make, columns.features, client)

    def sum(self, kernel: Kernel, *arguments: Any) -> Sums:
        """Σ over blocks of ``kernel(chunk, *arguments)``."""

        def ask() -> Sums:
            level = [self._submit(_sum_block, block, kernel, arguments) for block in self._blocks]
            while len(level) > 1:
                level = [self._submit(_merge, level[i : i + _FAN_IN]) for i in range(0, len(level), _FAN_IN)]
            total: CompensatedSum = level[0].result()
            return total.result()

        total: Sums = self._recovering(ask)
        return total

    def each(self, kernel: Callable[..., Floats], *arguments: Any) -> Floats:
        """One entry a user, block after block: brings n numbers here."""

        def ask() -> Floats:
            parts = [self._submit(_each_block, block, kernel, arguments) for block in self._blocks]
            return np.concatenate([part for part in self.client.gather(parts) if len(part)])

        values: Floats = self._recovering(ask)
        return values

    def close(self) -> None:
        """Forget the blocks; stop the cluster if this engine started it."""
        self._blocks = []
        if self._owned:
            self.client.close()
            if self.client.cluster is not None:
                self.client.cluster.close()

    def __enter__(self) -> DaskEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit(self, task: Callable[..., Any], *arguments: Any) -> Future:
        return self.client.submit(task, *arguments, pure=False)

    def _recovering(self, ask: Callable[[], Any]) -> Any:
        with _readable_errors():
            for _ in range(_ATTEMPTS - 1):
                try:
                    return ask()
                except FutureCancelledError:  # blocks that were sent, not computed, died with their worker
                    self._blocks = self._make(self.client)
            return ask()


def _connect(client: Any) -> tuple[Client, bool]:
    """A client, and whether it is ours to close."""
    if isinstance(client, Client):
        if client.status != "running":
            raise DataError(f"the Dask client is {client.status}: connect it to a running scheduler first")
        return client, False
    if client is None:
        cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL)
        return Client(cluster), True
    try:
        return Client(client, timeout=CONNECT_SECONDS), True
    except (OSError, ValueError, TimeoutError) as error:
        raise DataError(
            f"no Dask scheduler answers at {client!r} ({type(error).__name__}): check the address, and that it runs"
        ) from None


def _workers(client: Client) -> int:
    return max(len(client.scheduler_info(n_workers=-1)["workers"]), 1)


@contextmanager
def _readable_errors() -> Iterator[None]:
    """Failures of the cluster as one line; nothing has been released when they occur."""
    try:
        yield
    except P2POutOfDiskError:
        raise DataError(
            "a worker's disk is full while rows are shuffled by user: free about twice the size of its share of the "
            "data, or point the workers' local directory elsewhere"
        ) from None
    except KilledWorker as error:
        raise DataError(f"a block of users killed every worker that held it (too little memory?): {error}") from None
    except (CommClosedError, TimeoutError) as error:
        raise DataError(f"the Dask cluster went away: {error}") from None


def _futures(persisted: Sequence[Any]) -> list[Future]:
    """The futures behind delayed objects."""
    return list(futures_of(list(persisted)))


# What runs on the workers.


def _pieces(file: str) -> list[tuple[str, list[int], int]]:
    """Row groups of a file, gathered to pieces of about a block."""
    metadata = pyarrow.parquet.read_metadata(file)
    pieces: list[tuple[str, list[int], int]] = []
    groups, size = [], 0
    for group in range(metadata.num_row_groups):
        groups.append(group)
        size += metadata.row_group(group).total_byte_size
        if size >= _BLOCK_BYTES or group == metadata.num_row_groups - 1:
            pieces.append((file, groups, size))
            groups, size = [], 0
    return pieces


def _read(file: str, groups: list[int], columns: Columns) -> pd.DataFrame:
    names = [*columns.features, columns.user, *([columns.target] if columns.target else [])]
    try:
        table = pyarrow.parquet.ParquetFile(file).read_row_groups(groups, columns=names)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot read {file}: {str(error).splitlines()[0]}") from None
    return table.to_pandas(types_mapper=pd.ArrowDtype if _is_text(table.schema.field(columns.user).type) else None)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _prepare(part: pd.DataFrame, number: int, columns: Columns, dtype: np.dtype[Any], blocks: int) -> pa.Table:
    """Check one partition; add the block each row goes to and its place in the whole."""
    names = [columns.user, *([columns.target] if columns.target else []), *columns.features]
    for name in names:
        if name not in part.columns:
            raise DataError(
                f"no column {name!r} in partition {number}; it has {', '.join(map(repr, part.columns[:12]))}"
            )
    if not len(part):
        return pa.table({})
    ids = pa.array(part[columns.user], from_pandas=True)
    if ids.null_count:
        raise DataError(f"groups has {ids.null_count} missing user ids in partition {number}: drop those rows")
    if pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    if pa.types.is_integer(ids.type):
        ids = ids.cast(pa.int64())
    elif _is_text(ids.type):
        ids = ids.cast(pa.large_string())
    else:
        raise DataError(
            f"user ids must be integers or text, column {columns.user!r} is {ids.type} in partition {number}"
        )
    hashed = pd.util.hash_array(ids.to_numpy(zero_copy_only=False), categorize=False)
    place = np.int64(number) * 2**40 + np.arange(len(part))
    table = {"_block": (hashed % np.uint64(blocks)).astype(np.int64), "_place": place, "_user": ids}
    table["_target"] = (
        np.zeros(len(part)) if columns.target is None else _numbers(part, columns.target, number, "float64")
    )
    for i, name in enumerate(columns.features):
        table[f"f{i}"] = _numbers(part, name, number, dtype)
    return pa.table(table)


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


def _id_kind(part: pa.Table) -> str:
    return str(part.schema.field("_user").type) if part.num_rows else ""


def _empty(columns: Columns, dtype: np.dtype[Any], ids: str) -> pd.DataFrame:
    """A table without rows, with the types every partition has."""
    frame = {"_block": np.empty(0, np.int64), "_place": np.empty(0, np.int64)}
    users = (
        pd.Series(np.empty(0, np.int64)) if ids == "int64" else pd.Series([], dtype=pd.ArrowDtype(pa.large_string()))
    )
    numbers = {"_target": np.empty(0)} | {f"f{i}": np.empty(0, dtype) for i in range(len(columns.features))}
    return pd.DataFrame(frame | {"_user": users} | numbers)


def _typed(part: pa.Table, empty: pd.DataFrame) -> pd.DataFrame:
    return part.to_pandas().astype(empty.dtypes.to_dict()) if part.num_rows else empty


def _group(part: pd.DataFrame, columns: Columns) -> UserDataset | None:
    """A block of whole users; rows in their original order, so that a user's numbers are the local engine's bits."""
    if not len(part):
        return None
    part = part.sort_values("_place", kind="stable")
    matrix = np.column_stack([part[f"f{i}"].to_numpy() for i in range(len(columns.features))])
    data = UserDataset.from_arrays(matrix, part["_target"].to_numpy(), part["_user"].to_numpy())
    return UserDataset(data.blocks, tuple(range(data.n_users)), columns.features)


def _count(block: UserDataset | None) -> int:
    return 0 if block is None else block.n_users


def _sum_block(block: UserDataset | None, kernel: Kernel, arguments: tuple[Any, ...]) -> CompensatedSum:
    total = CompensatedSum()
    if block is not None:
        LocalEngine(block, 1, CHUNK_ROWS, CHUNK_USERS).run(kernel, arguments, total.add)
    return total


def _merge(parts: list[CompensatedSum]) -> CompensatedSum:
    total = CompensatedSum()
    for part in parts:
        total.merge(part)
    return total


def _each_block(block: UserDataset | None, kernel: Callable[..., Floats], arguments: tuple[Any, ...]) -> Floats:
    return np.empty(0) if block is None else LocalEngine(block, 1, CHUNK_ROWS, CHUNK_USERS).each(kernel, *arguments)
