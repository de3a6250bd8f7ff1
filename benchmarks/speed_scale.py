"""Groups of speed.py for data beyond memory and beyond one machine."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from speed_common import Row, alternating, run_python, synthetic


def _passes(engine: Any, width: int, count: int = 5) -> float:
    """Seconds of one pass of capped gradients."""
    from userdp.losses import FeatureMap, LinearModel, Logistic
    from userdp.mechanisms.capped import _clipped_sum

    model, theta = LinearModel(Logistic(), FeatureMap.identity(width)), np.full(width, 0.01)
    engine.sum(_clipped_sum, model.phase(theta), 0.5)
    times = []
    for _ in range(count):
        started = time.perf_counter()
        engine.sum(_clipped_sum, model.phase(theta), 0.5)
        times.append(time.perf_counter() - started)
    return min(times)


def passes() -> list[Row]:
    """Processor time of each kind of pass, on one core, ten rows a user: what the estimate in the guide rests on."""
    from userdp.algorithms.calibration import FIRST_LOOK
    from userdp.data import UserDataset
    from userdp.engines import LocalEngine
    from userdp.losses import FeatureMap, LinearModel, Logistic
    from userdp.mechanisms.capped import _clipped_sum
    from userdp.mechanisms.histogram import _count_magnitudes, _count_rows, linear_bins
    from userdp.mechanisms.moments import _moment_sum

    rows, width = 10**6, 50
    X, y, users = synthetic(rows, width, 10**5)
    engine = LocalEngine(UserDataset.from_arrays(X.astype(np.float32), y, users), 1)
    features = FeatureMap(np.zeros(width), np.ones(width), 64.0)
    model = LinearModel(Logistic(), features, np.eye(width + 1) + 0.01)
    theta, zeros, ones = np.full(width + 1, 0.01), np.zeros(width), np.ones(width)
    calls: dict[str, tuple[Any, ...]] = {
        "gradients": (_clipped_sum, model.phase(theta), 0.5),
        "second moments": (_moment_sum, LinearModel(Logistic(), features), theta, 0.5),
        "first histograms": (_count_magnitudes, "features", FIRST_LOOK),
        "further histograms": (_count_rows, zeros, ones, linear_bins(-4.0, 4.0, 64), "features", np.arange(len(zeros))),
    }
    found = []
    for name, call in calls.items():
        engine.sum(*call)
        ((_, seconds),) = alternating(lambda call=call: engine.sum(*call))
        found.append(Row("passes", f"{name}, 50 float32 features", "ns a row", seconds / rows * 1e9, "", "one core"))
    return found


def _write_parts(folder: Path, rows: int, width: int, users: int, parts: int, kind: Any = np.float32) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for part in range(parts):
        X, y, ids = synthetic(rows // parts, width, users, seed=part)
        columns = {f"x{i}": X[:, i].astype(kind) for i in range(width)}
        pq.write_table(pa.table(columns | {"who": ids, "y": y}), folder / f"part-{part:03}.parquet")


def disk() -> list[Row]:
    """Grouping Parquet parts by user on disk, then a pass over them, against the same in memory."""
    from userdp.data import UserDataset
    from userdp.engines import LocalEngine

    rows, width = 2 * 10**6, 50
    with tempfile.TemporaryDirectory() as folder:
        _write_parts(Path(folder), rows, width, 10**4, 4)
        started = time.perf_counter()
        stored = UserDataset.from_parquet(folder, user="who", target="y", memory_limit="1GB")
        grouping = time.perf_counter() - started
        loaded = UserDataset.from_parquet(folder, user="who", target="y")
        streamed, resident = _passes(LocalEngine(stored), width), _passes(LocalEngine(loaded), width)
    size = rows * width * 4 / 1e6
    return [
        Row("disk", "2·10^6 × 50 float32 (400 MB), limit 1 GB", "MB/s grouped", size / grouping, "", "once, by DuckDB"),
        Row("disk", "a pass from disk (cached by the system)", "MB/s", size / streamed, "", f"{streamed:.3f} s"),
        Row("disk", "a pass in memory", "MB/s", size / resident, "", f"{resident:.3f} s"),
    ]


LIMIT = """
    import resource, sys, time
    from userdp import LogisticRegression
    from userdp.data import UserDataset
    limit = None if sys.argv[2] == "none" else sys.argv[2]
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (10**9, 10**9))
    started = time.perf_counter()
    data = UserDataset.from_parquet(sys.argv[1], user="who", target="y", memory_limit=limit)
    grouped = time.perf_counter()
    model = LogisticRegression(epsilon=1.0, delta=1e-6, random_state=0).fit(data)
    peak = 1024 * int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
    print(grouped - started, time.perf_counter() - grouped, peak, *model.coef_[0].tolist(), *model.intercept_)
"""


def limit() -> list[Row]:
    """A whole fit on 4 GB in a process that gets no more than 1 GB from the system, against the same in memory."""
    # The limit is on memory to write to, in use or not. Arrow's allocator would take all of it to begin with, and
    # DuckDB's takes half as much again as it uses: hence the system's, and the smaller limit that DuckDB is told.
    with tempfile.TemporaryDirectory() as folder:
        _write_parts(Path(folder), 10**7, 50, 10**4, 20, np.float64)
        system = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
        runs = {most: np.array(run_python(LIMIT, folder, most, **system), dtype=float) for most in ("700MB", "none")}
    (grouping, fitting, peak), found = runs["700MB"][:3], runs["700MB"][3:]
    _, resident, _ = runs["none"][:3]
    expected = runs["none"][3:]
    difference = float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))
    name = "10^7 × 50 float64 (4 GB), 1 GB enforced"
    note = f"grouping {grouping:.0f} s, the default fit {fitting:.0f} s from disk, {resident:.0f} s in memory"
    return [
        Row("limit", name, "peak GB of the process", peak / 1e9, "≤ 1", note),
        Row("limit", "coefficients from disk and in memory", "relative difference", difference, "≤ 1e-9", ""),
    ]


def _nothing(block: Any) -> tuple[Any]:
    return (np.ones(1),)


def _gradients(width: int) -> tuple[Any, ...]:
    """A pass of the default fit: gradients in learnt units and coordinates."""
    from userdp.losses import FeatureMap, LinearModel, Logistic
    from userdp.mechanisms.capped import _clipped_sum

    features = FeatureMap(np.zeros(width), np.ones(width), 64.0, intercept=True)
    model = LinearModel(Logistic(), features, np.eye(width + 1) + 0.01)
    return _clipped_sum, model.phase(np.full(width + 1, 0.01)), 0.5


def _own_pass(width: int, dask_worker: Any) -> float:
    """Median seconds of a pass over the blocks of this worker, without a word to anybody.

    Not the best one: workers that begin together do not end together, and the last passes of one run undisturbed.
    """
    from userdp.data import UserDataset
    from userdp.engines import LocalEngine
    from userdp.engines.dask import CHUNK_ROWS

    blocks = [block for block in dask_worker.data.values() if isinstance(block, UserDataset)]
    engines, (kernel, *arguments) = [LocalEngine(block, 1, CHUNK_ROWS) for block in blocks], _gradients(width)
    times = []
    for _ in range(12):
        started = time.perf_counter()
        for engine in engines:
            engine.sum(kernel, *arguments)
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def _two_against_one(rows: int, width: int, name: str) -> list[Row]:
    """Passes, and whole fits, on one worker and on two, in turns; and what the machine has to give, without Dask."""
    from distributed import Client, LocalCluster

    from userdp.algorithms.fit import fit_linear
    from userdp.engines.dask import DaskEngine
    from userdp.losses import Logistic

    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        _write_parts(Path(folder), rows, width, 10**5, 20)
        engines, wall, processor = {}, {1: np.inf, 2: np.inf}, {1: np.inf, 2: np.inf}
        for workers in (1, 2):
            options = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
            cluster = running.enter_context(LocalCluster(n_workers=workers, **options))
            client = running.enter_context(Client(cluster))
            client.run(import_module, "userdp.engines.dask")
            before, started = sum(client.run(time.process_time).values()), time.perf_counter()
            engines[workers] = DaskEngine.from_parquet(folder, user="who", target="y", client=client)
            making = time.perf_counter() - started
            shuffling = sum(client.run(time.process_time).values()) - before
        for _ in range(12):
            for workers, engine in engines.items():
                before = sum(engine.client.run(time.process_time).values())
                started = time.perf_counter()
                engine.sum(*_gradients(width))
                wall[workers] = min(wall[workers], time.perf_counter() - started)
                used = sum(engine.client.run(time.process_time).values()) - before
                processor[workers] = min(processor[workers], used)
        fit = partial(fit_linear, loss=Logistic(), epsilon=1.0, delta=1e-6, random_state=0, verbose=False)
        (one, _), (two, _) = alternating(*(partial(fit, engine) for engine in engines.values()), repeats=6)
        both = list(engines[2].client.nthreads())
        alone = [engines[2].client.run(_own_pass, width, workers=[worker])[worker] for worker in both]
        together = engines[2].client.run(_own_pass, width).values()
    note = f"{wall[1]:.3f} s and {wall[2]:.3f} s a pass; processor time of the workers {processor[1]:.3f} s and "
    note += f"{processor[2]:.3f} s"
    fits = f"{one:.2f} s and {two:.2f} s"
    once = f"processor time of both workers; {making:.0f} s in all, once"
    share = f"each its half, without Dask: {max(together):.3f} s, {max(alone):.3f} s while the other one rests"
    return [
        Row("dask", f"{name}: 2 workers against 1", "times faster", wall[1] / wall[2], "≥ 1.6", note),
        Row("dask", f"{name}: the default fit, 2 workers against 1", "times faster", one / two, "≥ 1.6", fits),
        Row("dask", f"{name}: both workers at once", "times faster", sum(alone) / max(together), "", share),
        Row("dask", f"{name}: throughput of a worker", "million rows/s", rows / 1e6 / wall[1], "", "one thread"),
        Row("dask", f"{name}: reading and shuffling by user", "µs a row", 1e6 * shuffling / rows, "", once),
    ]


def dask() -> list[Row]:
    """Two single-thread workers against one; what a pass costs besides."""
    from distributed import Client, LocalCluster
    from distributed.protocol import pickle

    from userdp.data import UserDataset
    from userdp.engines.dask import DaskEngine, _sum_blocks

    found = _two_against_one(10**7, 10, "10^7 × 10 float32") + _two_against_one(10**7, 50, "10^7 × 50 float32")
    X, y, users = synthetic(20_000, 50, 5000)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        for blocks in (16, 1600):
            engine = DaskEngine.from_dataset(UserDataset.from_arrays(X, y, users), client=client, blocks=blocks)
            engine.sum(_nothing)
            ((idle, _),) = alternating(lambda engine=engine: engine.sum(_nothing), repeats=10)
            found.append(
                Row("dask", f"a pass that does nothing, {len(engine._blocks)} blocks", "ms", 1e3 * idle, "", "")
            )
        kernel, *arguments = _gradients(50)
        engine = DaskEngine.from_dataset(UserDataset.from_arrays(X, y, users), client=client)
        sent = len(pickle.dumps((kernel, arguments)))
        sums = engine._run(_sum_blocks, kernel, arguments)
        back = len(pickle.dumps(sums)) / len(sums)
    names = len(pickle.dumps([block.key for block in engine._blocks])) / len(engine._blocks)
    note = f"and {names:.0f} bytes a block; back from it {back / 1e3:.2g} kB a partial sum"
    return [*found, Row("dask", "a pass of gradients, 50 features: sent to a worker", "kB", sent / 1e3, "", note)]
