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
    from userdp.algorithms.schedule import PHASES
    from userdp.engines import LocalEngine
    from userdp.estimators import LogisticRegression

    X, y, users = synthetic(10**6, 50, 10**4)
    X = X.astype(np.float32)
    passes, run = 0, LocalEngine.run

    def counted(*arguments: Any) -> None:
        nonlocal passes
        passes += 1
        run(*arguments)

    cases = {
        "diffprivlib": ("logistic regression of diffprivlib 0.6.6 (protects single rows)", ()),
        "jax-privacy": (f"user-level DP-GD in JAX-Privacy 2.0.0, {PHASES} passes", (str(PHASES),)),
    }
    rows = []
    for package, (name, arguments) in cases.items():
        theirs, their_work, their_passes = speed_rivals.measured(package, X, y, users, *arguments)
        ((ours, work),) = alternating(lambda: LogisticRegression(**BUDGET).fit(X, y, groups=users))
        passes, LocalEngine.run = 0, counted  # type: ignore[method-assign]
        LogisticRegression(**BUDGET).fit(X, y, groups=users)
        LocalEngine.run = run  # type: ignore[method-assign]
        note = f"10^6 × 50 float32: {ours:.2f} s, everything learnt, against {theirs:.2f} s"
        rows.append(Row("rivals", name, "times faster", theirs / ours, "≥ 5", note))
        own, other = 1e3 * work / passes, 1e3 * their_work / their_passes
        note = f"{own:.0f} ms in each of {passes} passes against {other:.0f} ms in each of {their_passes:.0f}"
        rows.append(Row("rivals", f"the same, {package}", "times less processor time a pass", other / own, "", note))
    return rows
