"""Accuracy of the default fit against every rival: datasets x ε x methods, mean excess loss over several seeds.

    userdp bench accuracy                              # everything that is not in the cache yet, then the tables
    userdp bench accuracy --datasets bank              # one dataset
    userdp bench accuracy --methods ours "ours standardized" "our mean" --recompute    # the default fit again
    userdp bench accuracy --only-report                # tables and pictures of what the cache holds

Results are appended to benchmarks/cache/accuracy.csv as they come: start it again (without --recompute) after an
interruption. Methods that are left out keep the numbers of the last accuracy.csv. Packages of rivals and further tables
are installed under benchmarks/cache when first needed.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from accuracy_data import CLASSIFICATION, KINKS, REGRESSION, TABLES, Task, base_name, load
from accuracy_grid import STEPS, Grid, Setting, settings
from accuracy_methods import METHODS, MeanTask, why_not
from accuracy_report import AGAIN, MAIN, SHOWN, STANDARDIZED, Results, guide_page, report
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "guide" / "accuracy.md"
EPSILONS = (0.5, 1.0, 4.0)
DELTA = 1e-6
Key = tuple[str, float, str, int]
# Datasets whose users and rows are thinned out for the pictures, and whose mean is estimated.
CURVES = ("insteval", "flights")
MEANS_OF = ("bank", "insteval", "nlswork", "flights", "synthetic 1000")
USERS, ROWS = (500, 1000, 2000), (1, 3, 10, 30)
OURS = (*MAIN, STANDARDIZED, "our mean")
OTHERS = 5  # seeds of other prior work at most: some of it is slow


class Cache:
    """Excess losses by (dataset, ε, method, seed); every new one is on disk before the next is computed."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.values, self.torn = path, dict[Key, float](), False
        if path.exists():
            text = path.read_text()
            whole = text[: text.rfind("\n") + 1]
            self.torn = whole != text
            for row in csv.reader(whole.splitlines()):
                self.values[(row[0], float(row[1]), row[2], int(row[3]))] = float(row[4])

    def add(self, values: Iterable[tuple[Key, float]]) -> None:
        values = list(values)
        if self.torn:  # interrupted while writing: that one was measured again
            self.path.write_text(self.path.read_text().rpartition("\n")[0] + "\n")
            self.torn = False
        with self.path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([*key, f"{value:.9g}"] for key, value in values)
        self.values.update(values)

    def forget(self, datasets: list[str], methods: list[str]) -> None:
        """Drop what was measured of these methods."""
        kept = {key: v for key, v in self.values.items() if key[2] not in methods or base_name(key[0]) not in datasets}
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*key, f"{value:.9g}"] for key, value in kept.items())
        new = self.path.with_suffix(".new")
        new.write_text(text.getvalue())
        new.replace(self.path)
        self.values, self.torn = kept, False


def grid_name(quantile: float, steps: int, rate: float, averaged: bool) -> str:
    """Method name of one setting of the tuned rival."""
    return f"user_dpgd {quantile:g}/{steps}/{rate:g}/{'mean' if averaged else 'last'}"


def run_grid(task: Task, epsilons: tuple[float, ...], seeds: int, cache: Cache, advance: Callable[..., None]) -> None:
    """All settings of the rival that are missing."""
    grid = None
    for steps in STEPS:
        missing = [
            setting
            for setting in settings(epsilons, steps, seeds)
            if (task.name, setting.epsilon, grid_name(setting.quantile, steps, setting.rate, True), setting.seed)
            not in cache.values
        ]
        if missing:
            grid = grid or Grid(task, DELTA)
        for start in range(0, len(missing), 64):
            advance(description=f"{task.name}: user_dpgd, {steps} steps")
            found = grid.run(missing[start : start + 64])
            cache.add(
                ((task.name, s.epsilon, grid_name(s.quantile, steps, s.rate, averaged), s.seed), excess)
                for s, averaged, excess in found
            )


def rerun_best(task: Task, epsilons: tuple[float, ...], seeds: int, cache: Cache, advance: Callable[..., None]) -> None:
    """The best setting on seeds that had no part in choosing it."""
    grid = None
    for epsilon in epsilons:
        name = Results(cache.values).tuned.get((task.name, epsilon))
        if name is None or (task.name, epsilon, AGAIN, 0) in cache.values:
            continue
        advance(description=f"{task.name}: the best setting again")
        grid = grid or Grid(task, DELTA)
        quantile, steps, rate, kind = name.removeprefix("user_dpgd ").split("/")
        fresh = [Setting(epsilon, float(quantile), int(steps), float(rate), seeds + seed) for seed in range(seeds)]
        found = [excess for _, averaged, excess in grid.run(fresh) if averaged == (kind == "mean")]
        cache.add(((task.name, epsilon, AGAIN, seed), excess) for seed, excess in enumerate(found))


def run_methods(
    task: Task, epsilons: tuple[float, ...], names: list[str], seeds: int, cache: Cache, advance: Callable[..., None]
) -> None:
    """All other methods that are missing."""
    for name in names:
        for epsilon in epsilons:
            for seed in range(seeds if name in OURS else min(seeds, OTHERS)):
                key = (task.name, epsilon, name, seed)
                if key not in cache.values and why_not(name, task.name, task.n_users) is None:
                    advance(description=f"{task.name}: {name}, ε = {epsilon:g}")
                    theta = METHODS[name](task, epsilon, DELTA, seed)
                    cache.add([(key, task.risk(theta) - task.best_risk)])


def add_facts(task: Task | MeanTask, cache: Cache) -> None:
    """Numbers of the dataset itself, under ε = 0."""
    facts = {"constant": task.constant_excess, "optimum": task.best_risk, "users": task.n_users}
    if isinstance(task, Task):
        facts |= {"rows": len(task.y), "coefficients": task.rows.shape[1]}
    missing = {(task.name, 0.0, fact, 0): float(value) for fact, value in facts.items()}
    cache.add((key, value) for key, value in missing.items() if key not in cache.values)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*CLASSIFICATION, *REGRESSION, *KINKS, *TABLES]
    parser.add_argument(
        "--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the real datasets"
    )
    parser.add_argument("--datasets", nargs="+", default=names, choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument(
        "--methods", nargs="+", default=["tuned", *METHODS], choices=["tuned", *METHODS], metavar="NAME"
    )
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=20, help="of ours and the tuned rival; of others at most 5")
    parser.add_argument(
        "--recompute", action="store_true", help="forget what the cache holds of the chosen methods first"
    )
    parser.add_argument("--no-curves", action="store_true", help="leave out the runs on fewer users or fewer rows")
    parser.add_argument("--only-report", action="store_true", help="write tables and pictures of what is there")
    parser.add_argument("--cache", type=Path, default=ROOT / "benchmarks" / "cache" / "accuracy.csv")
    parser.add_argument("--output", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    cache, epsilons = Cache(chosen.cache), tuple(chosen.epsilons)
    methods = [name for name in chosen.methods if name != "tuned"]
    if chosen.recompute and not chosen.only_report:
        cache.forget(chosen.datasets, methods)
    columns = (TextColumn("{task.description:48}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, disable=chosen.only_report) as progress:
        jobs = [] if chosen.only_report else chosen.datasets
        bar = progress.add_task("", total=len(jobs))
        for name in jobs:
            task = load(name, chosen.data)
            add_facts(task, cache)
            show = partial(progress.update, bar)
            own = [method for method in methods if name not in TABLES or method in (*MAIN, STANDARDIZED)]
            run_methods(task, epsilons, own, chosen.seeds, cache, show)
            if name in MEANS_OF:
                run_methods(MeanTask(task), epsilons, methods, chosen.seeds, cache, show)
                add_facts(MeanTask(task), cache)
            if "tuned" in chosen.methods:
                run_grid(task, epsilons, chosen.seeds, cache, show)
                rerun_best(task, epsilons, chosen.seeds, cache, show)
            if name in CURVES and not chosen.no_curves:
                curve = [method for method in methods if method in SHOWN]
                smaller = [task.fewer_users(n, seed=0) for n in USERS] + [task.fewer_rows(m, seed=0) for m in ROWS]
                for part in smaller:
                    add_facts(part, cache)
                    run_methods(part, (1.0,), curve, chosen.seeds, cache, show)
                    if "tuned" in chosen.methods:
                        run_grid(part, (1.0,), chosen.seeds, cache, show)
            progress.advance(bar)
    report(cache.values, names, EPSILONS, chosen.output)
    if chosen.output == RESULTS:
        PAGE.write_text(guide_page(RESULTS / "accuracy.md"), encoding="utf-8")
    print(f"Written: {chosen.output / 'accuracy.md'}, accuracy.csv and pictures")


if __name__ == "__main__":
    main()
