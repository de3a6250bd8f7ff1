"""The benchmarks of the source tree: ``userdp bench accuracy | speed | units``."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

from userdp.data import DataError

# benchmarks/ of a checkout; an installed package has none.
FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
BENCHMARKS = {
    "accuracy": "excess loss of the default fit and of every rival, tables and pictures; continues where it stopped",
    "speed": "time and memory of a fit, as ratios to non-private fits and to rivals",
    "units": "what it costs when columns are multiplied or lie far from zero",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which benchmark, and what is handed on to it."""
    about = "; ".join(f"{name}: {text}" for name, text in BENCHMARKS.items())
    parser.add_argument("benchmark", choices=BENCHMARKS, help=about)
    parser.add_argument(
        "options", nargs=argparse.REMAINDER, help="handed on; userdp bench accuracy --help lists what there is"
    )


def run_benchmark(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run benchmarks/<name>.py of the source tree with this interpreter; with ``json`` its output is standard error."""
    script = FOLDER / f"{arguments.benchmark}.py"
    if not script.exists():
        raise DataError("benchmarks come with the source tree: clone it, make, and run userdp bench from its .venv")
    command = [sys.executable, str(script), *arguments.options]
    try:
        code = subprocess.run(command, stdout=sys.stderr if arguments.json else None).returncode
    except KeyboardInterrupt:
        raise DataError("stopped; what was measured is kept, start it again to continue") from None
    if code:
        raise DataError(f"{script.name} ended with exit code {code}")
    return {"benchmark": arguments.benchmark, "results": str(FOLDER / "results"), "lines": []}
