"""Estimators on a real cluster of two processes and on datasets: the local answer, lost workers, clear errors."""

from __future__ import annotations

import builtins
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from sklearn.base import clone

import userdp
import userdp.engines.dask
from userdp.data import DataError, UserDataset
from userdp.engines.base import Sums
from userdp.engines.dask import DaskEngine

pytestmark = pytest.mark.filterwarnings("default")  # the cluster's own warnings are not ours

FEATURES = ["speed", "load", "age"]
PUBLIC: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "random_state": 7}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = 4000
    data = pd.DataFrame(rng.normal([3.0, 0.0, 40.0], [1.0, 5.0, 0.1], (rows, 3)), columns=FEATURES)
    data["who"] = [f"user {k}" for k in rng.integers(0, 600, rows)]
    pull = data.speed - 3 + rng.logistic(size=rows)
    data["late"] = np.where(pull > 0, 5, 2)
    data["kind"] = np.digitize(pull, [-1.0, 1.0])
    data["delay"] = 100 + 10 * pull
    return data


def numbers(model: Any) -> np.ndarray:
    return model.location_ if isinstance(model, userdp.Mean) else np.append(model.coef_, model.intercept_)


def same(found: Any, expected: Any) -> bool:
    """The same answer to 1e-9, the same releases charged, the same promise."""
    return bool(
        np.allclose(numbers(found), numbers(expected), rtol=1e-9, atol=1e-12)
        and found.release_.events == expected.release_.events
        and str(found.privacy_) == str(expected.privacy_)
    )


CASES = [
    (userdp.LogisticRegression, "late"),
    (userdp.LinearRegression, "delay"),
    pytest.param(userdp.LogisticRegression, "kind", marks=pytest.mark.slow),
    pytest.param(userdp.LinearSVC, "late", marks=pytest.mark.slow),
    pytest.param(userdp.QuantileRegressor, "delay", marks=pytest.mark.slow),
    pytest.param(userdp.Mean, None, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("kind", "target"), CASES)
def test_a_cluster_gives_the_local_answer(client: Client, table: pd.DataFrame, kind: Any, target: str | None) -> None:
    """Users span partitions. One number a user does not travel: diagnostics are counts."""
    y = None if target is None else table[target]
    local = kind(**PUBLIC).fit(table[FEATURES], y, groups=table.who)
    frame = dd.from_pandas(table, npartitions=3)
    remote = kind(**PUBLIC, engine="dask").fit(
        frame[FEATURES], None if target is None else frame[target], groups=frame.who
    )
    assert same(remote, local)
    assert remote.feature_names_in_.tolist() == FEATURES
    assert remote.diagnostics_ == {"capped_users": local.diagnostics_["capped_users"]}
    if target in ("late", "kind"):
        assert remote.classes_.tolist() == local.classes_.tolist()
        assert remote.predict(table[FEATURES]).tolist() == local.predict(table[FEATURES]).tolist()


def test_the_papers_algorithms_on_a_cluster(client: Client, table: pd.DataFrame) -> None:
    """Their kernels take fewer users at a time, and the noise pays for the rounding of that many: here as there."""
    data = UserDataset.from_arrays(table[FEATURES], table.late, table.who)
    model = userdp.LogisticRegression(**PUBLIC, algorithm="output-perturbation")
    local, remote = clone(model).fit(data), clone(model).fit(DaskEngine.from_dataset(data, client=client))
    assert same(remote, local)
    assert remote.release_.plan == local.release_.plan


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "dask"])
def test_a_folder_of_parquet_files(client: Client, table: pd.DataFrame, tmp_path: Path, engine: str) -> None:
    dd.from_pandas(table[[*FEATURES, "who", "late"]], npartitions=3).to_parquet(tmp_path / "parts")
    expected = userdp.LogisticRegression(**PUBLIC).fit(table[FEATURES], table.late, groups=table.who)
    assert same(userdp.LogisticRegression(**PUBLIC, engine=engine).fit(tmp_path / "parts", "late", "who"), expected)


@pytest.mark.parametrize("limit", [None, "700MB"])
@pytest.mark.parametrize(("kind", "target"), [(userdp.LogisticRegression, "late"), (userdp.LinearRegression, "delay")])
def test_datasets_in_memory_and_on_disk(
    table: pd.DataFrame, tmp_path: Path, kind: Any, target: str, limit: str | None
) -> None:
    table[[*FEATURES, "who", target]].to_parquet(tmp_path / "rows.parquet")
    data = UserDataset.from_parquet(tmp_path / "rows.parquet", user="who", target=target, memory_limit=limit)
    found = kind(**PUBLIC).fit(data)
    assert same(found, kind(**PUBLIC).fit(table[FEATURES], table[target], groups=table.who))
    assert found.feature_names_in_.tolist() == FEATURES


class KillsOnce(DaskEngine):
    """An engine that loses a worker while the fifth sum is on its way."""

    calls = 0

    def sum(self, kernel: Any, *arguments: Any) -> Sums:
        self.calls += 1
        if self.calls == 5:
            os.kill(next(iter(self.client.run(os.getpid).values())), signal.SIGKILL)
        return super().sum(kernel, *arguments)


@pytest.mark.parametrize("source", [pytest.param("partitions", marks=pytest.mark.slow), "memory"])
def test_a_fit_survives_the_death_of_a_worker(client: Client, table: pd.DataFrame, source: str) -> None:
    """Same seed, same coefficients to 1e-9, same releases charged."""
    data = UserDataset.from_arrays(table[FEATURES], table.late, table.who)
    if source == "memory":
        engine = KillsOnce.from_dataset(data, client=client)
    else:
        frame = dd.from_pandas(table[[*FEATURES, "who", "late"]], npartitions=3)
        engine = KillsOnce.from_dataframe(frame, user="who", target="late", client=client)
    assert same(userdp.LogisticRegression(**PUBLIC).fit(engine), userdp.LogisticRegression(**PUBLIC).fit(data))


def test_blocks_lost_between_two_questions_are_sent_again(
    client: Client, table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are there when asked whether, and gone when asked where."""
    data = UserDataset.from_arrays(table[FEATURES], table.late, table.who)
    engine = DaskEngine.from_dataset(data, client=client)
    real, lost = userdp.engines.dask.wait, []

    def wait_and_lose(blocks: Any) -> None:
        real(blocks)
        if not lost:
            lost.extend(blocks)
            client.cancel(list(blocks))

    monkeypatch.setattr("userdp.engines.dask.wait", wait_and_lose)
    assert same(userdp.LogisticRegression(**PUBLIC).fit(engine), userdp.LogisticRegression(**PUBLIC).fit(data))
    assert lost


@pytest.mark.slow
def test_progress_is_shown_while_rows_are_shuffled(client: Client, table: pd.DataFrame) -> None:
    shown: list[tuple[str, int]] = []
    frame = dd.from_pandas(table[[*FEATURES, "who"]], npartitions=3)
    DaskEngine.from_dataframe(frame, user="who", client=client, blocks=4, progress=lambda *step: shown.append(step))
    assert shown == [("reading", 3)] * 3 + [("shuffling by user", 4)] * 4


@pytest.mark.slow
def test_without_a_client_two_processes_are_started_and_stopped(
    monkeypatch: pytest.MonkeyPatch, table: pd.DataFrame
) -> None:
    engines: list[DaskEngine] = []

    def none_in_use() -> None:
        raise ValueError("No clients found")

    class Kept(DaskEngine):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            engines.append(self)
            assert len(self.client.scheduler_info(n_workers=-1)["workers"]) == 2

    monkeypatch.setattr("userdp.engines.dask.default_client", none_in_use)
    monkeypatch.setattr("userdp.engines.dask.DaskEngine", Kept)
    data = UserDataset.from_arrays(table[FEATURES], table.late, table.who)
    found = userdp.LogisticRegression(**PUBLIC, engine="dask", verbose=True).fit(data)
    assert same(found, userdp.LogisticRegression(**PUBLIC).fit(data))
    assert [engine.client.status for engine in engines] == ["closed"]


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, table: pd.DataFrame) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "userdp.engines.dask":
            raise ImportError("No module named 'distributed'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"No module named 'distributed'\): pip install 'userdp\[dask\]'"):
        userdp.Mean(engine="dask").fit(table[FEATURES], groups=table.who)


def test_bad_choices_are_one_line(table: pd.DataFrame, tmp_path: Path) -> None:
    data, frame = UserDataset.from_arrays(table[FEATURES], table.late, table.who), dd.from_pandas(table, npartitions=2)
    model = userdp.LogisticRegression()
    with pytest.raises(ValueError, match=r'engine must be "local", "dask", a scheduler.s address .*, got 3'):
        userdp.LogisticRegression(engine=3).fit(data)
    with pytest.raises(ValueError, match="got 'spark'"):
        userdp.LogisticRegression(engine="spark").fit(data)
    with pytest.raises(DataError, match='X is a Dask DataFrame: choose engine="dask"'):
        model.fit(frame, "late", groups="who")
    with pytest.raises(DataError, match="a UserDataset brings its own targets and users: leave out y"):
        model.fit(data, table.late)
    with pytest.raises(DataError, match="X is a file: give the name of its column as groups, got NoneType"):
        model.fit(tmp_path, "late")
    with pytest.raises(DataError, match="X is a Dask DataFrame: give the name of its column as y, got NoneType"):
        model.fit(frame, groups="who")
    delays = UserDataset.from_arrays(table[FEATURES], table.delay, table.who)
    with pytest.raises(DataError, match="y has more than 1000 different values: these are not classes"):
        model.fit(delays)
    assert not hasattr(model, "release_")


def test_targets_that_do_not_fit_beside_the_table_are_one_line(client: Client, table: pd.DataFrame) -> None:
    frame, model = dd.from_pandas(table, npartitions=2), userdp.LogisticRegression(engine=client)
    for late in (da.from_array(table.late.to_numpy(), chunks=1000), frame[["late"]]):
        with pytest.raises(DataError, match=r"^y and groups cannot be put beside X \(.*\): name columns of X instead$"):
            model.fit(frame[FEATURES], late, groups=frame.who)
    assert not hasattr(model, "release_")


def test_models_with_a_client_can_be_saved(client: Client, table: pd.DataFrame) -> None:
    """A connection stays behind; an address is kept."""
    assert userdp.Mean(engine=client).__getstate__()["engine"] == "local"
    assert clone(userdp.Mean(engine="tcp://127.0.0.1:9")).engine == "tcp://127.0.0.1:9"
