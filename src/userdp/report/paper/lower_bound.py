"""Measured excess risk on the hard instances of Appendix D, divided by the lower bounds with their constants.

The algorithms are told what the lower bound's adversary grants everyone, the family: rows of spread σ√d around a
centre in a small box. They are the best of ours for it, with the capped release and a cap of twice what an average
user needs: output perturbation for strongly convex losses, Phased-ERM for convex ones. In the convex family itself the
signal is so weak that even a constant answer is within a factor 30; so the same rows are also measured at stronger
signals, which include the family, and the worst of them counts.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from userdp.algorithms import Problem, output_perturbation, phased_erm
from userdp.data import UserDataset
from userdp.losses.base import Floats
from userdp.losses.vector import VectorModel
from userdp.report.paper.output import NOT_PRIVATE, axes, logarithmic, markdown, save, track, write_csv, write_text
from userdp.solvers.sets import Ball
from userdp.theory import (
    HardInstance,
    LowerBound,
    convex_erm,
    convex_hard_instance,
    convex_sco,
    strongly_convex_erm,
    strongly_convex_sco,
)

EPSILON, DELTA = 1.0, 1e-6
BASE = (1000, 20, 50)
WIDTH = 20.0
# The convex instance at these multiples of its signal, as far as users' means still differ more than they agree.
STRONGER = (1.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
PHASES = 14


@dataclass(frozen=True)
class Measured:
    """Mean excess population risk, over the worst signal if there is a choice; and on the hard family itself the mean
    excess population and empirical risk.
    """

    worst: float
    population: float
    empirical: float


def strongly_convex(n: int, m: int, d: int, seeds: int, seed: int) -> Measured:
    """Output perturbation on random centres of the family."""
    instance = HardInstance(d, m, width=WIDTH)
    problem = Problem(VectorModel.mean(d, zeta=0.5, bound=instance.ball), 1.0, Ball(np.zeros(d), instance.ball))
    cap = 2 * instance.sigma * math.sqrt(d / m)
    population, empirical = [], []
    for k in range(seeds):
        generator = np.random.default_rng([seed, k])
        centre = instance.draw_centre(generator)
        rows = instance.sample(generator, n, centre)
        found = output_perturbation(_dataset(rows), problem, force_cap=cap, **_public(m, seed + k))
        population.append(instance.excess_population(found.theta, centre))
        empirical.append(instance.excess_empirical(found.theta, rows))
    return Measured(float(np.mean(population)), float(np.mean(population)), float(np.mean(empirical)))


def convex(n: int, m: int, d: int, seeds: int, seed: int) -> Measured:
    """Phased-ERM on random centres of the family, and of the same one with stronger signals."""
    family = convex_hard_instance(n, m, d, EPSILON, "private", constants="sharp")
    problem = Problem(VectorModel.linear(d, bound=1.0), 1.0, Ball(np.zeros(d), 1.0))
    spread = family.sigma * math.sqrt(d / m)
    means = []
    for factor in STRONGER:
        instance = replace(family, box=factor * family.box, constant=factor * family.constant)
        signal = math.hypot(instance.constant, instance.box * math.sqrt(d))
        if signal > spread:
            break
        found = []
        for k in range(seeds):
            generator = np.random.default_rng([seed, k])
            centre = instance.draw_centre(generator)
            rows = instance.sample(generator, n, centre)
            cap = 2 * math.hypot(spread, signal)
            released = phased_erm(
                _dataset(rows), problem, radius=1.0, phases=PHASES, force_cap=cap, **_public(m, seed + k)
            )
            found.append([instance.excess(released.theta, mean) for mean in (centre, rows.mean(axis=(0, 1)))])
        means.append(np.mean(found, axis=0))
    return Measured(max(float(mean[0]) for mean in means), float(means[0][0]), float(means[0][1]))


def _dataset(rows: Floats) -> UserDataset:
    n, m, d = rows.shape
    return UserDataset.from_arrays(rows.reshape(-1, d), None, np.repeat(np.arange(n), m))


def _public(m: int, seed: int) -> dict[str, Any]:
    return {"epsilon": EPSILON, "delta": DELTA, "rows_per_user": m, "random_state": seed}


PROBLEMS: dict[str, tuple[Callable[..., Measured], Callable[..., LowerBound], Callable[..., LowerBound]]] = {
    "strongly convex": (strongly_convex, strongly_convex_sco, strongly_convex_erm),
    "convex": (convex, convex_sco, convex_erm),
}


def run(output: Path, seed: int, *, seeds: int = 8, quiet: bool = False) -> list[str]:
    """Write lower-bound.csv, lower-bound.png and lower-bound.md; return the table."""
    cells: list[tuple[str, str, int, int, int]] = []
    for problem in PROBLEMS:
        for place, axis in enumerate("nmd"):
            for factor in (10**-0.5, 1.0, 10**0.5):
                sizes = list(BASE)
                sizes[place] = round(sizes[place] * factor)
                cells.append((problem, axis, sizes[0], sizes[1], sizes[2]))
    rows, shown = [], []
    figure, panels = axes(3, width=3.6)
    measured: dict[tuple[str, int, int, int], Measured] = {}
    points: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    for problem, axis, n, m, d in track(cells, len(cells), "lower bound", quiet=quiet):
        measure, sco_bound, erm_bound = PROBLEMS[problem]
        if (problem, n, m, d) not in measured:
            measured[problem, n, m, d] = measure(n, m, d, seeds, seed)
        risk = measured[problem, n, m, d]
        sco, erm = (bound(n, m, d, EPSILON, DELTA, constants="sharp") for bound in (sco_bound, erm_bound))
        private = sco.private if sco.applies else math.nan
        risks = (risk.worst, risk.population, risk.empirical)
        rows.append((problem, axis, n, m, d, *risks, sco.value, private, erm.value, erm.applies))
        ratios = (risk.worst / sco.value, risk.worst / private, risk.population / private)
        sizes_shown = (problem, str(n), str(m), str(d), f"{risk.worst:.2e}", f"{sco.value:.2e}")
        shown.append((*sizes_shown, *(f"{ratio:.3g}" for ratio in ratios), _erm(risk.empirical, erm)))
        points.setdefault((problem, axis), []).append(({"n": n, "m": m, "d": d}[axis], ratios[0], ratios[1]))
    for (problem, axis), line in points.items():
        panel = panels["nmd".index(axis)]
        sizes_drawn, whole, private_only = zip(*line)
        style, colour = {"strongly convex": ("o", "#2563eb"), "convex": ("s", "#dc2626")}[problem]
        panel.loglog(sizes_drawn, whole, f"{style}-", color=colour, markersize=4, label=f"{problem}, whole bound")
        panel.loglog(
            sizes_drawn, private_only, f"{style}:", color=colour, markersize=4, label=f"{problem}, private term"
        )
        panel.set_xlabel(axis)
    for panel in panels:
        logarithmic(panel)
    panels[0].set_ylabel("measured / lower bound (SCO)")
    panels[2].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.02, 1.0))
    save(figure, output / "lower-bound.png")
    header = ("problem", "axis", "n", "m", "d", "population", "family_population", "family_empirical")
    write_csv(output / "lower-bound.csv", (*header, "sco_bound", "sco_private_term", "erm_bound", "erm_applies"), rows)
    titles = ("problem", "n", "m", "d", "SCO risk", "SCO bound", "ratio", "to private term", "family to it")
    lines = [
        f"Excess risk on the hard instances of Appendix D over their lower bounds (sharp constants), ε = {EPSILON:g}, "
        f"δ = {DELTA:g}. {NOT_PRIVATE}",
        "",
        *markdown((*titles, "ERM risk / bound"), shown),
        "",
        "A bound is the larger of its statistical and its private term. The constant of the private one is so small "
        "(a = 24.5 in the mean estimation lemma) that the statistical one is the larger here, while privacy dominates "
        "the measured risk: so the ratio moves with d/n. What should not move is the ratio to the private term: for "
        "strongly convex losses it is the constant (2·a·(cap/pull)·ε/μ_G)², cap/pull = 2, μ_G = 0.237, plus 4 % for "
        "inexact minimization. For convex losses the risk is that at the worst signal, which includes the family; the "
        "family's own signal is so weak that no answer is far from the best (last ratio). Signals stop where they "
        "outweigh the spread of users' means, which hides the worst one where noise is largest (few users, large d).",
    ]
    write_text(output / "lower-bound.md", lines)
    return lines


def _erm(empirical: float, bound: LowerBound) -> str:
    """The ratio, or the conditions that fail."""
    if bound.applies and bound.value > 0:
        return f"{empirical / bound.value:.3g}"
    return "void: not " + ", ".join(name for name, holds in bound.conditions.items() if not holds)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``userdp paper lower-bound``."""
    parser.add_argument("--seeds", type=int, default=8, help="datasets for each size (default 8)")


def command(arguments: argparse.Namespace) -> dict[str, Any]:
    """``userdp paper lower-bound``."""
    lines = run(arguments.output, arguments.seed, seeds=arguments.seeds, quiet=arguments.json)
    return {"files": ["lower-bound.csv", "lower-bound.png", "lower-bound.md"], "lines": lines}
