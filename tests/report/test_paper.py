"""``userdp paper``: every experiment runs, writes its files, and is reproducible."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from userdp.report.paper import add_paper_command, lower_bound, stability, table1


def run(*words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_paper_command(parser.add_subparsers(dest="command"))
    arguments = parser.parse_args(["paper", *words])
    return dict(arguments.run(arguments))


@pytest.mark.parametrize(
    "words",
    [("constants", "-n", "200"), ("lower-bound", "--seeds", "1")],
    ids=lambda words: words[0],
)
def test_experiments_write_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.setattr(lower_bound, "BASE", (100, 5, 10))
    result = run(*words, "--output", str(tmp_path), "--json")
    assert result["private"] is False
    assert all(Path(file).stat().st_size > 100 for file in result["files"])
    first = (tmp_path / f"{words[0]}.csv").read_bytes()
    run(*words, "--output", str(tmp_path), "--json")
    assert (tmp_path / f"{words[0]}.csv").read_bytes() == first


def test_stability_bounds_hold(tmp_path: Path) -> None:
    stability.run(tmp_path, 0, draws=50, quiet=True)
    for line in (tmp_path / "stability.csv").read_text().splitlines()[1:]:
        _, _, _, beta, over, loose, _ = line.rsplit(",", 6)
        assert float(over) <= float(beta)
        assert float(loose) > 1


def test_constants_say_when_a_release_cannot_run(tmp_path: Path) -> None:
    lines = run("constants", "-n", "110", "--output", str(tmp_path))["lines"]
    assert any("needs 130 users" in line for line in lines)


def test_slopes_recover_a_known_power() -> None:
    cells = table1.Sweep((100, 100, 100)).cells()
    risks = [np.full((2, 3), n**-1.0 * m**-0.5 * d**0.5) for _, n, m, d in cells]
    slopes = table1.fit_slopes(cells, risks, (-1, -0.5, 0.5), 0)
    assert [round(slope.value, 6) for slope in slopes] == [-1.0, -0.5, 0.5]
    assert all(slope.agrees for slope in slopes)
    assert not table1.Slope("n", -1.2, -1.3, -1.1, -1.0).agrees


def test_cells_span_a_decade() -> None:
    for row in table1.ROWS:
        for place, axis in enumerate("nmd"):
            sizes = [cell[1 + place] for cell in row.sweep.cells() if cell[0] == axis]
            assert max(sizes) / min(sizes) >= 9.5


def test_strongly_convex_risk_falls_like_one_over_m() -> None:
    row = next(row for row in table1.ROWS if row.name.startswith("strongly convex ERM"))
    few = np.mean([row.run(300, 20, 16, 0.02, seed) for seed in range(6)])
    many = np.mean([row.run(300, 80, 16, 0.02, seed) for seed in range(6)])
    assert 2.5 < few / many < 6.5


@pytest.mark.slow
def test_table_1_end_to_end(tmp_path: Path) -> None:
    table1.run(tmp_path, 0, scale=0.1, workers=1, quiet=True)
    assert (tmp_path / "table1.md").exists()
