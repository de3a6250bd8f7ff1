"""The planner's prediction beside what was measured."""

from __future__ import annotations

import math

from accuracy_data import SYNTHETIC, base_name, loss_of
from accuracy_tables import HELD_OUT

from userdp.losses import Logistic, Squared
from userdp.theory import plan


def planner_table(public: dict[tuple[str, str], float], measured: dict[tuple[str, float], float]) -> list[str]:
    """Markdown rows, and how many are within a factor 3; ``measured`` holds our excess by (dataset, ε).

    The planner gets n, the mean number of rows, d, ε, δ, the true signal, and its own defaults for the rest; synthetic
    rows are independent with independent features, which it is told.
    """
    lines = ["| dataset | ε | predicted noise a coefficient | predicted | measured | measured / predicted | advice |"]
    lines.append("|---" * 7 + "|")
    counts = {False: [0, 0], True: [0, 0]}  # close and all, of the datasets held out or not
    for (name, epsilon), value in sorted(measured.items()):
        loss = loss_of(name)
        known = (name, "users") in public and name == base_name(name) and isinstance(loss, (Logistic, Squared))
        if not known or not math.isfinite(value):
            continue
        users = int(public[(name, "users")])
        found = plan(
            users,
            public[(name, "rows")] / users,
            int(public[(name, "coefficients")]) - 1,
            epsilon,
            1e-6,
            loss="squared" if isinstance(loss, Squared) else "logistic",
            signal=public[(name, "constant")],
            **({"similarity": 0.0, "conditioning": 1.0, "tails": 0.0} if name in SYNTHETIC else {}),
        )
        ratio = value / found.excess_risk
        counts[name in HELD_OUT][0] += 1 / 3 <= ratio <= 3
        counts[name in HELD_OUT][1] += 1
        advice = found.verdict.split(":")[0] if found.worthwhile else "do not do this"
        numbers = [f"{number:.2g}" for number in (found.noise_per_coefficient, found.excess_risk, value, ratio)]
        shown = f"{name} (held out)" if name in HELD_OUT else name
        lines.append("| " + " | ".join([shown, f"{epsilon:g}", *numbers, advice.split(" about")[0]]) + " |")
    sentence = "{} of {} predictions are within a factor 3 on the datasets above, {} of {} on the held-out ones."
    return [*lines, "", sentence.format(*counts[False], *counts[True])]
