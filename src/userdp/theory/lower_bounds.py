"""Lower bounds on the excess risk of user-level private algorithms (Appendix D), with their constants and conditions.

Strongly convex losses: on the instances of ``hard_instances`` every (ε, δ)-DP estimator of the centre χ errs by

    E‖χ̂ − χ‖² > α²,   α = dσ/(a ε n √m),

for some χ in the box, provided α² ≤ dσ²/(12m) and δ ≤ √d/(100 n √ln(100 n/√d)) (Lemma D.6 with ψ = 1; any a > 50
contradicts its conclusion n ≥ dσ/(50αε√m)); the paper takes a = 100. The excess risk is (μ/2)E‖χ̂ − χ‖². Theorems D.7
and D.8 print a weaker condition on δ (a square root too many) that does not imply the lemma's, which is used here.
Derivations: docs/proofs/deletion.md, section 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from userdp.theory.hard_instances import HardInstance

LowerBoundConstants = Literal["paper", "sharp"]

# (B/(σ√d), a): as in the proof of Theorem D.7, and close to the best that Lemma D.6 allows.
_CHOICES: dict[str, tuple[float, float]] = {"paper": (1000.0, 100.0), "sharp": (102.0, 51.0)}


@dataclass(frozen=True)
class LowerBound:
    """Lower bound on the worst-case expected excess risk.

    ``value`` holds when every condition in ``conditions`` does; ``explicit`` says whether its constant is proved (else
    it is 1, for shape only).
    """

    value: float
    private: float
    statistical: float
    conditions: dict[str, bool]
    explicit: bool

    @property
    def applies(self) -> bool:
        """Whether all conditions hold."""
        return all(self.conditions.values())


def strongly_convex_sco(
    n: int,
    m: int,
    d: int,
    epsilon: float,
    delta: float,
    *,
    lipschitz: float = 1.0,
    strong_convexity: float = 1.0,
    constants: LowerBoundConstants = "paper",
) -> LowerBound:
    """Ω((G²/μ)(1/(nm) + d/(ε²n²m))) for DP-SCO (Theorem D.7), constants included.

    The private term is (μ/2)α² = G²d/(8 μ w² a² ε² n² m) with w = 1000, a = 100 in the paper. The statistical term is
    van Trees' inequality on the same box, (μ/2)dσ²/(m(n + π²)). The value is the larger of the two.
    """
    instance, spread, alpha_squared = _mean_estimation(n, m, d, epsilon, lipschitz, strong_convexity, constants)
    private = strong_convexity / 2 * alpha_squared
    statistical = strong_convexity / 2 * d * instance.sigma**2 / (m * (n + math.pi**2))
    conditions = _conditions(n, d, epsilon, delta, spread)
    value = max(private if all(conditions.values()) else 0.0, statistical)
    return LowerBound(value, private, statistical, conditions, explicit=True)


def strongly_convex_erm(
    n: int,
    m: int,
    d: int,
    epsilon: float,
    delta: float,
    *,
    lipschitz: float = 1.0,
    strong_convexity: float = 1.0,
    constants: LowerBoundConstants = "paper",
) -> LowerBound:
    """Ω((G²/μ) d/(ε²n²m)) for DP-ERM on random data (Theorem D.8), constants included.

    E‖θ̂ − mean(x)‖² ≥ α²/2 − E‖mean(x) − χ‖² = α²/2 − dσ²/(nm), so the value is (μ/2)(α²/2 − dσ²/(nm)): positive for
    n < d/(2a²ε²), and at least half of its first part for n ≤ d/(4a²ε²), which is the paper's n ≤ cd/ε².
    """
    instance, spread, alpha_squared = _mean_estimation(n, m, d, epsilon, lipschitz, strong_convexity, constants)
    private = strong_convexity / 2 * max(alpha_squared / 2 - d * instance.sigma**2 / (n * m), 0.0)
    conditions = _conditions(n, d, epsilon, delta, spread) | {"n < d / (2 a² ε²)": 2 * spread**2 * epsilon**2 * n < d}
    return LowerBound(private, private, 0.0, conditions, explicit=True)


def convex_sco(
    n: int, m: int, d: int, epsilon: float, delta: float, *, radius: float = 1.0, lipschitz: float = 1.0
) -> LowerBound:
    """Ω(RG(1/√(nm) + √d/(εn√m))) for DP-SCO with n ≥ Ω(√d/ε) (Levy et al. 2021, quoted in Appendix D); constant 1."""
    _check(n, m, d, epsilon, delta)
    private = radius * lipschitz * math.sqrt(d / m) / (epsilon * n)
    statistical = radius * lipschitz / math.sqrt(n * m)
    conditions = {"n ≥ √d / ε": epsilon * n >= math.sqrt(d)}
    return LowerBound(private + statistical, private, statistical, conditions, explicit=False)


def convex_erm(
    n: int, m: int, d: int, epsilon: float, delta: float, *, radius: float = 1.0, lipschitz: float = 1.0
) -> LowerBound:
    """Ω(RG√d/(εn√m)) for DP-ERM with Ω(√d/ε) ≤ n ≤ O(d/ε²) (Appendix D); constant 1."""
    bound = convex_sco(n, m, d, epsilon, delta, radius=radius, lipschitz=lipschitz)
    conditions = bound.conditions | {"n ≤ d / ε²": epsilon**2 * n <= d}
    return LowerBound(bound.private, bound.private, 0.0, conditions, explicit=False)


def _mean_estimation(
    n: int,
    m: int,
    d: int,
    epsilon: float,
    lipschitz: float,
    strong_convexity: float,
    constants: LowerBoundConstants,
) -> tuple[HardInstance, float, float]:
    """The instance, the constant a, and α²."""
    if constants not in _CHOICES:
        raise ValueError(f"constants must be 'paper' or 'sharp', got {constants!r}")
    width, spread = _CHOICES[constants]
    instance = HardInstance(d, m, lipschitz, strong_convexity, width)
    return instance, spread, (d * instance.sigma / (spread * epsilon * n)) ** 2 / m


def _conditions(n: int, d: int, epsilon: float, delta: float, spread: float) -> dict[str, bool]:
    _check(n, 1, d, epsilon, delta)
    ratio = 100 * n / math.sqrt(d)
    return {
        "ε ≤ 1": epsilon <= 1,
        "δ ≤ 1/2": delta <= 0.5,
        "α² ≤ dσ²/(12m), i.e. n ≥ √(12d) / (aε)": spread * epsilon * n >= math.sqrt(12 * d),
        "δ ≤ √d / (100 n √ln(100n/√d))": ratio > 1 and delta * ratio * math.sqrt(math.log(ratio)) <= 1,
    }


def _check(n: int, m: int, d: int, epsilon: float, delta: float) -> None:
    for name, number in (("n", n), ("m", m), ("d", d), ("epsilon", epsilon), ("delta", delta)):
        if not number > 0:
            raise ValueError(f"{name} must be positive, got {number}")
