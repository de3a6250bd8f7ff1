"""Convex models trained under user-level differential privacy.

One person may contribute many rows; the guarantee covers all of them at once.
"""

from userdp.estimators import (
    GeometricMedian,
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    Mean,
    QuantileRegressor,
)

__version__ = "0.1.0"
__all__ = [
    "GeometricMedian",
    "HuberRegressor",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "Mean",
    "QuantileRegressor",
]
