"""scikit-learn's own checks, with every expected failure named and explained."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from userdp import (
    GeometricMedian,
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    Mean,
    QuantileRegressor,
)

# Nearly no noise, and reproducible: what is checked is the interface.
ESTIMATORS = [
    model(epsilon=60.0, random_state=0)
    for model in (
        LogisticRegression,
        LinearSVC,
        LinearRegression,
        HuberRegressor,
        QuantileRegressor,
        Mean,
        GeometricMedian,
    )
]


# Check → reason. Empty: noise makes no check impossible at this ε.
EXPECTED_FAILURES: dict[str, str] = {}


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
@pytest.mark.filterwarnings("default")
def test_check(estimator, check):
    check(estimator)
