"""Every estimator × algorithm × relation keeps the same promises. Seeded fits: no test can fail by chance."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import linear_model, svm

from tests.estimators.data import CLASSIFIERS, ESTIMATORS, LOCATIONS, make, numbers
from userdp import LinearRegression, LinearSVC, LogisticRegression, Mean, QuantileRegressor
from userdp.accounting import epsilon_of
from userdp.algorithms.paper_fit import PAPER_ALGORITHMS
from userdp.data import DataError, UserDataset
from userdp.engines import LocalEngine

RELATIONS = ("replace", "add-remove")
SCO = tuple(name for name in PAPER_ALGORITHMS if name.endswith("sco"))
every = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
# Kinks take the certified solver long: most of their combinations are slow tests.
KINKED = (LinearSVC, QuantileRegressor)
pairs = pytest.mark.parametrize(
    ("estimator", "algorithm"),
    [
        pytest.param(
            estimator,
            algorithm,
            id=f"{estimator.__name__}, {algorithm}",
            marks=[pytest.mark.slow] if estimator in KINKED and algorithm != "output-perturbation" else [],
        )
        for estimator in ESTIMATORS
        for algorithm in PAPER_ALGORITHMS
    ],
)
algorithms = pytest.mark.parametrize("algorithm", PAPER_ALGORITHMS)


def fit(estimator, X, y, users, **parameters):
    if parameters.get("adjacency") == "add-remove":
        parameters.setdefault("n_users", X.shape[0] if users is None else len(set(users)))
    return estimator(**{"epsilon": 8.0, "random_state": 0} | parameters).fit(X, y, groups=users)


@pairs
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_one_accounted_release(estimator, algorithm, adjacency):
    model = fit(estimator, *make(estimator, n_users=60), algorithm=algorithm, adjacency=adjacency, epsilon=1.0)
    spent = np.sqrt(sum(event.gdp**2 for event in model.release_.events))
    assert model.privacy_.gdp * (1 - 1e-9) <= spent <= model.privacy_.gdp * (1 + 1e-12)
    assert epsilon_of(1e-6, spent) <= 1.0
    assert model.privacy_.delta_at(1.0) <= 1e-6
    assert (model.privacy_.adjacency, model.privacy_.epsilon) == (adjacency, 1.0)
    labels = [event.label for event in model.release_.events]
    assert labels[0] == "units 1"
    assert "cap" in labels
    assert any(label.startswith(("phase 1", "the minimizer")) for label in labels)
    assert algorithm in model.release_.plan
    assert "units of every column" in model.release_.plan
    assert np.isfinite(numbers(model)).all()


@pairs
def test_order_of_rows_does_not_matter(estimator, algorithm):
    """Of users neither, but for algorithms that deal them out to blocks by position."""
    X, y, users = make(estimator, n_users=40)
    order = np.random.default_rng(5).permutation(len(users))
    if algorithm in SCO:
        order = order[np.argsort(users[order], kind="stable")]
    first = fit(estimator, X, y, users, algorithm=algorithm)
    again = fit(estimator, X[order], None if y is None else y[order], users[order], algorithm=algorithm)
    assert np.abs(numbers(again) - numbers(first)).max() <= 0.05 * first.release_.noise_error.max()


NAMES = ("logistic", "multinomial", "svc", "squared", "median")


def limits():
    return {
        "logistic": (LogisticRegression, 2, linear_model.LogisticRegression(C=np.inf), logistic_loss),
        "multinomial": (LogisticRegression, 3, linear_model.LogisticRegression(C=np.inf), softmax_loss),
        "svc": (LinearSVC, 2, svm.LinearSVC(loss="hinge", C=1.0, max_iter=200_000), hinge_loss),
        "squared": (LinearRegression, 0, linear_model.LinearRegression(), squared_loss),
        "median": (QuantileRegressor, 0, linear_model.QuantileRegressor(alpha=0), absolute_loss),
    }


def logistic_loss(z, y):
    return np.mean(np.logaddexp(0, z) - y * z)


def softmax_loss(z, y):
    return np.mean(np.logaddexp.reduce(z, axis=1) - z[np.arange(len(y)), y])


def hinge_loss(z, y):
    return np.mean(np.maximum(0, 1 - (2 * y - 1) * z))


def squared_loss(z, y):
    return np.mean((z - y) ** 2) / np.var(y)


def absolute_loss(z, y):
    return np.mean(np.abs(z - y)) / 2 / np.std(y)


# (users, rows of each). Strong convexity comes from a ridge of order 1/√(nμ), which costs loss, and an algorithm that
# deals out users to blocks has only those of a block to learn from: at ε = 64, the largest, they need more users.
EASY = {"phased-erm": (2000, 4), "strongly-convex-erm": (8000, 4)}


@algorithms
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n not in ("logistic", "squared") else []) for n in NAMES]
)
def test_without_noise_the_loss_is_that_of_scikit_learn(name, algorithm):
    estimator, classes, reference, loss = limits()[name]
    n_users, rows = EASY.get(algorithm, (16_000, 8) if name != "median" else (8000, 4))  # scikit-learn's takes minutes
    X, y, _ = make(estimator, n_users=n_users + n_users // 8, rows=rows, classes=classes)
    X, y = X[: n_users * rows], y[: n_users * rows]
    model = fit(estimator, X, y, np.arange(n_users * rows) // rows, epsilon=64.0, algorithm=algorithm)
    reference.fit(X, y)
    score = "decision_function" if estimator in CLASSIFIERS else "predict"
    assert loss(getattr(model, score)(X), y) <= loss(getattr(reference, score)(X), y) + 1e-3


@algorithms
@pytest.mark.parametrize("estimator", [LogisticRegression, LinearRegression, Mean], ids=lambda e: e.__name__)
def test_uneven_and_duplicated_users(estimator, algorithm):
    """One user with 10^4 odd rows pulls no harder than another; twice the users are the same data."""
    X, y, users = make(estimator, n_users=60)
    odd = np.random.default_rng(1).normal(size=(10_000, 3)) + 3
    labels = None if y is None else np.concatenate([y, np.zeros(10_000, y.dtype)])
    base = fit(estimator, X, y, users, algorithm=algorithm, force_cap=1.0)

    def alike(model):
        """Within six standard errors of the difference: both carry noise, and not the same."""
        error = np.hypot(base.release_.noise_error.max(), model.release_.noise_error.max())
        return np.abs(numbers(model) - numbers(base)).max() <= 6 * error + 0.3

    for weighting in ("users", "rows"):
        uneven = np.concatenate([X, odd]), labels, np.concatenate([users, np.full(10_000, 7)])
        assert alike(fit(estimator, *uneven, algorithm=algorithm, force_cap=1.0, weighting=weighting))
    twice = np.concatenate([X, X]), None if y is None else np.concatenate([y, y]), np.concatenate([users, users + 100])
    assert alike(fit(estimator, *twice, algorithm=algorithm, force_cap=1.0))


DEGENERATE = {
    "zeros": lambda X: X * 0,
    "constant column": lambda X: X * [1, 0, 1] + [0, 7.5, 0],
    "collinear": lambda X: X[:, [0, 0, 0]],
    "huge": lambda X: X * 1e200,
    "wide": lambda X: np.hstack([X] * 8),
}


@algorithms
@pytest.mark.parametrize("change", DEGENERATE.values(), ids=DEGENERATE.keys())
def test_degenerate_data_never_fails(change, algorithm):
    for estimator in (LogisticRegression, LinearRegression, *LOCATIONS):
        X, y, users = make(estimator, n_users=20)
        assert np.isfinite(numbers(fit(estimator, change(X), y, users, epsilon=1.0, algorithm=algorithm))).all()


@pairs
def test_two_users(estimator, algorithm):
    X, y, _ = make(estimator)
    y = None if y is None else (np.arange(10) % 2 if estimator in CLASSIFIERS else y[:10])
    arguments = X[:10], y, np.repeat([0, 1], 5)
    if algorithm in SCO:
        with pytest.raises(ValueError, match="15 users in all, got 2"):
            fit(estimator, *arguments, algorithm=algorithm)
    else:
        assert np.isfinite(numbers(fit(estimator, *arguments, algorithm=algorithm, epsilon=1.0))).all()


@algorithms
def test_options(algorithm):
    X, y, users = make(LinearRegression, n_users=300)
    free = fit(LinearRegression, X, y + 40.0, users, algorithm=algorithm)
    held = fit(LinearRegression, X, y + 40.0, users, algorithm=algorithm, l2=100.0)
    assert np.linalg.norm(held.coef_) < 0.15 * np.linalg.norm(free.coef_)
    assert np.abs(held.predict(X).mean() - 40.0) < 2.0
    assert fit(LinearRegression, X, y, users, algorithm=algorithm, fit_intercept=False).intercept_ == 0.0
    truth = np.array([1.5, 0.25, -1.0, 0.5])
    warm, cold = (
        np.linalg.norm(numbers(fit(LinearRegression, X, y, users, algorithm=algorithm, epsilon=0.1, center=c)) - truth)
        for c in (truth, truth + 5.0)
    )
    assert warm < cold
    known = fit(LinearRegression, X, y, users, algorithm=algorithm, feature_bounds=(-4.0, 4.0), force_cap=2.0)
    assert "cap" not in [event.label for event in known.release_.events]
    assert np.isfinite(numbers(fit(LinearRegression, X, y, users, algorithm=algorithm, max_rows_per_user=2))).all()


def test_l2_is_a_common_quadratic():
    """At ε = 64 the minimizer is that of ridge regression in the learnt units."""
    X, y, _ = make(LinearRegression, n_users=1500)
    users = np.arange(len(y))
    model = fit(LinearRegression, X, y, users, epsilon=64.0, l2=0.5, algorithm="phased-erm")
    scale, target = model.release_.details["scale"], model.release_.details["target_scale"]
    Z = X / scale
    Z -= Z.mean(axis=0)
    exact = np.linalg.solve(Z.T @ Z / len(y) + 0.5 * np.eye(3), Z.T @ (y - y.mean()) / len(y))
    np.testing.assert_allclose(model.coef_ * scale, exact, atol=0.03 * target)


@pytest.mark.parametrize("algorithm", ["phased-erm", "output-perturbation", "strongly-convex-erm", "phased-sco"])
def test_noise_error_is_honest(algorithm):
    """The stated standard error covers the spread over seeds, and is not idle.

    20 seeds and 3 coefficients: a sample deviation of 20 normal draws is below 1.6 times the true one except with
    probability 1e-3 each; the factor 2.5 leaves room for directions of less than unit curvature.
    """
    X, y, users = make(LinearRegression, n_users=500, seed=1)
    models = [
        fit(LinearRegression, X, y, users, algorithm=algorithm, epsilon=4.0, force_cap=2.0, random_state=seed)
        for seed in range(20)
    ]
    spread = np.std([model.coef_ for model in models], axis=0, ddof=1)
    stated = np.mean([model.release_.noise_error[:3] for model in models], axis=0)
    assert np.all(spread < 2.5 * stated)
    assert np.all(spread > stated / 4)


@pytest.mark.parametrize("algorithm", ["phased-erm", "strongly-convex-erm", "output-perturbation"])
def test_noise_error_is_exact_for_a_mean(algorithm):
    """Nobody is capped and the loss is quadratic: over 60 seeds the spread is what is stated.

    A sample deviation of 60 normal draws is within a factor 1.4 except with probability below 1e-3, for each of 2.
    """
    rows = np.random.default_rng(0).normal(size=(400, 2)) * 0.1
    options = {"epsilon": 4.0, "force_cap": 4.0, "feature_bounds": (-1, 1), "algorithm": algorithm}
    models = [Mean(**options, random_state=seed).fit(rows, groups=np.arange(400) // 4) for seed in range(60)]
    spread = np.std([model.location_ for model in models], axis=0, ddof=1)
    stated = models[0].release_.noise_error
    assert np.all(spread < 1.4 * stated)
    assert np.all(spread > stated / 1.4)


def test_engines():
    """An engine stands for the data where nobody has to be dealt out to a block."""
    X, y, users = make(LinearRegression, n_users=40)
    data = UserDataset.from_arrays(X, y, users)
    plain = fit(LinearRegression, X, y, users, algorithm="phased-erm")
    assert np.isfinite(plain.coef_).all()
    remote = LinearRegression(epsilon=8.0, random_state=0, algorithm="phased-erm").fit(LocalEngine(data))
    np.testing.assert_allclose(remote.coef_, plain.coef_, atol=0.05 * plain.release_.noise_error.max())
    for algorithm in SCO:
        with pytest.raises(ValueError, match="needs rows of this process"):
            LinearRegression(epsilon=8.0, algorithm=algorithm).fit(LocalEngine(data))


def test_too_many_coefficients_are_refused():
    X = np.random.default_rng(0).normal(size=(30, 250))
    with pytest.raises(ValueError, match="up to 200 coefficients, this model has 251: use algorithm='auto'"):
        fit(LinearRegression, X, X[:, 0], None, algorithm="phased-erm")


EXTREMES = {
    "epsilon": ({"epsilon": 1e-9}, "epsilon = 1e-09 and delta = 1e-06 leave a Gaussian budget"),
    "delta": ({"delta": 1e-30}, "delta = 1e-30 is below"),
    "large force_cap": ({"force_cap": 1e300}, "force_cap must be"),
    "small force_cap": ({"force_cap": 1e-300}, "force_cap must be"),
    "feature_bounds": ({"feature_bounds": (-1e308, 1e308)}, "feature_bounds must be at most"),
    "narrow feature_bounds": ({"feature_bounds": (0.0, 1e-300)}, "feature_bounds must be at most"),
    "l2": ({"l2": 1e300}, "l2 must be"),
    "center": ({"center": [1e300] * 4}, "center must be"),
}


class Unread:
    """Data that must not be looked at."""

    def __getattribute__(self, name):
        if name in ("__class__", "__len__", "__array__", "shape", "__iter__"):
            return super().__getattribute__(name) if name == "__class__" else pytest.fail("the data was read")
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    ("estimator", "name"),
    [(estimator, name) for estimator in ESTIMATORS for name in EXTREMES if name != "l2" or estimator not in LOCATIONS],
)
@pytest.mark.parametrize("algorithm", ["auto", "phased-erm"])
def test_extreme_choices_are_refused_before_data(estimator, name, algorithm):
    parameters, message = EXTREMES[name]
    with pytest.raises(ValueError, match=message) as caught:
        estimator(algorithm=algorithm, **parameters).fit(Unread(), np.zeros(3), groups=Unread())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("algorithm", ["auto", "phased-erm", "output-perturbation"])
def test_the_largest_choices_fit_without_a_warning(algorithm):
    X, y, users = make(LinearRegression, n_users=20)
    for parameters in ({"force_cap": 1e9}, {"force_cap": 1e-6}, {"l2": 1e9}, {"feature_bounds": (-1e150, 1e150)}):
        assert np.isfinite(numbers(fit(LinearRegression, X, y, users, algorithm=algorithm, **parameters))).all()


class TestDeclaredClasses:
    def test_absent_classes_are_no_error(self):
        X, y, users = make(LogisticRegression, n_users=100)
        for estimator in CLASSIFIERS:
            model = fit(estimator, X, np.ones(len(y), int), users, classes=[0, 1])
            assert model.classes_.tolist() == [0, 1]
            assert np.mean(model.predict(X) == 1) > 0.9
        model = fit(LogisticRegression, X, np.array(["b", "d"])[y], users, classes=["d", "c", "b", "a"])
        assert model.classes_.tolist() == ["a", "b", "c", "d"]
        assert model.predict_proba(X).shape == (len(y), 4)
        assert model.score(X, np.array(["b", "d"])[y]) > 0.6

    def test_the_same_fit_as_without(self):
        X, y, users = make(LogisticRegression, n_users=50)
        declared, plain = (fit(LogisticRegression, X, y, users, classes=classes) for classes in ([1, 0], None))
        np.testing.assert_array_equal(declared.coef_, plain.coef_)

    def test_of_a_dataset(self):
        X, y, users = make(LogisticRegression, n_users=50)
        data = UserDataset.from_arrays(X, y + 3, users)
        model = LogisticRegression(random_state=0, classes=[3, 4, 5]).fit(data)
        assert model.classes_.tolist() == [3, 4, 5]
        with pytest.raises(DataError, match=r"label 4.0, which is not one of the declared classes"):
            LogisticRegression(classes=[3, 5]).fit(data)

    def test_other_labels_are_named(self):
        X, y, users = make(LogisticRegression, n_users=20)
        with pytest.raises(DataError, match="y has the label 'no', which is not one of the declared classes"):
            fit(LogisticRegression, X, np.where(y, "yes", "no"), users, classes=["yes", "maybe"])

    @pytest.mark.parametrize("classes", [["a"], ["a", "a"], 3, [], [0.0, np.nan]])
    def test_bad_declarations(self, classes):
        with pytest.raises(ValueError, match="classes must be"):
            LogisticRegression(classes=classes).fit(Unread(), [0, 1])

    def test_three_classes_are_too_many_for_a_machine_of_two(self):
        X, y, users = make(LinearSVC, n_users=20)
        with pytest.raises(DataError, match="Only binary"):
            fit(LinearSVC, X, y, users, classes=[0, 1, 2])


@pytest.mark.parametrize(("rows", "miss"), [(1, 0.1), (5, 0.03)])
def test_a_high_quantile_of_a_heavy_tailed_target(rows, miss):
    """Coverage of the 0.95 quantile; t with 1.5 degrees of freedom has no variance."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(2000), rows)
    X = rng.normal(size=(len(users), 2))
    y = 100 * (X @ [1.0, -1.0] + rng.standard_t(1.5, size=len(users)))
    model = fit(QuantileRegressor, X, y, users, quantile=0.95, epsilon=1.0)
    assert abs(np.mean(y <= model.predict(X)) - 0.95) < miss


def test_a_rare_class_is_not_capped_away():
    """One row in fifteen: the few pull hard and all the same way, and the cap must leave room for them.

    It leaves room for about three quarters (docs/guide/sharp-edges.md): mean of eight seeds.
    """
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(2000), 3)
    X = rng.normal(size=(len(users), 5))
    y = rng.random(len(users)) < 1 / (1 + np.exp(3 - X @ np.linspace(-0.5, 0.5, 5)))
    models = [fit(LogisticRegression, X, y, users, epsilon=1.0, random_state=seed) for seed in range(8)]
    predicted = np.mean([model.predict_proba(X)[:, 1].mean() for model in models])
    assert 0.6 * y.mean() < predicted < 1.4 * y.mean()


@pytest.mark.parametrize("estimator", [LogisticRegression, LinearSVC, LinearRegression], ids=lambda e: e.__name__)
@pytest.mark.parametrize(
    ("move", "epsilon"),
    [
        (lambda X: X + np.array([100, 0, 0]), 1.0),
        (lambda X: X + np.array([1e6, 0, 0]), 1.0),
        (lambda X: X + np.array([-1e6, 1e6, 1e3]), 1.0),
        (lambda X: X + np.array([-1e6, 1e6, 1e3]), 4.0),
        (lambda X: X * [1e6, 1, 1e-6], 1.0),
        (lambda X: (X + np.array([1e3, 0, 1e6])) * [1e5, 1, 1e-6], 4.0),
    ],
    ids=["shift", "large shift", "shifts, small budget", "shifts", "scale", "both"],
)
def test_units_change_predictions_only_through_noise(estimator, move, epsilon):
    """A shift needs histograms that zoom in, which the budget pays for."""
    X, y, users = make(estimator, n_users=2000)
    base = fit(estimator, X, y, users, epsilon=epsilon)
    moved = fit(estimator, move(X), y, users, epsilon=epsilon)
    score = "decision_function" if estimator in CLASSIFIERS else "predict"
    difference = getattr(moved, score)(move(X)) - getattr(base, score)(X)
    assert np.sqrt(np.mean(difference**2)) < 0.15 * np.std(getattr(base, score)(X))


@pytest.mark.parametrize("far", [1, 10])
def test_far_columns_cost_no_more_than_noise(far):
    """Ten columns, one or all of them shifted: errors of 15 fits, in order. Ten places are more to learn than one."""
    rng = np.random.default_rng(0)
    users, X = np.repeat(np.arange(2000), 3), rng.normal(size=(6000, 10))
    truth = X @ np.linspace(-0.5, 0.5, 10)
    y = truth + 0.5 * rng.normal(size=len(users))
    errors = {}
    for shift in (0.0, 1e3, 1e6):
        moved = X + shift * (np.arange(10) < far)
        models = [fit(LinearRegression, moved, y, users, epsilon=1.0, random_state=seed) for seed in range(15)]
        errors[shift] = np.sort([np.mean((model.predict(moved) - truth) ** 2) for model in models])
    for shift in (1e3, 1e6):
        assert np.median(errors[shift]) < (1.5 if far == 1 else 2) * np.median(errors[0.0])
        assert np.all(errors[shift] < (2 if far == 1 else 4) * errors[0.0])


def test_a_column_with_most_rows_at_one_value_keeps_its_width():
    """Nine rows in ten at 1990: zooming in on them must not lose the others."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(2000), 10)
    years = np.where(rng.random(len(users)) < 0.9, 1990, 1950 + rng.integers(0, 60, len(users)))
    X = np.column_stack([years, rng.normal(size=len(users)), rng.normal(2005, 3, len(users))])
    y = X[:, 1] + rng.logistic(size=len(users)) > 0
    for seed in range(3):
        scale = fit(LogisticRegression, X, y, users, epsilon=1.0, random_state=seed).release_.details["scale"]
        assert np.all((scale / X.std(axis=0) > 0.25) & (scale / X.std(axis=0) < 8))


def test_flags_that_are_mostly_set_get_the_scale_of_flags():
    """Most rows are 1, or 4, the others an integer away; a column that only looks like it keeps its width."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(1000), 5)
    flag = (rng.random(len(users)) < 0.95).astype(float)
    grade = 4.0 - (rng.random(len(users)) < 0.05) + (rng.random(len(users)) < 0.05)
    X = np.column_stack([flag, grade, rng.normal(1, 0.001, len(users)), rng.normal(size=len(users))])
    y = X[:, 3] + rng.logistic(size=len(users)) > 0
    for seed in range(5):
        details = fit(LogisticRegression, X, y, users, epsilon=2.0, random_state=seed).release_.details
        np.testing.assert_allclose(details["center"][:3], [1, 4, 1], atol=0.3)
        assert np.all((details["scale"][:2] > 0.15) & (details["scale"][:2] < 1.0))
        assert 0.0005 < details["scale"][2] < 0.004


@pytest.mark.parametrize("share", [0.004, 0.03, 0.2])
def test_standardized_flags_get_the_scale_of_flags(share):
    """Whether noise hides their rare values or not: within a factor 4 of half their distance, of either sign."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(1000), 5)
    flags = (rng.random((len(users), 4)) < share) * np.array([1, 1, -1, -1])
    X = np.column_stack([(flags - flags.mean(axis=0)) / flags.std(axis=0), rng.normal(size=len(users))])
    y = X[:, 4] + rng.logistic(size=len(users)) > 0
    for seed in range(4):
        scale = fit(LogisticRegression, X, y, users, epsilon=2.0, random_state=seed).release_.details["scale"][:4]
        assert np.all((scale > 0.25 * 0.5 / np.sqrt(share)) & (scale < 4 * 0.5 / np.sqrt(share)))


@pytest.mark.parametrize(
    "column",
    [
        lambda z: 0.3 + 3e-5 * z,
        lambda z: -0.05 + 1e-5 * z,
        lambda z: 0.01 + 1e-6 * z,
        lambda z: np.where(z > 0.8, 0.07, 0.05),
        lambda z: np.where(z > 0, 0.02, 0.01),
    ],
    ids=["0.3 narrow", "-0.05 narrow", "0.01 narrow", "0.05 or 0.07", "0.01 or 0.02"],
)
def test_columns_and_targets_near_zero_are_not_taken_for_standardized_flags(column):
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(2000), 5)
    z = rng.normal(size=(len(users), 4))
    far = column(z[:, 0])
    X = np.column_stack([far, z[:, 1:]])
    for seed in range(4):
        release = fit(LinearRegression, X, far, users, epsilon=2.0, random_state=seed).release_
        for scale in (release.details["scale"][0], release.details["target_scale"]):
            assert 0.1 < scale / far.std() < 10


@pytest.mark.parametrize("share", [0.8, 0.9])
def test_rows_away_from_a_common_value_are_not_lost(share):
    """Whatever look loses them: clamped at 64 private units, a column still tells what it told."""
    users = np.repeat(np.arange(3000), 3)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        column = np.where(rng.random(len(users)) < share, 1990.0, 1950.0 + rng.integers(0, 60, len(users)))
        X = np.column_stack([column, rng.normal(size=len(users))])
        release = fit(LinearRegression, X, X[:, 1], users, epsilon=1.0, random_state=seed).release_
        center, scale = release.details["center"][0], release.details["scale"][0]
        seen = np.clip((column - center) / scale, -64, 64)
        assert np.corrcoef(seen, column)[0, 1] > 0.95


def test_a_far_column_with_zeros_keeps_them_apart():
    """Unix times where one row in ten is missing and says 0: the median of 15 fits is as good as for the flag alone."""
    users = np.repeat(np.arange(2000), 3)
    errors = {"times": [], "flag": []}
    for seed in range(15):
        rng = np.random.default_rng(seed)
        missing = rng.random(len(users)) < 0.1
        times = np.where(missing, 0.0, 1.7e9 + 3e7 * rng.random(len(users)))
        other = rng.normal(size=len(users))
        truth = 3.0 * missing + other
        y = truth + 0.5 * rng.normal(size=len(users))
        for name, column in (("times", times), ("flag", missing.astype(float))):
            X = np.column_stack([column, other])
            model = fit(LinearRegression, X, y, users, epsilon=1.0, random_state=seed)
            errors[name].append(np.mean((model.predict(X) - truth) ** 2))
    assert np.median(errors["times"]) < 3 * np.median(errors["flag"])
