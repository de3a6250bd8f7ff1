"""The planner's prediction beside what was measured."""

from __future__ import annotations

import math

from accuracy_data import REGRESSION, SYNTHETIC

from userdp.theory import plan


def planner_table(public: dict[tuple[str, str], float], measured: dict[tuple[str, float], float]) -> list[str]:
    """Markdown rows, and how many are within a factor 3; ``measured`` holds our excess by (dataset, ε).

    The planner gets n, the mean number of rows, d, ε, δ, the true signal, and its own defaults for the rest; synthetic
    rows are independent with independent features, which it is told.
    """
    lines = ["| dataset | ε | predicted noise a coefficient | predicted | measured | measured / predicted | advice |"]
    lines.append("|---" * 7 + "|")
    close = total = 0
    for (name, epsilon), value in sorted(measured.items()):
        if (name, "users") not in public or not math.isfinite(value):
            continue
        users = int(public[(name, "users")])
        found = plan(
            users,
            public[(name, "rows")] / users,
            int(public[(name, "coefficients")]) - 1,
            epsilon,
            1e-6,
            loss="squared" if name in REGRESSION else "logistic",
            signal=public[(name, "constant")],
            **({"similarity": 0.0, "conditioning": 1.0, "tails": 0.0} if name in SYNTHETIC else {}),
        )
        ratio = value / found.excess_risk
        close, total = close + (1 / 3 <= ratio <= 3), total + 1
        advice = found.verdict.split(":")[0] if found.worthwhile else "do not do this"
        numbers = [f"{number:.2g}" for number in (found.noise_per_coefficient, found.excess_risk, value, ratio)]
        lines.append("| " + " | ".join([name, f"{epsilon:g}", *numbers, advice.split(" about")[0]]) + " |")
    return [*lines, "", f"{close} of {total} predictions are within a factor 3."]
