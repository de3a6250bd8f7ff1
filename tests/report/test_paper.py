"""``userdp paper``: every experiment runs, writes its files, and is reproducible."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from userdp.report.paper import add_paper_command, lower_bound, prior_work, stability, table1
from userdp.theory import find_rate


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
    monkeypatch.setattr(lower_bound, "STRONGER", (1.0, 30.0))
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
    assert [round(slope.value, 6) for slope in slopes if not isinstance(slope, str)] == [-1.0, -0.5, 0.5]
    assert all(slope.agrees for slope in slopes if not isinstance(slope, str))
    assert not table1.Slope("n", -1.2, -1.3, -1.1, -1.0).agrees


def test_a_refusal_stands_for_the_slope_with_its_reason() -> None:
    """Outlier removal needs about 1700 users at ε = 2: what its plan says is what the table shows."""
    row = next(row for row in table1.ROWS if row.source == table1.ASI)
    with pytest.raises(prior_work.Refused, match="its test alone needs about 1692"):
        row.run(1000, 20, 4, 2.0, 0.02, 0)
    cells = table1.Sweep((100, 100, 100)).cells()
    risks = ["too few" if axis == "n" and n < 50 else np.full((1, 2), 1.0 / n) for axis, n, _, _ in cells]
    by_n, by_m, by_d = table1.fit_slopes(cells, risks, (-1, 0, 0), 0)
    assert by_n == "n = 32: too few"
    assert not isinstance(by_m, str)
    assert not isinstance(by_d, str)


def test_exponents_are_those_of_table_1() -> None:
    names = {table1.LINEAR: ("ERM", "convex"), table1.MEAN: ("ERM", "strongly convex")}
    names |= {table1.LINEAR_SCO: ("SCO", "convex"), table1.MEAN_SCO: ("SCO", "strongly convex")}
    sources = {table1.USER: "paper", table1.NARAYANAN: "NarayananME22"}
    found = [row for row in table1.ROWS if row.name in names and row.source in sources]
    assert len(found) == 7
    for row in found:
        problem, curvature = names[row.name]
        assert row.exponents == tuple(find_rate(problem, curvature, source=sources[row.source]).exponents.values())


@pytest.mark.parametrize("method", [prior_work.levy, prior_work.narayanan])
def test_earlier_methods_find_the_mean_of_many_rows(method: prior_work.Method) -> None:
    """With a million rows a user the spread, and with it the error, is far below the distance of 0 from the mean."""
    assert prior_work.strongly_convex(method)(200, 10**6, 8, 2.0, 1.0, 0) < 1e-3 < 0.5 * 0.5**2
    assert prior_work.convex(method)(200, 10**6, 8, 2.0, 0.5, 0) < 1e-3


def test_cells_span_a_decade() -> None:
    for row in table1.ROWS:
        for place, axis in enumerate("nmd"):
            sizes = [cell[1 + place] for cell in row.sweep.cells() if cell[0] == axis]
            assert max(sizes) / min(sizes) >= 9.5


def test_strongly_convex_risk_falls_like_one_over_m() -> None:
    row = next(row for row in table1.ROWS if row.name.startswith("strongly convex ERM"))
    few = np.mean([row.run(300, 20, 16, 2.0, 0.02, seed) for seed in range(6)])
    many = np.mean([row.run(300, 80, 16, 2.0, 0.02, seed) for seed in range(6)])
    assert 2.5 < few / many < 6.5


@pytest.mark.slow
def test_table_1_end_to_end(tmp_path: Path) -> None:
    lines = table1.run(tmp_path, 0, scale=0.1, workers=1, quiet=True)
    assert (tmp_path / "table1.md").read_text() == "\n".join(lines) + "\n"
    assert sum(line.startswith("| ") for line in lines) == len(table1.ROWS) + 1
    assert any("too few for asi_liu2024" in line for line in lines)
    assert (tmp_path / "table1.png").stat().st_size > 10_000
