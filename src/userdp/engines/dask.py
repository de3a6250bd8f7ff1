"""Sum over users on a Dask cluster: blocks of users live on the workers, only sums travel.

Rows are shuffled by user id once, so that each user is whole on one worker. A sum over users is one call of every
worker, past the scheduler's queue of tasks: its threads share the blocks that it holds. Results are merged in a tree
whose shape depends on the number of blocks only, with compensation, so they agree with the local engine's to the last
digits and do not depend on who computed what. Blocks remember how they were made: those of a lost worker are made
again.
"""

from __future__ import annotations

import asyncio
import copy
import ctypes
import logging
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import dask
import dask.dataframe
import numpy as np
from distributed import (
    CancelledError,
    Client,
    Future,
    LocalCluster,
    Worker,
    as_completed,
    default_client,
    futures_of,
    wait,
)
from distributed.comm.core import CommClosedError
from distributed.protocol import pickle
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
    one_kind,
    pieces,
    prepare,
    read,
    typed,
)

# Called after each piece of work: what it was, and how many pieces there are.
Progress = Callable[[str, int], None]

# The blocks from..to − 1, and what was computed for them.
Run = tuple[int, int]
Runs = dict[Run, Any]
# Work on some blocks: how many users they have, and results.
Task = Callable[..., tuple[int, Runs]]

CHUNK_ROWS, CHUNK_USERS = 1 << 15, 4096
# How long a scheduler may take to answer.
CONNECT_SECONDS = 10
# Blocks come by so many, two or more a thread: up to eight threads share them equally, and the answer is the same to
# the last bit however many there are.
_BLOCKS = 16
# What a worker may keep of the memory of a chunk, and what the GNU allocator calls the two settings (malloc.h).
_SCRATCH_BYTES = 1 << 24
_TRIM_THRESHOLD, _MAP_THRESHOLD = -1, -3
# How often a sum is asked for again when a worker was lost on the way, and seconds between looks for who holds a block.
_ATTEMPTS, _LOOK_AGAIN = 4, 0.05


@dataclass(frozen=True)
class Deal:
    """Addresses of the workers that hold blocks, as the scheduler knows them, and the blocks of every thread of each,
    under the name that a process has for itself: another one at its address has another.
    """

    workers: list[str]
    shares: dict[str, list[list[int]]]


@dataclass(frozen=True)
class Failure:
    """What a kernel raised, as against what a connection did."""

    error: Exception


class DaskEngine:
    """Runs kernels where the rows are. Make one with ``from_parquet``, ``from_dataframe`` or ``from_dataset``.

    ``client`` is a ``distributed.Client``, a scheduler's address, or None for the client in use, else two worker
    processes on this machine. Use it in a ``with`` statement, or ``close`` it, to stop what it started.
    """

    remote = True
    chunk_users = CHUNK_USERS

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
        self._blocks: list[Future] = []
        self._deals: list[Deal] = []  # one at most, the same for all copies
        try:
            _wait_for_workers(self.client)
            with _readable_errors(self.client):
                self._blocks = make(self.client, show)
                counts = _gathered(self.client, _count, self._blocks, "shuffling by user", show)
                self._blocks = _spread(self.client, self._blocks)
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
        return rounding_of(self.chunk_users)

    def chunked(self, users: int) -> DaskEngine:
        """The same blocks, of which kernels see at most so many users at a time."""
        other = copy.copy(self)
        other.chunk_users = users
        return other

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
            count = blocks or _blocks_for(connected)
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
            count = blocks or _blocks_for(connected, -(-size // BLOCK_BYTES) if size else len(parts))
            prepared = connected.persist(
                [dask.delayed(prepare)(part, number, columns, dtype) for number, part in enumerate(parts)]
            )
            kinds = _gathered(connected, id_kind, _futures(prepared), "reading", show)
            kind = one_kind(kinds, columns.user)
            if not kind:
                return []
            empty = empty_frame(kind)
            alike = [dask.delayed(typed)(part, empty) for part in prepared]
            frame = dask.dataframe.from_delayed(alike, meta=empty, verify_meta=False)
            shuffled = frame.shuffle("_hash", npartitions=count, shuffle_method="p2p")
            made = [dask.delayed(grouped)(part, columns, dtype) for part in shuffled.to_delayed()]
            return _futures(connected.persist(made))

        return cls(make, columns.features, client, progress)

    def sum(self, kernel: Kernel, *arguments: Any) -> Sums:
        """Σ over blocks of ``kernel(chunk, *arguments)``."""
        (total,) = merged(self._run(_sum_blocks, kernel, arguments), len(self._blocks)).values()
        result: Sums = total.result()
        return result

    def each(self, kernel: Callable[..., Floats], *arguments: Any) -> Floats:
        """One entry a user, block after block: brings n numbers here."""
        parts = self._run(_each_block, kernel, arguments)
        return np.concatenate([parts[run] for run in sorted(parts) if len(parts[run])])

    def close(self) -> None:
        """Forget the blocks; stop the cluster if this engine started it."""
        self._blocks.clear()
        self._deals.clear()
        if self._owned:
            self.client.close()
            if self.client.cluster is not None:
                self.client.cluster.close()

    def __enter__(self) -> DaskEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, task: Task, kernel: Callable[..., Any], arguments: Any) -> Runs:
        """Results of a task on all blocks; asked for again when a worker was lost, after its blocks were made again."""
        _check_running(self.client)
        call, why = pickle.dumps((kernel, arguments)), None
        with _readable_errors(self.client):
            for _ in range(_ATTEMPTS):
                found = self._ask(self._deal(), task, call)
                if isinstance(found, list):
                    break
                why = found
                self._deals.clear()
            else:
                raise DataError(
                    f"workers were lost {_ATTEMPTS} times in one pass (too little memory?): nothing was released"
                ) from why
        users = sum(count for count, _ in found)
        if users != self.n_users:
            raise DataError(
                f"the data has {users} users and had {self.n_users}: it changed while lost blocks were made again. "
                "Nothing was released; start anew"
            )
        return {run: value for _, runs in found for run, value in runs.items()}

    def _ask(self, deal: Deal, task: Task, call: bytes) -> list[tuple[int, Runs]] | Exception | None:
        """What all shares come to; why not, or None, if a worker or a block on it is lost."""
        keys = [block.key for block in self._blocks]
        work = partial(task, count=len(keys), chunk_users=self.chunk_users, call=call)
        options: dict[str, Any] = {"workers": deal.workers, "on_error": "return"}
        answers = self.client.run(_answer, work, deal.shares, keys, **options).values()
        for answer in answers:
            if isinstance(answer, Failure):
                raise answer.error
        lost = [answer for answer in answers if not isinstance(answer, list)]
        return lost[0] if lost else [part for answer in answers for part in answer]

    def _deal(self) -> Deal:
        """Which blocks a thread takes: its share of those that its worker holds. Lost ones are waited for."""
        deal = next(iter(self._deals), None)  # another thread may clear them
        if deal is not None and set(deal.workers) <= set(self.client.nthreads()):
            return deal
        while True:
            try:
                wait(self._blocks)
                threads, held = _held(self.client, self._blocks)
            except CancelledError:  # blocks that were sent, not computed
                if self.client.status != "running":
                    raise _gone(self.client) from None
                self._blocks[:] = self._make(self.client, _silent)
                time.sleep(_LOOK_AGAIN)
                continue
            lost = held.pop("", [])
            self.client.gather([self._blocks[number] for number in lost if self._blocks[number].status == "error"])
            workers = [worker for worker, numbers in held.items() if numbers]
            names = self.client.run(_name, workers=workers, on_error="ignore")
            if not lost and len(names) == len(workers):
                break
            time.sleep(_LOOK_AGAIN)
        shares = {}
        for worker in workers:
            numbers = held[worker]
            parts = np.array_split(numbers, min(threads[worker], len(numbers)))
            shares[names[worker]] = [part.tolist() for part in parts]
        self._deals[:] = [deal := Deal(workers, shares)]
        return deal


def _check_running(client: Client) -> None:
    if client.status != "running":
        raise DataError(f"the Dask client is {client.status}: connect it to a running scheduler first")


def _connect(client: Any) -> tuple[Client, bool]:
    """A client, and whether it is ours to close."""
    if isinstance(client, Client):
        _check_running(client)
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


def _wait_for_workers(client: Client) -> None:
    try:
        client.wait_for_workers(1, timeout=CONNECT_SECONDS)
    except TimeoutError:
        address = client.scheduler.address
        raise DataError(f"the Dask scheduler at {address} has no workers: start some with `dask worker`") from None


def _blocks_for(client: Client, parts: int = 1) -> int:
    """Blocks for data of so many parts: no fewer, and two a thread."""
    threads: dict[str, int] = client.nthreads()
    return -(-max(parts, 2 * sum(threads.values())) // _BLOCKS) * _BLOCKS


def _held(client: Client, blocks: Sequence[Future]) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Threads of every worker, and numbers of the blocks that it holds; blocks that none holds under no name."""
    threads, holders = client.nthreads(), client.who_has(blocks)
    held: dict[str, list[int]] = {worker: [] for worker in threads}
    for number, block in enumerate(blocks):
        workers = [worker for worker in holders.get(block.key, ()) if worker in threads]
        held.setdefault(workers[0] if workers else "", []).append(number)
    return threads, held


def _spread(client: Client, blocks: list[Future]) -> list[Future]:
    """Blocks, after those above a worker's share have moved to workers below theirs."""
    threads, held = _held(client, blocks)
    most = {worker: -(-len(blocks) * count // sum(threads.values())) for worker, count in threads.items()}
    surplus = [number for worker, share in most.items() for number in held[worker][share:]]
    for worker, share in most.items():
        for _ in range(min(share - len(held[worker]), len(surplus))):
            number = surplus.pop()
            where = {"workers": [worker], "allow_other_workers": True}
            blocks[number] = client.submit(_moved, blocks[number], pure=False, **where)
    return blocks


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


def _gone(client: Client) -> DataError:
    return DataError(f"the Dask scheduler at {client.scheduler.address} went away in the middle: nothing was released")


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
    except OSError as error:
        if isinstance(error, CommClosedError | TimeoutError) or client.status != "running":
            raise _gone(client) from None
        raise


def _futures(persisted: Sequence[Any]) -> list[Future]:
    """The futures behind delayed objects."""
    return list(futures_of(list(persisted)))


# What runs on the workers.


def _name(dask_worker: Worker) -> str:
    return str(dask_worker.id)


async def _answer(
    work: Task, shares: dict[str, list[list[int]]], keys: list[Any], dask_worker: Worker
) -> list[tuple[int, Runs]] | Failure | None:
    """Work on this worker's blocks, a share a thread; None where one of them is not here any more."""
    mine = shares.get(_name(dask_worker))
    if mine is None or any(keys[number] not in dask_worker.data for share in mine for number in share):
        return None
    blocks = [[dask_worker.data[keys[number]] for number in share] for share in mine]
    run = partial(asyncio.get_running_loop().run_in_executor, dask_worker.executors["default"])
    try:
        return list(await asyncio.gather(*(run(work, share, held) for share, held in zip(mine, blocks))))
    except Exception as error:
        error.add_note(f"on the Dask worker {dask_worker.address}:\n{traceback.format_exc()}")
        return Failure(error)


@lru_cache(maxsize=1)
def _keep_scratch() -> None:
    """Let this process keep what kernels allocate for a chunk and free again.

    Dask tells the system's allocator to give back the least of freed memory at once, so every chunk would wait for
    new pages: a fifth of a pass, and more on several workers. Elsewhere than on Linux nothing needs to be done.
    """
    with suppress(OSError, AttributeError, TypeError):
        allocator = ctypes.CDLL(None)
        for threshold in (_TRIM_THRESHOLD, _MAP_THRESHOLD):
            allocator.mallopt(threshold, _SCRATCH_BYTES)


def _count(block: UserDataset | None) -> int:
    return 0 if block is None else block.n_users


def _moved(block: UserDataset | None) -> UserDataset | None:
    return block


def _sum_blocks(
    numbers: list[int], blocks: list[UserDataset | None], *, count: int, chunk_users: int, call: bytes
) -> tuple[int, Runs]:
    _keep_scratch()
    kernel, arguments = pickle.loads(call)
    runs: Runs = {}
    for number, block in zip(numbers, blocks):
        runs[number, number + 1] = total = CompensatedSum()
        if block is not None:
            LocalEngine(block, 1, CHUNK_ROWS, chunk_users).run(kernel, arguments, total.add)
    return sum(map(_count, blocks)), merged(runs, count)


def _each_block(
    numbers: list[int], blocks: list[UserDataset | None], *, count: int, chunk_users: int, call: bytes
) -> tuple[int, Runs]:
    _keep_scratch()
    kernel, arguments = pickle.loads(call)
    runs = {
        (number, number + 1): np.empty(0)
        if block is None
        else LocalEngine(block, 1, CHUNK_ROWS, chunk_users).each(kernel, *arguments)
        for number, block in zip(numbers, blocks)
    }
    return sum(map(_count, blocks)), runs


def merged(runs: Runs, count: int) -> Runs:
    """Merge neighbours in a binary tree over ``count`` blocks, where both are here.

    What is added to what depends on ``count`` only, so workers may begin with the blocks they hold.
    """
    runs, span = dict(runs), 1
    while span < count:
        for start in range(0, count, 2 * span):
            left, right = (start, start + span), (start + span, min(start + 2 * span, count))
            if left in runs and right in runs:
                runs[start, right[1]] = runs.pop(left)
                runs[start, right[1]].merge(runs.pop(right))
        span *= 2
    return runs
