"""The paper's Algorithms 2–6 as functions, each with a plan that is made before data is touched."""

from userdp.algorithms.output_perturbation import output_perturbation, plan_output_perturbation
from userdp.algorithms.permutation import permuted_rows
from userdp.algorithms.phased import phased_erm, phased_sco, plan_phased_erm, plan_phased_sco
from userdp.algorithms.plan import Plan, Settings
from userdp.algorithms.problem import Problem
from userdp.algorithms.run import PaperRelease, run
from userdp.algorithms.strongly_convex import (
    plan_strongly_convex_erm,
    plan_strongly_convex_sco,
    strongly_convex_erm,
    strongly_convex_sco,
)

__all__ = [
    "PaperRelease",
    "Plan",
    "Problem",
    "Settings",
    "output_perturbation",
    "permuted_rows",
    "phased_erm",
    "phased_sco",
    "plan_output_perturbation",
    "plan_phased_erm",
    "plan_phased_sco",
    "plan_strongly_convex_erm",
    "plan_strongly_convex_sco",
    "run",
    "strongly_convex_erm",
    "strongly_convex_sco",
]
