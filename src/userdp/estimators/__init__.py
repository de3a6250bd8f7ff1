"""scikit-learn estimators."""

from userdp.estimators.location import GeometricMedian, Mean
from userdp.estimators.logistic import LogisticRegression
from userdp.estimators.regression import HuberRegressor, LinearRegression, QuantileRegressor
from userdp.estimators.svc import LinearSVC

__all__ = [
    "GeometricMedian",
    "HuberRegressor",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "Mean",
    "QuantileRegressor",
]
