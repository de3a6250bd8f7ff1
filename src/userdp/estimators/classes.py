"""Labels to numbers and back, for all classifiers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from userdp.algorithms.fit import Data
from userdp.algorithms.release import LinearRelease
from userdp.algorithms.settings import FitSettings
from userdp.data import DataError, UserDataset
from userdp.engines import LocalEngine, distinct_targets
from userdp.estimators.base import PrivateLinearModel, column
from userdp.estimators.source import holds_rows
from userdp.losses.base import Floats

MOST_CLASSES = 2000  # the coefficients' contrasts are a matrix of this size


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateClassifier(ClassifierMixin, PrivateLinearModel):  # type: ignore[misc]
    """A linear model with a decision function for each class, or one for two classes.

    ``classes`` declares the labels; None takes those of the data as public. Declared classes need not all occur, and
    nothing about the set of labels is learnt from the data.
    """

    classes: Any = None

    def _declared(self) -> NDArray[Any] | None:
        """The declared classes in increasing order; bad declarations are refused before a row is read."""
        if self.classes is None:
            return None
        try:
            classes = np.unique(np.asarray(self.classes))
        except TypeError:
            raise ValueError(f"classes must be labels of one kind, got {self.classes!r}") from None
        missing = classes.dtype.kind in "fO" and any(label is None or label != label for label in classes)
        if np.ndim(self.classes) != 1 or len(classes) != np.size(self.classes) or len(classes) < 2 or missing:
            raise ValueError(f"classes must be a list of at least 2 different labels, got {self.classes!r}")
        if len(classes) > MOST_CLASSES:
            raise ValueError(f"classes has {len(classes)} labels, more than the {MOST_CLASSES} that a fit can hold")
        return classes

    def _encode(self, y: Any) -> tuple[NDArray[Any], Floats]:
        """Classes and the number of each row's class."""
        labels = column(y, self)
        missing = int(sum(1 for label in labels if label is None or label != label)) if labels.dtype.kind in "Of" else 0
        if missing:
            raise DataError(f"y has {missing} missing labels: drop those rows")
        whole = labels.dtype.kind in "iub"  # fractions need not be looked for
        if not whole:
            check_classification_targets(labels)
        if (declared := self._declared()) is not None:
            known = {label: code for code, label in enumerate(declared.tolist())}
            numbers = np.array([known.get(label, -1) for label in labels.tolist()], dtype=np.float64)
            if np.any(numbers < 0):
                strange = labels.tolist()[int(np.argmax(numbers < 0))]
                raise DataError(f"y has the label {strange!r}, which is not one of the declared classes")
            return declared, numbers
        classes = np.unique(labels)
        if len(classes) < 2:
            found = f"1 class: {classes[0]}" if len(classes) else "none: there are 0 rows"
            raise DataError(f"y must have at least 2 classes, got {found}")
        if whole and len(classes) > 2:
            check_classification_targets(labels)  # warns of very many
        numbers = labels == classes[1] if len(classes) == 2 else np.searchsorted(classes, labels)
        return classes, numbers.astype(np.float64)

    @contextmanager
    def _classified(self, X: Any, y: Any, groups: Any) -> Iterator[tuple[Data, NDArray[Any], Floats | None]]:
        """Rows, classes, and the targets that stand for them where these are not 0, 1, …"""
        FitSettings(**self._settings(X, groups))
        self._declared()
        if not holds_rows(X):
            classes, codes = self._encode(y)
            with self._rows(X, codes, groups) as data:
                yield data, classes, None
            return
        with self._rows(X, y, groups) as data:
            found = distinct_targets(LocalEngine(data) if isinstance(data, UserDataset) else data)
            classes, _ = self._encode(found)
            labels = None if np.array_equal(classes, np.arange(len(classes))) else classes.astype(np.float64)
            yield data, classes.astype(np.int64) if np.all(classes % 1 == 0) else classes, labels

    def _keep_classes(self, classes: NDArray[Any], release: LinearRelease) -> Self:
        """The classes, and coefficients with a row for each decision function."""
        self.classes_: NDArray[Any] = classes
        return self._keep_linear(np.atleast_2d(release.coef), np.atleast_1d(release.intercept))

    def decision_function(self, X: Any) -> Floats:
        """⟨coef, x⟩ + intercept: how much the second class is favoured, or one column a class."""
        return self._linear_predictor(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class that the decision function favours."""
        scores = self.decision_function(X)
        return np.asarray(self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)])
