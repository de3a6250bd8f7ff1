"""Private regression: mean, robust mean, quantiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

from sklearn.base import RegressorMixin

from userdp.algorithms.fit import fit_linear
from userdp.data.tables import numeric_vector
from userdp.estimators.base import PrivateLinearModel, column
from userdp.estimators.source import holds_rows
from userdp.losses import Huber, Loss, Pinball, Squared
from userdp.losses.base import Floats


class PrivateRegressor(RegressorMixin, PrivateLinearModel, ABC):  # type: ignore[misc]
    """A linear prediction of a number, whose location and scale are learnt privately like those of features."""

    @abstractmethod
    def _loss(self) -> Loss:
        """φ, in private units of the target."""

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit on rows ``X``, numbers ``y`` and the user id of every row; ``groups=None``: each row is its own user."""
        loss = self._loss()
        target = y if holds_rows(X) else numeric_vector(column(y, self), "y")
        with self._rows(X, target, groups) as data:
            fitted = fit_linear(data, loss, scale_target=True, **self._settings(X, groups))
            release = self._keep(X, data, *fitted)
        return self._keep_linear(release.coef, release.intercept)

    def predict(self, X: Any) -> Floats:
        """⟨coef, x⟩ + intercept."""
        return self._linear_predictor(X)


class LinearRegression(PrivateRegressor):
    """Least squares under user-level differential privacy: (ε, δ)-DP for all rows of a person together, for every
    dataset.

    Minimizes (1/n) Σ_k h_k(w) + (l2/2)‖w‖², where h_k is the mean over user k's rows of (⟨w, x̃⟩ + b − ỹ)²/2, features
    and target in private units. No bounds on either are needed: what protects is the cap on a user's pull, so heavy
    tails are fine.

    Parameters and attributes: see ``PrivateLinearModel``.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, users = rng.normal(size=(20000, 2)), np.repeat(np.arange(2000), 10)
    >>> y = 1e6 * (X @ [1.0, -1.0] + 7 + rng.normal(size=20000))
    >>> bool(LinearRegression(epsilon=2.0, random_state=0).fit(X, y, groups=users).score(X, y) > 0.6)
    True
    """

    def _loss(self) -> Loss:
        return Squared()


@dataclass(eq=False, repr=False, kw_only=True)
class HuberRegressor(PrivateRegressor):
    """Robust regression under user-level differential privacy: (ε, δ)-DP for all rows of a person together.

    As ``LinearRegression``, with the Huber loss r²/2 for |r| ≤ t, t|r| − t²/2 beyond; ``threshold`` t is in private
    units, the learnt spread of the target.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, users = rng.normal(size=(20000, 2)), np.repeat(np.arange(2000), 10)
    >>> y = X @ [1.0, -1.0] + 0.3 * rng.standard_t(2, size=20000)
    >>> HuberRegressor(epsilon=2.0, random_state=0).fit(X, y, groups=users).coef_.round(1).tolist()
    [1.0, -1.0]
    """

    threshold: float = 1.35

    def _loss(self) -> Loss:
        return Huber(self.threshold)


@dataclass(eq=False, repr=False, kw_only=True)
class QuantileRegressor(PrivateRegressor):
    """Quantile regression under user-level differential privacy: (ε, δ)-DP for all rows of a person together.

    As ``LinearRegression``, with the pinball loss max(τ·r, (τ − 1)·r) of r = ỹ − ⟨w, x̃⟩ − b, smoothed over a public
    width of a thousandth of the target's spread (in ``release_.plan``); ``quantile`` is τ.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, users = rng.normal(size=(20000, 2)), np.repeat(np.arange(2000), 10)
    >>> y = X @ [1.0, -1.0] + rng.normal(size=20000)
    >>> model = QuantileRegressor(epsilon=2.0, quantile=0.8, random_state=0).fit(X, y, groups=users)
    >>> bool(abs(np.mean(y < model.predict(X)) - 0.8) < 0.02)
    True
    """

    quantile: float = 0.5

    def _loss(self) -> Loss:
        quantile: Any = self.quantile
        if not isinstance(quantile, Real):
            raise ValueError(f"quantile must be a number between 0 and 1, got {quantile!r}")
        return Pinball(float(quantile))
