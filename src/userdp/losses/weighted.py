"""Users weighted by their number of rows instead of once each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from userdp.data.blocks import UserBlock
from userdp.losses.base import CurvedModel, Floats, UserModel


@dataclass(frozen=True, eq=False)
class RowWeighted:
    """h_k(θ) = (m_k/typical)·(mean loss of user k's rows) = (1/typical) Σ_j ℓ_j, with a public or released ``typical``.

    The weight is a function of the user's own rows and caps come after it, so a user with very many rows pulls no
    harder than anyone else may. Nothing is divided by a sum over users.
    """

    model: UserModel
    typical: float

    @property
    def dimension(self) -> int:
        """Number of coefficients."""
        return self.model.dimension

    def user_gradients(self, block: UserBlock, theta: Floats) -> Floats:
        """∇h_k(θ), shape (users, dimension)."""
        return np.asarray(self.model.user_gradients(block, theta) * (row_counts(block) / self.typical)[:, None])


@dataclass(frozen=True, eq=False)
class CurvedRowWeighted(RowWeighted):
    """The same for models that know their curvature."""

    model: CurvedModel

    def curved_rows(self, block: UserBlock, theta: Floats) -> tuple[Floats, Floats]:
        """Rows, and their curvatures times m_k/typical."""
        rows, curvature = self.model.curved_rows(block, theta)
        return rows, curvature * np.repeat(row_counts(block) / self.typical, np.diff(block.offsets))


def row_counts(block: UserBlock) -> Floats:
    """m_k: a statistic for a private histogram."""
    return np.diff(block.offsets).astype(np.float64)
