"""What every experiment writes: a CSV file, a picture, a Markdown table, and progress while it runs."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Item = TypeVar("Item")
NOT_PRIVATE = "Seeded noise: reproducible, not private."


def track(items: Iterable[Item], length: int, text: str, *, quiet: bool) -> Iterator[Item]:
    """Pass items through, with a progress bar on standard error once two seconds have gone by."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True, disable=quiet)
    task = bar.add_task(text, total=length)
    started, shown = time.monotonic(), False
    try:
        for item in items:
            if not shown and time.monotonic() - started > 2:
                bar.start()
                shown = True
            yield item
            bar.advance(task)
    finally:
        if shown:
            bar.stop()


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """One line a row, numbers to six digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for row in rows:
            writer.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in row])
    return path


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table, columns padded so that it reads well as plain text too."""
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in table]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def write_text(path: Path, lines: Sequence[str]) -> Path:
    """Lines of a Markdown file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def grid(rows: int, columns: int, *, width: float = 4.2, height: float = 3.4) -> tuple[Any, list[list[Any]]]:
    """A figure with plain, light axes."""
    figure, made = plt.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False)
    for one in made.flat:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(color="#e5e7eb", linewidth=0.6)
    return figure, [list(line) for line in made]


def axes(columns: int, *, width: float = 4.2, height: float = 3.4) -> tuple[Any, list[Any]]:
    """Axes side by side."""
    figure, made = grid(1, columns, width=width, height=height)
    return figure, made[0]


def logarithmic(panel: Any) -> None:
    """Log axes with labels at 1, 2 and 5 times the powers of ten where there are few of these, and none between."""
    for axis in (panel.xaxis, panel.yaxis):
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 50 * low else (1.0,)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def save(figure: Any, path: Path) -> Path:
    """Write the picture and forget the figure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
