"""Targets that name classes, for data whose rows this process does not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from userdp.data import DataError
from userdp.data.blocks import UserBlock
from userdp.engines.base import Engine, Floats, Kernel, Sums

# A chunk with more different targets than this holds numbers to predict, not classes.
MOST_CLASSES = 1000


def distinct_targets(engine: Engine) -> Floats:
    """All values of the target, in increasing order."""
    return np.unique(engine.each(_distinct))


def _distinct(block: UserBlock) -> Floats:
    values = np.unique(block.target)
    if len(values) > MOST_CLASSES:
        raise DataError(f"y has more than {MOST_CLASSES} different values: these are not classes. Is it a regression?")
    return values


class Labelled:
    """An engine whose targets are replaced by the number of their class, the nearest in ``classes`` from below."""

    def __init__(self, engine: Engine, classes: Floats) -> None:
        self.engine, self.classes = engine, np.sort(np.asarray(classes, dtype=np.float64))
        self.n_users, self.columns, self.remote = engine.n_users, engine.columns, engine.remote

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.engine.n_features

    @property
    def rounding(self) -> float:
        """That of the engine."""
        return self.engine.rounding

    def sum(self, kernel: Kernel, *arguments: Any) -> Sums:
        """Σ over chunks with numbered classes."""
        return self.engine.sum(_labelled, self.classes, kernel, arguments)

    def each(self, kernel: Callable[..., Floats], *arguments: Any) -> Floats:
        """Concatenated results over chunks with numbered classes."""
        return self.engine.each(_labelled, self.classes, kernel, arguments)

    def chunked(self, users: int) -> Labelled:
        """The same for kernels that see at most so many users at a time."""
        return Labelled(self.engine.chunked(users), self.classes)


def _labelled(block: UserBlock, classes: Floats, kernel: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    numbers = np.clip(np.searchsorted(classes, block.target, side="right") - 1, 0, len(classes) - 1)
    return kernel(UserBlock(block.features, numbers.astype(np.float64), block.offsets), *arguments)
