"""What the paper's theorems say in numbers: rates, constants, stability bounds, lower bounds and hard instances."""

from userdp.theory.closeness import (
    certified_sensitivity,
    deletion_stability,
    distance_after_deletion,
    erm_closeness,
    neighbourhood_stability,
    user_gradient,
    vector_concentration,
)
from userdp.theory.constants import (
    NoiseRow,
    TargetRule,
    capped_sigma,
    deletion_sigma,
    deletion_target,
    kappa,
    minimum_users,
    noise_table,
    rows_to_win,
    worst_case_sigma,
)
from userdp.theory.hard_instances import HardInstance, LinearHardInstance
from userdp.theory.lower_bounds import (
    LowerBound,
    LowerBoundConstants,
    convex_erm,
    convex_hard_instance,
    convex_sco,
    strongly_convex_erm,
    strongly_convex_sco,
)
from userdp.theory.planner import Prediction, plan
from userdp.theory.rates import TABLE_1, Rate, Term, find_rate

__all__ = [
    "TABLE_1",
    "HardInstance",
    "LinearHardInstance",
    "LowerBound",
    "LowerBoundConstants",
    "NoiseRow",
    "Prediction",
    "Rate",
    "TargetRule",
    "Term",
    "capped_sigma",
    "certified_sensitivity",
    "convex_erm",
    "convex_hard_instance",
    "convex_sco",
    "deletion_sigma",
    "deletion_stability",
    "deletion_target",
    "distance_after_deletion",
    "erm_closeness",
    "find_rate",
    "kappa",
    "minimum_users",
    "neighbourhood_stability",
    "noise_table",
    "plan",
    "rows_to_win",
    "strongly_convex_erm",
    "strongly_convex_sco",
    "user_gradient",
    "vector_concentration",
    "worst_case_sigma",
]
