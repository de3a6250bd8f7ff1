"""The Dask engine on a real cluster of two processes: the local answer, whole users, lost workers, clear errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

from userdp.data import DataError, UserDataset
from userdp.engines import LocalEngine
from userdp.engines.base import Engine
from userdp.engines.dask import DaskEngine
from userdp.losses import FeatureMap, LinearModel, Logistic
from userdp.mechanisms.capped import _clipped_sum

pytestmark = pytest.mark.filterwarnings("default")  # the cluster's own warnings are not ours

MODEL, THETA = LinearModel(Logistic(), FeatureMap.identity(3, intercept=True)), np.array([0.3, -1.0, 0.2, 0.1])


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        yield client


def frame(rows: int, seed: int, users: int = 50) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(rng.standard_normal((rows, 3)) * [1.0, 5.0, 0.1], columns=["x0", "x1", "x2"])
    data["who"] = [f"user {k}" for k in rng.integers(0, users, rows)]
    data["late"] = (data.x0 + rng.logistic(size=rows) > 0).astype(np.int8)
    return data


def write(folder: Path, *parts: pd.DataFrame) -> Path:
    folder.mkdir(exist_ok=True)
    for i, part in enumerate(parts):
        pq.write_table(pa.Table.from_pandas(part, preserve_index=False), folder / f"part-{i}.parquet")
    return folder


def sums(engine: Engine) -> np.ndarray:
    return engine.sum(_clipped_sum, MODEL, THETA, 0.4)[0]


def sizes(engine: Engine) -> list[tuple[float, ...]]:
    """What tells users apart: their number of rows and their loss, to the last bit."""
    rows = engine.each(lambda block: np.diff(block.offsets).astype(float))
    return sorted(zip(rows.tolist(), engine.each(MODEL.user_losses, THETA).tolist()))


def test_partitioned_parquet_gives_the_local_answer(client: Client, tmp_path: Path) -> None:
    """Users span all partitions, some of which are empty; each arrives whole, its numbers equal to the last bit."""
    folder = write(tmp_path / "parts", frame(400, 0), frame(0, 1), frame(301, 2), frame(1, 3))
    local = LocalEngine(UserDataset.from_parquet(folder, user="who", target="late"))
    engine = DaskEngine.from_parquet(folder, user="who", target="late", client=client, blocks=5)
    assert engine.n_users == local.n_users == 50
    assert engine.columns == local.dataset.columns
    assert engine.rounding == local.rounding
    assert sizes(engine) == sizes(local)
    assert np.allclose(sums(engine), sums(local), rtol=1e-13, atol=1e-13)
    assert np.array_equal(sums(engine), sums(engine))


@pytest.mark.parametrize("ids", ["text", "integers", "categories"])
def test_dask_dataframes(client: Client, ids: str) -> None:
    table = frame(500, 4)
    if ids == "integers":
        table["who"] = table.who.str.slice(5).astype(np.int32)
    elif ids == "categories":
        table["who"] = table.who.astype("category")
    local = LocalEngine(UserDataset.from_arrays(table[["x0", "x1", "x2"]], table.late, table.who))
    distributed = dd.from_pandas(table, npartitions=4)
    engine = DaskEngine.from_dataframe(distributed, user="who", target="late", client=client)
    assert engine.n_users == local.n_users
    assert sizes(engine) == sizes(local)
    assert np.allclose(sums(engine), sums(local), rtol=1e-13, atol=1e-13)


def test_more_blocks_than_users(client: Client) -> None:
    engine = DaskEngine.from_dataframe(
        dd.from_pandas(frame(60, 5, users=2), npartitions=2), user="who", target="late", client=client, blocks=9
    )
    assert engine.n_users == 2
    assert len(sizes(engine)) == 2


def test_unreachable_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("userdp.engines.dask.CONNECT_SECONDS", 1)
    data = UserDataset.from_arrays([[1.0], [2.0]], [0, 1], [1, 2])
    with pytest.raises(DataError, match=r"no Dask scheduler answers at .tcp://127.0.0.1:9'"):
        DaskEngine.from_dataset(data, client="tcp://127.0.0.1:9")


def test_bad_parquet_is_refused_before_the_cluster_is_asked(tmp_path: Path) -> None:
    other = frame(20, 1).assign(x1="text")
    with pytest.raises(DataError, match=r"column 'x1' is .*string in .*part-1.parquet but double"):
        DaskEngine.from_parquet(write(tmp_path / "a", frame(20, 0), other), user="who", client="tcp://127.0.0.1:9")
    with pytest.raises(DataError, match="no column 'nobody'"):
        DaskEngine.from_parquet(write(tmp_path / "b", frame(20, 0)), user="nobody", client="tcp://127.0.0.1:9")


BAD_PARTS = {
    "other columns": (lambda part: part.drop(columns="x1"), "no column 'x1' in partition 1; it has"),
    "other type": (lambda part: part.assign(x1="text"), "column 'x1' is not numeric .* in partition 1"),
    "missing value": (lambda part: part.assign(x1=np.nan), r"in column 'x1' \(20\) of partition 1"),
    "missing id": (lambda part: part.assign(who=None), "groups has 20 missing user ids in partition 1"),
    "other ids": (lambda part: part.assign(who=range(20)), "column 'who' is int64 in one partition and large_string"),
    "float ids": (lambda part: part.assign(who=0.5), "user ids must be integers or text, column 'who' is double"),
}


@pytest.mark.parametrize("case", BAD_PARTS)
def test_a_partition_unlike_the_others_is_named(client: Client, case: str) -> None:
    spoil, message = BAD_PARTS[case]
    good = frame(20, 0)
    parts = [dask_delayed(good), dask_delayed(spoil(frame(20, 1)))]
    table = dd.from_delayed(parts, meta=good.iloc[:0], verify_meta=False)
    with pytest.raises(DataError, match=message):
        DaskEngine.from_dataframe(table, user="who", target="late", client=client)


def dask_delayed(part: pd.DataFrame) -> object:
    from dask import delayed

    return delayed(lambda: part)()


def test_no_rows_at_all(client: Client) -> None:
    table = dd.from_pandas(frame(20, 0), npartitions=2)
    with pytest.raises(DataError, match="the data has no rows"):
        DaskEngine.from_dataframe(table[table.x0 > 1e9], user="who", target="late", client=client)


def no_client() -> None:
    raise ValueError("No clients found")


@pytest.mark.slow
def test_starts_and_stops_its_own_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    data = UserDataset.from_arrays(np.ones((6, 3)), [0, 1, 0, 1, 0, 1], [1, 2, 3, 1, 2, 3])
    monkeypatch.setattr("userdp.engines.dask.default_client", no_client)
    with DaskEngine.from_dataset(data) as engine:
        assert len(engine.client.scheduler_info(n_workers=-1)["workers"]) == 2
        assert np.allclose(sums(engine), sums(LocalEngine(data)))
    assert engine.client.status == "closed"
