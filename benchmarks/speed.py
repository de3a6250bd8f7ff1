"""Speed and memory of private training, as ratios measured in one run on one machine.

Writes benchmarks/results/speed.md and speed.csv. Reproduce with

    .venv/bin/python benchmarks/speed.py            # about 15 minutes on an idle machine with two cores
    .venv/bin/python benchmarks/speed.py --only fit  # some groups only: fit, scaling, capped, memory, start, disk, dask
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import subprocess
import sys
import tempfile
import textwrap
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@dataclass(frozen=True)
class Row:
    group: str
    case: str
    measured: str
    value: float
    target: str
    note: str
    load: str = ""

    @property
    def met(self) -> str:
        if not self.target:
            return ""
        sign, limit = self.target.split()[:2]
        return "yes" if (self.value <= float(limit) if sign == "≤" else self.value >= float(limit)) else "no"


def synthetic(rows: int, width: int, users: int, *, correlated: bool = False, seed: int = 0) -> tuple[Any, Any, Any]:
    """Gaussian features, logistic labels, scattered rows; ``correlated``: neighbours at 0.95, units of all sizes."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, width))
    if correlated:
        for i in range(1, width):
            X[:, i] = 0.95 * X[:, i - 1] + np.sqrt(1 - 0.95**2) * X[:, i]
        X *= np.geomspace(0.01, 100, width)
    weights = rng.normal(size=width) * 0.3
    y = ((X - X.mean(axis=0)) / X.std(axis=0) @ weights + rng.logistic(size=rows) > 0).astype(int)
    return X, y, rng.integers(0, users, rows)


def alternating(*tasks: Callable[[], Any], repeats: int = 3) -> list[tuple[float, float]]:
    """Best wall and processor seconds of each task, run in turns so that all see the same machine."""
    best = [(np.inf, np.inf)] * len(tasks)
    for _ in range(repeats):
        for i, task in enumerate(tasks):
            wall, processor = time.perf_counter(), time.process_time()
            task()
            now = time.perf_counter() - wall, time.process_time() - processor
            best[i] = (min(best[i][0], now[0]), min(best[i][1], now[1]))
    return best


def fits() -> list[Row]:
    """Default private fit against scikit-learn's solver on the same standardized features."""
    from sklearn.linear_model import LogisticRegression as Plain
    from sklearn.preprocessing import StandardScaler

    from userdp.estimators import LogisticRegression
    from userdp.report.demo import flights

    X, y, planes, _ = flights()
    isotropic = synthetic(10**6, 50, 10**4)
    cases = {
        "flights, 327k × 42": (X, y, planes),
        "synthetic, 10^6 × 50, 10^4 users": isotropic,
        "the same in float32": (isotropic[0].astype(np.float32), *isotropic[1:]),
        "the same, correlated features": synthetic(10**6, 50, 10**4, correlated=True),
    }
    rows = []
    for name, (features, labels, users) in cases.items():
        scaled = StandardScaler().fit_transform(features)
        LogisticRegression(**BUDGET).fit(features[:2000], labels[:2000], groups=users[:2000])
        plain, private = alternating(
            lambda scaled=scaled, labels=labels: Plain().fit(scaled, labels),
            lambda f=features, y=labels, u=users: LogisticRegression(**BUDGET).fit(f, y, groups=u),
        )
        steps = int(Plain().fit(scaled, labels).n_iter_[0])
        note = f"{private[0]:.2f} s against {plain[0]:.2f} s ({steps} lbfgs steps)"
        note += f"; processor time {private[1] / plain[1]:.2f} ×"
        rows.append(Row("fit", name, "private / scikit-learn, wall", private[0] / plain[0], "≤ 2", note))
    return rows


def scaling() -> list[Row]:
    """Ten times the rows."""
    from userdp.estimators import LogisticRegression

    small, large = synthetic(10**5, 50, 10**4), synthetic(10**6, 50, 10**4)
    times = alternating(
        *(lambda data=data: LogisticRegression(**BUDGET).fit(*data[:2], groups=data[2]) for data in (small, large))
    )
    note = f"{times[0][0]:.2f} s and {times[1][0]:.2f} s"
    return [Row("scaling", "10^5 → 10^6 rows × 50, 10^4 users", "time ratio", times[1][0] / times[0][0], "≤ 11", note)]


def capped() -> list[Row]:
    """Half of the users capped against none."""
    from userdp.estimators import LogisticRegression

    X, y, users = synthetic(10**6, 50, 10**4)
    sizes = LogisticRegression(**BUDGET).fit(X, y, groups=users).diagnostics_["gradient_sizes"]
    times = alternating(
        *(
            lambda cap=cap: LogisticRegression(**BUDGET, force_cap=cap).fit(X, y, groups=users)
            for cap in (1e6, float(np.median(sizes)))
        )
    )
    return [Row("capped", "half of 10^4 users capped / none", "time ratio", times[1][0] / times[0][0], "≤ 3", "")]


MEMORY = """
    import sys, threading, time
    import numpy as np
    sys.path.insert(0, sys.argv[1])
    from speed import BUDGET, synthetic
    from userdp.estimators import LogisticRegression
    X, y, users = synthetic(10**6, 50, 10**4)
    if sys.argv[2] == "grouped":
        users = np.sort(users)
    LogisticRegression(**BUDGET).fit(X[:2000].copy(), y[:2000], groups=users[:2000])

    def resident():
        return 4096 * int(open("/proc/self/statm").read().split()[1])

    before, peak, done = resident(), 0, threading.Event()

    def watch():
        global peak
        while not done.is_set():
            peak = max(peak, resident())
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    LogisticRegression(**BUDGET).fit(X, y, groups=users)
    done.set()
    watcher.join()
    print((peak - before) / X.nbytes)
"""


def memory() -> list[Row]:
    """Peak resident memory beyond the input, over the input's size."""
    rows = []
    for order, target in (("scattered", "≤ 1.5"), ("grouped", "≤ 0.5")):
        share = float(_python(MEMORY, str(Path(__file__).parent), order)[-1])
        rows.append(Row("memory", f"10^6 × 50 float64, rows {order}", "extra / input", share, target, ""))
    return rows


START = """
    import time
    import numpy as np
    rng = np.random.default_rng(0)
    X, y, users = rng.normal(size=(500, 5)), rng.random(500) < 0.5, rng.integers(0, 100, 500)
    started = time.perf_counter()
    import userdp
    imported = time.perf_counter()
    userdp.LogisticRegression().fit(X, y, groups=users)
    print(imported - started, time.perf_counter() - imported)
"""


def start() -> list[Row]:
    """First fit of a process, with compiled code in the cache and without."""
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for name in ("nothing compiled yet", "compiled before"):
            output = _python(START, NUMBA_CACHE_DIR=cache)
            note = f"importing takes {float(output[-2]):.1f} s more"
            rows.append(Row("start", f"first fit of a process, {name}", "seconds", float(output[-1]), "≤ 3", note))
    return rows


def _passes(engine: Any, width: int, count: int = 5) -> float:
    """Seconds of one pass of capped gradients."""
    from userdp.losses import FeatureMap, LinearModel, Logistic
    from userdp.mechanisms.capped import _clipped_sum

    model, theta = LinearModel(Logistic(), FeatureMap.identity(width)), np.full(width, 0.01)
    engine.sum(_clipped_sum, model, theta, 0.5)
    times = []
    for _ in range(count):
        started = time.perf_counter()
        engine.sum(_clipped_sum, model, theta, 0.5)
        times.append(time.perf_counter() - started)
    return min(times)


def _write_parts(folder: Path, rows: int, width: int, users: int, parts: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for part in range(parts):
        X, y, ids = synthetic(rows // parts, width, users, seed=part)
        columns = {f"x{i}": X[:, i].astype(np.float32) for i in range(width)}
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


def dask() -> list[Row]:
    """Two single-thread workers against one."""
    from distributed import Client, LocalCluster

    from userdp.engines.dask import DaskEngine

    rows, width, seconds, making = 10**7, 10, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        _write_parts(Path(folder), rows, width, 10**5, 20)
        for workers in (1, 2):
            with (
                LocalCluster(workers, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
                Client(cluster) as client,
            ):
                started = time.perf_counter()
                engine = DaskEngine.from_parquet(folder, user="who", target="y", client=client, blocks=8)
                making[workers] = time.perf_counter() - started
                seconds[workers] = _passes(engine, width)
    note = f"{seconds[1]:.2f} s and {seconds[2]:.2f} s a pass"
    ratio = seconds[1] / seconds[2]
    return [
        Row("dask", "10^7 × 10 float32, 10^5 users: 2 workers against 1", "times faster", ratio, "≥ 1.6", note),
        Row("dask", "throughput of a worker", "million rows/s", rows / 1e6 / seconds[1], "", "10 features, one thread"),
        Row("dask", "reading and shuffling by user, 2 workers", "million rows/s", rows / 1e6 / making[2], "", "once"),
    ]


def _python(code: str, *arguments: str, **environment: str) -> list[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return done.stdout.split()


GROUPS: dict[str, Callable[[], list[Row]]] = {
    "fit": fits,
    "scaling": scaling,
    "capped": capped,
    "memory": memory,
    "start": start,
    "disk": disk,
    "dask": dask,
}


def write(rows: list[Row], loads: dict[str, float]) -> None:
    """Replace the groups that were run in both files; keep the others."""
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / "speed.csv"
    if file.exists():
        with file.open(encoding="utf-8") as stream:
            old = [{**row, "value": float(row["value"])} for row in csv.DictReader(stream)]
        kept = [
            Row(**{key: row.get(key, "") for key in Row.__annotations__}) for row in old if row["group"] not in loads
        ]
        rows = sorted([*kept, *rows], key=lambda row: list(GROUPS).index(row.group))
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, [*Row.__annotations__, "met"])
        writer.writeheader()
        writer.writerows({**asdict(row), "met": row.met} for row in rows)
    lines = [
        "# Speed and memory",
        "",
        f"Written by `.venv/bin/python benchmarks/speed.py` on {os.cpu_count()} cores ({platform.machine()}), Python "
        f"{platform.python_version()}. Both sides of a ratio ran in turns; the best of three counts.",
        "Load is the machine's load average when the group began (blank: not recorded); above the number of cores, "
        "other work was competing and ratios say little about parallel speed.",
        "",
        "| | what | measured | value | wanted | met | | load |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        "| {group} | {case} | {measured} | {value:.3g} | {target} | {met} | {note} | {load} |".format(
            **asdict(row), met=row.met
        )
        for row in rows
    ]
    (RESULTS / "speed.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS))
    chosen = parser.parse_args().only
    warnings.simplefilter("ignore")
    rows: list[Row] = []
    loads: dict[str, float] = {}
    for i, group in enumerate(chosen, 1):
        loads[group] = os.getloadavg()[0]
        print(f"[{i}/{len(chosen)}] {group}: {GROUPS[group].__doc__}", flush=True)
        started = time.perf_counter()
        for row in GROUPS[group]():
            rows.append(replace(row, load=f"{loads[group]:.1f}"))
            wanted = f" (wanted {row.target}: {row.met})" if row.target else ""
            print(f"    {row.case}: {row.measured} {row.value:.3g}{wanted}  {row.note}", flush=True)
        print(f"    took {time.perf_counter() - started:.0f} s", flush=True)
    write(rows, loads)
    print(f"wrote {RESULTS / 'speed.md'}")


if __name__ == "__main__":
    main()
