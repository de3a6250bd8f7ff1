"""An independent solution of the capped problem: cvxpy on the joint problem over θ and all users' u."""

from __future__ import annotations

import cvxpy as cp
import numpy as np

from userdp.data import UserDataset
from userdp.losses import LinearModel, Logistic
from userdp.solvers import CappedObjective

GAP = 1e-10


def reference(objective: CappedObjective, data: UserDataset) -> tuple[np.ndarray, float]:
    """argmin over θ and ‖u_k − c‖ ≤ 4γ/λ, and its accuracy.

    In units of γ/λ around the centre the objective is 1-strongly convex, so a gap bounds the distance.
    """
    model, n, reach = objective.model, objective.n_users, objective.cap / objective.regularization
    step = cp.Variable(model.dimension)
    terms, inside = [0.5 * cp.sum_squares(step)], []
    for k in range(data.n_users):
        block = data.blocks[0].users(k, k + 1)
        if not block.n_rows:
            continue
        rows, target = model.rows(block.features), model.features.targets(block.target)
        u = cp.Variable(model.dimension)
        loss = user_loss(model, rows @ objective.center, reach * rows, u, target)
        terms += [loss / (n * objective.cap * reach), cp.norm(step - u) / n]
        inside.append(cp.norm(u) <= 4)
    problem = cp.Problem(cp.Minimize(sum(terms)), inside)
    problem.solve(solver="CLARABEL", tol_gap_abs=GAP, tol_gap_rel=GAP, tol_feas=GAP)
    assert step.value is not None
    accuracy = reach * np.sqrt(2 * GAP * max(1.0, abs(problem.value)))
    return np.asarray(objective.center + reach * step.value), float(accuracy)


def user_loss(
    model: LinearModel, base: np.ndarray, rows: np.ndarray, u: cp.Variable, target: np.ndarray
) -> cp.Expression:
    """h_k at predictions base + rows·u, up to a constant."""
    if isinstance(model.loss, Logistic):
        z = base + rows @ u
        return cp.sum(cp.logistic(z) - cp.multiply(target, z)) / len(target)
    return (0.5 * cp.sum_squares(rows @ u) + ((base - target) @ rows) @ u) / len(target)
