"""Losses of a residual: absolute, pinball, Huber."""

from __future__ import annotations

from userdp.losses.kink import Kink, ResidualLoss


class Absolute(ResidualLoss):
    """φ(z, y) = |z − y|, smoothed over a public ``width``: median regression.

    >>> Absolute(width=0.01).lipschitz
    1.0
    """

    def __init__(self, width: float = 1e-3) -> None:
        super().__init__(Kink(-1.0, 1.0, width))


class Pinball(ResidualLoss):
    """φ(z, y) = max(τ(y − z), (1 − τ)(z − y)), smoothed over a public ``width``: regression on the τ-quantile."""

    def __init__(self, quantile: float = 0.5, width: float = 1e-3) -> None:
        if not 0 < quantile < 1:
            raise ValueError(f"quantile must lie strictly between 0 and 1, got {quantile}")
        super().__init__(Kink(-quantile, 1.0 - quantile, width))


class Huber(ResidualLoss):
    """φ(z, y) = (z − y)²/2 up to a residual of ``threshold``, linear beyond."""

    def __init__(self, threshold: float = 1.35) -> None:
        if not 0 < threshold < float("inf"):
            raise ValueError(f"threshold must be a positive number, got {threshold}")
        super().__init__(Kink(-threshold, threshold, 1.0))

    def __str__(self) -> str:
        return f"Huber loss, linear beyond {self.kink.upper:g} private units"
