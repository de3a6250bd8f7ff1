"""Classifiers begin at the rates of the classes, a release of their own. Seeded fits: no test can fail by chance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import entr

from userdp import LinearRegression, LinearSVC, LogisticRegression
from userdp.algorithms.calibration import class_rates

LABEL = "rates of the classes"


def labels(model):
    return [event.label for event in model.release_.events]


def test_one_release_where_it_is_of_use():
    """Not where there is no intercept to begin with, where the start is public, or where targets are numbers."""
    rng = np.random.default_rng(0)
    X, users = rng.normal(size=(900, 2)), np.repeat(np.arange(300), 3)
    y = rng.integers(0, 2, 900)
    for model in (LogisticRegression(random_state=0), LinearSVC(random_state=0)):
        assert labels(model.fit(X, y, groups=users)).count(LABEL) == 1
        assert f"{LABEL}\n" in model.release_.plan
    for options in ({"fit_intercept": False}, {"center": [0.0, 0.0, -1.0]}):
        model = LogisticRegression(random_state=0, **options).fit(X, y, groups=users)
        assert LABEL not in labels(model)
        assert LABEL not in model.release_.plan
    assert LABEL not in labels(LinearRegression(random_state=0).fit(X, y, groups=users))


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_the_noise_is_that_of_one_vote_a_user(monkeypatch, adjacency):
    """And the model without features that comes of it is the right one where there is none."""
    seen = {}

    def watched(counts, sigma, n_users):
        seen.update(counts=counts, sigma=sigma, rates=class_rates(counts, sigma, n_users))
        return seen["rates"]

    monkeypatch.setattr("userdp.algorithms.default.class_rates", watched)
    X, users = np.zeros((2000, 1)), np.repeat(np.arange(500), 4)
    y = np.tile([0, 0, 0, 1], 500)
    options = {} if adjacency == "replace" else {"n_users": 500}
    model = LogisticRegression(epsilon=4.0, random_state=0, adjacency=adjacency, **options).fit(X, y, groups=users)
    event = next(event for event in model.release_.events if event.label == LABEL)
    assert seen["sigma"] == pytest.approx(math.sqrt(2 if adjacency == "replace" else 1) / event.gdp, rel=1e-6)
    assert np.abs(seen["counts"] - [375, 125]).max() < 4 * seen["sigma"]
    assert seen["rates"].sum() == pytest.approx(1.0)
    assert model.predict_proba(X)[0, 1] == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize("rates", [(0.8, 0.2), (0.1, 0.9), (0.7, 0.2, 0.1)])
def test_noise_leaves_the_model_without_features(rates):
    """Twenty features of pure noise, 1,000 users, ε = 0.5: hardly worse than the rates alone, in the mean of six fits.

    It costs 0.003, 0.017 and 0.018; begun at equal rates it was 0.014, 0.046 and 0.14.
    """
    rng = np.random.default_rng(1)
    users = np.repeat(np.arange(1000), 5)
    X, y = rng.normal(size=(5000, 20)), rng.choice(len(rates), 5000, p=rates)
    losses = []
    for seed in range(6):
        model = LogisticRegression(epsilon=0.5, random_state=seed).fit(X, y, groups=users)
        losses.append(-np.mean(np.log(model.predict_proba(X)[np.arange(len(y)), y])))
    assert np.mean(losses) < entr(rates).sum() + 0.03


def test_an_unequal_hinge_still_arrives():
    """The start lies on the common class's kink. With many users the model leaves it, and finds some of the fifth of
    the rows that are of the other class. With the curvature of the start it found none.
    """
    rng = np.random.default_rng(2)
    users = np.repeat(np.arange(5000), 5)
    X = rng.normal(size=(25_000, 10))
    y = X @ np.linspace(-1.0, 1.0, 10) + rng.logistic(size=25_000) > 2.5
    assert 0.15 < y.mean() < 0.25
    models = [LinearSVC(epsilon=2.0, random_state=seed).fit(X, y, groups=users) for seed in range(3)]
    found = np.mean([model.predict(X)[y].mean() for model in models])
    assert found > 0.28  # without privacy 0.36
