"""Hard instances of Appendix D: mean estimation of a truncated Gaussian with loss (μ/2)‖θ − x‖², and its convex twin.

The loss is μ-strongly convex, and G-Lipschitz for θ and x in the ball of radius B = G/(2μ): its gradient is μ(θ − x).
(The paper takes B = G/μ, for which the Lipschitz constant is 2G.) Rows are N(χ, σ²I) replaced by 0 outside the ball,
σ = B/(1000√d) with an unknown centre χ in the box of half-width ψσ/√m, ψ = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class HardInstance:
    """Family of distributions on which no private algorithm beats the lower bounds of Appendix D.

    ``width`` is B/(σ√d): 1000 in the paper; 20 keeps ``truncation_error`` out of sight as well.
    """

    dimension: int
    rows: int
    lipschitz: float = 1.0
    strong_convexity: float = 1.0
    width: float = 1000.0

    def __post_init__(self) -> None:
        if self.dimension < 1 or self.rows < 1:
            raise ValueError(f"dimension and rows must be at least 1, got {self.dimension} and {self.rows}")
        if not (self.lipschitz > 0 and self.strong_convexity > 0):
            raise ValueError(
                f"lipschitz and strong_convexity must be positive, got {self.lipschitz} and {self.strong_convexity}"
            )
        if not self.width >= 20:
            raise ValueError(f"width must be at least 20, or truncation moves the mean, got {self.width}")

    @property
    def ball(self) -> float:
        """B = G/(2μ): radius of the ball that holds parameters and rows."""
        return self.lipschitz / (2 * self.strong_convexity)

    @property
    def sigma(self) -> float:
        """Standard deviation of one coordinate of one row."""
        return self.ball / (self.width * math.sqrt(self.dimension))

    @property
    def box(self) -> float:
        """Half-width ψσ/√m of the box of centres, ψ = 1."""
        return self.sigma / math.sqrt(self.rows)

    @property
    def truncation_error(self) -> float:
        """Bound on ‖E[row] − χ‖: √(E‖Z‖² · Pr[‖Z‖ > B]) by Cauchy–Schwarz, with Gaussian norm concentration.

        At most σ√d·e^(−80d) for every allowed width: the centre is the population minimizer.
        """
        root = math.sqrt(self.dimension)
        reach = (self.ball - self.box * root) / self.sigma - root
        return 2 * self.sigma * root * math.exp(-reach * reach / 4)

    def draw_centre(self, generator: np.random.Generator) -> Floats:
        """Centre χ, uniform in the box."""
        return generator.uniform(-self.box, self.box, self.dimension)

    def sample(self, generator: np.random.Generator, n_users: int, centre: ArrayLike) -> Floats:
        """Rows of n users, shape (n_users, rows, dimension)."""
        chi = np.asarray(centre, dtype=np.float64)
        if chi.shape != (self.dimension,):
            raise ValueError(f"centre must have shape ({self.dimension},), got {chi.shape}")
        rows = chi + self.sigma * generator.standard_normal((n_users, self.rows, self.dimension))
        inside = np.linalg.norm(rows, axis=2, keepdims=True) <= self.ball
        return np.where(inside, rows, 0.0)

    def excess_population(self, theta: ArrayLike, centre: ArrayLike) -> float:
        """(μ/2)‖θ − χ‖²: excess population risk, up to ``truncation_error``."""
        return self._excess(np.asarray(theta, dtype=np.float64) - np.asarray(centre, dtype=np.float64))

    def excess_empirical(self, theta: ArrayLike, data: Floats) -> float:
        """(μ/2)‖θ − mean of all rows‖²: excess empirical risk on ``data`` as returned by ``sample``."""
        return self._excess(np.asarray(theta, dtype=np.float64) - data.reshape(-1, self.dimension).mean(axis=0))

    def _excess(self, difference: Floats) -> float:
        return self.strong_convexity / 2 * float(difference @ difference)


@dataclass(frozen=True)
class LinearHardInstance:
    """Linear loss −G⟨θ, x⟩ on the ball of radius R; rows x = (z, constant) with truncated Gaussian z, ‖x‖ ≤ 1.

    Centres χ of z lie in a box of half-width ``box``. The mean of a row is (χ, ``constant``): its direction is the
    minimizer, and the constant coordinate makes its length nearly known, so that a good θ is a good estimate of χ.
    """

    dimension: int
    rows: int
    radius: float
    lipschitz: float
    width: float
    box: float
    constant: float

    @property
    def ball(self) -> float:
        """B, the radius of the ball that holds z."""
        return math.sqrt(1 - self.constant**2)

    @property
    def sigma(self) -> float:
        """Standard deviation of one coordinate of z."""
        return self._rows.sigma

    @property
    def _rows(self) -> HardInstance:
        return HardInstance(self.dimension - 1, self.rows, 2 * self.ball, 1.0, self.width)

    def draw_centre(self, generator: np.random.Generator) -> Floats:
        """Mean (χ, constant) of a row, χ uniform in the box."""
        return np.append(generator.uniform(-self.box, self.box, self.dimension - 1), self.constant)

    def sample(self, generator: np.random.Generator, n_users: int, centre: Floats) -> Floats:
        """Rows of n users, shape (n_users, rows, dimension)."""
        rows = self._rows.sample(generator, n_users, centre[:-1])
        return np.concatenate([rows, np.full((*rows.shape[:2], 1), centre[-1])], axis=2)

    def excess(self, theta: ArrayLike, mean: Floats) -> float:
        """G(R‖mean‖ − ⟨θ, mean⟩): the excess risk for θ in the ball; population or empirical, by the mean."""
        return self.lipschitz * float(self.radius * np.linalg.norm(mean) - np.asarray(theta) @ mean)
