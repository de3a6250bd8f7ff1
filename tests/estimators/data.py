"""Data that the tests of all estimators share."""

from __future__ import annotations

import numpy as np

from userdp import (
    GeometricMedian,
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    Mean,
    QuantileRegressor,
)

ESTIMATORS = (
    LogisticRegression,
    LinearSVC,
    LinearRegression,
    HuberRegressor,
    QuantileRegressor,
    Mean,
    GeometricMedian,
)
CLASSIFIERS = (LogisticRegression, LinearSVC)
REGRESSORS = (LinearRegression, HuberRegressor, QuantileRegressor)
LOCATIONS = (Mean, GeometricMedian)


def make(estimator, n_users=300, rows=6, seed=0, classes=2, features=3):
    """Rows, targets and user ids that suit the estimator."""
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(n_users), rng.integers(1, 2 * rows, n_users))
    X = rng.normal(size=(len(users), features))
    coef = np.linspace(1.5, -1.0, features)
    if estimator in CLASSIFIERS and classes > 2:
        y = np.argmax(X @ rng.normal(size=(features, classes)) + rng.gumbel(size=(len(users), classes)), axis=1)
    elif estimator in CLASSIFIERS:
        y = (X @ coef + 0.5 + rng.logistic(size=len(users)) > 0).astype(int)
    elif estimator in REGRESSORS:
        y = X @ coef + 0.5 + rng.standard_t(4, size=len(users))
    else:
        y = None
    return X, y, users


def numbers(model):
    """The fitted numbers of any estimator."""
    if hasattr(model, "location_"):
        return model.location_
    return np.column_stack([np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)])
