"""Private centres of a cloud of rows."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from userdp.algorithms.fit import Location, fit_location
from userdp.estimators.base import PrivateModel
from userdp.losses.base import Floats


class PrivateLocation(PrivateModel):
    """Common part of ``Mean`` and ``GeometricMedian``.

    - ``epsilon``, ``delta``: the guarantee; ``adjacency``: "replace" (one person's data is replaced) or "add-remove".
    - ``algorithm``: "auto", or one of the paper's, see ``PrivateLinearModel``.
    - ``force_cap``: how hard a user may pull, in private units; None: learnt privately.
    - ``weighting``: "users" (each counts once) or "rows"; ``max_rows_per_user``: sample users with more rows.
    - ``center``: a public guess; ``feature_bounds``: public (low, high) of the features, if known.
    - ``random_state``: reproducible and *not private*; ``verbose``: a progress bar.
    - ``engine``, and what ``fit`` takes: see ``PrivateLinearModel``.

    After ``fit``: ``location_``; ``privacy_`` (the guarantee); ``release_`` (all that may be published);
    ``diagnostics_`` (data-dependent, not private).
    """

    _kind: ClassVar[Location]

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit on rows ``X`` and the user id of every row (None: each row is its own user); ``y`` is ignored."""
        with self._rows(X, None, groups, target=False) as data:
            release = self._keep(X, data, *fit_location(data, self._kind, **self._settings(X, groups)))
        self.location_: Floats = release.location
        return self


class Mean(PrivateLocation):
    """Mean under user-level differential privacy: (ε, δ)-DP for all rows of a person together, for every dataset.

    Estimates argmin_θ (1/n) Σ_k (1/m_k) Σ_j ‖θ − x_kj‖²/2, the mean of the users' means. Features may be in any units.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, users = rng.normal([170.0, 1e6], [10.0, 1e5], size=(20000, 2)), np.repeat(np.arange(2000), 10)
    >>> location = Mean(random_state=0).fit(X, groups=users).location_
    >>> bool(np.all(np.abs(location - [170.0, 1e6]) < [1.0, 1e4]))
    True
    """

    _kind = "mean"


class GeometricMedian(PrivateLocation):
    """Geometric median under user-level differential privacy: (ε, δ)-DP for all rows of a person together.

    Estimates argmin_θ (1/n) Σ_k (1/m_k) Σ_j ‖θ − x_kj‖, the distance smoothed over a public width of a thousandth of
    the rows' spread (in ``release_.plan``). Distances are Euclidean in the units of X: scale the columns first if
    these differ.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, users = rng.standard_t(1.5, size=(20000, 2)) + [5.0, -3.0], np.repeat(np.arange(2000), 10)
    >>> GeometricMedian(random_state=0).fit(X, groups=users).location_.round().tolist()
    [5.0, -3.0]
    """

    _kind = "geometric-median"
