"""Model files: JSON with what was released and what is promised, nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from userdp.accounting import Guarantee
from userdp.algorithms.release import LinearRelease
from userdp.data import DataError
from userdp.estimators.base import PrivateLinearModel
from userdp.estimators.logistic import LogisticRegression
from userdp.estimators.regression import HuberRegressor, LinearRegression, QuantileRegressor
from userdp.estimators.svc import LinearSVC

FORMAT = "userdp-model/1"
MODELS: dict[str, type[PrivateLinearModel]] = {
    model.__name__: model
    for model in (LogisticRegression, LinearSVC, LinearRegression, HuberRegressor, QuantileRegressor)
}
# Parameters that say what a model is, where it has them.
KEPT = ("threshold", "quantile")


@dataclass(frozen=True)
class ModelFile:
    """A fitted model, the names of its columns, and the sentence of its guarantee."""

    model: Any
    features: tuple[str, ...]
    target: str


def save(path: str | Path, model: PrivateLinearModel, features: tuple[str, ...], target: str) -> None:
    """Write a fitted model."""
    release, parameters = model.release_, model.get_params(deep=False)
    content = {
        "format": FORMAT,
        "model": type(model).__name__,
        "target": target,
        "parameters": {name: parameters[name] for name in KEPT if name in parameters},
        "classes": np.asarray(model.classes_).tolist() if hasattr(model, "classes_") else None,
        "features": list(features),
        "coef": release.coef.tolist(),
        "intercept": np.asarray(release.intercept).tolist(),
        "lower": release.lower.tolist(),
        "upper": release.upper.tolist(),
        "noise_covariance": _covariance_content(release.noise_covariance),
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
    if content["model"] not in MODELS:
        raise DataError(f"{path} holds a {content['model']}, which this version cannot read")
    guarantee = Guarantee(**content["privacy"])
    model = MODELS[content["model"]](guarantee.epsilon, guarantee.delta, adjacency=guarantee.adjacency)
    model.set_params(**content.get("parameters", {}))
    coef, intercept = np.asarray(content["coef"], dtype=np.float64), np.asarray(content["intercept"], dtype=np.float64)
    model.release_ = LinearRelease(
        coef,
        intercept if intercept.ndim else float(intercept),
        np.asarray(content["lower"], dtype=np.float64),
        np.asarray(content["upper"], dtype=np.float64),
        guarantee=guarantee,
        events=(),
        noise_covariance=_covariance(content["noise_covariance"]),
        plan="\n".join(content["plan"]),
    )
    model.privacy_ = guarantee
    if content["classes"] is not None:
        model.classes_ = np.asarray(content["classes"])
        coef, intercept = np.atleast_2d(coef), np.atleast_1d(intercept)
    model.coef_ = coef
    model.intercept_ = intercept if intercept.ndim else float(intercept)
    model.n_features_in_ = coef.shape[-1]
    model.feature_names_in_ = np.asarray(content["features"], dtype=object)
    return ModelFile(model, tuple(content["features"]), content["target"])


def _covariance_content(covariance: Any) -> Any:
    """Rows of numbers, or the entries of a sparse matrix."""
    if not issparse(covariance):
        return covariance.tolist()
    entries = covariance.tocoo()
    return {name: getattr(entries, name).tolist() for name in ("row", "col", "data")} | {"size": entries.shape[0]}


def _covariance(content: Any) -> Any:
    if not isinstance(content, dict):
        return np.asarray(content, dtype=np.float64)
    entries = content["data"], (content["row"], content["col"])
    return csr_array(entries, shape=(content["size"], content["size"]), dtype=np.float64)
