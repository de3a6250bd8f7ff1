"""Pictures of a release, as self-contained SVG text."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

import matplotlib.pyplot as plt

from userdp.accounting import GaussianEvent, epsilon_of

_INK, _ACCENT, _SOFT = "#1f2933", "#2563eb", "#9aa5b1"


def coefficients(names: Sequence[str], values: Sequence[float], errors: Sequence[float], most: int = 25) -> str:
    """The largest coefficients per standard unit of their feature, with two standard errors of the privacy noise."""
    order = np.argsort(-np.abs(np.asarray(values)))[:most][::-1]
    figure, axes = _axes(7.2, 0.9 + 0.24 * len(order))
    axes.axvline(0, color=_SOFT, linewidth=0.8)
    axes.errorbar(
        np.asarray(values)[order], range(len(order)), xerr=2 * np.asarray(errors)[order], fmt="o", color=_ACCENT,
        ecolor=_SOFT, markersize=4, elinewidth=1.5,
    )  # fmt: skip
    axes.set_yticks(range(len(order)), [names[i] for i in order])
    axes.set_xlabel("coefficient per private unit of scale, ± 2 standard errors of the privacy noise")
    return _svg(figure)


def budget(events: Sequence[GaussianEvent]) -> str:
    """Where the privacy budget went: the share of μ² of each kind of release."""
    kinds: dict[str, float] = {}
    for event in events:
        kind = event.label.rstrip("0123456789 ")
        kinds[kind] = kinds.get(kind, 0.0) + event.gdp**2
    labels, shares = list(kinds), list(kinds.values())
    total = sum(shares)
    figure, axes = _axes(7.2, 0.6 + 0.3 * len(labels))
    axes.barh(range(len(labels)), [100 * share / total for share in shares], color=_ACCENT, height=0.6)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("share of the privacy budget (μ²), %")
    return _svg(figure)


def privacy_curve(gdp: float, epsilon: float, delta: float) -> str:
    """Every (ε, δ) pair the same release satisfies."""
    deltas = np.logspace(-12, -1, 80)
    figure, axes = _axes(7.2, 2.8)
    axes.semilogy([epsilon_of(float(value), gdp) for value in deltas], deltas, color=_ACCENT)
    axes.plot([epsilon], [delta], "o", color=_INK)
    axes.annotate(f"  ε = {epsilon:g}, δ = {delta:g}", (epsilon, delta), color=_INK, va="bottom")
    axes.set_xlabel("ε")
    axes.set_ylabel("δ")
    return _svg(figure)


def roc(curves: dict[str, tuple[Any, Any, float]]) -> str:
    """ROC curves: name → (false positive rate, true positive rate, AUC)."""
    figure, axes = _axes(4.6, 4.2)
    for (name, (false, true, area)), colour in zip(curves.items(), (_ACCENT, _INK, _SOFT)):
        axes.plot(false, true, color=colour, label=f"{name}: AUC {area:.3f}", linewidth=1.6)
    axes.plot([0, 1], [0, 1], color=_SOFT, linewidth=0.8, linestyle=":")
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
    axes.legend(frameon=False, loc="lower right")
    return _svg(figure)


def calibration(curves: dict[str, tuple[Any, Any]]) -> str:
    """Predicted against observed frequency."""
    figure, axes = _axes(4.6, 4.2)
    for (name, (predicted, observed)), colour in zip(curves.items(), (_ACCENT, _INK)):
        axes.plot(predicted, observed, "o-", color=colour, label=name, linewidth=1.2, markersize=4)
    limit = 1.05 * max(float(np.max(v)) for curve in curves.values() for v in curve)
    axes.plot([0, limit], [0, limit], color=_SOFT, linewidth=0.8, linestyle=":")
    axes.set_xlabel("predicted probability")
    axes.set_ylabel("observed frequency")
    axes.legend(frameon=False, loc="upper left")
    return _svg(figure)


def _axes(width: float, height: float) -> tuple[Any, Any]:
    figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=_INK, labelsize=9)
    return figure, axes


def _svg(figure: Any) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]
