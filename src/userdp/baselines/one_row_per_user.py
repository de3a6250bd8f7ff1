"""One row of every user, then an item-level mechanism: what Table 1 of the paper calls "item-level".

Literal: output perturbation and objective perturbation for regularized linear models (Chaudhuri, Monteleoni, Sarwate
2011, Algorithms 1 and 2); the second is pure ε-DP with noise of density ∝ exp(−β‖b‖), β = ε'/2. Derived: Gaussian
noise for the first (see ``worst_case_output``), the rule for λ, rows scaled to length at most 1 by the public bound
of the feature map.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import gammaincinv

from userdp.accounting import Guarantee
from userdp.baselines.release import BaselineRelease, open_channel
from userdp.baselines.sampling import uniform
from userdp.baselines.worst_case_output import worst_case_output
from userdp.data import UserDataset
from userdp.losses import LinearModel
from userdp.losses.base import Floats, Loss
from userdp.mechanisms.noise import Noise
from userdp.mechanisms.sampling import sample_rows


def one_row_per_user(
    dataset: UserDataset,
    model: LinearModel,
    *,
    epsilon: float,
    delta: float,
    perturbation: Literal["output", "objective"] = "output",
    radius: float = 3.0,
    random_state: Any = None,
) -> BaselineRelease:
    """Sample one row of every user, fit with an item-level mechanism; m − 1 rows of each are thrown away.

    **Formal guarantee.** (ε, δ)-DP at user level: the sampled row depends on its user's rows only, so replacing a
    user replaces one row, and for datasets of one row a user item level is user level. ``"objective"`` is (ε, 0)-DP
    if its minimizer is exact (here: a gradient of 1e-10 or less), as its authors assume.
    """
    channel = open_channel(epsilon, delta, random_state)
    single = sample_rows(dataset, 1, channel.noise)
    if perturbation == "output":
        return worst_case_output(single, model, epsilon=epsilon, delta=delta, radius=radius, random_state=channel.noise)
    plan = ObjectivePlan.of(model, dataset.n_users, epsilon, radius)
    noise = plan.draw(model.dimension, channel.noise)
    features, target, _ = single.arrays()
    rows = model.rows(features) / model.row_bound
    theta = minimize_objective(rows, model.features.targets(target), model.loss, plan, noise) / model.row_bound
    guarantee = Guarantee(epsilon, 0.0, n_users=dataset.n_users, reproducible=channel.noise.reproducible)
    return BaselineRelease(theta, guarantee, {"plan": plan})


@dataclass(frozen=True)
class ObjectivePlan:
    """Algorithm 2 of Chaudhuri et al. for rows of length ≤ 1: J(w) = (1/n) Σ φ + (Λ/2)‖w‖² + ⟨b, w⟩/n + (Δ/2)‖w‖².

    **Sensitivity.** The density of the minimizer w is that of b(w) = −n(Λ+Δ)w − Σ φ'x times the Jacobian of w ↦ b(w).
    Replacing a row moves b(w) by at most 2|φ'| ≤ 2, a factor e^(2β) = e^ε'; it changes the Jacobian nΛ'I + Σ φ''xxᵀ
    by a matrix of rank 2, a factor of at most (1 + c/(nΛ'))² with c = max φ'' and Λ' = Λ + Δ; and 2 ln(1 + c/(nΛ')) =
    ε − ε'.
    """

    n_users: int
    regularization: float
    extra: float
    share: float

    @classmethod
    def of(cls, model: LinearModel, n_users: int, epsilon: float, radius: float) -> ObjectivePlan:
        """ε' and Δ as printed; Λ balances ΛR²/2 against the noise term 2(d/(nε))²/Λ."""
        if model.loss.lipschitz > 1 or not math.isfinite(model.loss.smoothness):
            raise ValueError("objective perturbation needs |φ'| ≤ 1 and a bound on φ''")
        curvature = model.loss.smoothness
        strength = 2 * model.dimension / (n_users * epsilon * radius * model.row_bound)
        share = epsilon - 2 * math.log(1 + curvature / (n_users * strength))
        if share > 0:
            return cls(n_users, strength, 0.0, share)
        extra = curvature / (n_users * math.expm1(epsilon / 4)) - strength
        return cls(n_users, strength, extra, epsilon / 2)

    @property
    def beta(self) -> float:
        """β of the density exp(−β‖b‖)."""
        return self.share / 2

    def draw(self, dimension: int, noise: Noise) -> Floats:
        """b: uniform direction, length Gamma(d, 1/β) by inversion."""
        direction = noise.gaussian(np.zeros(dimension), 1.0)
        length = float(gammaincinv(dimension, uniform(noise))) / self.beta
        return np.asarray(direction * (length / np.linalg.norm(direction)))


def minimize_objective(rows: Floats, target: Floats, loss: Loss, plan: ObjectivePlan, noise: Floats) -> Floats:
    """argmin J by Newton's method with halving."""
    n, strength = plan.n_users, plan.regularization + plan.extra

    def gradient(w: Floats) -> Floats:
        return np.asarray(rows.T @ loss.derivative(rows @ w, target) / n + strength * w + noise / n)

    w = np.zeros(rows.shape[1])
    residual = gradient(w)
    while np.linalg.norm(residual) > 1e-10 * (1 + np.linalg.norm(noise) / n):
        curvature = (rows * loss.curvature(rows @ w, target)[:, None]).T @ rows / n + strength * np.eye(len(w))
        step, length = np.linalg.solve(curvature, residual), 1.0
        while (
            np.linalg.norm(gradient(w - length * step)) > (1 - length / 4) * np.linalg.norm(residual) and length > 1e-9
        ):
            length /= 2
        w = w - length * step
        residual = gradient(w)
    return w
