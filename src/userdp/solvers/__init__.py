"""Certified minimizers: a point, and a proof of how far it is from the minimizer."""

from userdp.solvers.certificate import distance_bound, rounding_gap, smallest_cap
from userdp.solvers.newton import CappedObjective, Solution, minimize

__all__ = ["CappedObjective", "Solution", "distance_bound", "minimize", "rounding_gap", "smallest_cap"]
