"""Private logistic regression."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin

from userdp.data import DataError
from userdp.data.tables import plain_array
from userdp.estimators.base import PrivateLinearModel
from userdp.losses import Logistic
from userdp.losses.base import Floats


class LogisticRegression(ClassifierMixin, PrivateLinearModel):  # type: ignore[misc]
    """Binary logistic regression under user-level differential privacy.

    Minimizes the mean over users of each user's mean logistic loss. Nothing about the data needs to be known: features may
    be in any units, users may have any number of rows, rows may be of any size.

    Parameters: ``epsilon`` and ``delta`` are the guarantee; ``adjacency`` is ``"replace"`` (one person's data is replaced) or
    ``"add-remove"``; ``force_cap=None`` learns privately how hard a user may pull; ``random_state`` makes the fit
    reproducible and *not private*.

    After ``fit``: ``coef_``, ``intercept_``, ``classes_``; ``privacy_`` (the guarantee); ``release_`` (all that may be published);
    ``diagnostics_`` (data-dependent, not private).

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, users = rng.normal(size=(20000, 2)), np.repeat(np.arange(2000), 10)
    >>> y = X @ [1.0, -1.0] + rng.logistic(size=20000) > 0
    >>> model = LogisticRegression(epsilon=2.0, random_state=0).fit(X, y, groups=users)
    >>> bool(model.score(X, y) > 0.7)
    True
    """

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Fit on rows ``X``, labels ``y`` (two classes) and the user id of every row; None: each row is its own user."""
        labels = plain_array(y, "y")
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.ndim != 1:
            raise DataError(f"y must hold one label for each row, got shape {labels.shape}")
        missing = int(sum(1 for label in labels if label is None or label != label)) if labels.dtype.kind in "Of" else 0
        if missing:
            raise DataError(f"y has {missing} missing labels: drop those rows")
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) != 2:
            seen = ", ".join(map(str, classes[:5])) + (", …" if len(classes) > 5 else "")
            raise DataError(f"y must have exactly 2 classes, got {len(classes)}: {seen}")
        release = self._fit(X, codes.astype(np.float64), groups, Logistic())
        self.classes_ = classes
        self.coef_ = release.coef[None, :]
        self.intercept_ = np.array([release.intercept])
        return self

    def decision_function(self, X: Any) -> Floats:
        """Log-odds of the second class."""
        return self._linear_predictor(X)

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of both classes, (rows, 2)."""
        positive = expit(self.decision_function(X))
        return np.column_stack([1 - positive, positive])

    def predict(self, X: Any) -> NDArray[Any]:
        """The likelier class."""
        return np.asarray(self.classes_[(self.decision_function(X) > 0).astype(int)])
