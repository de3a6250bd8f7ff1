"""What every release costs at given (ε, δ, n, m, d), side by side: why the default is what it is."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from userdp.report.paper.output import axes, markdown, save, track, write_csv, write_text
from userdp.theory import noise_table


def run(
    output: Path,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    n: int = 1000,
    m: int = 100,
    d: int = 20,
    beta: float = 0.01,
    quiet: bool = False,
) -> list[str]:
    """Write constants.csv, constants.png and constants.md; return the table. G = μ = 1; nothing is random."""
    table = noise_table(epsilon, delta, n, m, beta=beta, smoothness=1.0)
    worst = table[-1].sigma
    rows = []
    for entry in table:
        wins = "already" if entry.rows_to_win <= m else f"{entry.rows_to_win:.2g}" if entry.available else "—"
        wins = "—" if entry.mechanism.startswith("worst-case") else wins
        noise = f"{entry.sigma * math.sqrt(d):.3g}" if entry.available else f"needs {entry.minimum_users} users"
        relative = f"{entry.sigma / worst:.3g}" if entry.available else "—"
        rows.append((entry.mechanism, noise, relative, str(entry.minimum_users), wins))
    header = ("release", "length of the noise", "× worst case", "minimum n", "wins from m")
    raw = [(e.mechanism, e.sigma, e.sigma * math.sqrt(d), e.minimum_users, e.rows_to_win, e.available) for e in table]
    write_csv(
        output / "constants.csv", ("release", "sigma", "noise_length", "minimum_users", "rows_to_win", "available"), raw
    )
    figure, (panel,) = axes(1, width=7.5, height=4.0)
    sizes = [10**power for power in range(13)]
    tables = [
        noise_table(epsilon, delta, n, size, beta=beta, smoothness=1.0)
        for size in track(sizes, len(sizes), "constants", quiet=quiet)
    ]
    for place, entry in enumerate(table):
        if entry.available:
            curve, style = [one[place].sigma for one in tables], ("--", "-")[place % 2]
            panel.loglog(sizes, curve, style, label=entry.mechanism, linewidth=1.2)
    panel.set_xlabel("rows per user, m")
    panel.set_ylabel("noise on each coefficient (G = μ = 1)")
    panel.legend(fontsize=7)
    save(figure, output / "constants.png")
    lines = [
        f"Noise of every release of a strongly convex minimizer: ε = {epsilon:g}, δ = {delta:g}, n = {n} "
        f"users, m = {m} rows each, "
        f"d = {d}, G = μ = 1, failure probability {beta:g}. It wins over the worst case from the m in the last column.",
        "",
        *markdown(header, rows),
        "",
        "The capped release is shown with the cap that is proved to leave everyone uncapped, 5G√(ln(n/β)/m); "
        "where that exceeds G, a cap "
        "of G makes it the worst case itself, and a cap near the typical pull G/√m needs ten times less "
        "noise. It has no minimum n, no ⊥ "
        "and no search; a cap that is too low costs accuracy, never privacy. That is why it is the default.",
    ]
    write_text(output / "constants.md", lines)
    return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``userdp paper constants``."""
    parser.add_argument("--epsilon", type=float, default=1.0, help="privacy parameter ε (default 1)")
    parser.add_argument("--delta", type=float, default=1e-6, help="privacy parameter δ (default 1e-6)")
    parser.add_argument("-n", "--users", type=int, default=1000, help="users (default 1000)")
    parser.add_argument("-m", "--rows", type=int, default=100, help="rows per user (default 100)")
    parser.add_argument("-d", "--dimension", type=int, default=20, help="coefficients (default 20)")


def command(arguments: argparse.Namespace) -> dict[str, Any]:
    """``userdp paper constants``."""
    lines = run(
        arguments.output,
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        n=arguments.users,
        m=arguments.rows,
        d=arguments.dimension,
        quiet=arguments.json,
    )
    return {"files": ["constants.csv", "constants.png", "constants.md"], "lines": lines}
