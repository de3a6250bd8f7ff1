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
from pathlib import Path
from typing import Any

import dask
import dask.dataframe
import numpy as np
from distributed import Client, Future, LocalCluster, as_completed, default_client, futures_of
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker
from distributed.shuffle._exceptions import P2POutOfDiskError

from userdp.data import DataError, UserDataset
from userdp.data.store import Source
from userdp.engines.base import Floats, Kernel, Sums
from userdp.engines.local import CompensatedSum, LocalEngine, rounding_of
from userdp.engines.partitions import (
    BLOCK_BYTES,
    Columns,
    empty_frame,
    grouped,
    id_kind,
    pieces,
    prepare,
    read,
    typed,
)

# Called after each piece of work: what it was, and how many pieces there are.
Progress = Callable[[str, int], None]

CHUNK_ROWS, CHUNK_USERS = 8192, 4096
# How long a scheduler may take to answer.
CONNECT_SECONDS = 10
# Blocks' results merged by one task.
_FAN_IN = 8
# How often a sum is asked for again when its blocks were lost together with the worker that held them.
_ATTEMPTS = 4


class DaskEngine:
    """Runs kernels where the rows are. Make one with ``from_parquet``, ``from_dataframe`` or ``from_dataset``.

    ``client`` is a ``distributed.Client``, a scheduler's address, or None for the client in use, else two worker
    processes on this machine. Use it in a ``with`` statement, or ``close`` it, to stop what it started.
    """

    remote = True

    def __init__(
        self,
        make: Callable[[Client, Progress], list[Future]],
        columns: Sequence[str],
        client: Any = None,
        progress: Progress | None = None,
    ) -> None:
        self.client, self._owned = _connect(client)
        self.columns = tuple(columns)
        self._make, show = make, progress or _silent
        try:
            with _readable_errors(self.client):
                self._blocks = make(self.client, show)
                counts = _gathered(self.client, _count, self._blocks, "shuffling by user", show)
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
        progress: Progress | None = None,
    ) -> DaskEngine:
        """A Parquet file or folder, read by the workers (they must see the same path)."""
        source = Source.of(path, user, target, features)
        columns = Columns(user, target, source.columns)
        found = [piece for file in source.files for piece in pieces(file)]
        parts = [dask.delayed(read)(file, groups, columns) for file, groups, _ in found]
        size = sum(bytes_ for _, _, bytes_ in found)
        return cls._shuffled(parts, columns, source.dtype, client, blocks, size, progress)

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
        progress: Progress | None = None,
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
        return cls._shuffled(frame.to_delayed(), Columns(user, target, names), dtype, client, blocks, None, progress)

    @classmethod
    def from_dataset(
        cls,
        dataset: UserDataset,
        *,
        client: Any = None,
        blocks: int | None = None,
        progress: Progress | None = None,
    ) -> DaskEngine:
        """Data this process holds, cut into blocks and sent to the workers; kept here to be sent again."""

        def make(connected: Client, _: Progress) -> list[Future]:
            count = blocks or 2 * _workers(connected)
            rows = -(-dataset.n_rows // count) or 1
            cut = [
                UserDataset((piece,), tuple(range(piece.n_users)), dataset.columns)
                for block in dataset.blocks
                for piece in block.chunks(rows, dataset.n_users)
            ]
            return list(connected.scatter(cut, hash=False))

        return cls(make, dataset.columns, client, progress)

    @classmethod
    def _shuffled(
        cls,
        parts: list[Any],
        columns: Columns,
        dtype: np.dtype[Any],
        client: Any,
        blocks: int | None,
        size: int | None,
        progress: Progress | None,
    ) -> DaskEngine:
        def make(connected: Client, show: Progress) -> list[Future]:
            count = blocks or max(2 * _workers(connected), -(-size // BLOCK_BYTES) if size else len(parts))
            prepared = connected.persist(
                [dask.delayed(prepare)(part, number, columns, dtype, count) for number, part in enumerate(parts)]
            )
            kinds = _gathered(connected, id_kind, _futures(prepared), "reading", show)
            known = sorted({kind for kind in kinds if kind})
            if len(known) > 1:
                raise DataError(
                    f"column {columns.user!r} is {known[0]} in one partition and {known[1]} in another: a user could "
                    "be taken for two; give all partitions the same type"
                )
            if not known:
                return []
            empty = empty_frame(columns, dtype, known[0])
            alike = [dask.delayed(typed)(part, empty) for part in prepared]
            frame = dask.dataframe.from_delayed(alike, meta=empty, verify_meta=False)
            shuffled = frame.shuffle("_block", npartitions=count, shuffle_method="p2p")
            made = [dask.delayed(grouped)(part, columns) for part in shuffled.to_delayed()]
            return _futures(connected.persist(made))

        return cls(make, columns.features, client, progress)

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
        with _readable_errors(self.client):
            for _ in range(_ATTEMPTS - 1):
                try:
                    return ask()
                except FutureCancelledError:  # blocks that were sent, not computed, died with their worker
                    _check_running(self.client)
                    self._blocks = self._make(self.client, _silent)
            return ask()


def _connect(client: Any) -> tuple[Client, bool]:
    """A client, and whether it is ours to close."""
    if isinstance(client, Client):
        if client.status != "running":
            raise DataError(f"the Dask client is {client.status}: connect it to a running scheduler first")
        return client, False
    if client is None:
        try:
            return default_client(), False
        except ValueError:  # none is in use
            pass
        cluster = LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL
        )
        return Client(cluster), True
    try:
        return Client(client, timeout=CONNECT_SECONDS), True
    except (OSError, ValueError, TimeoutError) as error:
        raise DataError(
            f"no Dask scheduler answers at {client!r} ({type(error).__name__}): check the address, and that it runs"
        ) from None


def _workers(client: Client) -> int:
    return max(len(client.scheduler_info(n_workers=-1)["workers"]), 1)


def _silent(text: str, total: int) -> None:
    """No progress is shown."""


def _gathered(
    client: Client, task: Callable[[Any], Any], parts: Sequence[Future], text: str, show: Progress
) -> list[Any]:
    """Small results of a task on every part, reported as they come in."""
    futures = [client.submit(task, part, pure=False) for part in parts]
    for done in as_completed(futures):
        if done.status != "finished":
            break  # gather says why
        show(text, len(futures))
    return list(client.gather(futures))


def _check_running(client: Client) -> None:
    if client.status != "running":
        raise DataError(
            f"the Dask scheduler at {client.scheduler.address} went away in the middle: nothing was released"
        )


@contextmanager
def _readable_errors(client: Client) -> Iterator[None]:
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
