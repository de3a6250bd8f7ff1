"""Speed and memory of private training, as ratios measured in one run on one machine.

Writes benchmarks/results/speed.md and speed.csv. Reproduce with

    .venv/bin/python benchmarks/speed.py            # about 40 minutes on an idle machine with two cores
    .venv/bin/python benchmarks/speed.py --only fit  # some groups only; --help lists them

It needs 20 GB of disk and 12 GB of memory for the group ``limit``, and PyPI for the rivals' packages.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from speed_common import BUDGET, Row, alternating, run_python, synthetic
from speed_fits import fits, rivals, solvers
from speed_scale import dask, disk, limit, passes

RESULTS = Path(__file__).parent / "results"


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
    from speed_common import BUDGET, synthetic
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
        share = float(run_python(MEMORY, str(Path(__file__).parent), order)[-1])
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
            output = run_python(START, NUMBA_CACHE_DIR=cache)
            note = f"importing takes {float(output[-2]):.1f} s more"
            rows.append(Row("start", f"first fit of a process, {name}", "seconds", float(output[-1]), "≤ 3", note))
    return rows


GROUPS: dict[str, Callable[[], list[Row]]] = {
    "fit": fits,
    "solvers": solvers,
    "rivals": rivals,
    "scaling": scaling,
    "capped": capped,
    "memory": memory,
    "start": start,
    "passes": passes,
    "disk": disk,
    "limit": limit,
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
