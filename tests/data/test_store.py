"""Grouping on disk: the same blocks as in memory, within a memory limit, with errors before anything is spent."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from userdp import LogisticRegression
from userdp.data import DataError, UserDataset, store
from userdp.engines import LocalEngine
from userdp.losses import FeatureMap, LinearModel, Logistic


def table(rows: int, seed: int, *, users: int = 40, width: int = 3, kind: type = np.float64) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns: dict[str, object] = {"who": pa.array([f"user {k}" for k in rng.integers(0, users, rows)], pa.string())}
    columns |= {f"x{i}": rng.standard_normal(rows).astype(kind) for i in range(width)}
    return pa.table(columns | {"late": (rng.random(rows) < 0.4).astype(np.int8)})


def write(folder: Path, *tables: pa.Table) -> Path:
    folder.mkdir(exist_ok=True)
    for i, part in enumerate(tables):
        pq.write_table(part, folder / f"part-{i}.parquet", row_group_size=100)
    return folder


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_same_blocks_as_in_memory(tmp_path: Path, kind: type) -> None:
    """Users span files: their rows are joined, in order."""
    folder = write(tmp_path / "parts", *(table(rows, i, kind=kind) for i, rows in enumerate((500, 0, 301, 1))))
    memory = UserDataset.from_parquet(folder, user="who", target="late")
    disk = UserDataset.from_parquet(folder, user="who", target="late", memory_limit="500MB", scratch=tmp_path)
    assert disk.users == memory.users
    assert disk.columns == memory.columns
    (stored,), (plain,) = disk.blocks, memory.blocks
    assert stored.features.dtype == plain.features.dtype == kind
    assert np.array_equal(stored.features, plain.features)
    assert np.array_equal(stored.target, plain.target)
    assert np.array_equal(stored.offsets, plain.offsets)
    model, theta = LinearModel(Logistic(), FeatureMap.identity(3)), np.ones(3)
    results = [
        LocalEngine(data, 2, 64, 16).sum(lambda block: (model.user_gradients(block, theta).sum(axis=0),))[0]
        for data in (disk, memory)
    ]
    assert np.array_equal(*results)
    without = disk.without(["user 3"])
    assert np.array_equal(without.blocks[0].features, memory.without(["user 3"]).blocks[0].features)


def test_temporary_files_go_with_the_dataset(tmp_path: Path) -> None:
    folder = write(tmp_path / "parts", table(50, 0))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    data = UserDataset.from_parquet(folder, user="who", memory_limit="500MB", scratch=scratch)
    assert list(scratch.iterdir())
    assert data.blocks[0].target.tolist() == [0.0] * 50
    del data
    gc.collect()
    assert not list(scratch.iterdir())


def test_features_may_be_chosen_and_other_columns_differ(tmp_path: Path) -> None:
    first = table(20, 0)
    folder = write(tmp_path / "parts", first, first.append_column("note", pa.array(["x"] * 20)))
    data = UserDataset.from_parquet(folder, user="who", features=["x2", "x0"], memory_limit="500MB")
    assert data.columns == ("x2", "x0")
    with pytest.raises(DataError, match=r"column 'note' is in .*part-1.parquet but not in .*part-0.parquet"):
        UserDataset.from_parquet(folder, user="who", memory_limit="500MB")


def test_empty_parts_may_have_lost_their_types(tmp_path: Path) -> None:
    empty = pa.table({name: pa.array([], pa.null()) for name in table(1, 0).column_names})
    folder = write(tmp_path / "parts", empty, table(20, 0), empty)
    data = UserDataset.from_parquet(folder, user="who", target="late", memory_limit="500MB")
    assert data.n_rows == 20
    with pytest.raises(DataError, match="no rows in"):
        UserDataset.from_parquet(write(tmp_path / "none", empty), user="who", memory_limit="500MB")


def change(part: pa.Table, name: str, values: object) -> pa.Table:
    return part.set_column(part.column_names.index(name), name, values)


BAD = {
    "other type": (
        lambda t: change(t, "x1", t.column("x1").cast("string")),
        "column 'x1' is string in .* but double in",
    ),
    "no column": (lambda t: t.drop_columns(["x1"]), "no column 'x1' in .*part-1.parquet; it has 'who', 'x0'"),
    "missing id": (lambda t: change(t, "who", pa.array([None, None] + ["a"] * 18)), "groups has 2 missing user ids"),
    "missing": (lambda t: change(t, "x1", pa.array([None, np.inf, *np.ones(18)])), r"in column 'x1' \(2\)"),
    "target": (
        lambda t: change(t, "late", pa.array([None] + [1] * 19, pa.int8())),
        "y has 1 missing or infinite values",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_parts_are_named_and_leave_nothing_behind(tmp_path: Path, case: str) -> None:
    spoil, message = BAD[case]
    folder, scratch = write(tmp_path / "parts", table(20, 0), spoil(table(20, 1))), tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(DataError, match=message):
        UserDataset.from_parquet(folder, user="who", target="late", memory_limit="500MB", scratch=scratch)
    assert not list(scratch.iterdir())


def test_text_ids_that_look_like_missing_numbers_are_ids(tmp_path: Path) -> None:
    folder = write(tmp_path / "parts", change(table(4, 0), "who", pa.array(["nan", "NaN", "", "nan"])))
    data = UserDataset.from_parquet(folder, user="who", target="late", memory_limit="500MB")
    assert data.users == ("nan", "NaN", "")
    floats = write(tmp_path / "floats", change(table(4, 0), "who", pa.array([1.0, float("nan"), 2.0, 1.0])))
    with pytest.raises(DataError, match="groups has 1 missing user ids"):
        UserDataset.from_parquet(floats, user="who", target="late", memory_limit="500MB")


@pytest.mark.parametrize(
    ("limit", "message"), [("lots", "memory_limit must be"), ("3 XB", "text like '1GB', got '3 XB'")]
)
def test_memory_limits_are_checked(tmp_path: Path, limit: str, message: str) -> None:
    folder = write(tmp_path / "parts", table(20, 0))
    with pytest.raises(DataError, match=message):
        UserDataset.from_parquet(folder, user="who", memory_limit=limit)
    with pytest.raises(DataError, match="no such folder for temporary files"):
        UserDataset.from_parquet(folder, user="who", memory_limit=10**9, scratch=tmp_path / "nowhere")


def test_a_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, scratch = write(tmp_path / "parts", table(20, 0)), tmp_path / "scratch"
    scratch.mkdir()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "_append", full)
    with pytest.raises(DataError, match=r"the disk of .* is full while grouping rows by user: free about"):
        UserDataset.from_parquet(folder, user="who", target="late", memory_limit="500MB", scratch=scratch)
    assert not list(scratch.iterdir())


def test_rows_out_of_order_are_refused() -> None:
    numbers = np.array([3, 3, 5])
    assert store._check_order(numbers, np.array([3, 4, 5]), (1, 9)) == (5, 5)
    for first, place in (([3, 2, 5], [3, 4, 5]), ([3, 3, 5], [4, 3, 5]), ([0, 3, 5], [3, 4, 5])):
        with pytest.raises(DataError, match="out of order"):
            store._check_order(np.array(first), np.array(place), (1, 9))


LIMITED = """
    import resource, sys
    from userdp import LogisticRegression
    from userdp.data import UserDataset

    folder, limit = sys.argv[1], int(sys.argv[2])

    def status(name):
        return 1024 * int(open("/proc/self/status").read().split(name + ":")[1].split()[0])

    # Memory in use is checked at the end. Allocators reserve about twice as much; more than that is refused here.
    most = status("VmData") + 5 * limit // 2
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    data = UserDataset.from_parquet(folder, user="who", target="late", memory_limit=limit, scratch=sys.argv[3])
    model = LogisticRegression(epsilon=2.0, random_state=7).fit(data)
    print(status("VmHWM"), data.n_users, data.n_rows, *map(float.hex, [*model.coef_[0].tolist(), *model.intercept_]))
"""


def run_limited(folder: Path, limit: int, scratch: Path) -> list[str]:
    command = [sys.executable, "-c", textwrap.dedent(LIMITED), str(folder), str(limit), str(scratch)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize(
    ("rows", "parts", "width", "limit"),
    [
        (20_000, 3, 20, 700 * 10**6),
        pytest.param(1_000_000, 10, 50, 10**9, marks=pytest.mark.slow),  # 4 GB with a limit of 1 GB
    ],
)
def test_a_fit_in_a_limited_process_gives_the_answer_of_an_unlimited_one(
    tmp_path: Path, rows: int, parts: int, width: int, limit: int
) -> None:
    """Grouping and all passes of the default fit."""
    for i in range(parts):
        write_part = table(rows, i, users=5_000, width=width)
        (tmp_path / "parts").mkdir(exist_ok=True)
        pq.write_table(write_part, tmp_path / "parts" / f"part-{i:02}.parquet", compression="none")
    peak, users, count, *found = run_limited(tmp_path / "parts", limit, tmp_path)
    assert int(peak) < limit
    assert (int(users), int(count)) == (5_000, rows * parts)
    data = UserDataset.from_parquet(tmp_path / "parts", user="who", target="late")
    expected = LogisticRegression(epsilon=2.0, random_state=7).fit(data)
    values = [float.fromhex(value) for value in found]
    assert np.allclose(values, [*expected.coef_[0], *expected.intercept_], rtol=1e-9, atol=1e-15)
