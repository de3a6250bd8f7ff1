"""What a fit publishes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from userdp.accounting import GaussianEvent, Guarantee
from userdp.data.sparse import SparseRows, as_sparse
from userdp.losses.base import Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Release:
    """All that may be published with a private model.

    ``noise_covariance`` is the covariance of the privacy noise in the model: public, because the plan and the releases
    determine it; it says nothing about sampling error. An array, or a sparse one for wide models. ``details`` holds the
    other released values (locations, scales, caps) by name.
    """

    guarantee: Guarantee
    events: tuple[GaussianEvent, ...]
    noise_covariance: Any
    plan: str
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def noise_error(self) -> Floats:
        """Standard error of the privacy noise on each number of the model, an intercept last."""
        return np.asarray(np.sqrt(self.noise_covariance.diagonal()))


@dataclass(frozen=True, eq=False)
class LinearRelease(Release):
    """A private linear model: ``coef`` and ``intercept`` act on the features as they came, from ``lower`` to ``upper``.

    Beyond those, which are far outside ordinary data, a feature counts as the nearer limit, in training and prediction.

    With several classes ``coef`` is (classes, features), ``intercept`` (classes,), and ``noise_covariance`` that of
    (coef, intercept) of any one class.
    """

    coef: Floats
    intercept: Any
    lower: Floats
    upper: Floats

    def predictions(self, features: Any) -> Floats:
        """⟨coef, x⟩ + intercept of rows (an array or a sparse matrix): one number a row, or one a class."""
        sparse = as_sparse(features)
        if sparse is not None:
            least = np.clip(0.0, self.lower, self.upper)
            change = (
                np.clip(sparse.data, self.lower[sparse.indices], self.upper[sparse.indices]) - least[sparse.indices]
            )
            moved = SparseRows(change, sparse.indices, sparse.indptr, sparse.n_columns)
            return np.asarray(moved @ self.coef.T + (least @ self.coef.T + self.intercept), dtype=np.float64)
        rows = np.clip(features, self.lower, self.upper)
        return np.asarray(rows @ self.coef.T + self.intercept, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class LocationRelease(Release):
    """A private point among the rows, in their units."""

    location: Floats
