"""How much worse the paper's algorithms are than the default fit: excess loss on synthetic data, a few seeds.

    python benchmarks/algorithms.py

prints the table of docs/guide/estimators.md.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.optimize import minimize

from userdp import LogisticRegression
from userdp.algorithms.settings import ALGORITHMS


def users(n: int, seed: int, rows: int = 10, features: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n * rows, features)) @ rng.normal(size=(features, features))
    y = X @ np.linspace(1.0, -1.0, features) / np.sqrt(features) + 0.5 + rng.logistic(size=len(X)) > 0
    return X, y.astype(int), np.repeat(np.arange(n), rows)


def loss(X: np.ndarray, y: np.ndarray, coefficients: np.ndarray) -> float:
    z = X @ coefficients[:-1] + coefficients[-1]
    return float(np.mean(np.logaddexp(0, z) - y * z))


def excess(algorithm: str, n: int, epsilon: float, seeds: int) -> float:
    """Median excess logistic loss over the non-private optimum."""
    losses = []
    for seed in range(seeds):
        X, y, groups = users(n, seed)
        best = minimize(lambda w, X=X, y=y: loss(X, y, w), np.zeros(X.shape[1] + 1), method="BFGS").fun
        model = LogisticRegression(epsilon, algorithm=algorithm, random_state=seed).fit(X, y, groups=groups)
        losses.append(loss(X, y, np.append(model.coef_[0], model.intercept_)) - best)
    return float(np.median(losses))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=9)
    parser.add_argument("--users", type=int, nargs="+", default=[500, 2000])
    seeds, sizes = parser.parse_args().seeds, parser.parse_args().users
    print(f"| algorithm | {' | '.join(f'n = {n}, ε = {e:g}' for n in sizes for e in (1.0, 8.0))} |")
    print("|---|" + "---|" * (2 * len(sizes)))
    for algorithm in ALGORITHMS:
        found = [excess(algorithm, n, epsilon, seeds) for n in sizes for epsilon in (1.0, 8.0)]
        print(f"| `{algorithm}` | {' | '.join(f'{e:.4f}' for e in found)} |", flush=True)


if __name__ == "__main__":
    main()
