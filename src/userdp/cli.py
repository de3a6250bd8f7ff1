"""The ``userdp`` command."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from userdp import __version__
from userdp.accounting import BudgetExceeded
from userdp.data import DataError
from userdp.data.loading import read_table, split_columns
from userdp.estimators import model_file


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; bad input gives one line on standard error and exit code 2."""
    arguments = _parser().parse_args(argv)
    try:
        result: dict[str, Any] = arguments.run(arguments)
    except (DataError, ValueError, BudgetExceeded, OSError) as error:
        print(f"userdp {arguments.command}: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(result))
    else:
        for line in result.pop("lines"):
            print(line)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="userdp", description="Convex models trained under user-level differential privacy."
    )
    parser.add_argument("--version", action="version", version=f"userdp {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    fit = _command(commands, "fit", _fit, "train a private model on a CSV or Parquet file")
    fit.add_argument("data", type=Path, help="CSV file, Parquet file, or folder of Parquet files")
    fit.add_argument("--user", help="column with the user id; without it every row counts as its own user")
    fit.add_argument("--target", required=True, help="column to predict (for a classifier its values are the classes)")
    fit.add_argument("--model", default="LogisticRegression", help=f"one of {', '.join(model_file.MODELS)}")
    fit.add_argument("--quantile", type=float, help="the quantile of a QuantileRegressor (default 0.5)")
    fit.add_argument("--features", help="comma-separated feature columns (default: all other columns)")
    fit.add_argument("--epsilon", type=float, default=1.0, help="privacy parameter ε (default 1)")
    fit.add_argument("--delta", type=float, default=1e-6, help="privacy parameter δ (default 1e-6)")
    fit.add_argument("--adjacency", default="replace", help='neighbouring relation: "replace" or "add-remove"')
    fit.add_argument("--users", type=int, help="public number of users; needed with --adjacency add-remove")
    fit.add_argument("--output", type=Path, default=Path("model.json"), help="model file to write (default model.json)")
    fit.add_argument("--report", type=Path, help="also write an HTML report here")
    fit.add_argument("--random-state", type=int, help="seed: reproducible, but NOT private")

    predict = _command(commands, "predict", _predict, "apply a model file to a CSV or Parquet file")
    predict.add_argument("model", type=Path, help="model file written by fit")
    predict.add_argument("data", type=Path, help="CSV file, Parquet file, or folder of Parquet files")
    predict.add_argument("--output", type=Path, default=Path("predictions.csv"), help="CSV to write")

    from userdp.report.bench import add_arguments
    from userdp.report.paper import add_paper_command

    add_paper_command(commands)

    bench = _command(commands, "bench", _bench, "run a benchmark of the source tree")
    add_arguments(bench)

    _command(commands, "compile", _compile, "compile the inner loops now, so that no fit has to")

    demo = _command(commands, "demo", _demo, "train on the flights data and write a model and a report")
    demo.add_argument("--output", type=Path, default=Path("out/demo"), help="folder to write to (default out/demo)")
    demo.add_argument("--epsilon", type=float, default=1.0, help="privacy parameter ε (default 1)")
    demo.add_argument("--delta", type=float, default=1e-6, help="privacy parameter δ (default 1e-6)")
    demo.add_argument("--random-state", type=int, help="seed: reproducible, but NOT private")
    return parser


def _command(commands: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.set_defaults(run=run)
    return parser


def _fit(arguments: argparse.Namespace) -> dict[str, Any]:
    features = arguments.features.split(",") if arguments.features else None
    if arguments.model not in model_file.MODELS:
        raise ValueError(f"--model must be one of {', '.join(model_file.MODELS)}, got {arguments.model}")
    model = model_file.MODELS[arguments.model](
        arguments.epsilon,
        arguments.delta,
        adjacency=arguments.adjacency,
        n_users=arguments.users,
        random_state=arguments.random_state,
        verbose=not arguments.json,
    )
    if arguments.quantile is not None:
        if "quantile" not in model.get_params():
            raise ValueError(f"--quantile is for --model QuantileRegressor, not {arguments.model}")
        model.set_params(quantile=arguments.quantile)
    table, target, users = split_columns(arguments.data, arguments.user, arguments.target, features)
    model.fit(table, target, groups=users)
    names = tuple(table.column_names)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    model_file.save(arguments.output, model, names, arguments.target)
    lines = [f"{model.privacy_}.", f"Model written to {arguments.output}"]
    if arguments.report:
        from userdp.report.model import model_report

        arguments.report.parent.mkdir(parents=True, exist_ok=True)
        arguments.report.write_text(model_report(model, names, arguments.target), encoding="utf-8")
        lines.append(f"Report written to {arguments.report}")
    return {"model": str(arguments.output), "privacy": model.privacy_.to_dict(), "lines": lines}


def _predict(arguments: argparse.Namespace) -> dict[str, Any]:
    found = model_file.load(arguments.model)
    table = read_table(arguments.data, found.features)
    labels = found.model.predict(table)
    columns, header = [np.asarray(labels).astype(str)], [found.target]
    if hasattr(found.model, "predict_proba"):
        for name, column in zip(found.model.classes_, found.model.predict_proba(table).T):
            columns.append(np.char.mod("%.6g", column))
            header.append(f"probability_of_{name}")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    np.savetxt(
        arguments.output, np.column_stack(columns), fmt="%s", delimiter=",", header=",".join(header), comments=""
    )
    line = f"{len(labels)} predictions written to {arguments.output}"
    return {"predictions": str(arguments.output), "rows": len(labels), "lines": [line]}


def _compile(arguments: argparse.Namespace) -> dict[str, Any]:
    """Tiny fits of every kind on made-up rows: their loops end up in Numba's cache on disk."""
    import scipy.sparse

    from userdp.estimators import GeometricMedian, LinearRegression, LogisticRegression, Mean

    began = time.perf_counter()
    rows = np.random.default_rng(0).normal(size=(240, 3))
    users, labels = np.arange(240) // 4, np.arange(240) % 3
    for table in (rows, rows.astype(np.float32), scipy.sparse.csr_array(rows)):
        LogisticRegression(64.0, random_state=0).fit(table, labels > 0, groups=users)
        LogisticRegression(64.0, random_state=0).fit(table, labels, groups=users)
        LinearRegression(64.0, random_state=0).fit(table, rows[:, 0], groups=users)
        for location in (Mean(64.0, random_state=0), GeometricMedian(64.0, random_state=0)):
            location.fit(table, groups=users)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "lines": [f"Compiled in {seconds:.1f} s: later processes load the result from disk"]}


def _demo(arguments: argparse.Namespace) -> dict[str, Any]:
    from userdp.report.demo import run_demo

    return run_demo(
        arguments.output, arguments.epsilon, arguments.delta, arguments.random_state, verbose=not arguments.json
    )


def _bench(arguments: argparse.Namespace) -> dict[str, Any]:
    from userdp.report.bench import run_benchmark

    return run_benchmark(arguments)
