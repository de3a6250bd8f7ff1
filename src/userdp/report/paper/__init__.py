"""The paper's statements measured: ``userdp paper table1 | stability | constants | lower-bound``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from userdp.report.paper import constants, lower_bound, stability, table1

__all__ = ["add_paper_command"]

EXPERIMENTS = {
    "table1": (table1, "measured slopes in n, m and d beside the exponents of Table 1"),
    "stability": (stability, "how often the stability and concentration bounds are exceeded, and how loose they are"),
    "constants": (constants, "noise of every release side by side, and from which m each one wins"),
    "lower-bound": (lower_bound, "measured risk on the hard instance over the lower bound"),
}


def add_paper_command(commands: Any) -> argparse.ArgumentParser:
    """Register ``paper`` with its experiments on the subparsers of the command line; returns its parser.

    Every experiment sets ``run``, a function of the parsed arguments that returns a JSON-ready dictionary with
    ``lines``.
    """
    text = "measure what the paper states"
    paper: argparse.ArgumentParser = commands.add_parser("paper", help=text, description=text.capitalize() + ".")
    experiments = paper.add_subparsers(dest="experiment", required=True, metavar="experiment")
    for name, (module, about) in EXPERIMENTS.items():
        parser = experiments.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
        parser.add_argument(
            "--output", type=Path, default=Path("out/paper"), help="folder to write to (default out/paper)"
        )
        parser.add_argument("--seed", type=int, default=0, help="seed of data and noise: experiments are NOT private")
        parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
        module.add_arguments(parser)
        parser.set_defaults(run=_recorded(name, module.command))
    return paper


def _recorded(name: str, command: Callable[[argparse.Namespace], dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Name the experiment, where its files are, and that nothing in it is private."""

    def run(arguments: argparse.Namespace) -> dict[str, Any]:
        result = command(arguments)
        files = [str(arguments.output / file) for file in result["files"]]
        lines = [*result["lines"], "", f"Written: {', '.join(files)}"]
        return {"experiment": name, "private": False, "seed": arguments.seed, "files": files, "lines": lines}

    return run
