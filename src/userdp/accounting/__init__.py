"""Privacy accounting: curves, events, the budget of a fit, the guarantee it ends with."""

from userdp.accounting.budget import Budget, BudgetExceeded
from userdp.accounting.events import ApproximateEvent, Cost, GaussianEvent, Parallel, Sequential, total
from userdp.accounting.gdp import compose, delta_of, epsilon_of, gdp_of, parallel
from userdp.accounting.guarantee import Adjacency, Guarantee, Unit, check_adjacency, sum_sensitivity

__all__ = [
    "Adjacency",
    "ApproximateEvent",
    "Budget",
    "BudgetExceeded",
    "Cost",
    "GaussianEvent",
    "Guarantee",
    "Parallel",
    "Sequential",
    "Unit",
    "check_adjacency",
    "compose",
    "delta_of",
    "epsilon_of",
    "gdp_of",
    "parallel",
    "sum_sensitivity",
    "total",
]
