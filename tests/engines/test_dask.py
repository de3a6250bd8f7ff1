"""The Dask engine on a real cluster of two processes: the local answer, whole users, lost workers, clear errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, Future, LocalCluster

from userdp.data import DataError, UserDataset
from userdp.engines import LocalEngine
from userdp.engines.base import Engine
from userdp.engines.dask import DaskEngine, Deal, merged
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
    return engine.sum(_clipped_sum, MODEL.phase(THETA), 0.4)[0]


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


NUMBERED = {
    "text": lambda who: who,
    "categories": lambda who: who.astype("category"),
    "integers": lambda who: who.str.slice(5).astype(np.int32),
    "large integers": lambda who: who.str.slice(5).astype(np.uint64) + np.uint64(2**64 - 60),
    "floats": lambda who: (who.str.slice(5).astype(float) - 9) / 2,
}


@pytest.mark.parametrize("ids", NUMBERED)
def test_dask_dataframes(client: Client, ids: str) -> None:
    table = frame(500, 4)
    table["who"] = NUMBERED[ids](table.who)
    if ids == "floats":
        table.loc[table.who[table.who == 0].index[0], "who"] = -0.0  # the same user
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


def test_blocks_are_about_equal_and_each_thread_gets_its_share(client: Client) -> None:
    table = dd.from_pandas(frame(20_000, 6, users=10_000), npartitions=3)
    engine = DaskEngine.from_dataframe(table, user="who", target="late", client=client, blocks=10)
    assert [[len(share) for share in shares] for shares in engine._deal().shares.values()] == [[5], [5]]
    counts = client.gather(client.map(lambda block: block.n_users, engine._blocks))
    assert max(counts) < 1.3 * min(counts)


def test_the_answer_does_not_depend_on_who_computes_what(client: Client) -> None:
    data = UserDataset.from_arrays(frame(900, 7)[["x0", "x1", "x2"]], frame(900, 7).late, frame(900, 7).who)
    engine = DaskEngine.from_dataset(data, client=client, blocks=11)
    count, expected, losses = len(engine._blocks), sums(engine), engine.each(MODEL.user_losses, THETA)
    client.amm.stop()  # it would remove the copies that come now
    client.replicate(engine._blocks)
    names, everything = client.run(lambda dask_worker: dask_worker.id), [*range(count)]
    one, other = names.values()
    for shares in (
        {one: [everything]},
        {one: [everything[3:]], other: [everything[:3]]},
        {other: [[i] for i in everything]},
        {one: [everything[1::2]], other: [everything[::2]]},
        {one: [everything[::-1]]},
    ):
        deal = Deal([worker for worker, name in names.items() if name in shares], shares)
        engine._deals[:] = [deal]
        assert np.array_equal(sums(engine), expected)
        assert np.array_equal(engine.each(MODEL.user_losses, THETA), losses)
        assert engine._deals == [deal]
    client.amm.start()


def test_blocks_that_moved_are_found_again(client: Client) -> None:
    """A worker that no longer holds a block says so; the sum is asked for again where it is."""
    data = UserDataset.from_arrays(np.arange(60.0).reshape(20, 3), np.arange(20) % 2, np.arange(20))
    engine = DaskEngine.from_dataset(data, client=client, blocks=4)
    expected, before = sums(engine), engine._deals[0]
    (one, first), (other, second) = before.shares.items()
    engine._deals[:] = [Deal(before.workers, {one: second, other: first})]
    assert np.array_equal(sums(engine), expected)
    engine._deals[:] = [Deal(before.workers, {"of a process that is gone": [[0]]})]
    assert np.array_equal(sums(engine), expected)


@pytest.mark.parametrize("kind", [ArithmeticError, PermissionError, KeyError])
def test_errors_of_kernels_are_the_callers(client: Client, kind: type[Exception]) -> None:
    def fails(block: object) -> tuple[np.ndarray]:
        raise kind("of the kernel")

    data = UserDataset.from_arrays(np.ones((9, 3)), np.zeros(9), np.arange(9))
    engine = DaskEngine.from_dataset(data, client=client, blocks=3)
    with pytest.raises(kind, match="of the kernel") as caught:
        engine.sum(fails)
    assert "in fails" in "".join(caught.value.__notes__)  # where it happened


def test_a_pass_that_always_loses_its_workers_ends(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    data = UserDataset.from_arrays(np.ones((9, 3)), np.zeros(9), np.arange(9))
    engine = DaskEngine.from_dataset(data, client=client, blocks=3)
    sums(engine)
    monkeypatch.setattr(DaskEngine, "_ask", lambda *_: OSError("gone"))
    with pytest.raises(DataError, match="workers were lost 4 times in one pass") as caught:
        sums(engine)
    assert str(caught.value.__cause__) == "gone"


def test_a_client_that_was_closed_is_one_line(client: Client) -> None:
    data = UserDataset.from_arrays(np.ones((9, 3)), np.zeros(9), np.arange(9))
    with Client(client.scheduler.address) as other:
        engine = DaskEngine.from_dataset(data, client=other, blocks=3)
    with pytest.raises(DataError, match="the Dask client is closed: connect it to a running scheduler first"):
        sums(engine)


def test_results_are_merged_in_a_tree_that_depends_on_the_number_of_blocks_only() -> None:
    class Name:
        def __init__(self, name: str) -> None:
            self.name = name

        def merge(self, other: Name) -> None:
            self.name = f"({self.name}{other.name})"

    def names(blocks: Iterable[int]) -> dict[tuple[int, int], Name]:
        return {(i, i + 1): Name(str(i)) for i in blocks}

    for count in range(1, 10):
        (whole,) = merged(names(range(count)), count).values()
        for cut in range(count):
            parts = merged(names(range(cut)), count) | merged(names(range(cut, count)), count)
            assert [node.name for node in merged(parts, count).values()] == [whole.name]
    assert whole.name == "((((01)(23))((45)(67)))8)"


def test_kernels_see_as_few_users_at_a_time_as_asked(client: Client) -> None:
    """The bound on rounding follows, as on one machine: it enters the noise."""
    data = UserDataset.from_arrays(np.ones((300, 3)), np.zeros(300), np.arange(300))
    engine = DaskEngine.from_dataset(data, client=client, blocks=4).chunked(7)
    seen = engine.each(lambda block: np.full(block.n_users, float(block.n_users)))
    assert (len(seen), max(seen)) == (300, 7.0)
    assert engine.rounding == LocalEngine(data).chunked(7).rounding < LocalEngine(data).rounding


def test_another_number_of_users_in_blocks_made_again_is_an_error(client: Client) -> None:
    """n enters every formula: nothing is computed with a wrong one."""
    users = [40, 39]

    def make(connected: Client, _: object) -> list[Future]:
        rows = users.pop(0)
        return connected.scatter([UserDataset.from_arrays(np.ones((rows, 3)), np.zeros(rows), range(rows))], hash=False)

    engine = DaskEngine(make, ("x0", "x1", "x2"), client)
    client.cancel(engine._blocks)
    with pytest.raises(DataError, match="the data has 39 users and had 40: it changed while lost blocks"):
        sums(engine)


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
    "missing id": (lambda part: part.assign(who=None), "20 missing user ids in column 'who' of partition 1"),
    "missing float id": (lambda part: part.assign(who=np.nan), "20 missing user ids in column 'who' of partition 1"),
    "other ids": (lambda part: part.assign(who=range(20)), "column 'who' is int64 in one partition and large_string"),
    "dates": (
        lambda part: part.assign(who=pd.Timestamp(0)),
        r"user ids must be numbers or text, column 'who' is timestamp\[.*\] in partition 1: make it text",
    ),
    "mixed ids": (
        lambda part: part.assign(who=[1, "a"] * 10),
        "column 'who' mixes types in partition 1 .*make all ids",
    ),
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


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.array([16777217.0, 5.0]), np.array([16777217.0, 5.0], dtype=np.float32)),
        (np.array([1, 2], dtype=object), np.array([1.0, 2.0], dtype=object)),
        (np.array(["1", "2"], dtype=object), np.array(["1.0", "2.0"], dtype=object)),
    ],
    ids=["short and long floats", "objects", "text"],
)
def test_ids_that_could_split_a_user_are_refused(client: Client, first: np.ndarray, second: np.ndarray) -> None:
    parts = [frame(2, i).assign(who=ids) for i, ids in enumerate((first, second))]
    made = [dask.delayed(lambda part=part: part)() for part in parts]
    table = dd.from_delayed(made, meta=parts[0].iloc[:0], verify_meta=False)
    with pytest.raises(DataError, match="taken for two"):
        DaskEngine.from_dataframe(table, user="who", client=client)
    mixed = frame(4, 2).assign(who=np.concatenate([first.astype(object), second.astype(object)]))
    if first.dtype == object:
        with pytest.raises(DataError, match="taken for two"):
            DaskEngine.from_dataframe(dd.from_pandas(mixed, 1), user="who", client=client)
