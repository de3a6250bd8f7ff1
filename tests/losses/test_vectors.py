"""Several numbers at a time: the formulas they stand for, nothing read or written beside them."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from scipy.special import expit

from userdp.losses.linear import rows_times
from userdp.losses.vectors import (
    SIXTEEN,
    WIDTH,
    aligned,
    at_once,
    between,
    fetch,
    first_half,
    load_part,
    load_sixteen,
    load_sixteen_part,
    minus,
    negative,
    padded,
    rounded_like,
    second_half,
    side_of,
    sigmoid,
    sixteen,
    sixteen_from,
    spread,
    spread_from,
    store,
    total,
    totals,
)


@njit
def _sums(values, out):  # type: ignore[no-untyped-def]
    store(out, 0, totals(values, 0))
    for j in range(SIXTEEN):
        out[SIXTEEN + j] = total(load_sixteen(values, j * SIXTEEN))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_sums_of_sixteen_have_the_same_bits_together_and_alone(kind: type) -> None:
    values = np.random.default_rng(0).normal(size=(SIXTEEN, SIXTEEN)).astype(kind)
    out = np.empty(2 * SIXTEEN, kind)
    _sums(values, out)
    assert out[:SIXTEEN].tobytes() == out[SIXTEEN:].tobytes()
    assert np.allclose(out[:SIXTEEN], values.sum(axis=1), rtol=100 * np.finfo(kind).eps)


@njit
def _parts(values, count, out):  # type: ignore[no-untyped-def]
    store(out, 0, load_part(values, 1, count))
    store(out, WIDTH, between(load_part(values, 1, count), spread(-0.5), spread_from(values, 0)))
    store(out, 2 * WIDTH, side_of(load_part(values, 1, count), spread(0.1)))


@pytest.mark.parametrize("count", [-3, 0, 1, 5, 8, 20])
def test_parts_of_rows_end_in_zeros(count: int) -> None:
    values = np.random.default_rng(1).normal(size=12)
    values[0] = 0.25
    out = np.empty(3 * WIDTH)
    _parts(values, count, out)
    expected = np.where(np.arange(WIDTH) < count, values[1:9], 0.0)
    assert np.array_equal(out[:WIDTH], expected)
    assert np.array_equal(out[WIDTH : 2 * WIDTH], np.clip(expected, -0.5, 0.25))
    assert np.array_equal(out[2 * WIDTH :], np.where(expected > 0.1, 1.0, -1.0))


@njit
def _sixteen(values, count, out, wide):  # type: ignore[no-untyped-def]
    fetch(values, 1 << 40)  # far behind the end
    moved = minus(load_sixteen(values, 1), sixteen_from(values, 0))
    store(out, 0, moved)
    store(out, SIXTEEN, negative(load_sixteen_part(values, 1, count)))
    store(out, 2 * SIXTEEN, rounded_like(load_sixteen(wide, SIXTEEN), moved))
    store(wide, 0, first_half(moved))
    store(wide, WIDTH, second_half(moved))
    store(out, 3 * SIXTEEN, sixteen(values, 0.1))
    store(out, 4 * SIXTEEN, sigmoid(moved))
    return at_once(values)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("count", [-1, 0, 1, 9, 16, 30])
def test_sixteen_numbers_of_either_kind(count: int, kind: type) -> None:
    values = np.random.default_rng(3).normal(size=SIXTEEN + 1).astype(kind)
    out, wide = np.empty(5 * SIXTEEN, kind), np.random.default_rng(4).normal(size=2 * SIXTEEN)
    assert _sixteen(values, count, out, wide) in (1, 2, 4)
    assert np.array_equal(out[:SIXTEEN], values[1:] - values[0])
    assert np.array_equal(out[SIXTEEN : 2 * SIXTEEN], -np.where(np.arange(SIXTEEN) < count, values[1:], 0))
    assert np.array_equal(out[2 * SIXTEEN : 3 * SIXTEEN], wide[SIXTEEN:].astype(kind))
    assert np.array_equal(wide[:SIXTEEN], (values[1:] - values[0]).astype(np.float64))
    assert np.array_equal(out[3 * SIXTEEN : 4 * SIXTEEN], np.full(SIXTEEN, 0.1, kind))
    assert np.allclose(out[4 * SIXTEEN :], expit(wide[:SIXTEEN]), rtol=4 * np.finfo(kind).eps)


@pytest.mark.parametrize("width", [1, 3, 8, 9, 17])
@pytest.mark.parametrize("count", [0, 1, 4, 7])
def test_products_of_rows_are_written_in_place(count: int, width: int) -> None:
    rng = np.random.default_rng(2)
    rows, matrix = rng.normal(size=(count, 5)), rng.normal(size=(5, width))
    found = rows_times(rows, matrix)
    assert np.allclose(found, rows @ matrix, rtol=1e-13, atol=1e-14)
    for j in range(count):
        assert rows_times(rows[j : j + 1], matrix).tobytes() == found[j].tobytes()


def test_scratch_begins_at_a_cache_line() -> None:
    assert aligned(3, 5).ctypes.data % 64 == 0
    assert padded(np.ones(3), 8).tolist() == [1.0] * 3 + [0.0] * 5
