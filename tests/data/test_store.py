"""Grouping on disk: the same blocks as in memory, within a memory limit, with errors before anything is spent."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import duckdb
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


@pytest.mark.parametrize(
    "error",
    [
        duckdb.IOException('IO Error: Could not write file "spill": No space left on device'),
        duckdb.OutOfMemoryException("Out of Memory Error: failed to offload data block: max_temp_directory_size"),
    ],
)
def test_a_disk_that_the_database_finds_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def full(*_: object) -> None:
        raise error

    folder = write(tmp_path / "parts", table(20, 0))
    monkeypatch.setattr(store, "_group", full)
    with pytest.raises(DataError, match=r"the disk of .* is full while grouping rows by user: free about twice"):
        UserDataset.from_parquet(folder, user="who", target="late", memory_limit="500MB", scratch=tmp_path)


FULL = """
    import sys
    from userdp.data import DataError, UserDataset
    try:
        UserDataset.from_parquet(sys.argv[1], user="who", target="late", memory_limit="500MB", scratch=sys.argv[2])
    except DataError as error:
        print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    bool(subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode if shutil.which("unshare") else 1),
    reason="needs a file system of its own",
)
@pytest.mark.parametrize("megabytes", [10, 40])
def test_a_disk_that_is_really_full(tmp_path: Path, megabytes: int) -> None:
    """While the database works, and while sorted rows are written."""
    folder, scratch = tmp_path / "parts", tmp_path / "small"
    folder.mkdir()
    scratch.mkdir()
    pq.write_table(table(150_000, 0, width=50), folder / "part.parquet")
    mounted = f"mount -t tmpfs -o size={megabytes}m tmpfs '{scratch}' && \"$@\" && test -z \"$(ls '{scratch}')\""
    command = ["unshare", "-Urm", "sh", "-c", mounted, "sh", sys.executable, "-c", textwrap.dedent(FULL)]
    done = subprocess.run([*command, str(folder), str(scratch)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"the disk of {scratch} is full while grouping rows by user" in done.stdout


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

    resource.setrlimit(resource.RLIMIT_DATA, (10**9, 10**9))
    limit = None if sys.argv[2] == "none" else sys.argv[2]
    data = UserDataset.from_parquet(sys.argv[1], user="who", target="late", memory_limit=limit, scratch=sys.argv[3])
    model = LogisticRegression(epsilon=2.0, random_state=7).fit(data)
    print(data.n_users, data.n_rows, *map(float.hex, [*model.coef_[0].tolist(), *model.intercept_]))
"""


def run_limited(folder: Path, limit: str, scratch: Path) -> subprocess.CompletedProcess[str]:
    """In a process that may not map more than 1 GB to write to; Arrow's allocator would map that much to begin with."""
    command = [sys.executable, "-c", textwrap.dedent(LIMITED), str(folder), limit, str(scratch)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    return subprocess.run(command, capture_output=True, text=True, timeout=3000, env=environment)


@pytest.mark.parametrize(
    ("rows", "parts", "width"),
    [
        (20_000, 3, 20),
        pytest.param(200_000, 5, 50, marks=pytest.mark.slow),  # 400 MB, which cannot be read at once
    ],
)
def test_a_fit_in_a_limited_process_gives_the_answer_of_an_unlimited_one(
    tmp_path: Path, rows: int, parts: int, width: int
) -> None:
    """Grouping and all passes of the default fit, in 1 GB (``benchmarks/speed.py --only limit``: on 4 GB)."""
    folder = tmp_path / "parts"
    folder.mkdir()
    for i in range(parts):
        pq.write_table(table(rows, i, users=5_000, width=width), folder / f"part-{i:02}.parquet", compression="none")
    done = run_limited(folder, "700MB", tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    users, count, *found = done.stdout.splitlines()[-1].split()
    assert (int(users), int(count)) == (5_000, rows * parts)
    data = UserDataset.from_parquet(folder, user="who", target="late")
    expected = LogisticRegression(epsilon=2.0, random_state=7).fit(data)
    values = [float.fromhex(value) for value in found]
    assert np.allclose(values, [*expected.coef_[0], *expected.intercept_], rtol=1e-9, atol=1e-15)
    if rows == 200_000:
        assert run_limited(folder, "none", tmp_path).returncode


def test_far_more_than_memory_is_sorted_in_several_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "parts", table(500, 0), table(400, 1))
    memory = UserDataset.from_parquet(folder, user="who", target="late")
    monkeypatch.setattr(store, "_LEAST", 10**7)
    monkeypatch.setattr(store, "_SORTED", 1e-3)  # about ten users
    disk = UserDataset.from_parquet(folder, user="who", target="late", memory_limit="1MB")
    assert disk.users == memory.users
    assert np.array_equal(disk.blocks[0].features, memory.blocks[0].features)
    assert np.array_equal(disk.blocks[0].target, memory.blocks[0].target)
