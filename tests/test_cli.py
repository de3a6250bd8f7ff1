"""The command line: exit codes, files, one clear line for bad input."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from userdp.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "user": np.repeat([f"u{i}" for i in range(300)], 6),
            "age": rng.normal(40, 10, 1800),
            "visits": rng.poisson(3, 1800),
        }
    )
    table["bought"] = np.where((table.age - 40) / 10 + rng.logistic(size=1800) > 0, "yes", "no")
    table.to_csv(path / "rows.csv", index=False)
    table.to_parquet(path / "rows.parquet", index=False)
    return path


FIT = ["--user", "user", "--target", "bought", "--epsilon", "3", "--random-state", "0"]


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_fit_then_predict(folder, name, capsys, tmp_path):
    model, report, answers = tmp_path / "m.json", tmp_path / "r.html", tmp_path / "p.csv"
    assert main(["fit", str(folder / name), *FIT, "--output", str(model), "--report", str(report)]) == 0
    out = capsys.readouterr().out
    assert str(model) in out
    assert "not private" in out
    content = json.loads(model.read_text())
    assert content["features"] == ["age", "visits"]
    assert content["privacy"]["epsilon"] == 3
    assert content["coef"][0] > 0
    assert "<svg" in report.read_text()
    assert main(["predict", str(model), str(folder / name), "--output", str(answers)]) == 0
    table = pd.read_csv(answers)
    assert list(table.columns) == ["bought", "probability_of_no", "probability_of_yes"]
    truth = pd.read_csv(folder / "rows.csv").bought
    assert (table.bought == truth).mean() > 0.6
    assert ((table.probability_of_yes > 0.5) == (table.bought == "yes")).all()


def test_json_for_machines(folder, capsys, tmp_path):
    assert main(["fit", str(folder / "rows.csv"), *FIT, "--json", "--output", str(tmp_path / "m.json")]) == 0
    assert json.loads(capsys.readouterr().out)["privacy"]["delta"] == 1e-6


def test_promise_is_printed(folder, capsys, tmp_path):
    arguments = ["fit", str(folder / "rows.csv"), *FIT[:4], "--output", str(tmp_path / "m.json")]
    assert main(arguments) == 0
    assert "replacing all rows of any one person" in capsys.readouterr().out


BAD = {
    "no such file": (["nowhere.csv"], "no such file"),
    "unknown format": (["{folder}"], "{folder}"),
    "no such target": (["{folder}/rows.csv", "--target", "price"], "no column 'price'"),
    "no such user column": (["{folder}/rows.csv", "--user", "id"], "no column 'id'"),
    "no such feature": (["{folder}/rows.csv", "--features", "age,height"], "no column 'height'"),
    "text feature": (["{folder}/rows.csv", "--user", "age", "--features", "user"], "'user' is not numeric"),
    "epsilon": (["{folder}/rows.csv", "--epsilon", "0"], "epsilon"),
    "delta": (["{folder}/rows.csv", "--delta", "1"], "delta"),
    "adjacency": (["{folder}/rows.csv", "--adjacency", "swap"], "adjacency"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_exits_2_with_one_line(arguments, message, folder, capsys, tmp_path):
    (folder / "empty").mkdir(exist_ok=True)
    given = [argument.format(folder=folder) for argument in arguments]
    model = tmp_path / "m.json"
    assert main(["fit", given[0], *FIT, *given[1:], "--output", str(model)]) == 2
    err = capsys.readouterr().err
    assert message.format(folder=folder) in err
    assert err.count("\n") == 1
    assert not model.exists()


def test_predict_refuses_other_files(folder, capsys):
    assert main(["predict", str(folder / "rows.csv"), str(folder / "rows.csv")]) == 2
    assert "not a userdp model file" in capsys.readouterr().err


def test_help_on_each_command(capsys):
    for command in ("fit", "predict", "demo"):
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0
        assert "--json" in capsys.readouterr().out


def test_several_classes(folder, tmp_path):
    table = pd.read_csv(folder / "rows.csv")
    table["bought"] = np.where(table.age > 45, "often", np.where(table.age < 35, "never", "once"))
    data, model, report = tmp_path / "three.csv", tmp_path / "m.json", tmp_path / "r.html"
    table.to_csv(data, index=False)
    assert main(["fit", str(data), *FIT, "--output", str(model), "--report", str(report)]) == 0
    assert "never, often, once" in report.read_text()
    answers = tmp_path / "p.csv"
    assert main(["predict", str(model), str(data), "--output", str(answers)]) == 0
    found = pd.read_csv(answers)
    assert list(found.columns)[1:] == [f"probability_of_{name}" for name in ("never", "often", "once")]
    assert (found.bought == table.bought).mean() > 0.5


@pytest.mark.parametrize("name", ["LinearRegression", "HuberRegressor", "QuantileRegressor", "LinearSVC"])
def test_every_linear_model(name, folder, tmp_path):
    model, report, answers = tmp_path / "m.json", tmp_path / "r.html", tmp_path / "p.csv"
    target, feature = ("bought", "age") if name == "LinearSVC" else ("age", "visits")
    quantile = ["--quantile", "0.9"] if name == "QuantileRegressor" else []
    options = [
        "--model",
        name,
        "--user",
        "user",
        "--target",
        target,
        "--epsilon",
        "8",
        "--random-state",
        "0",
        *quantile,
    ]
    features = ["--features", feature]
    written = ["--output", str(model), "--report", str(report)]
    assert main(["fit", str(folder / "rows.csv"), *options, *features, *written]) == 0
    assert target in report.read_text()
    assert main(["predict", str(model), str(folder / "rows.csv"), "--output", str(answers)]) == 0
    table, truth = pd.read_csv(answers), pd.read_csv(folder / "rows.csv")
    if name == "LinearSVC":
        assert (table.bought == truth.bought).mean() > 0.6
    elif name == "QuantileRegressor":
        assert (truth.age <= table.age).mean() == pytest.approx(0.9, abs=0.05)
    else:
        assert table.age.mean() == pytest.approx(40, abs=2)


def test_a_quantile_needs_its_model(folder, capsys, tmp_path):
    common = ["fit", str(folder / "rows.csv"), *FIT, "--output", str(tmp_path / "m.json")]
    for extra in (["--quantile", "0.9"], ["--model", "Forest"]):
        assert main([*common, *extra]) == 2
        assert extra[0] in capsys.readouterr().err


def test_bench_hands_its_options_on(capfd):
    assert main(["bench", "accuracy", "--help"]) == 0
    assert "--recompute" in capfd.readouterr().out
    assert main(["bench", "accuracy", "--datasets", "nowhere"]) == 2
    assert "userdp bench: accuracy.py ended with exit code 2" in capfd.readouterr().err


def test_bench_without_a_source_tree_says_so(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("userdp.report.bench.FOLDER", tmp_path)
    assert main(["bench", "speed"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("userdp bench: benchmarks come with the source tree")


def test_compiling_ahead(capsys):
    assert main(["compile", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seconds"] > 0
