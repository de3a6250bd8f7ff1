"""What can go wrong on a cluster: a clear error, nothing released; or no error at all and the same answer."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import userdp
import userdp.data
from userdp.data import DataError
from userdp.engines.base import Sums
from userdp.engines.dask import DaskEngine

pytestmark = pytest.mark.filterwarnings("default")  # the cluster's own warnings are not ours

PUBLIC: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "random_state": 7}


def frame(rows: int, users: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.standard_normal((rows, 3)), columns=["x0", "x1", "x2"])
    data["who"] = rng.integers(0, users, rows)
    data["late"] = (data.x0 + rng.logistic(size=rows) > 0).astype(np.int8)
    return data


def test_an_unreachable_scheduler_is_said_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("userdp.engines.dask.CONNECT_SECONDS", 1)
    model, table = userdp.LogisticRegression(engine="tcp://127.0.0.1:9"), frame(20)
    started = time.monotonic()
    with pytest.raises(DataError, match=r"no Dask scheduler answers at 'tcp://127.0.0.1:9'"):
        model.fit(table[["x0"]], table.late, groups=table.who)
    assert time.monotonic() - started < 10
    assert not hasattr(model, "release_")


def test_a_scheduler_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("userdp.engines.dask.CONNECT_SECONDS", 1)
    model, table = userdp.LogisticRegression(), frame(20)
    with (
        LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0", silence_logs=50) as cluster,
        Client(cluster) as client,
        pytest.raises(DataError, match=r"the Dask scheduler at .* has no workers: start some"),
    ):
        model.set_params(engine=client).fit(table[["x0"]], table.late, groups=table.who)
    assert not hasattr(model, "release_")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.mark.slow
def test_a_full_disk_while_shuffling(client: Client) -> None:
    """Last of those that share this cluster: its workers stay broken."""

    def fill_the_disk() -> None:
        from distributed.shuffle._disk import DiskShardsBuffer

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        DiskShardsBuffer._write_frames = full  # type: ignore[method-assign]

    client.run(fill_the_disk)
    model = userdp.LogisticRegression(**PUBLIC, engine=client)
    with pytest.raises(DataError, match="a worker's disk is full while rows are shuffled by user: free about twice"):
        model.fit(dd.from_pandas(frame(2000), npartitions=3), "late", groups="who")
    assert not hasattr(model, "release_")


class LosesItsScheduler(DaskEngine):
    """The scheduler dies while the fifth sum is on its way."""

    scheduler: subprocess.Popen[bytes]
    calls = 0

    def sum(self, kernel: Any, *arguments: Any) -> Sums:
        self.calls += 1
        if self.calls == 5:
            self.scheduler.kill()
        return super().sum(kernel, *arguments)


@pytest.mark.slow
def test_the_death_of_the_scheduler_ends_the_fit(tmp_path: Path) -> None:
    tools, running = Path(sys.executable).parent, []
    address_file = tmp_path / "scheduler.json"
    environment = os.environ | {"DASK_TEMPORARY_DIRECTORY": str(tmp_path)}

    def start(*command: str) -> subprocess.Popen[bytes]:
        running.append(
            subprocess.Popen(
                [str(tools / "dask"), *command, "--scheduler-file", str(address_file), "--no-dashboard"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        )
        return running[-1]

    try:
        scheduler = start("scheduler", "--port", "0")
        start("worker", "--nthreads", "1")
        while not address_file.exists():
            time.sleep(0.1)
        table = frame(3000)
        with Client(scheduler_file=str(address_file), timeout=60) as client:
            client.wait_for_workers(1, timeout=60)
            data = userdp.data.UserDataset.from_arrays(table[["x0", "x1", "x2"]], table.late, table.who)
            engine = LosesItsScheduler.from_dataset(data, client=client)
            engine.scheduler = scheduler
            model = userdp.LogisticRegression(**PUBLIC)
            started = time.monotonic()
            with pytest.raises(DataError, match=r"the Dask scheduler at .* went away .*: nothing was released"):
                model.fit(engine)
            assert time.monotonic() - started < 60
            assert engine.calls == 5
            assert not hasattr(model, "release_")
    finally:
        for process in running:
            process.kill()
            process.wait()
