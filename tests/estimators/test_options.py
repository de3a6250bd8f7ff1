"""Options of the fits, other libraries around them, files. Seeded fits: no test can fail by chance."""

from __future__ import annotations

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from tests.estimators.data import CLASSIFIERS, ESTIMATORS, LOCATIONS, make, numbers
from userdp import GeometricMedian, LinearRegression, LinearSVC, LogisticRegression, Mean, QuantileRegressor
from userdp.estimators import model_file

every = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
LINEAR = [estimator for estimator in ESTIMATORS if estimator not in LOCATIONS]
linear = pytest.mark.parametrize("estimator", LINEAR, ids=lambda estimator: estimator.__name__)


def fit(estimator, X, y, users, **parameters):
    return estimator(**{"epsilon": 8.0, "random_state": 0} | parameters).fit(X, y, groups=users)


@linear
def test_l2_pulls_coefficients_but_not_the_intercept(estimator):
    X, y, users = make(estimator)
    if estimator not in CLASSIFIERS:
        y = y + 40.0
    free, held = (fit(estimator, X, y, users, l2=l2) for l2 in (0.0, 100.0))
    assert np.linalg.norm(held.coef_) < 0.1 * np.linalg.norm(free.coef_)
    if estimator not in CLASSIFIERS:
        assert np.abs(held.predict(X).mean() - 40.0) < 1.5


def test_l2_is_that_of_ridge():
    X, y, _ = make(LinearRegression, n_users=2000)
    model = fit(LinearRegression, X, y, np.arange(len(y)), epsilon=64.0, l2=0.5)
    scale, target = model.release_.details["scale"], model.release_.details["target_scale"]
    Z = X / scale
    moment = (Z - Z.mean(axis=0)).T @ (Z - Z.mean(axis=0)) / len(y)
    exact = np.linalg.solve(moment + 0.5 * np.eye(3), (Z - Z.mean(axis=0)).T @ (y - y.mean()) / len(y))
    np.testing.assert_allclose(model.coef_ * scale, exact, atol=0.01 * target)


@every
def test_center_is_where_noise_ends_up(estimator):
    X, y, users = make(estimator, n_users=30)
    size = 3 if estimator in LOCATIONS else 4
    center = np.linspace(50.0, 60.0, size)
    model = fit(estimator, X + 40.0, y, users, epsilon=0.01, center=center)
    plain = fit(estimator, X + 40.0, y, users, epsilon=0.01)
    assert np.linalg.norm(numbers(model) - center) < np.linalg.norm(numbers(plain) - center)


def test_good_center_helps():
    X, y, users = make(LinearRegression, n_users=100)
    truth = np.array([1.5, 0.25, -1.0, 0.5])
    error = {
        name: sum(
            np.linalg.norm(
                numbers(fit(LinearRegression, X, y, users, epsilon=0.3, center=center, random_state=seed)) - truth
            )
            for seed in range(8)
        )
        for name, center in (("warm", truth), ("cold", None))
    }
    assert error["warm"] < 0.5 * error["cold"]


@every
def test_public_bounds_save_the_histograms(estimator):
    X, y, users = make(estimator)
    learnt, known = (fit(estimator, X, y, users, feature_bounds=bounds) for bounds in (None, (-4.0, [4.0, 4.0, 5.0])))
    names = {event.label.split(" ")[0] for event in known.release_.events}
    assert ("units" in names) == (estimator not in CLASSIFIERS and estimator not in LOCATIONS)  # the target's remain
    assert np.abs(numbers(learnt) - numbers(known)).max() < 0.3


def test_rows_weighting_follows_the_rows():
    rng = np.random.default_rng(0)
    counts = np.where(np.arange(2000) % 2, 9, 1)
    users = np.repeat(np.arange(2000), counts)
    X = rng.normal(size=(len(users), 1)) + (counts[users] == 9)[:, None]
    by_users, by_rows = (
        fit(Mean, X, None, users, epsilon=30.0, weighting=weighting).location_[0] for weighting in ("users", "rows")
    )
    assert by_users == pytest.approx(0.5, abs=0.05)
    assert by_rows == pytest.approx(0.9, abs=0.1)
    y = X[:, 0] + rng.normal(size=len(users))
    model = fit(LinearRegression, X, y, users, epsilon=30.0, weighting="rows")
    assert model.coef_[0] == pytest.approx(1.0, abs=0.05)
    assert "rows" in model.release_.plan
    assert any(event.label == "rows a user" for event in model.release_.events)


@every
def test_sampled_rows(estimator):
    X, y, users = make(estimator, rows=20)
    all_rows, few = (fit(estimator, X, y, users, max_rows_per_user=limit) for limit in (None, 5))
    assert not np.array_equal(numbers(all_rows), numbers(few))
    assert np.abs(numbers(all_rows) - numbers(few)).max() < 0.4


def test_smoothing_stands_in_the_plan():
    for estimator in (LinearSVC, QuantileRegressor, GeometricMedian):
        plan = fit(estimator, *make(estimator, n_users=20)).release_.plan
        assert "smoothed over a width of 0.0" in plan


def test_multinomial():
    X, y, users = make(LogisticRegression, n_users=1000, classes=4)
    model = fit(LogisticRegression, X, np.array(list("abcd"))[y], users)
    assert model.coef_.shape == (4, 3)
    assert model.intercept_.shape == (4,)
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert model.decision_function(X).shape == (len(y), 4)
    reference = sklearn.linear_model.LogisticRegression(C=np.inf).fit(X, y)
    assert model.score(X, np.array(list("abcd"))[y]) > reference.score(X, y) - 0.02


@every
@pytest.mark.parametrize("form", [scipy.sparse.csr_matrix, scipy.sparse.csr_array, scipy.sparse.csc_array])
def test_sparse_rows_give_the_same_model(estimator, form):
    X, y, users = make(estimator, n_users=100)
    X = np.where(np.random.default_rng(1).random(X.shape) < 0.3, X + 2.0, 0.0)
    dense, sparse = fit(estimator, X, y, users), fit(estimator, form(X), y, users)
    np.testing.assert_allclose(numbers(sparse), numbers(dense), atol=1e-8)
    if estimator not in LOCATIONS:
        score = "decision_function" if estimator in CLASSIFIERS else "predict"
        np.testing.assert_allclose(getattr(sparse, score)(form(X)), getattr(sparse, score)(X), atol=1e-12)


@linear
@pytest.mark.parametrize("wrap", [pd.DataFrame, pl.DataFrame])
def test_tables_and_names(estimator, wrap):
    X, y, users = make(estimator, n_users=50)
    table = wrap({f"c{i}": X[:, i] for i in range(3)})
    model = fit(estimator, table, y, users)
    assert list(model.feature_names_in_) == ["c0", "c1", "c2"]
    np.testing.assert_array_equal(numbers(model), numbers(fit(estimator, X, y, users)))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(wrap({name: X[:, i] for i, name in enumerate("abc")}))


@linear
def test_routing_pipeline_and_cross_validation(estimator):
    X, y, users = make(estimator)
    with sklearn.config_context(enable_metadata_routing=True):
        model = estimator(epsilon=8.0, random_state=0).set_fit_request(groups=True)
        pipeline = make_pipeline(PolynomialFeatures(2, include_bias=False), model).fit(X, y, groups=users)
        assert pipeline[-1].privacy_.unit == "user"
        assert pipeline[-1].privacy_.n_users == 300
        scores = cross_validate(model, X, y, params={"groups": users}, cv=GroupKFold(3), return_estimator=True)
        assert [fold.privacy_.n_users for fold in scores["estimator"]] == [200, 200, 200]
        search = GridSearchCV(model, {"l2": [0.0, 10.0]}, cv=GroupKFold(2)).fit(X, y, groups=users)
        assert search.best_params_ == {"l2": 0.0}
        assert search.best_estimator_.privacy_.n_users == 300


@pytest.mark.parametrize("estimator", LOCATIONS, ids=lambda estimator: estimator.__name__)
def test_locations_in_a_pipeline(estimator):
    X, _, users = make(estimator)
    with sklearn.config_context(enable_metadata_routing=True):
        model = estimator(epsilon=8.0, random_state=0).set_fit_request(groups=True)
        pipeline = make_pipeline(PolynomialFeatures(2, include_bias=False), model).fit(X, groups=users)
    assert pipeline[-1].privacy_.n_users == 300
    assert pipeline[-1].location_.shape == (9,)


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=lambda estimator: estimator.__name__)
def test_string_labels(estimator):
    X, y, users = make(estimator, n_users=50)
    model, plain = fit(estimator, X, np.array(["no", "yes"])[y], users), fit(estimator, X, y, users)
    assert model.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(model.predict(X) == "yes", plain.predict(X) == 1)


@every
def test_joblib_clone_and_set_params(estimator, tmp_path):
    model = fit(estimator, *make(estimator, n_users=30))
    joblib.dump(model, tmp_path / "model")
    again = joblib.load(tmp_path / "model")
    np.testing.assert_array_equal(numbers(again), numbers(model))
    assert not hasattr(again, "diagnostics_")
    assert clone(model).set_params(epsilon=2.0).epsilon == 2.0
    assert not hasattr(clone(model), "release_")


@pytest.mark.parametrize(("estimator", "classes"), [(LogisticRegression, 3), *((e, 2) for e in LINEAR)])
def test_model_file(estimator, classes, tmp_path):
    X, y, users = make(estimator, n_users=30, classes=classes)
    parameters = {"quantile": 0.7} if estimator is QuantileRegressor else {}
    model = fit(estimator, X, y, users, **parameters)
    model_file.save(tmp_path / "model.json", model, ("a", "b", "c"), "y")
    found = model_file.load(tmp_path / "model.json")
    table = pd.DataFrame(X, columns=list("abc"))
    np.testing.assert_array_equal(found.model.predict(table), model.predict(X))
    assert type(found.model) is estimator
    assert found.model.privacy_ == model.privacy_
    if parameters:
        assert found.model.quantile == 0.7
    assert "diagnostics" not in (tmp_path / "model.json").read_text()


def test_item_level_is_stated():
    X, y, _ = make(LinearRegression, n_users=30)
    assert "single row" in str(LinearRegression().fit(X, y).privacy_)
