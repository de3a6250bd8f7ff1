"""Private logistic regression, binary and multinomial."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.special import expit, softmax

from userdp.algorithms.fit import fit_linear, fit_softmax
from userdp.estimators.classes import PrivateClassifier
from userdp.losses import Logistic
from userdp.losses.base import Floats


class LogisticRegression(PrivateClassifier):
    """Logistic regression under user-level differential privacy: (ε, δ)-DP for all rows of a person together.

    Minimizes (1/n) Σ_k h_k(w) + (l2/2)‖w‖², where h_k is the mean over user k's rows of the logistic loss
    log(1 + e^z) − y·z, z = ⟨w, x̃⟩ + b; with more than two classes of −log softmax(Wx̃ + b)_y, whose coefficients sum
    to zero over the classes. Nothing about the data needs to be known: features may be in any units, users may have
    any number of rows, rows may be of any size. The set of classes is taken as public.

    Parameters and attributes: see ``PrivateLinearModel``. ``coef_`` is (1, features), or (classes, features).

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, users = rng.normal(size=(20000, 2)), np.repeat(np.arange(2000), 10)
    >>> y = X @ [1.0, -1.0] + rng.logistic(size=20000) > 0
    >>> model = LogisticRegression(epsilon=2.0, random_state=0).fit(X, y, groups=users)
    >>> bool(model.score(X, y) > 0.7)
    True
    """

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit on rows ``X``, labels ``y`` and the user id of every row; ``groups=None``: each row is its own user."""
        with self._classified(X, y, groups) as (data, classes, labels):
            settings = self._settings(X, groups) | {"labels": labels}
            two = len(classes) == 2
            fitted = fit_linear(data, Logistic(), **settings) if two else fit_softmax(data, len(classes), **settings)
            release = self._keep(X, data, *fitted)
        return self._keep_classes(classes, release)

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the classes, (rows, classes)."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(softmax(scores, axis=1))
        positive = expit(scores)
        return np.column_stack([1 - positive, positive])

    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))
