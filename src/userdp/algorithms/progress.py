"""A progress bar that shows how far a fit is, and nothing of what it saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(verbose: bool, text: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """A call with what was done, and how many such steps there are, advances the bar by one."""
    if not verbose:
        yield lambda text, total=None: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:24}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task(text, total=total)

        def advance(text: str, total: int | None = None) -> None:
            if total is not None and text != progress.tasks[0].description:  # a new stage has steps of its own
                progress.reset(task, total=total, description=text)
            progress.update(task, advance=1, description=text)

        yield advance
