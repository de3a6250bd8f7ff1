"""Private linear support vector machine."""

from __future__ import annotations

from typing import Any, Self

from userdp.algorithms.fit import fit_linear
from userdp.data import DataError
from userdp.estimators.classes import PrivateClassifier
from userdp.losses import Hinge


class LinearSVC(PrivateClassifier):
    """Linear support vector machine for two classes under user-level differential privacy.

    Minimizes (1/n) Σ_k h_k(w) + (l2/2)‖w‖², where h_k is the mean over user k's rows of the hinge loss max(0, 1 −
    s·z), s = ±1, z = ⟨w, x̃⟩ + b, smoothed over a public width of 0.01 (in ``release_.plan``). (ε, δ)-DP for all rows
    of a person together, for every dataset.

    Parameters and attributes: see ``PrivateLinearModel``. ``coef_`` is (1, features).

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, users = rng.normal(size=(20000, 2)), np.repeat(np.arange(2000), 10)
    >>> y = X @ [1.0, -1.0] + 0.3 * rng.normal(size=20000) > 0
    >>> bool(LinearSVC(epsilon=2.0, random_state=0).fit(X, y, groups=users).score(X, y) > 0.85)
    True
    """

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit on rows ``X``, labels ``y`` of two classes and the user id of every row (None: each its own user)."""
        with self._classified(X, y, groups) as (data, classes, labels):
            if len(classes) > 2:
                raise DataError(
                    "Only binary classification is supported. The type of the target is multiclass; LogisticRegression "
                    "takes any number of classes"
                )
            fitted = fit_linear(data, Hinge(), labels=labels, **self._settings(X, groups))
            release = self._keep(X, data, *fitted)
        return self._keep_classes(classes, release)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
