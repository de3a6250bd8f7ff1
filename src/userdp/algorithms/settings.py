"""Public choices of a fit, checked before anything is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from userdp.accounting import Adjacency, Budget, Unit, check_adjacency
from userdp.accounting.budget import SMALLEST_GDP
from userdp.algorithms.paper_fit import PAPER_ALGORITHMS
from userdp.losses.base import Floats

DEFAULT_ALGORITHM = "auto"
ALGORITHMS = (DEFAULT_ALGORITHM, *PAPER_ALGORITHMS)
WEIGHTINGS = ("users", "rows")
# Caps and penalties beyond these many private units are slips of the pen; so are bounds and centres beyond EXTREME, the
# squares of which a double cannot hold. A smaller cap would be lost in what rounding hides of a minimizer.
SMALLEST_CAP, LARGEST, EXTREME = 1e-6, 1e9, 1e150
# Noise lives on a grid, which costs a little δ for every released number: this much is left for half a million.
SMALLEST_DELTA = 1e-18
# No release of a fit gets a smaller share of μ² than this.
SMALLEST_SHARE = 1e-3


@dataclass(frozen=True)
class FitSettings:
    """Public choices of a fit; bad ones are refused before anything is read.

    Args:
        epsilon: privacy parameter ε.
        delta: privacy parameter δ.
        adjacency: "replace" or "add-remove".
        n_users: public number of users; required under add/remove, where the real number is what is hidden.
        algorithm: "auto" (the default fit) or one of the paper's: "phased-erm", "phased-sco", "strongly-convex-erm",
            "strongly-convex-sco", "output-perturbation" (``algorithms.paper_fit``).
        force_cap: how hard a user may pull, in private units; None: learnt privately.
        fit_intercept: whether predictions have a constant term.
        weighting: "users" (each counts once) or "rows" (each counts as often as it has rows, as far as the cap allows).
        max_rows_per_user: sample so many rows of every user that has more; None: keep all.
        l2: strength of (l2/2)‖w‖² on coefficients in private units, the intercept's excepted.
        center: public coefficients to start from and to shrink towards, the intercept last; None: 0.
        feature_bounds: public (low, high), numbers or one of each a feature; None: units are learnt privately.
        unit: what one user is, for the guarantee.
        random_state: seed; reproducible, *not private*.
        verbose: show a progress bar.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency = "replace"
    n_users: int | None = None
    algorithm: str = DEFAULT_ALGORITHM
    force_cap: float | None = None
    fit_intercept: bool = True
    weighting: str = "users"
    max_rows_per_user: int | None = None
    l2: float = 0.0
    center: Any = None
    feature_bounds: Any = None
    unit: Unit = "user"
    random_state: Any = None
    verbose: bool = False

    def __post_init__(self) -> None:
        check_adjacency(self.adjacency)
        _check_name("algorithm", self.algorithm, ALGORITHMS)
        _check_name("weighting", self.weighting, WEIGHTINGS)
        for name in ("epsilon", "delta", "l2"):
            _check_number(name, getattr(self, name))
        if self.force_cap is not None:
            _check_number("force_cap", self.force_cap)
            if not SMALLEST_CAP <= self.force_cap <= LARGEST:
                raise ValueError(
                    f"force_cap must be None or a positive number of private units from {SMALLEST_CAP:g} to "
                    f"{LARGEST:g}, got {self.force_cap}"
                )
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise ValueError(f"fit_intercept must be True or False, got {self.fit_intercept!r}")
        seeded = isinstance(self.random_state, np.random.Generator | np.random.RandomState | None)
        if not seeded and not (isinstance(self.random_state, Integral) and int(self.random_state) >= 0):
            raise ValueError(f"random_state must be None, a seed or a NumPy generator, got {self.random_state!r}")
        _check_budget(self.epsilon, self.delta, self.adjacency)
        _check_count("max_rows_per_user", self.max_rows_per_user)
        _check_count("n_users", self.n_users)
        if self.adjacency == "add-remove" and self.n_users is None:
            raise ValueError('adjacency="add-remove" hides how many users there are: declare a public n_users')
        if not 0 <= self.l2 <= LARGEST:
            raise ValueError(f"l2 must be a number from 0 to {LARGEST:g}, got {self.l2}")
        if self.center is not None and not _ordinary(self.center):
            raise ValueError(f"center must be finite numbers up to {EXTREME:g} in size")
        if self.feature_bounds is not None:
            self.bounds(max(1, *(np.size(end) for end in self._ends())))

    def public_users(self, present: int) -> int:
        """The number of users that formulas use: the declared one, or under replacement the real one."""
        if self.n_users is None:
            return present
        if self.adjacency == "replace" and present != self.n_users:
            raise ValueError(f"n_users = {self.n_users} was declared, but the data has {present} users")
        if present > 2 * self.n_users:
            raise ValueError(f"n_users = {self.n_users} was declared, but there are more than twice as many")
        return self.n_users

    def start(self, shape: tuple[int, ...]) -> Floats:
        """The public centre, intercept last."""
        if self.center is None:
            return np.zeros(shape)
        center = np.asarray(self.center, dtype=np.float64)
        if center.shape != shape or not np.all(np.isfinite(center)):
            raise ValueError(
                f"center must be finite numbers of shape {shape}, the intercept last, got shape {center.shape}"
            )
        return center

    def bounds(self, n_features: int) -> tuple[Floats, Floats] | None:
        """Low and high of every feature, if public."""
        if self.feature_bounds is None:
            return None
        try:
            low, high = (np.broadcast_to(end, (n_features,)) for end in self._ends())
        except ValueError:
            raise ValueError(
                f"feature_bounds must be (low, high), numbers or {n_features} of each, got {self.feature_bounds!r}"
            ) from None
        if not np.all(np.isfinite(low) & np.isfinite(high) & (low < high)):
            raise ValueError("feature_bounds must be finite with low < high for every feature")
        if not (_ordinary(low) and _ordinary(high) and np.all(high - low >= 1 / EXTREME)):
            raise ValueError(f"feature_bounds must be at most {EXTREME:g} in size and at least {1 / EXTREME:g} apart")
        return low, high

    def _ends(self) -> tuple[Floats, Floats]:
        try:
            low, high = (np.asarray(end, dtype=np.float64) for end in self.feature_bounds)
        except (TypeError, ValueError):
            raise ValueError(f"feature_bounds must be (low, high), got {self.feature_bounds!r}") from None
        return low, high


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, got {value!r}")


def _check_count(name: str, value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1):
        raise ValueError(f"{name} must be a whole number of at least 1 or None, got {value!r}")


def _check_name(name: str, value: Any, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        got = repr(value) if isinstance(value, str) else type(value).__name__
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {got}")


def _check_budget(epsilon: float, delta: float, adjacency: Adjacency) -> None:
    budget = Budget.of(epsilon, delta, adjacency)
    if delta < SMALLEST_DELTA:
        raise ValueError(f"delta = {delta:g} is below the smallest that noise on a grid can keep, {SMALLEST_DELTA:g}")
    if budget.gdp * math.sqrt(SMALLEST_SHARE) < SMALLEST_GDP:
        raise ValueError(
            f"epsilon = {epsilon:g} and delta = {delta:g} leave a Gaussian budget of {budget.gdp:.2g}, less than the "
            f"{SMALLEST_GDP / math.sqrt(SMALLEST_SHARE):.2g} that a fit needs: raise one of them"
        )


def _ordinary(values: Any) -> bool:
    """Whether these are finite numbers whose squares are finite too."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return bool(np.all(np.abs(numbers) <= EXTREME))
