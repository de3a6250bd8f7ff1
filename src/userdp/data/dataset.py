"""``UserDataset``: all rows, grouped by the person they belong to."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from userdp.data.blocks import Floats, Rows, UserBlock
from userdp.data.grouping import in_user_order, user_codes
from userdp.data.loading import split_columns
from userdp.data.sparse import as_sparse
from userdp.data.store import Source, group_by_user
from userdp.data.tables import DataError, feature_matrix, numeric_vector


@dataclass(frozen=True)
class UserDataset:
    """Blocks of users. ``users[k]`` is the id of the k-th user in block order; ``columns`` names the features."""

    blocks: tuple[UserBlock, ...]
    users: tuple[Hashable, ...]
    columns: tuple[str, ...]

    @property
    def n_users(self) -> int:
        """Number of users: the n of every formula, public by assumption."""
        return sum(block.n_users for block in self.blocks)

    @property
    def n_rows(self) -> int:
        """Number of rows. Not public: nothing that leaves the library may depend on it."""
        return sum(block.n_rows for block in self.blocks)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.columns)

    @property
    def rows_per_user(self) -> NDArray[np.int64]:
        """m_k in user order. Not public."""
        return np.concatenate([np.diff(block.offsets) for block in self.blocks])

    @classmethod
    def from_arrays(cls, X: Any, y: Any = None, groups: Any = None) -> UserDataset:
        """Group rows by user.

        ``X``: NumPy array, SciPy sparse matrix, pandas or Polars DataFrame, Arrow table, or nested lists. ``y``:
        numbers, one a row (0 when absent). ``groups``: one hashable id a row, in any order; None makes every row its
        own user. Rows that already come grouped are not copied; otherwise they are copied once, into user order (first
        appearance).

        >>> data = UserDataset.from_arrays([[1.0], [2.0], [3.0]], [0, 1, 1], ["ann", "bob", "ann"])
        >>> data.n_users, data.users, data.blocks[0].features.ravel().tolist()
        (2, ('ann', 'bob'), [1.0, 3.0, 2.0])
        """
        features, columns = feature_matrix(X)
        rows = features.shape[0]
        target = np.zeros(rows) if y is None else numeric_vector(y, "y")
        if len(target) != rows:
            raise DataError(f"X has {rows} rows but y has {len(target)}: give one target for each row")
        if groups is None:
            offsets = np.arange(rows + 1, dtype=np.int64)
            return cls((UserBlock(features, target, offsets),), tuple(range(rows)), columns)
        codes, users = user_codes(groups)
        if len(codes) != rows:
            raise DataError(f"X has {rows} rows but groups has {len(codes)}: give one user id for each row")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(users)))]).astype(np.int64)
        if np.any(codes[1:] < codes[:-1]):
            if as_sparse(features) is not None:
                order = np.argsort(codes, kind="stable")
                features, target = features[order], target[order]
            else:
                features, target = in_user_order(features, target, codes, offsets)
        return cls((UserBlock(features, target, offsets),), tuple(users), columns)

    @classmethod
    def from_parquet(
        cls,
        path: str | Path,
        *,
        user: str,
        target: str | None = None,
        features: Sequence[str] | None = None,
        memory_limit: int | str | None = None,
        scratch: str | Path | None = None,
    ) -> UserDataset:
        """Read a Parquet file, a folder of them, or a CSV file; ``features`` defaults to all other columns.

        With a ``memory_limit`` ("1GB") the rows stay on disk: they are grouped by user once, into a temporary file in
        ``scratch`` (default: the system's), from which fits stream. The answers are the same.
        """
        if memory_limit is None:
            table, values, ids = split_columns(path, user, target, features)
            return cls.from_arrays(table, values, ids)
        source = Source.of(path, user, target, features)
        block, users = group_by_user(source, memory_limit, scratch)
        return cls((block,), tuple(users), source.columns)

    def without(self, users: Iterable[Hashable]) -> UserDataset:
        """The dataset after deleting these users and all their rows."""
        gone = set(users)
        unknown = gone.difference(self.users)
        if unknown:
            raise DataError(f"no such user: {sorted(map(repr, unknown))[0]}")
        return self._select([k for k, user in enumerate(self.users) if user not in gone])

    def split(self, fraction: float, *, seed: int) -> tuple[UserDataset, UserDataset]:
        """Two datasets with disjoint users, the first with about ``fraction`` of them."""
        if not 0 < fraction < 1:
            raise DataError(f"fraction must lie strictly between 0 and 1, got {fraction}")
        order = np.random.default_rng(seed).permutation(self.n_users)
        cut = min(max(round(fraction * self.n_users), 1), self.n_users - 1)
        return self._select(sorted(order[:cut])), self._select(sorted(order[cut:]))

    def arrays(self) -> tuple[Rows, Floats, NDArray[np.int64]]:
        """Features, target and user number of every row, in user order (copies when there are several blocks)."""
        features = [block.features for block in self.blocks]
        target = [block.target for block in self.blocks]
        whole = (
            (features[0], target[0]) if len(self.blocks) == 1 else (np.concatenate(features), np.concatenate(target))
        )
        return *whole, np.repeat(np.arange(self.n_users), self.rows_per_user)

    def _select(self, numbers: Sequence[int]) -> UserDataset:
        features, target, owner = self.arrays()
        kept = np.zeros(self.n_users, dtype=bool)
        kept[list(numbers)] = True
        rows = kept[owner]
        offsets = np.concatenate([[0], np.cumsum(self.rows_per_user[kept])]).astype(np.int64)
        block = UserBlock(features[rows], target[rows], offsets)
        return UserDataset((block,), tuple(self.users[k] for k in numbers), self.columns)
