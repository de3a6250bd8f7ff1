"""The paper's x^π: all rows dealt out anew among the users. An assumption made true, for experiments."""

from __future__ import annotations

import numpy as np

from userdp.data import UserBlock, UserDataset


def permuted_rows(data: UserDataset, random_state: int | np.random.Generator) -> UserDataset:
    """The same rows in a uniformly random order; every user keeps its number of rows.

    The ERM guarantees of the paper are about such data (rows that arrive in exchangeable order need no permuting).
    A release on permuted data protects the *new* owners of the rows, not the persons the rows came from: use it to
    study accuracy, never to publish.
    """
    features, target, _ = data.arrays()
    order = np.random.default_rng(random_state).permutation(len(target))
    offsets = np.concatenate([[0], np.cumsum(data.rows_per_user)]).astype(np.int64)
    return UserDataset((UserBlock(features[order], target[order], offsets),), data.users, data.columns)
