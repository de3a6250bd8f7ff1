"""What units cost: errors of the default fit when columns are multiplied and shifted, against the same data as it is.

    userdp bench units

writes benchmarks/results/units.md. Ten standard normal features of three rows a user, a linear target; a hundred data
sets, the same for every line.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.progress import track

from userdp import LinearRegression, LogisticRegression

FEATURES = 10
RESULTS = Path(__file__).parent / "results" / "units.md"
FIRST = np.eye(FEATURES)[0]
Change = Callable[[np.ndarray], np.ndarray]
FEATURE_CHANGES: dict[str, Change] = {
    "as it is": lambda X: X,
    "one column × 10⁶": lambda X: X * 1e6**FIRST,
    "one column × 10⁻⁶": lambda X: X * 1e-6**FIRST,
    "all columns × 10⁶": lambda X: X * 1e6,
    "one column + 10 spreads": lambda X: X + 10 * FIRST,
    "one column + 10³ spreads": lambda X: X + 1e3 * FIRST,
    "one column + 10⁶ spreads": lambda X: X + 1e6 * FIRST,
    "one column × 10⁶, then + 10⁶ spreads": lambda X: 1e6**FIRST * X + 1e12 * FIRST,
    "one column × 10⁻⁵, then + 0.3": lambda X: X * 1e-5**FIRST + 0.3 * FIRST,
    "all columns + 10 spreads": lambda X: X + 10,
    "all columns + 10³ spreads": lambda X: X + 1e3,
    "all columns + 10⁶ spreads": lambda X: X + 1e6,
}
TARGET_CHANGES: dict[str, tuple[float, float]] = {
    "target × 10⁶": (1e6, 0.0),
    "target × 10⁻⁵, then + 0.3": (1e-5, 0.3),
    "target + 10³ spreads": (1.0, 1e3),
    "target + 10⁶ spreads": (1.0, 1e6),
}
KINDS = ("linear", "logistic")


def error(kind: str, name: str, n_users: int, epsilon: float, seed: int) -> float:
    """Excess expected loss over the true coefficients, on the rows of the fit and in the units of the data as it is."""
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(n_users), 3)
    X = rng.normal(size=(len(users), FEATURES))
    truth = X @ rng.normal(size=FEATURES) / np.sqrt(FEATURES) * (1 if kind == "linear" else 2)
    rows = FEATURE_CHANGES.get(name, FEATURE_CHANGES["as it is"])(X)
    settings = {"epsilon": epsilon, "delta": 1e-6, "random_state": seed}
    if kind == "linear":
        factor, shift = TARGET_CHANGES.get(name, (1.0, 0.0))
        y = factor * (truth + 0.5 * rng.normal(size=len(users))) + shift
        predicted = LinearRegression(**settings).fit(rows, y, groups=users).predict(rows)
        return float(0.5 * np.mean(((predicted - shift) / factor - truth) ** 2))
    labels = truth + rng.logistic(size=len(users)) > 0
    score = LogisticRegression(**settings).fit(rows, labels, groups=users).decision_function(rows)
    share = 1 / (1 + np.exp(-truth))
    return float(np.mean(np.logaddexp(0, score) - np.logaddexp(0, truth) - share * (score - truth)))


def cell(kind: str, name: str, n_users: int, epsilon: float, fits: int) -> str:
    if kind == "logistic" and name in TARGET_CHANGES:
        return "–"
    errors = [error(kind, name, n_users, epsilon, seed) for seed in range(fits)]
    return ", ".join(f"{value:.4f}" if value < 1 else f"{value:.0e}" for value in np.quantile(errors, [0.5, 0.9, 1.0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument("--users", type=int, nargs="+", default=[1000, 2000])
    parser.add_argument("--epsilon", type=float, default=1.0)
    chosen = parser.parse_args()
    lines = [
        "# What units cost",
        "",
        f"`userdp bench units`: excess loss of {chosen.fits} fits at ε = {chosen.epsilon:g}, δ = 10⁻⁶ on ten features,",
        "three rows a user. Median, the quantile 0.9 and the largest. A few hundred users: `--users 300`.",
        "",
        f"| data | {' | '.join(f'{kind}, {n} users' for n in chosen.users for kind in KINDS)} |",
        "|---|" + "---|" * (len(KINDS) * len(chosen.users)),
    ]
    for name in track([*FEATURE_CHANGES, *TARGET_CHANGES], description="units"):
        cells = [cell(kind, name, n, chosen.epsilon, chosen.fits) for n in chosen.users for kind in KINDS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    RESULTS.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
