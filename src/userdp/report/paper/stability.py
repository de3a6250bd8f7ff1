"""The deletion-stability theorem, the vector-concentration lemma and the closeness proposition, measured.

Each draws many random permutations (or samples), counts how often the bound is exceeded, which must be at most β,
and compares the bound with the (1 − β)-quantile of what it bounds. The problem is median regression in disguise:
mean absolute deviation with a ridge on an interval that binds for some data, minimized exactly, so strongly convex,
non-smooth, constrained.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from userdp.losses.base import Floats
from userdp.report.paper.output import NOT_PRIVATE, axes, markdown, save, track, write_csv, write_text
from userdp.theory import deletion_stability, erm_closeness, user_gradient, vector_concentration

BETAS = (0.2, 0.05, 0.01)
RIDGE = 0.5
EDGE = 0.6


def median_ridge(values: Floats) -> float:
    """argmin over [−0.6, 0.6] of mean|θ − x| + (μ/2)θ²: bisection on the monotone subgradient."""
    ordered = np.sort(values)
    low, high = -EDGE, EDGE
    for _ in range(60):
        middle = (low + high) / 2
        below = 2 * np.searchsorted(ordered, middle) / len(ordered) - 1
        low, high = (low, middle) if RIDGE * middle + below > 0 else (middle, high)
    return high


def _concentration(generator: np.random.Generator, n: int, m: int) -> tuple[float, Callable[[float], float]]:
    vectors = generator.standard_normal((n * m, 5))
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    vectors[: len(vectors) // 2] *= 0.1
    vectors -= vectors.mean(axis=0)
    bound = float(np.linalg.norm(vectors, axis=1).max())
    drawn = float(np.linalg.norm(generator.permutation(vectors)[:m].sum(axis=0)))
    return drawn, lambda beta: vector_concentration(bound, m, beta)


def _worst_user(generator: np.random.Generator, n: int, m: int) -> tuple[float, Callable[[float], float]]:
    vectors = generator.standard_normal((n * m, 5))
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    vectors -= vectors.mean(axis=0)
    means = generator.permutation(vectors).reshape(n, m, 5).mean(axis=1)
    return float(np.linalg.norm(means, axis=1).max()), lambda beta: user_gradient(1.0, n, m, beta)


def _deletion(generator: np.random.Generator, n: int, m: int) -> tuple[float, Callable[[float], float]]:
    values = generator.exponential(size=n * m) - 0.4
    whole, rest = median_ridge(values), median_ridge(generator.permutation(values)[m:])
    lipschitz = 1 + RIDGE * EDGE
    return abs(whole - rest), lambda beta: deletion_stability(lipschitz, RIDGE, n, m, beta)


def _closeness(generator: np.random.Generator, n: int, m: int) -> tuple[float, Callable[[float], float]]:
    found = median_ridge(generator.laplace(0.3, 0.5, size=n * m))
    lipschitz = 1 + RIDGE * EDGE
    return abs(found - population_minimizer()), lambda beta: erm_closeness(lipschitz, RIDGE, n, m, beta)


def population_minimizer() -> float:
    """Root of μθ + 2F(θ) − 1 for Laplace(0.3, 0.5), below its median: F(θ) = ½e^{(θ − 0.3)/0.5}."""
    low, high = 0.0, 0.3
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if RIDGE * middle + np.exp((middle - 0.3) / 0.5) - 1 > 0 else (middle, high)
    return high


STATEMENTS: tuple[
    tuple[str, Callable[[np.random.Generator, int, int], tuple[float, Callable[[float], float]]]], ...
] = (
    ("vector concentration (Lemma 3.8)", _concentration),
    ("largest user gradient (union of it)", _worst_user),
    ("deletion stability (Theorem 3.6)", _deletion),
    ("ERM close to population (Prop. B.1)", _closeness),
)
SIZES = ((20, 10), (20, 200), (200, 50))


def run(output: Path, seed: int, *, draws: int = 2000, quiet: bool = False) -> list[str]:
    """Write stability.csv, stability.png and stability.md; return the table."""
    tasks = [(name, draw, n, m) for name, draw in STATEMENTS for n, m in SIZES]
    rows: list[tuple[str, int, int, float, float, float, float]] = []
    figure, panels = axes(len(STATEMENTS), width=3.2)
    for name, draw, n, m in track(tasks, len(tasks), "stability", quiet=quiet):
        generator = np.random.default_rng([seed, n, m])
        pairs = [draw(generator, n, m) for _ in range(draws)]
        for beta in BETAS:
            ratios = np.array([value / bound(beta) for value, bound in pairs])
            rows.append((name, n, m, beta, float(np.mean(ratios > 1)), 1 / float(np.quantile(ratios, 1 - beta)), draws))
        panel = panels[[title for title, _ in STATEMENTS].index(name)]
        ratios = np.sort([value / bound(0.05) for value, bound in pairs])
        panel.plot(ratios, 1 - np.arange(draws) / draws, label=f"n={n}, m={m}", linewidth=1)
        panel.set_title(name, fontsize=8)
        panel.set_yscale("log")
        panel.set_xlabel("value / bound at β = 0.05")
    panels[0].set_ylabel("share of permutations above")
    panels[0].legend(fontsize=7)
    save(figure, output / "stability.png")
    header = ("statement", "n", "m", "beta", "share_over_bound", "looseness", "draws")
    write_csv(output / "stability.csv", header, rows)
    shown = [(r[0], str(r[1]), str(r[2]), f"{r[3]:g}", f"{r[4]:.4f}", f"{r[5]:.1f}×") for r in rows]
    lines = [
        f"Share of {draws} random permutations (samples) over the bound, which must be at most β, and how "
        f"loose the bound is: "
        "bound / (1 − β)-quantile. " + NOT_PRIVATE,
        "",
        *markdown(("statement", "n", "m", "β", "over the bound", "loose by"), shown),
    ]
    write_text(output / "stability.md", lines)
    return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``userdp paper stability``."""
    parser.add_argument(
        "--draws", type=int, default=2000, help="permutations for each statement and size (default 2000)"
    )


def command(arguments: argparse.Namespace) -> dict[str, Any]:
    """``userdp paper stability``."""
    lines = run(arguments.output, arguments.seed, draws=arguments.draws, quiet=arguments.json)
    return {"files": ["stability.csv", "stability.png", "stability.md"], "lines": lines}
