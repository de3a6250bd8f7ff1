"""What all estimators share: checking input, the fit through the default algorithm, what may and may not be shown."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from userdp.accounting import Guarantee, check_adjacency
from userdp.algorithms.default import DEFAULT_ALGORITHM, fit_linear
from userdp.algorithms.release import LinearRelease
from userdp.data import DataError, UserDataset
from userdp.data.tables import feature_matrix
from userdp.losses import Loss
from userdp.losses.base import Floats


class PrivateLinearModel(BaseEstimator):  # type: ignore[misc]
    """Common part of the linear estimators; subclasses name the loss and translate targets and predictions."""

    coef_: Floats
    intercept_: Any
    privacy_: Guarantee
    release_: LinearRelease
    diagnostics_: dict[str, Any]

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        adjacency: str = "replace",
        algorithm: str = DEFAULT_ALGORITHM,
        force_cap: float | None = None,
        fit_intercept: bool = True,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.algorithm = algorithm
        self.force_cap = force_cap
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, X: Any, target: Floats, groups: Any, loss: Loss) -> LinearRelease:
        """Everything up to the release; raises on bad input before anything is spent."""
        adjacency = check_adjacency(self.adjacency)
        dataset = UserDataset.from_arrays(X, target, groups)
        if dataset.n_users < 2:
            raise DataError(f"user-level privacy needs at least 2 users, got {dataset.n_users}: check the user ids")
        release, diagnostics = fit_linear(
            dataset,
            loss,
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=adjacency,
            algorithm=self.algorithm,
            force_cap=self.force_cap,
            fit_intercept=self.fit_intercept,
            unit="row" if groups is None else "user",
            random_state=self.random_state,
            verbose=self.verbose,
        )
        _check_feature_names(self, X, reset=True)
        self.n_features_in_ = dataset.n_features
        self.release_ = release
        self.privacy_ = release.guarantee
        self.diagnostics_ = diagnostics
        return release

    def _linear_predictor(self, X: Any) -> Floats:
        check_is_fitted(self, "release_")
        _check_feature_names(self, X, reset=False)
        features, _ = feature_matrix(X)
        if features.shape[1] != self.n_features_in_:
            raise DataError(f"X has {features.shape[1]} features, but the model was fitted on {self.n_features_in_}")
        with np.errstate(over="ignore"):
            return np.asarray(features @ self.release_.coef + self.release_.intercept, dtype=np.float64)

    def __getstate__(self) -> dict[str, Any]:
        """Diagnostics depend on the data without protection: they never leave the process."""
        state = dict(super().__getstate__())
        state.pop("diagnostics_", None)
        return state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "release_")

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Fit the model; defined by subclasses."""
        raise NotImplementedError
