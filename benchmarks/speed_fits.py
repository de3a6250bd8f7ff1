"""Groups of speed.py that compare fits: scikit-learn's solvers, other packages for private training."""

from __future__ import annotations

from typing import Any

import numpy as np
import speed_rivals
from speed_common import BUDGET, Row, alternating, synthetic


def fits() -> list[Row]:
    """Default private fit against scikit-learn's solver on the same standardized features."""
    from sklearn.linear_model import LogisticRegression as Plain
    from sklearn.preprocessing import StandardScaler

    from userdp.estimators import LogisticRegression
    from userdp.report.demo import flights

    X, y, planes, _ = flights()
    isotropic = synthetic(10**6, 50, 10**4)
    cases = {
        "flights, 327k × 42": (X, y, planes),
        "synthetic, 10^6 × 50, 10^4 users": isotropic,
        "the same in float32": (isotropic[0].astype(np.float32), *isotropic[1:]),
        "the same, correlated features": synthetic(10**6, 50, 10**4, correlated=True),
    }
    rows = []
    for name, (features, labels, users) in cases.items():
        scaled = StandardScaler().fit_transform(features)
        LogisticRegression(**BUDGET).fit(features[:2000], labels[:2000], groups=users[:2000])
        plain, private = alternating(
            lambda scaled=scaled, labels=labels: Plain().fit(scaled, labels),
            lambda f=features, y=labels, u=users: LogisticRegression(**BUDGET).fit(f, y, groups=u),
        )
        steps = int(Plain().fit(scaled, labels).n_iter_[0])
        note = f"{private[0]:.2f} s against {plain[0]:.2f} s ({steps} lbfgs steps)"
        note += f"; processor time {private[1] / plain[1]:.2f} ×"
        rows.append(Row("fit", name, "private / scikit-learn, wall", private[0] / plain[0], "≤ 2", note))
    return rows


def solvers() -> list[Row]:
    """Hinge and pinball loss against scikit-learn's solvers, stopped early: when they are no worse than ours."""
    from sklearn.linear_model import QuantileRegressor as PlainQuantile
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC as PlainSVC

    from userdp.estimators import LinearSVC, QuantileRegressor
    from userdp.report.demo import flights

    X, y, planes, _ = flights()
    synthetic_rows = synthetic(2 * 10**5, 50, 10**4)
    rows = []
    for name, (features, labels, users) in {
        "LinearSVC, flights, 327k × 42": (X, y, planes),
        "LinearSVC, synthetic, 2·10^5 × 50, 10^4 users": synthetic_rows,
    }.items():
        signs, scaled = 2.0 * (labels == labels.max()) - 1, StandardScaler().fit_transform(features)

        def hinge(model: Any, on: Any, signs: Any = signs) -> float:
            return float(np.maximum(0, 1 - signs * model.decision_function(on)).mean())

        ours = hinge(LinearSVC(**BUDGET, weighting="rows").fit(features, labels, groups=users), features)
        for sweeps in (1, 3, 10, 30):  # 1000 are the default, and take many minutes
            exact = PlainSVC(loss="hinge", max_iter=sweeps, random_state=0)
            if hinge(exact.fit(scaled, labels), scaled) <= ours:
                break
        exact_time, usual_time, private = alternating(
            lambda scaled=scaled, labels=labels, exact=exact: exact.fit(scaled, labels),
            lambda scaled=scaled, labels=labels: PlainSVC().fit(scaled, labels),
            lambda f=features, y=labels, u=users: LinearSVC(**BUDGET).fit(f, y, groups=u),
            repeats=2,
        )
        note = f"{private[0]:.2f} s against {exact_time[0]:.2f} s, {exact.max_iter} sweeps; mean hinge loss "
        note += f"{ours:.3f} against {hinge(exact, scaled):.3f}"
        measured = "private / scikit-learn, wall"
        rows.append(Row("solvers", f"{name}, hinge loss", measured, private[0] / exact_time[0], "≤ 3", note))
        note = f"{private[0]:.2f} s against {usual_time[0]:.2f} s; theirs is smooth"
        rows.append(Row("solvers", f"{name}, their squared hinge", measured, private[0] / usual_time[0], "≤ 3", note))
    features, _, users = synthetic(10**4, 10, 1000)
    values = features @ np.linspace(-1, 1, 10) + np.random.default_rng(1).standard_t(3, len(features))
    plain = PlainQuantile(quantile=0.5, alpha=0.0)
    times = alternating(
        lambda: plain.fit(features, values),
        lambda: QuantileRegressor(**BUDGET).fit(features, values, groups=users),
        repeats=2,
    )
    note = f"{times[1][0]:.2f} s against {times[0][0]:.2f} s; theirs is a linear program, quadratic in rows"
    name = "QuantileRegressor, synthetic, 10^4 × 10, 1000 users"
    return [*rows, Row("solvers", name, "private / scikit-learn, wall", times[1][0] / times[0][0], "≤ 3", note)]


def rivals() -> list[Row]:
    """Other packages for private training, in their own environments."""
    from sklearn.preprocessing import StandardScaler

    from userdp.algorithms.schedule import PHASES
    from userdp.report.demo import flights

    X, y, planes, _ = flights()
    planes = np.unique(planes, return_inverse=True)[1]
    isotropic, correlated = synthetic(10**6, 50, 10**4), synthetic(10**6, 50, 10**4, correlated=True)
    cases = {
        "10^6 × 50": (isotropic[0].astype(np.float32), *isotropic[1:]),
        "10^6 × 50, correlated": (StandardScaler().fit_transform(correlated[0]).astype(np.float32), *correlated[1:]),
        "flights, 327k × 42": (StandardScaler().fit_transform(X).astype(np.float32), y, planes),
    }
    packages = {
        "diffprivlib": "logistic regression of diffprivlib 0.6.6, which protects single rows",
        "jax-privacy": "user-level DP-GD in JAX-Privacy 2.0.0",
        "opacus": "user-level DP-GD in Opacus 1.6.0",
    }
    rows = []
    for package, name in packages.items():
        for case, data in cases.items():
            rows += _rival(package, name, case, data, () if package == "diffprivlib" else (str(PHASES),))
    return rows


def _rival(package: str, name: str, case: str, data: tuple[Any, Any, Any], arguments: tuple[str, ...]) -> list[Row]:
    """A rival on standardized float32 features: its passes against as many of our user-level DP-GD, both after rows are
    brought together by user; and its whole run against our default fit, which starts from scattered rows and learns
    units, geometry and caps.
    """
    from userdp.algorithms.schedule import PHASES
    from userdp.baselines import user_dpgd
    from userdp.data import UserDataset
    from userdp.estimators import LogisticRegression
    from userdp.losses import FeatureMap, LinearModel, Logistic

    X, y, users = data
    grouped = UserDataset.from_arrays(X, y, users)
    model = LinearModel(Logistic(), FeatureMap.identity(X.shape[1], bound=64.0, intercept=True))
    settings = {**BUDGET, "clip": 1.0, "steps": PHASES}
    theirs = speed_rivals.measured(package, X, y, users, *arguments)
    LogisticRegression(**BUDGET).fit(X[:2000], y[:2000], groups=users[:2000])
    # Their noise comes from an ordinary generator, so ours does for the comparison; the note has the secure one.
    (passes, work), (secure, _), (fit, _) = alternating(
        lambda: user_dpgd(grouped, model, **settings, random_state=0),
        lambda: user_dpgd(grouped, model, **settings),
        lambda: LogisticRegression(**BUDGET).fit(X, y, groups=users),
        repeats=5,
    )
    own, other = 1e3 / PHASES, 1e3 / theirs.passes
    note = f"{own * passes:.2f} ms a pass against {other * theirs.wall:.1f} ms; processor time {own * work:.2f} ms "
    note += f"against {other * theirs.work:.1f} ms; {own * secure:.2f} ms with secure noise"
    whole = f"{fit:.2f} s, everything learnt, against {theirs.wall:.2f} s for {theirs.passes:.0f} passes"
    if theirs.stacking:
        both = theirs.wall + theirs.stacking
        whole += f"; {both / fit:.2f} × with the {theirs.stacking:.2f} s of stacking users, which ours has in it"
    ratio, title = other * theirs.wall / (own * passes), f"{name}: {case}"
    return [
        Row("rivals", f"{title}, the same number of passes", "times faster", ratio, "≥ 5", note),
        Row("rivals", f"{title}, the whole default fit", "times faster", theirs.wall / fit, "", whole),
    ]
