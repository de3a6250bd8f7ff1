"""Disjoint blocks of users for releases that compose in parallel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from userdp.accounting import Adjacency
from userdp.data import UserBlock, UserDataset
from userdp.mechanisms.noise import Noise


def assign_slots(
    data: UserDataset, slots: Sequence[tuple[int, int]], n_users: int, adjacency: Adjacency, noise: Noise
) -> list[UserDataset]:
    """Give every user a secret random slot in [0, n) and return the users of each half-open range of slots.

    **Formal guarantee.** A neighbour differs in one returned block only, for every outcome of the randomness.
    Replacement: slots are a uniform permutation, drawn without looking at the users, so the replaced user keeps its
    slot. (Slots by sorted id would not do: one new id shifts all ranks.) Add/remove: every user draws its own slot
    independently, so the others keep theirs; the sizes of the blocks are then random, and n is the declared number.
    """
    ordered = sorted(slots)
    if any(first[1] > second[0] for first, second in pairwise(ordered)) or ordered[0][0] < 0:
        raise ValueError(f"ranges of slots must not overlap, got {list(slots)}")
    if adjacency == "replace":
        places = noise.permutation(data.n_users)
    else:
        places = np.array([noise.integer_below(n_users) for _ in range(data.n_users)], dtype=np.intp)
    return [_take(data, np.flatnonzero((places >= start) & (places < stop))) for start, stop in slots]


def _take(data: UserDataset, numbers: NDArray[np.intp]) -> UserDataset:
    features, target, owner = data.arrays()
    kept = np.zeros(data.n_users, dtype=bool)
    kept[numbers] = True
    rows = kept[owner]
    offsets = np.concatenate([[0], np.cumsum(data.rows_per_user[kept])]).astype(np.int64)
    block = UserBlock(features[rows], target[rows], offsets)
    return UserDataset((block,), tuple(data.users[k] for k in numbers), data.columns)
