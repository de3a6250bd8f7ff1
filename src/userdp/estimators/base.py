"""What all estimators share: public parameters, checking input, what may and may not be shown."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from userdp.accounting import Guarantee
from userdp.algorithms.fit import Data
from userdp.algorithms.release import LinearRelease, Release
from userdp.algorithms.settings import DEFAULT_ALGORITHM, FitSettings
from userdp.data import DataError
from userdp.data.tables import feature_matrix, plain_array
from userdp.estimators.source import holds_rows, opened
from userdp.losses.base import Floats

AnyRelease = TypeVar("AnyRelease", bound=Release)


@dataclass(eq=False, repr=False)
class PrivateModel(BaseEstimator):  # type: ignore[misc]
    """Common part of all estimators: their public parameters, the rows, the settings of a fit, its guarantee.

    Estimators are dataclasses for their constructors alone: scikit-learn reads the parameters off their signature.
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    _: KW_ONLY
    adjacency: str = "replace"
    n_users: int | None = None
    algorithm: str = DEFAULT_ALGORITHM
    force_cap: float | None = None
    weighting: str = "users"
    max_rows_per_user: int | None = None
    center: Any = None
    feature_bounds: Any = None
    random_state: int | np.random.RandomState | None = None
    verbose: bool = False
    engine: Any = "local"

    def _rows(self, X: Any, y: Any, groups: Any, *, target: bool = True) -> AbstractContextManager[Data]:
        """Rows grouped by user, here or on a cluster; raises on bad input before anything is spent."""
        FitSettings(**self._settings(X, groups))  # bad choices are refused before a row is read
        return opened(self.engine, X, y, groups, target=target, verbose=self.verbose)

    def _settings(self, X: Any, groups: Any) -> dict[str, Any]:
        """The parameters that every fit takes."""
        taken = {field.name for field in fields(FitSettings)}
        unit = "row" if groups is None and not holds_rows(X) else "user"
        return {name: value for name, value in self.get_params(deep=False).items() if name in taken} | {"unit": unit}

    def _keep(self, X: Any, data: Data, release: AnyRelease, diagnostics: dict[str, Any]) -> AnyRelease:
        """Attributes that every fit leaves behind."""
        validate_data(self, _head(data) if holds_rows(X) else X, reset=True, skip_check_array=True)
        self.release_: Any = release
        self.privacy_: Guarantee = release.guarantee
        self.diagnostics_: dict[str, Any] = diagnostics
        return release

    def __getstate__(self) -> dict[str, Any]:
        """Diagnostics depend on the data without protection: they never leave the process; nor does a connection."""
        state = dict(super().__getstate__())
        state.pop("diagnostics_", None)
        if not isinstance(self.engine, str):
            state["engine"] = "local"
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "release_")


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLinearModel(PrivateModel):
    """Common part of the linear estimators; subclasses name the loss and translate targets and predictions.

    Parameters of all of them; see ``userdp.algorithms.settings.FitSettings``:

    - ``epsilon``, ``delta``: the guarantee; ``adjacency``: "replace" (one person's data is replaced) or "add-remove".
    - ``algorithm``: "auto", or one of the paper's ("phased-erm", "phased-sco", "strongly-convex-erm",
      "strongly-convex-sco", "output-perturbation"), which are there to be compared with.
    - ``force_cap``: how hard a user may pull on the model; None: learnt privately.
    - ``fit_intercept``; ``l2``: strength of (l2/2)‖w‖² on coefficients in private units.
    - ``weighting``: "users" (each counts once) or "rows"; ``max_rows_per_user``: sample users with more rows.
    - ``center``: public coefficients to start from and shrink towards, the intercept last (last year's model).
    - ``feature_bounds``: public (low, high) of the features, if known; saves the budget for learning their units.
    - ``random_state``: reproducible and *not private*; ``verbose``: a progress bar.
    - ``engine``: "local", or where the rows are added up: "dask" (the Dask client in use, else two processes of this
      machine), a scheduler's address, a ``distributed.Client``.

    ``fit`` takes arrays, DataFrames and Arrow tables; a ``UserDataset``, which may lie on disk, without ``y`` and
    ``groups``; a Parquet file or folder, or a Dask DataFrame, with ``y`` and ``groups`` naming columns.

    After ``fit``: ``coef_``, ``intercept_``; ``privacy_`` (the guarantee); ``release_`` (all that may be published);
    ``diagnostics_`` (data-dependent, not private).
    """

    fit_intercept: bool = True
    l2: float = 0.0

    def _keep_linear(self, coef: Floats, intercept: Any) -> Self:
        """The coefficients, in the shape that scikit-learn has for the kind of model."""
        self.coef_, self.intercept_ = coef, intercept
        return self

    def _linear_predictor(self, X: Any) -> Floats:
        """⟨coef, x⟩ + intercept: one number a row, or one a class."""
        check_is_fitted(self)
        features, _ = feature_matrix(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        release: LinearRelease = self.release_
        return release.predictions(features)


def _head(data: Data) -> Any:
    """A table without rows that has the columns of the data; without names where these were made up."""
    if data.columns == tuple(f"x{j}" for j in range(data.n_features)):
        return np.empty((0, data.n_features))
    return pa.table({name: np.empty(0) for name in data.columns})


def column(y: Any, estimator: PrivateModel) -> Any:
    """y as one entry a row."""
    if y is None:
        raise DataError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    values = plain_array(y, "y")
    if values.ndim == 2 and values.shape[1] == 1:
        text = "A column-vector y was passed when a 1d array was expected: it is read as one value for each row"
        warnings.warn(text, DataConversionWarning, stacklevel=3)
        values = values[:, 0]
    if values.ndim != 1:
        raise DataError(f"y must hold one value for each row, got shape {values.shape}")
    return values
