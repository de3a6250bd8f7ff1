"""Who each row belongs to, and the one copy that brings a user's rows together."""

from __future__ import annotations

import os
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from userdp.data.blocks import Floats, Rows
from userdp.data.tables import DataError, is_missing, plain_array


def user_codes(groups: Any) -> tuple[NDArray[np.int64], list[Hashable]]:
    """Number each row's user 0, 1, … in order of first appearance; returns the numbers and the ids."""
    if isinstance(groups, list | tuple):
        ids = np.empty(len(groups), dtype=object)  # NumPy would read 3 and "3" as the same string, tuples as columns
        ids[:] = groups
    elif np.ma.isMaskedArray(groups):
        ids = np.array(groups.data, dtype=object)
        ids[np.ma.getmaskarray(groups)] = None
    else:
        ids = plain_array(groups, "groups")
    if ids.ndim != 1:
        raise DataError(f"groups must hold one user id for each row, got an array of shape {ids.shape}")
    encoded = _arrow_codes(ids)
    if encoded is not None:
        return encoded
    missing = sum(map(is_missing, ids)) if ids.dtype.kind in "OfcMm" else 0
    if missing:
        raise DataError(f"groups has {missing} missing user ids: drop those rows or give every row an id")
    if ids.dtype.kind == "O":
        numbers: dict[Hashable, int] = {}
        try:
            codes = np.fromiter((numbers.setdefault(user, len(numbers)) for user in ids), np.int64, len(ids))
        except TypeError as error:
            raise DataError(f"user ids must be hashable: {error}") from None
        return codes, list(numbers)
    unique, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    appearance = np.argsort(first, kind="stable")
    rank = np.empty(len(unique), dtype=np.int64)
    rank[appearance] = np.arange(len(unique))
    return rank[inverse], unique[appearance].tolist()


def _arrow_codes(ids: NDArray[Any]) -> tuple[NDArray[np.int64], list[Hashable]] | None:
    """The usual ids, integers and text, by Arrow's hash table; None for others, and where an id is missing."""
    try:
        if ids.dtype.kind == "O":
            column = pa.array(ids, type=pa.large_string()) if all(type(user) is str for user in ids) else None
        else:
            column = pa.array(ids) if ids.dtype.kind in "iu" else None
    except (pa.ArrowException, UnicodeEncodeError):
        return None
    if column is None or column.null_count:
        return None
    encoded = column.dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.to_pylist()


def in_user_order(
    features: Rows, target: Floats, codes: NDArray[np.int64], offsets: NDArray[np.int64]
) -> tuple[Rows, Floats]:
    """Copies of features and target with the rows of user 0 first, then user 1's, each in their own order.

    ``offsets`` are those of the result. The copy is bound by memory, so all cores take part.
    """
    sources = np.empty(len(codes), dtype=np.int64)
    _sources(codes, offsets[:-1].copy(), sources)
    rows, values = np.empty(features.shape, features.dtype), np.empty_like(target)
    threads = os.cpu_count() or 1
    cuts = np.linspace(0, len(codes), threads + 1).astype(np.int64)

    def copy(start: int, stop: int) -> None:
        for source, copied in ((features, rows), (target, values)):
            # Numbers of rows are never out of range; saying so spares a buffer.
            np.take(source, sources[start:stop], axis=0, out=copied[start:stop], mode="clip")

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(copy, *cut) for cut in pairwise(cuts)]:
            done.result()
    return rows, values


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _sources(codes: NDArray[np.int64], free: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    """Counting sort: which row stands at each place of the sorted order."""
    for j in range(len(codes)):
        out[free[codes[j]]] = j
        free[codes[j]] += 1
