"""What the groups of speed.py share: a measured row, data, a clock."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@dataclass(frozen=True)
class Row:
    group: str
    case: str
    measured: str
    value: float
    target: str
    note: str
    load: str = ""

    @property
    def met(self) -> str:
        if not self.target:
            return ""
        sign, limit = self.target.split()[:2]
        return "yes" if (self.value <= float(limit) if sign == "≤" else self.value >= float(limit)) else "no"


def synthetic(rows: int, width: int, users: int, *, correlated: bool = False, seed: int = 0) -> tuple[Any, Any, Any]:
    """Gaussian features, logistic labels, scattered rows; ``correlated``: neighbours at 0.95, units of all sizes."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, width))
    if correlated:
        for i in range(1, width):
            X[:, i] = 0.95 * X[:, i - 1] + np.sqrt(1 - 0.95**2) * X[:, i]
        X *= np.geomspace(0.01, 100, width)
    weights = rng.normal(size=width) * 0.3
    y = ((X - X.mean(axis=0)) / X.std(axis=0) @ weights + rng.logistic(size=rows) > 0).astype(int)
    return X, y, rng.integers(0, users, rows)


def alternating(*tasks: Callable[[], Any], repeats: int = 3) -> list[tuple[float, float]]:
    """Best wall and processor seconds of each task, run in turns so that all see the same machine."""
    best = [(np.inf, np.inf)] * len(tasks)
    for _ in range(repeats):
        for i, task in enumerate(tasks):
            wall, processor = time.perf_counter(), time.process_time()
            task()
            now = time.perf_counter() - wall, time.process_time() - processor
            best[i] = (min(best[i][0], now[0]), min(best[i][1], now[1]))
    return best


def run_python(code: str, *arguments: str, **environment: str) -> list[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return done.stdout.split()
