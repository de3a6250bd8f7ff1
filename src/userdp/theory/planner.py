"""What to expect of the default fit before collecting a single row: a prediction from public numbers.

The model, in coordinates in which the loss at its minimum has curvature I and rows have gradients of covariance I (for
a logistic model that fits, the two are the same matrix; for squared loss they are up to the residual's variance):

* a user with m rows has a gradient of squared length p(ρ + (1 − ρ)/m), p the number of coefficients and ρ how alike the
  rows of one person are (the share of variance between persons); the cap γ has to let such users through;
* a release of gradients costs noise s = 2γ/(nμ) a coordinate (γ/(nμ) under add/remove), and the average of all phases
  is worth one release with a share of μ²: ``EFFICIENCY`` pays for private units, caps, curvature and early phases;
* noise s in every coordinate of unit curvature costs N = ½ s² tr(I) = ½ s² p in loss. That takes a geometry learnt from
  about 30 p^1.5/μ users; with fewer, noise is round in the features as they are, which costs up to
  tr(H)·tr(H⁻¹)/p² =: ``conditioning`` times as much (1 for uncorrelated features);
* the cap is chosen to balance noise, which grows like γ², with the bias from users above it, which falls like 1/γ²
  where lengths have heavy tails; the best of a·γ² + b/γ² is 2√(ab), so bias adds B = τ√(NS), S what the features are
  worth and τ = ``tails`` (0 where all users are alike);
* shrinking towards the constant model caps the loss at S: the prediction is S(N + B)/(S + N + B).

It ignores bad fit. The defaults of ρ, conditioning and τ are round numbers that suit the datasets in
benchmarks/results/accuracy.md, which has predicted beside measured: on other data expect more than a factor 3 at times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from userdp.accounting.gdp import gdp_of
from userdp.accounting.guarantee import check_adjacency, sum_sensitivity

PlannedLoss = Literal["logistic", "squared"]
# Curvature of a row of length 1 in standardized units: 1/4 is the most a logistic loss has.
CURVATURE: dict[PlannedLoss, float] = {"logistic": 0.25, "squared": 1.0}
EFFICIENCY = 0.5
GEOMETRY_USERS = 30.0
REFUSAL = "do not do this: the noise will exceed the signal"


@dataclass(frozen=True)
class Prediction:
    """What ``plan`` expects; losses are in nats (logistic) or in half variances of the target (squared).

    ``noise_per_coefficient`` is the standard deviation of the privacy noise on a coefficient of a standardized feature,
    before shrinking; ``noise_loss`` what it costs; ``excess_risk`` the loss over the non-private optimum after it;
    ``users_needed`` the users for ``target``.
    """

    n: int
    p: int
    epsilon: float
    delta: float
    gdp: float
    cap: float
    noise_per_coefficient: float
    noise_loss: float
    excess_risk: float
    signal: float
    target: float
    users_needed: int

    @property
    def worthwhile(self) -> bool:
        """Whether the model will be worth more than the best constant: less noise than signal."""
        return self.noise_loss < self.signal

    @property
    def verdict(self) -> str:
        """One line for people."""
        if not self.worthwhile:
            return f"{REFUSAL}; {self.users_needed:,} users would do"
        share = self.excess_risk / self.signal
        if share <= self.target / self.signal:
            return f"go ahead: privacy costs about {share:.0%} of what the features are worth"
        return f"expect to lose about {share:.0%} of what the features are worth; {self.users_needed:,} users would do"

    def __str__(self) -> str:
        return (
            f"{self.n:,} users, {self.p} coefficients, ε = {self.epsilon:g}, δ = {self.delta:g}: noise of about "
            f"{self.noise_per_coefficient:.2g} a coefficient, excess loss about {self.excess_risk:.2g}\n{self.verdict}"
        )


def plan(
    n: int,
    rows_per_user: float | Sequence[float],
    d: int,
    epsilon: float,
    delta: float,
    *,
    loss: PlannedLoss = "logistic",
    similarity: float = 0.15,
    conditioning: float = 4.0,
    tails: float = 0.07,
    signal: float = 0.1,
    target: float | None = None,
    intercept: bool = True,
    adjacency: str = "replace",
) -> Prediction:
    """Predict noise, excess risk and the users needed; no data is involved.

    Args:
        n: number of users.
        rows_per_user: typical number, or a sample of plausible numbers (say, quantiles).
        d: number of features.
        epsilon: privacy parameter ε.
        delta: privacy parameter δ.
        loss: "logistic" or "squared" (targets in standard deviations).
        similarity: ρ, the share of variance between persons: 0 independent rows, 1 a person's rows are all the same.
        conditioning: how uneven the curvature is, tr(H)·tr(H⁻¹)/p²: 1 for uncorrelated features, tens for redundant.
        tails: τ, how much users differ in how hard they pull: 0 not at all.
        signal: what the features are worth: loss of the best constant minus loss of the best model.
        target: excess loss to aim for; default a tenth of ``signal``.
        intercept: whether there is a constant term.
        adjacency: "replace" or "add-remove".

    >>> print(plan(4000, 50, 40, epsilon=1.0, delta=1e-6).verdict)
    go ahead: privacy costs about 6% of what the features are worth
    >>> print(plan(100, 10, 40, epsilon=0.5, delta=1e-6).verdict)
    do not do this: the noise will exceed the signal; 6,749 users would do
    """
    rows = [float(m) for m in rows_per_user] if isinstance(rows_per_user, Sequence) else [float(rows_per_user)]
    goal = signal / 10 if target is None else target
    _check(n, rows, d, similarity, conditioning, signal, goal)
    if not tails >= 0:
        raise ValueError(f"tails must be at least 0, got {tails}")
    p = d + intercept
    gdp = gdp_of(epsilon, delta)
    inverse = math.fsum(1 / m for m in rows) / len(rows)
    cap = math.sqrt(p * (similarity + (1 - similarity) * inverse))
    unit = sum_sensitivity(cap, check_adjacency(adjacency)) / (gdp * math.sqrt(EFFICIENCY))

    def noise_variance(users: int) -> float:
        unlearnt = min(1.0, GEOMETRY_USERS * math.pow(p, 1.5) / (users * gdp))
        return (unit / users) ** 2 * (1 + (conditioning - 1) * unlearnt)

    def excess(users: int) -> float:
        noise_loss = noise_variance(users) * p / 2
        both = noise_loss + tails * math.sqrt(noise_loss * signal)
        return signal * both / (signal + both)

    variance = noise_variance(n)
    needed = _first(lambda users: excess(users) <= goal)
    noise = math.sqrt(variance / CURVATURE[loss])
    return Prediction(n, p, epsilon, delta, gdp, cap, noise, variance * p / 2, excess(n), signal, goal, needed)


def _first(enough: Callable[[int], bool]) -> int:
    """Smallest number of users for which a property holds that more users never lose."""
    high = 1
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _check(
    n: int, rows: list[float], d: int, similarity: float, conditioning: float, signal: float, target: float
) -> None:
    if n < 1 or d < 1 or not rows or min(rows) <= 0:
        raise ValueError(f"n, d and rows_per_user must be positive, got {n}, {d} and {rows}")
    if not 0 <= similarity <= 1 or not conditioning >= 1:
        raise ValueError(
            f"similarity must lie between 0 and 1 and conditioning be at least 1, got {similarity} and {conditioning}"
        )
    if not (signal > 0 and target > 0):
        raise ValueError(f"signal and target must be positive, got {signal} and {target}")
