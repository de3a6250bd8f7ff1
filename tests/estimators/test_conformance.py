"""Every estimator under every relation keeps the same promises. Seeded fits: no test can fail by chance."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from sklearn import linear_model, svm
from sklearn.exceptions import NotFittedError

from tests.estimators.data import CLASSIFIERS, ESTIMATORS, LOCATIONS, REGRESSORS, make, numbers
from userdp import (
    GeometricMedian,
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    Mean,
    QuantileRegressor,
)
from userdp.data import DataError

RELATIONS = ("replace", "add-remove")
every = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
relations = pytest.mark.parametrize("adjacency", RELATIONS)


def fit(estimator, X, y, users, **parameters):
    if parameters.get("adjacency") == "add-remove":
        parameters["n_users"] = X.shape[0] if users is None else len(set(users))
    return estimator(**{"epsilon": 8.0, "random_state": 0} | parameters).fit(X, y, groups=users)


@every
@relations
def test_budget_is_kept(estimator, adjacency):
    model = fit(estimator, *make(estimator), adjacency=adjacency, epsilon=1.0)
    spent = np.sqrt(sum(event.gdp**2 for event in model.release_.events))
    assert spent <= model.privacy_.gdp * (1 + 1e-12)
    assert model.privacy_.delta_at(1.0) <= 1e-6
    assert model.privacy_.adjacency == adjacency


@every
@relations
def test_order_of_rows_and_users_does_not_matter(estimator, adjacency):
    X, y, users = make(estimator)
    order = np.random.default_rng(5).permutation(len(users))
    first = fit(estimator, X, y, users, adjacency=adjacency)
    again = fit(estimator, X[order], None if y is None else y[order], users[order], adjacency=adjacency)
    np.testing.assert_allclose(numbers(again), numbers(first), rtol=0, atol=1e-7)


def logistic_loss(z, y):
    return np.mean(np.logaddexp(0, z) - y * z)


def softmax_loss(z, y):
    return np.mean(np.logaddexp.reduce(z, axis=1) - z[np.arange(len(y)), y])


def hinge_loss(z, y):
    return np.mean(np.maximum(0, 1 - (2 * y - 1) * z))


def pinball_loss(quantile):
    return lambda z, y: np.mean(np.maximum(quantile * (y - z), (quantile - 1) * (y - z))) / np.std(y)


def zero_noise_cases():
    return {
        "logistic": (LogisticRegression, {}, 2, linear_model.LogisticRegression(C=np.inf), logistic_loss),
        "multinomial": (LogisticRegression, {}, 4, linear_model.LogisticRegression(C=np.inf), softmax_loss),
        "svc": (LinearSVC, {}, 2, svm.LinearSVC(loss="hinge", C=1.0, max_iter=200_000), hinge_loss),
        "squared": (
            LinearRegression,
            {},
            0,
            linear_model.LinearRegression(),
            lambda z, y: np.mean((z - y) ** 2) / np.var(y),
        ),
        "median": (QuantileRegressor, {}, 0, linear_model.QuantileRegressor(alpha=0), pinball_loss(0.5)),
        "quantile": (
            QuantileRegressor,
            {"quantile": 0.8},
            0,
            linear_model.QuantileRegressor(quantile=0.8, alpha=0),
            pinball_loss(0.8),
        ),
    }


@relations
@pytest.mark.parametrize("name", zero_noise_cases())
def test_without_noise_the_loss_is_that_of_scikit_learn(name, adjacency):
    estimator, parameters, classes, reference, loss = zero_noise_cases()[name]
    X, y, _ = make(estimator, n_users=1000, rows=2, classes=classes)
    users = np.arange(len(X)) // 2  # the same number of rows each: the users' mean is the mean over rows
    X, y, users = X[: len(X) // 2 * 2], y[: len(X) // 2 * 2], users[: len(X) // 2 * 2]
    model = fit(estimator, X, y, users, epsilon=64.0, adjacency=adjacency, **parameters)
    reference.fit(X, y)
    score = "decision_function" if estimator in CLASSIFIERS else "predict"
    assert loss(getattr(model, score)(X), y) <= loss(getattr(reference, score)(X), y) + 1e-3


@relations
def test_without_noise_huber_is_that_of_scikit_learn(adjacency):
    X, y, _ = make(HuberRegressor, n_users=1000)
    reference = linear_model.HuberRegressor(alpha=0).fit(X, y)
    scale = fit(HuberRegressor, X, y, None, epsilon=64.0, adjacency=adjacency).release_.details["target_scale"]
    limit = 1.35 * reference.scale_  # scikit-learn's threshold is in units of the residuals' spread
    model = fit(HuberRegressor, X, y, None, epsilon=64.0, adjacency=adjacency, threshold=limit / scale)

    def loss(z):
        r = np.abs(z - y)
        return np.mean(np.where(r < limit, r**2 / 2, limit * r - limit**2 / 2)) / np.var(y)

    assert loss(model.predict(X)) <= loss(reference.predict(X)) + 1e-3


@relations
def test_without_noise_locations_are_exact(adjacency):
    X = np.random.default_rng(0).standard_t(4, size=(3000, 3)) * 7 + [100.0, 0.0, -3.0]
    mean = fit(Mean, X, None, None, epsilon=64.0, adjacency=adjacency).location_
    assert np.linalg.norm(mean - X.mean(axis=0)) < 0.01 * X.std()
    median = fit(GeometricMedian, X, None, None, epsilon=64.0, adjacency=adjacency).location_
    best = minimize(lambda point: np.linalg.norm(X - point, axis=1).mean(), X.mean(axis=0))
    assert np.linalg.norm(X - median, axis=1).mean() <= best.fun * (1 + 1e-3)


def test_users_who_do_not_pull_do_not_set_the_cap():
    """With one row each, most users lie beyond the hinge's margin and have no gradient at all."""
    X, y, _ = make(LinearSVC, n_users=2000, features=20)
    caps = fit(LinearSVC, X, y, None, epsilon=64.0).release_.details["caps"]
    assert min(caps) > 1.0


@every
def test_uneven_users(estimator):
    X, y, users = make(estimator)
    rng = np.random.default_rng(1)
    extra = 10_000
    more = rng.normal(size=(extra, 3)) + 3
    labels = None if y is None else np.concatenate([y, np.zeros(extra, y.dtype)])
    base = fit(estimator, X, y, users)
    everything = np.concatenate([X, more]), labels, np.concatenate([users, np.full(extra, 7)])
    model = fit(estimator, *everything)
    assert np.abs(numbers(model) - numbers(base)).max() < 0.3
    rows = fit(estimator, *everything, weighting="rows")
    assert np.abs(numbers(rows) - numbers(base)).max() < 0.5


@every
def test_duplicated_users_weigh_twice(estimator):
    X, y, users = make(estimator)
    labels = None if y is None else np.concatenate([y, y])
    base = fit(estimator, X, y, users, epsilon=30.0)
    model = fit(estimator, np.concatenate([X, X]), labels, np.concatenate([users, users + 1000]), epsilon=30.0)
    assert np.abs(numbers(model) - numbers(base)).max() < 0.25


DEGENERATE = {
    "zeros": lambda X: X * 0,
    "constant column": lambda X: X * [1, 0, 1] + [0, 7.5, 0],
    "collinear": lambda X: X[:, [0, 0, 0]],
    "tiny": lambda X: X * 1e-200,
    "huge": lambda X: X * 1e200,
    "wide": lambda X: np.hstack([X] * 20)[:150],
}


@every
@pytest.mark.parametrize("change", DEGENERATE.values(), ids=DEGENERATE.keys())
def test_degenerate_data_never_fails(estimator, change):
    X, y, users = make(estimator, n_users=40)
    X = change(X)
    model = fit(estimator, X, None if y is None else y[: len(X)], users[: len(X)], epsilon=1.0)
    assert np.isfinite(numbers(model)).all()


@every
@relations
@pytest.mark.parametrize("n_users", [2, 3])
def test_a_handful_of_users(estimator, adjacency, n_users):
    X, y, _ = make(estimator)
    rows = 5 * n_users
    y = None if y is None else (np.arange(rows) % 2 if estimator in CLASSIFIERS else y[:rows])
    model = fit(estimator, X[:rows], y, np.repeat(np.arange(n_users), 5), adjacency=adjacency, epsilon=1.0)
    assert np.isfinite(numbers(model)).all()


@pytest.mark.parametrize("estimator", [e for e in ESTIMATORS if e not in (*CLASSIFIERS, *LOCATIONS)])
def test_target_of_any_size(estimator):
    X, y, users = make(estimator, n_users=2000)
    base = fit(estimator, X, y, users).predict(X)
    moved = fit(estimator, X, 1e6 * y + 3e7, users).predict(X)
    assert np.sqrt(np.mean((moved - 1e6 * base - 3e7) ** 2)) < 0.1 * 1e6 * np.std(y)
    wild = y.copy()
    wild[users == 7] = 1e300
    assert np.sqrt(np.mean((fit(estimator, X, wild, users).predict(X) - base) ** 2)) < 0.1 * np.std(y)


BAD = {
    "epsilon": ({"epsilon": -1.0}, "epsilon"),
    "delta": ({"delta": 2.0}, "delta"),
    "adjacency": ({"adjacency": "swap"}, "adjacency"),
    "algorithm": ({"algorithm": "magic"}, "algorithm"),
    "weighting": ({"weighting": "columns"}, "weighting"),
    "force_cap": ({"force_cap": -1.0}, "force_cap"),
    "max_rows_per_user": ({"max_rows_per_user": 0}, "max_rows_per_user"),
    "center": ({"center": [1.0]}, "center"),
    "feature_bounds": ({"feature_bounds": (1.0, 0.0)}, "low < high"),
    "feature_bounds shape": ({"feature_bounds": 3}, "feature_bounds must be"),
}


@every
@pytest.mark.parametrize(("parameters", "message"), BAD.values(), ids=BAD.keys())
def test_bad_parameters(estimator, parameters, message):
    with pytest.raises(ValueError, match=message):
        fit(estimator, *make(estimator, n_users=20), **parameters)


@pytest.mark.parametrize("estimator", [e for e in ESTIMATORS if e not in LOCATIONS], ids=lambda e: e.__name__)
def test_bad_input(estimator):
    X, y, users = make(estimator, n_users=20)
    with pytest.raises(ValueError, match="l2"):
        fit(estimator, X, y, users, l2=-1.0)
    with pytest.raises(NotFittedError):
        estimator().predict(X)
    model = fit(estimator, X, y, users)
    with pytest.raises(ValueError, match=f"2 features, but {estimator.__name__} is expecting 3"):
        model.predict(X[:, :2])
    with pytest.raises(ValueError, match="y has"):
        fit(estimator, X, y[:-1], users)
    with pytest.raises(ValueError, match="at least 2 users"):
        fit(estimator, X, y, users * 0)


def spoilt(X, value):
    X = X.copy()
    X[3:5, 1] = value
    return X


BAD_ROWS = {
    "nan": (lambda X, users: (spoilt(X, np.nan), users), r"'x1' \(2\)"),
    "inf": (lambda X, users: (spoilt(X, -np.inf), users), r"'x1' \(2\)"),
    "text": (lambda X, users: (pd.DataFrame({"city": ["a"] * len(X)}), users), "'city' is not numeric"),
    "one-dimensional": (lambda X, users: (X[:, 0], users), "two-dimensional"),
    "no columns": (lambda X, users: (X[:, :0], users), "no feature columns"),
    "short groups": (lambda X, users: (X, users[:-1]), "groups has"),
    "missing id": (lambda X, users: (X, np.where(users == 3, np.nan, users)), "missing user ids"),
    "one user": (lambda X, users: (X, users * 0), "at least 2 users, got 1"),
}


@every
@pytest.mark.parametrize(("change", "message"), BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_bad_rows_get_one_clear_line(estimator, change, message):
    X, y, users = make(estimator, n_users=20)
    X, users = change(X, users)
    with pytest.raises(DataError, match=message) as caught:
        estimator().fit(X, y, groups=users)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("estimator", REGRESSORS, ids=lambda estimator: estimator.__name__)
@pytest.mark.parametrize("value", [np.nan, np.inf, "text", None])
def test_bad_targets_get_one_clear_line(estimator, value):
    X, y, users = make(estimator, n_users=20)
    with pytest.raises(DataError, match=r"^[^\n]*y[^\n]*$"):
        estimator().fit(X, None if value is None else np.array([value, *y[1:]], dtype=object), groups=users)


@every
def test_there_are_no_weights_to_get_wrong(estimator):
    """``weighting`` names a public rule; weights of rows, negative or not, are no parameter of any fit."""
    X, y, users = make(estimator, n_users=20)
    with pytest.raises(TypeError, match="sample_weight"):
        estimator().fit(X, y, groups=users, sample_weight=-np.ones(len(X)))
    with pytest.raises(ValueError, match=r"^weighting must be one of 'users', 'rows', got ndarray$"):
        estimator(weighting=-np.ones(20)).fit(X, y, groups=users)


@pytest.mark.parametrize("name", ["algorithm", "adjacency", "weighting"])
@pytest.mark.parametrize("value", [np.ones(3), np.array(["replace"]), ["users"], 3, None], ids=repr)
def test_what_is_no_name_gets_one_line(name, value):
    X, y, users = make(QuantileRegressor, n_users=20)
    with pytest.raises(ValueError, match=rf"^{name} must be one of [^\n]*, got {type(value).__name__}$"):
        QuantileRegressor(**{name: value}).fit(X, y, groups=users)


@pytest.mark.parametrize("quantile", [0.0, 1.0, -0.5, 2.0])
def test_quantile_outside_the_unit_interval(quantile):
    with pytest.raises(ValueError, match="quantile"):
        fit(QuantileRegressor, *make(QuantileRegressor, n_users=20), quantile=quantile)


def test_svc_takes_two_classes():
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        fit(LinearSVC, *make(LinearSVC, n_users=20, classes=3))
