"""Labels to numbers and back, for all classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from userdp.data import DataError
from userdp.estimators.base import PrivateLinearModel, column
from userdp.losses.base import Floats


class PrivateClassifier(ClassifierMixin, PrivateLinearModel):  # type: ignore[misc]
    """A linear model with a decision function for each class, or one for two classes."""

    classes_: NDArray[Any]

    def _encode(self, y: Any) -> tuple[NDArray[Any], Floats]:
        """Classes and the number of each row's class."""
        labels = column(y, self)
        missing = int(sum(1 for label in labels if label is None or label != label)) if labels.dtype.kind in "Of" else 0
        if missing:
            raise DataError(f"y has {missing} missing labels: drop those rows")
        check_classification_targets(labels)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            found = f"1 class: {classes[0]}" if len(classes) else "none: there are 0 rows"
            raise DataError(f"y must have at least 2 classes, got {found}")
        return classes, codes.astype(np.float64)

    def decision_function(self, X: Any) -> Floats:
        """⟨coef, x⟩ + intercept: how much the second class is favoured, or one column a class."""
        return self._linear_predictor(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class that the decision function favours."""
        scores = self.decision_function(X)
        return np.asarray(self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)])
