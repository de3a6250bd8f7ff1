"""Lower bounds on the excess risk of user-level private algorithms (Appendix D), with their constants and conditions.

All of them rest on mean estimation: for Gaussian rows N(χ, σ²I) every (ε, δ)-DP estimator of the centre errs by

    E‖χ̂ − χ‖² > α²,   α = dσ/(a ε n √m),

for some χ in the box of half-width ψσ/√m, provided α² ≤ dσ²ψ²/(cm) and δ ≤ √d/(100ψn√ln(100ψn/√d)), where any a > 24, c
≥ 6 will do (Kamath, Singhal, Ullman 2019, quoted in Appendix D; with truncated rows the paper takes a = 100, c = 12).
Theorems D.7 and D.8 print a weaker condition on δ (a square root too many) that does not imply this one. Derivations:
docs/proofs/deletion.md, section 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

from userdp.theory.hard_instances import HardInstance, LinearHardInstance

LowerBoundConstants = Literal["paper", "sharp"]
Term = Literal["private", "statistical"]


class Scale(TypedDict, total=False):
    """G and μ (1 by default), and which constants."""

    lipschitz: float
    strong_convexity: float
    constants: LowerBoundConstants


class ConvexScale(TypedDict, total=False):
    """R and G (1 by default), and which constants."""

    radius: float
    lipschitz: float
    constants: LowerBoundConstants


@dataclass(frozen=True)
class _Choice:
    """w = B/(σ√d), a and c."""

    width: float
    spread: float
    share: float


# As in the proof of Theorem D.7, and close to the best that its argument allows.
_CHOICES = {"paper": _Choice(1000.0, 100.0, 12.0), "sharp": _Choice(20.0, 24.5, 6.1)}


@dataclass(frozen=True)
class LowerBound:
    """Lower bound on the worst-case expected excess risk.

    ``value`` is proved, constants included: the private term counts only if every condition in ``conditions`` holds.
    """

    value: float
    private: float
    statistical: float
    conditions: dict[str, bool]

    @property
    def applies(self) -> bool:
        """Whether all conditions hold."""
        return all(self.conditions.values())


def strongly_convex_sco(n: int, m: int, d: int, epsilon: float, delta: float, **scale: Unpack[Scale]) -> LowerBound:
    """Ω((G²/μ)(1/(nm) + d/(ε²n²m))) for DP-SCO (Theorem D.7), constants included.

    The private term is (μ/2)α² = G²d/(8 μ w² a² ε² n² m) with w = 1000, a = 100 in the paper. The statistical term is
    van Trees' inequality on the same box (ψ = 1), (μ/2)dσ²/(m(n + π²)). The value is the larger of the two.
    """
    choice, instance, alpha_squared = _mean_estimation(n, m, d, epsilon, **scale)
    private = instance.strong_convexity / 2 * alpha_squared
    statistical = instance.strong_convexity / 2 * d * instance.sigma**2 / (m * (n + math.pi**2))
    conditions = _conditions(n, d, epsilon, delta, choice, 1.0)
    value = max(private if all(conditions.values()) else 0.0, statistical)
    return LowerBound(value, private, statistical, conditions)


def strongly_convex_erm(n: int, m: int, d: int, epsilon: float, delta: float, **scale: Unpack[Scale]) -> LowerBound:
    """Ω((G²/μ) d/(ε²n²m)) for DP-ERM on random data (Theorem D.8), constants included.

    E‖θ̂ − mean(x)‖² ≥ α²/2 − E‖mean(x) − χ‖² = α²/2 − dσ²/(nm), so the value is (μ/2)(α²/2 − dσ²/(nm)): positive for
    n < d/(2a²ε²), and at least half of its first part for n ≤ d/(4a²ε²), which is the paper's n ≤ cd/ε².
    """
    choice, instance, alpha_squared = _mean_estimation(n, m, d, epsilon, **scale)
    private = instance.strong_convexity / 2 * max(alpha_squared / 2 - d * instance.sigma**2 / (n * m), 0.0)
    many = {"n < d / (2 a² ε²)": 2 * (choice.spread * epsilon) ** 2 * n < d}
    return LowerBound(private, private, 0.0, _conditions(n, d, epsilon, delta, choice, 1.0) | many)


def convex_sco(n: int, m: int, d: int, epsilon: float, delta: float, **scale: Unpack[ConvexScale]) -> LowerBound:
    """Ω(RG(1/√(nm) + √d/(εn√m))) for DP-SCO of a linear loss on the ball of radius R, constants included.

    The private term is RGα·4/(3√3c) for d − 1 coordinates (the last one is a constant that fixes the length of the
    mean), ψ = √(c(d−1))/(aεn) ≤ 1; the statistical one RGσ√((d−1)/(nm))·8/(27π²) by van Trees' inequality. The value is
    the larger of the two.
    """
    _check(n, m, d, epsilon, delta)
    choice, size = _choice(scale.get("constants", "paper")), scale.get("radius", 1.0) * scale.get("lipschitz", 1.0)
    conditions = {"d ≥ 2": d >= 2}
    if d < 2:
        return LowerBound(0.0, 0.0, 0.0, conditions)
    private = size * 4 / (3 * math.sqrt(3) * choice.share) * _error(n, m, d, epsilon, choice)
    private *= convex_hard_instance(n, m, d, epsilon, "private", **scale).ball
    calm = convex_hard_instance(n, m, d, epsilon, "statistical", **scale)
    statistical = size * 8 / (27 * math.pi**2) * calm.sigma * math.sqrt((d - 1) / (n * m))
    psi = math.sqrt(choice.share * (d - 1)) / (choice.spread * epsilon * n)
    conditions |= _conditions(n, d - 1, epsilon, delta, choice, psi)
    value = max(private if all(conditions.values()) else 0.0, statistical)
    return LowerBound(value, private, statistical, conditions)


def convex_erm(n: int, m: int, d: int, epsilon: float, delta: float, **scale: Unpack[ConvexScale]) -> LowerBound:
    """Ω(RG√d/(εn√m)) for DP-ERM on random data with Ω(√d/ε) ≤ n ≤ O(d/ε²) (Appendix D), constants included.

    The empirical excess risk is at least the population's minus RG·E‖mean(x) − χ‖ ≥ … − RGσ√((d−1)/(nm)).
    """
    bound = convex_sco(n, m, d, epsilon, delta, **scale)
    if d < 2:
        return bound
    instance = convex_hard_instance(n, m, d, epsilon, "private", **scale)
    lost = instance.radius * instance.lipschitz * instance.sigma * math.sqrt((d - 1) / (n * m))
    private = max(bound.private - lost, 0.0)
    return LowerBound(private, private, 0.0, bound.conditions | {"n ≤ O(d / ε²)": private > 0})


def convex_hard_instance(
    n: int, m: int, d: int, epsilon: float, term: Term, **scale: Unpack[ConvexScale]
) -> LinearHardInstance:
    """The family behind a term of ``convex_sco``: how wide its box of centres and how long its constant coordinate is.

    In units of L = √(d−1)·half-width the constant is (1/q − q)/2, where q balances what is lost by not knowing the
    length of the mean: q² = 4/(3c) (private; L = √c·α), q² = 8/(9π²) (statistical; half-width πσ/√(2nm)).
    """
    choice = _choice(scale.get("constants", "paper"))
    if term == "private":
        q, length = math.sqrt(4 / (3 * choice.share)), math.sqrt(choice.share) * _error(n, m, d, epsilon, choice)
    else:
        q, length = math.sqrt(8) / (3 * math.pi), math.pi / (choice.width * math.sqrt(2 * n * m))
    constant = (1 / q - q) / 2
    ball = 1 / math.sqrt(1 + (constant * length) ** 2)
    return LinearHardInstance(
        d,
        m,
        scale.get("radius", 1.0),
        scale.get("lipschitz", 1.0),
        choice.width,
        box=length * ball / math.sqrt(d - 1),
        constant=constant * length * ball,
    )


def _error(n: int, m: int, d: int, epsilon: float, choice: _Choice) -> float:
    """α/B of the convex instance: √(d−1)/(w a ε n √m)."""
    return math.sqrt((d - 1) / m) / (choice.width * choice.spread * epsilon * n)


def _mean_estimation(
    n: int, m: int, d: int, epsilon: float, **scale: Unpack[Scale]
) -> tuple[_Choice, HardInstance, float]:
    """The constants, the instance, and α²."""
    choice = _choice(scale.get("constants", "paper"))
    instance = HardInstance(d, m, scale.get("lipschitz", 1.0), scale.get("strong_convexity", 1.0), choice.width)
    return choice, instance, (d * instance.sigma / (choice.spread * epsilon * n)) ** 2 / m


def _choice(constants: LowerBoundConstants) -> _Choice:
    if constants not in _CHOICES:
        raise ValueError(f"constants must be 'paper' or 'sharp', got {constants!r}")
    return _CHOICES[constants]


def _conditions(n: int, d: int, epsilon: float, delta: float, choice: _Choice, psi: float) -> dict[str, bool]:
    """Those of the mean estimation lemma; ψ at most 1 and at least what α needs."""
    _check(n, 1, d, epsilon, delta)
    ratio = 100 * psi * n / math.sqrt(d)
    return {
        "ε ≤ 1": epsilon <= 1,
        "δ ≤ 1/2": delta <= 0.5,
        "n ≥ √(cd) / (aε)": choice.spread * epsilon * n >= math.sqrt(choice.share * d),
        "δ ≤ √d / (100 ψ n √ln(100ψn/√d))": ratio > 1 and delta * ratio * math.sqrt(math.log(ratio)) <= 1,
    }


def _check(n: int, m: int, d: int, epsilon: float, delta: float) -> None:
    for name, number in (("n", n), ("m", m), ("d", d), ("epsilon", epsilon), ("delta", delta)):
        if not number > 0:
            raise ValueError(f"{name} must be positive, got {number}")
