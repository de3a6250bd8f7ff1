"""The one thing an engine does: add up a kernel's results over all users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# What a kernel returns for a block of users: arrays that are added entry by entry.
Sums = tuple[Floats, ...]
Kernel = Callable[..., Sums]


class Engine(Protocol):
    """Sum over users, wherever their rows are.

    ``columns`` names the features; ``remote`` says that one number a user is too much to bring here.
    """

    n_users: int
    columns: tuple[str, ...]
    remote: bool

    @property
    def n_features(self) -> int:
        """Number of features."""

    def sum(self, kernel: Kernel, *arguments: Any) -> Sums:
        """Σ over blocks of ``kernel(block, *arguments)``, added in a fixed order: equal inputs give equal bits."""

    def each(self, kernel: Callable[..., Floats], *arguments: Any) -> Floats:
        """Results of chunks one after another, in user order; for diagnostics and small things."""

    def chunked(self, users: int) -> Engine:
        """The same sums, for kernels that take much memory a user: they see at most so many at a time."""

    @property
    def rounding(self) -> float:
        """Public bound on the relative error of ``sum``: ‖computed − exact‖ ≤ rounding · Σ_k ‖term_k‖."""
