"""The accuracy benchmark: it survives an interruption, and its summary says what the numbers say."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog

from userdp.losses import Pinball


@pytest.fixture
def accuracy(monkeypatch):
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import accuracy

    yield accuracy
    for name in set(sys.modules) - before:
        if name.startswith(("accuracy", "speed_rivals")):
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
    values |= {("bank", 1.0, "ours standardized", seed): 0.6 for seed in range(2)}
    accuracy.report(values, ["bank"], (1.0, 4.0), tmp_path)
    text = (tmp_path / "accuracy.md").read_text()
    assert "geometric mean **0.500**" in text
    assert "0.5/0/1/mean" in text
    assert "- bank, ε = 4: ours" in text
    assert "| classification | 1 | 0.60 | 0.6 (bank, 1) | 0.50 | 0.5 (bank, 1) | 1.20 |" in text
    assert "bank,1.0,tuned,2,1,0,0.5/0/1/mean" in (tmp_path / "accuracy.csv").read_text()


def test_the_default_fit_is_measured_again_and_nothing_else_is_forgotten(accuracy, tmp_path):
    path = tmp_path / "accuracy.csv"
    kept = {("bank", 1.0, "levy2021", 0): 1.0, ("nlswork", 1.0, "ours", 0): 2.0, ("bank", 0.0, "users", 0): 3.0}
    cache = accuracy.Cache(path)
    cache.add(kept.items())
    cache.add(((name, 1.0, "ours", 0), 4.0) for name in ("bank", "bank n=500", "mean of bank", "bank m=3"))
    cache.forget(["bank"], ["ours"])
    assert cache.values == accuracy.Cache(path).values == kept


def test_cells_that_are_not_run_say_why(accuracy):
    why_not = accuracy.why_not
    assert why_not("ours", "bank", 946) is None
    assert why_not("narayanan2022", "oulad", 23351) == "2.7e+08 pairs"
    assert why_not("worst_case_output", "oulad score", 23351) == "not Lipschitz"
    assert why_not("worst_case_output", "nlswork SVM", 4148) is None
    assert why_not("diffprivlib group", "bank SVM n=500", 500) == "logistic loss only"
    assert why_not("friendly_core", "bank", 946) == "another task"


def test_a_model_of_standardized_rows_predicts_the_rows_as_they_came(accuracy):
    rng = np.random.default_rng(0)
    task = accuracy.load("synthetic 300", Path())
    task = replace(task, X=task.X * rng.uniform(0.1, 10, task.X.shape[1]) + rng.normal(size=task.X.shape[1]))
    assert 0 < task.risk(accuracy.METHODS["ours standardized"](task, 4.0, 1e-6, 0)) - task.best_risk < 0.01


def test_the_guide_shows_the_results(accuracy):
    assert accuracy.PAGE.read_text() == accuracy.guide_page(accuracy.RESULTS / "accuracy.md")


def test_the_optimum_of_a_loss_with_a_kink_is_that_of_a_linear_program(accuracy):
    """Smoothing over w lowers the pinball loss by at most w/8 at the median."""
    data = sys.modules["accuracy_data"]
    task = replace(data._synthetic_wage("small", 40, 5, 3, 0), loss=Pinball(0.5))
    rows, size = task.rows, task.rows.shape[1]
    cost = np.concatenate([np.zeros(size), task.weights / 2, task.weights / 2])
    equal = np.hstack([rows, np.eye(len(rows)), -np.eye(len(rows))])
    bounds = [(None, None)] * size + [(0, None)] * (2 * len(rows))
    exact = linprog(cost, A_eq=equal, b_eq=task.y, bounds=bounds).fun
    assert exact - task.loss.kink.width / 8 <= task.best_risk <= exact + 1e-6
    middle = np.abs(task.y - np.median(task.y)) @ task.weights / 2
    assert task.constant_excess + task.best_risk == pytest.approx(middle, abs=task.loss.kink.width)
