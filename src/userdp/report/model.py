"""The report of a fitted model: only what was released."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from userdp.estimators import LogisticRegression
from userdp.estimators.base import PrivateLinearModel
from userdp.estimators.classes import PrivateClassifier
from userdp.report import figures
from userdp.report.html import Section, page


def model_report(model: PrivateLinearModel, features: Sequence[str], target: str, more: Sequence[Section] = ()) -> str:
    """An HTML page about ``model``; ``more`` sections come after the ones every model has."""
    release = model.release_
    rows = np.atleast_2d(release.coef)
    scale = np.asarray(release.details.get("scale", np.ones(rows.shape[1])))
    errors = release.noise_error[: rows.shape[1]] * scale
    meaning = f"Prediction of {target}"
    if isinstance(model, PrivateClassifier):
        kind = "Log-odds" if isinstance(model, LogisticRegression) else "Score"
        meaning = f"{kind} of {target} = {', '.join(str(name) for name in model.classes_[-len(rows) :])}"
    sections = [
        Section(
            "The model",
            f"{meaning}, by feature in private units. The bars are what privacy costs: two standard errors of the "
            "noise that was added, safe to publish. They do not include sampling error.",
            [figures.coefficients(features, row * scale, errors) for row in rows],
        ),
        Section(
            "Where the budget went",
            f"{len(release.events)} noisy releases, each one counted. Together they satisfy every (ε, δ) on the curve.",
            [figures.budget(release.events), *_curve(model)],
        ),
        Section("The plan, fixed before the data was touched", listing=release.plan),
        *more,
    ]
    subtitle = f"{type(model).__name__}, {len(features)} features, n = {release.guarantee.n_users} users"
    return page(f"Private model of {target}", subtitle, str(release.guarantee), sections)


def _curve(model: PrivateLinearModel) -> list[str]:
    privacy = model.privacy_
    return [] if privacy.gdp is None else [figures.privacy_curve(privacy.gdp, privacy.epsilon, privacy.delta)]
