"""The accuracy benchmark: it survives an interruption, and its summary says what the numbers say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.fixture
def accuracy(monkeypatch):
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import accuracy

    yield accuracy
    for name in set(sys.modules) - before:
        if name.startswith("accuracy"):
            del sys.modules[name]


def test_an_interrupted_line_is_measured_again(accuracy, tmp_path):
    path = tmp_path / "cache" / "accuracy.csv"
    first = accuracy.Cache(path)
    first.add([(("bank", 1.0, "ours", 0), 0.5), (("bank", 1.0, "ours", 1), 0.25)])
    path.write_text(path.read_text()[:-3])
    again = accuracy.Cache(path)
    assert again.values == {("bank", 1.0, "ours", 0): 0.5}
    again.add([(("bank", 1.0, "ours", 1), 0.25)])
    assert accuracy.Cache(path).values == first.values


def test_the_report_takes_the_best_setting_and_names_what_is_missing(accuracy, tmp_path):
    values = {("bank", 0.0, key, 0): 10.0 for key in ("users", "rows", "coefficients", "constant", "optimum")}
    for i in range(120):
        for seed in range(2):
            values[("bank", 1.0, f"user_dpgd 0.5/{i}/1/mean", seed)] = 1.0 + i
    values |= {("bank", 1.0, "ours", seed): 0.5 for seed in range(2)}
    accuracy.report(values, ["bank"], (1.0, 4.0), tmp_path)
    text = (tmp_path / "accuracy.md").read_text()
    assert "geometric mean **0.500**" in text
    assert "0.5/0/1/mean" in text
    assert "- bank, ε = 4: ours" in text
    assert "bank,1.0,tuned,2,1,0,0.5/0/1/mean" in (tmp_path / "accuracy.csv").read_text()
