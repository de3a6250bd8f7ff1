"""Where the rows of a fit are (arrays, datasets, files, Dask DataFrames) and who adds them up (here, on a cluster).

Arrays come with their targets and user ids. The others hold them: a ``UserDataset`` or an engine as it was made, files
and Dask DataFrames in the columns that ``y`` and ``groups`` name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from userdp.algorithms.fit import Data
from userdp.algorithms.progress import progress_bar
from userdp.data import DataError, UserDataset

_TARGET, _USER = "target of the fit", "user of the fit"


def holds_rows(X: Any) -> bool:
    """Whether ``X`` brings its own targets and user ids."""
    return isinstance(X, UserDataset | str | Path) or _is_engine(X) or _is_dask(X)


@contextmanager
def opened(engine: Any, X: Any, y: Any, groups: Any, *, target: bool, verbose: bool) -> Iterator[Data]:
    """Rows grouped by user; what was started for them on a cluster ends with the context. ``target``: y is needed."""
    if holds_rows(X):
        _check_names(X, y, groups, target)
    with ExitStack() as started:
        if _is_engine(X):
            data = X
        elif isinstance(engine, str) and engine == "local":
            data = _local(X, y, groups)
        else:
            with progress_bar(verbose, "connecting") as show:
                data = started.enter_context(_remote(engine, X, y, groups, show))
        if data.n_users < 2:
            rows = f" (n_samples = {data.n_rows})" if isinstance(data, UserDataset) else ""
            raise DataError(f"user-level privacy needs at least 2 users, got {data.n_users}{rows}: check the user ids")
        yield data


def _local(X: Any, y: Any, groups: Any) -> UserDataset:
    if isinstance(X, UserDataset):
        return X
    if isinstance(X, str | Path):
        return UserDataset.from_parquet(X, user=groups, target=y)
    if _is_dask(X):
        raise DataError('X is a Dask DataFrame: choose engine="dask"')
    return UserDataset.from_arrays(X, y, groups)


def _remote(engine: Any, X: Any, y: Any, groups: Any, show: Any) -> Any:
    named = isinstance(engine, str) and "://" not in engine
    if (named and engine != "dask") or not (named or isinstance(engine, str) or type(engine).__name__ == "Client"):
        raise ValueError(f'engine must be "local", "dask", a scheduler\'s address or a Dask client, got {engine!r}')
    kind, client = _dask_engine(), None if named else engine
    if isinstance(X, str | Path):
        return kind.from_parquet(X, user=groups, target=y, client=client, progress=show)
    if _is_dask(X):
        frame, target, user = _named(X, y, groups)
        return kind.from_dataframe(frame, user=user, target=target, client=client, progress=show)
    return kind.from_dataset(_local(X, y, groups), client=client, progress=show)


def _dask_engine() -> Any:
    try:
        from userdp.engines.dask import DaskEngine
    except ImportError as error:
        raise ImportError(f"engine=\"dask\" needs Dask ({error}): pip install 'userdp[dask]'") from None
    return DaskEngine


def _named(X: Any, y: Any, groups: Any) -> tuple[Any, str | None, str]:
    """A Dask DataFrame that has target and user as columns, and their names."""
    series = {name: value for name, value in ((_TARGET, y), (_USER, groups)) if _is_dask(value)}
    try:
        frame = X.assign(**series) if series else X
    except (ValueError, TypeError) as error:  # arrays with other partitions; a table where a column is wanted
        raise DataError(f"y and groups cannot be put beside X ({error}): name columns of X instead") from None
    return frame, _TARGET if _TARGET in series else y, _USER if _USER in series else groups


def _check_names(X: Any, y: Any, groups: Any, target: bool) -> None:
    whole = isinstance(X, UserDataset) or _is_engine(X)
    for name, value, needed in (("y", y, target), ("groups", groups, True)):
        if whole and value is not None:
            raise DataError(f"a {type(X).__name__} brings its own targets and users: leave out {name}")
        series = _is_dask(X) and _is_dask(value)
        if not whole and not (series or isinstance(value, str) or (value is None and not needed)):
            raise DataError(f"X is a {_what(X)}: give the name of its column as {name}, got {type(value).__name__}")


def _what(X: Any) -> str:
    return "Dask DataFrame" if _is_dask(X) else "file"


def _is_engine(X: Any) -> bool:
    return hasattr(X, "rounding") and all(callable(getattr(X, name, None)) for name in ("sum", "each"))


def _is_dask(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "dask"
