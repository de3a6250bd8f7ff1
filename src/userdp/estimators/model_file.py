"""Model files: JSON with what was released and what is promised, nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from userdp.accounting import Guarantee
from userdp.algorithms.release import LinearRelease
from userdp.data import DataError
from userdp.estimators.logistic import LogisticRegression

FORMAT = "userdp-model/1"


@dataclass(frozen=True)
class ModelFile:
    """A fitted model, the names of its columns, and the sentence of its guarantee."""

    model: LogisticRegression
    features: tuple[str, ...]
    target: str


def save(path: str | Path, model: LogisticRegression, features: tuple[str, ...], target: str) -> None:
    """Write a fitted model."""
    release = model.release_
    content = {
        "format": FORMAT,
        "model": type(model).__name__,
        "target": target,
        "classes": np.asarray(model.classes_).tolist(),
        "features": list(features),
        "coef": release.coef.tolist(),
        "intercept": release.intercept,
        "noise_covariance": release.noise_covariance.tolist(),
        "privacy": release.guarantee.to_dict(),
        "promise": str(release.guarantee),
        "plan": release.plan.splitlines(),
        "releases": [{"label": event.label, "gdp": event.gdp} for event in release.events],
    }
    Path(path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load(path: str | Path) -> ModelFile:
    """Read a model file back into an estimator."""
    try:
        content: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"no such file: {path}") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise DataError(f"{path} is not a userdp model file") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DataError(f"{path} is not a {FORMAT} file")
    if content["model"] != LogisticRegression.__name__:
        raise DataError(f"{path} holds a {content['model']}, which this version cannot read")
    guarantee = Guarantee(**content["privacy"])
    model = LogisticRegression(guarantee.epsilon, guarantee.delta, adjacency=guarantee.adjacency)
    model.release_ = LinearRelease(
        np.asarray(content["coef"], dtype=np.float64),
        float(content["intercept"]),
        guarantee,
        (),
        np.asarray(content["noise_covariance"], dtype=np.float64),
        "\n".join(content["plan"]),
    )
    model.privacy_ = guarantee
    model.classes_ = np.asarray(content["classes"])
    model.coef_ = model.release_.coef[None, :]
    model.intercept_ = np.array([model.release_.intercept])
    model.n_features_in_ = len(model.release_.coef)
    model.feature_names_in_ = np.asarray(content["features"], dtype=object)
    return ModelFile(model, tuple(content["features"]), content["target"])
