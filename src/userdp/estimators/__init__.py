"""scikit-learn estimators."""

from userdp.estimators.logistic import LogisticRegression

__all__ = ["LogisticRegression"]
