"""Wide sparse rows: the same models as from dense ones, at the cost of their entries."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
import scipy.sparse

from tests.estimators.data import CLASSIFIERS, ESTIMATORS, LOCATIONS, numbers
from userdp import LogisticRegression
from userdp.accounting import Budget
from userdp.algorithms.default_plan import DefaultPlan
from userdp.estimators import model_file

every = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)


def text(rows: int, columns: int, entries: int, users: int, seed: int = 0):
    """Counts of words, half of them from a few frequent ones; the first fifty words decide the target."""
    rng = np.random.default_rng(seed)
    frequent = np.minimum((5 * rng.pareto(1.0, size=(rows, entries))).astype(int), columns - 1)
    words = np.where(rng.random((rows, entries)) < 0.5, frequent, rng.integers(0, columns, (rows, entries)))
    starts = np.arange(0, rows * entries + 1, entries)
    X = scipy.sparse.csr_array((np.ones(rows * entries), words.ravel(), starts), shape=(rows, columns))
    X.sum_duplicates()
    score = X[:, :50] @ rng.normal(size=50) + rng.logistic(size=rows)
    return X, score, np.arange(rows) * users // rows


def target(estimator, score):
    return (score > np.median(score)).astype(int) if estimator in CLASSIFIERS else score


@every
def test_the_same_model_as_from_dense_rows(estimator):
    X, score, users = text(200, 500, 10, 40)
    y = None if estimator in LOCATIONS else target(estimator, score)
    sparse, dense = (estimator(random_state=0).fit(rows, y, groups=users) for rows in (X, X.toarray()))
    np.testing.assert_allclose(numbers(sparse), numbers(dense), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(sparse.release_.noise_error, dense.release_.noise_error, rtol=1e-8)


@every
def test_rows_are_never_dense(estimator):
    """10,000 × 5,000 would be 400 MB."""
    X, score, users = text(10_000, 5000, 10, 50)
    y = None if estimator in LOCATIONS else target(estimator, score)
    tracemalloc.start()
    model = estimator(epsilon=1.0, random_state=0).fit(X, y, groups=users)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6
    assert len(model.release_.noise_error) == 5000 + (estimator not in LOCATIONS)


def test_a_wide_model_has_a_small_file(tmp_path):
    X, score, users = text(200, 2000, 10, 20)
    model = LogisticRegression(random_state=0).fit(X, target(LogisticRegression, score), groups=users)
    path = tmp_path / "model.json"
    model_file.save(path, model, tuple(f"x{i}" for i in range(2000)), "y")
    assert path.stat().st_size < 2e6
    found = model_file.load(path).model
    np.testing.assert_array_equal(found.release_.noise_error, model.release_.noise_error)
    np.testing.assert_array_equal(found.coef_, model.coef_)


def test_nothing_is_spent_on_histograms_that_show_nothing():
    """With 20,000 columns the noise of one count is larger than 2,000 users."""
    plans = [DefaultPlan.of(2000, d, d, Budget.of(1.0, 1e-6), learn_cap=True) for d in (20, 20_000)]
    assert [plan.look > 0 for plan in plans] == [True, False]
    assert plans[1].blind


def test_caps_keep_a_share_where_users_are_many():
    """A rare class must show among the gradient lengths; numbers of rows need no more than a thirtieth of n."""
    plan = DefaultPlan.of(10**6, 20, 20, Budget.of(1.0, 1e-6), learn_cap=True, learn_rows=True, classes=2)
    assert plan.cap == 0.02
    assert plan.rows == plan.rates == 0.002
    spent = plan.units + 2 * plan.cap + plan.rows + plan.rates + plan.moments * (plan.moment_cap + plan.moment)
    assert spent + plan.phase_share <= 1 + 1e-15


@pytest.mark.slow
def test_twenty_thousand_columns_take_less_than_two_minutes():
    """100,000 rows of 50 entries, 2,000 users, secure noise: 16 GB if dense."""
    X, score, users = text(100_000, 20_000, 50, 2000)
    y = target(LogisticRegression, score)
    started = time.perf_counter()
    model = LogisticRegression(epsilon=1.0).fit(X, y, groups=users)
    assert time.perf_counter() - started < 120
    assert model.score(X, y) > 0.7
