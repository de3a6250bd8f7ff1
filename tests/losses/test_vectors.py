"""Several numbers at a time: the formulas they stand for, nothing read or written beside them."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from userdp.losses.linear import rows_times
from userdp.losses.vectors import (
    SINGLES,
    WIDTH,
    aligned,
    between,
    fetch,
    first_half,
    load,
    load_part,
    load_sixteen,
    load_sixteen_part,
    minus,
    negative,
    padded,
    rounded,
    second_half,
    side_of,
    spread,
    spread_from,
    spread_sixteen,
    store,
    times_power,
    total,
    totals,
)


@njit
def _sums(values, out):  # type: ignore[no-untyped-def]
    store(out, 0, totals(values, 0))
    for j in range(WIDTH):
        out[WIDTH + j] = total(load(values, j * WIDTH))


def test_sums_of_eight_have_the_same_bits_together_and_alone() -> None:
    values, out = np.random.default_rng(0).normal(size=(WIDTH, WIDTH)), np.empty(2 * WIDTH)
    _sums(values, out)
    assert out[:WIDTH].tobytes() == out[WIDTH:].tobytes()
    assert np.allclose(out[:WIDTH], values.sum(axis=1), rtol=1e-14)


@njit
def _parts(values, count, out):  # type: ignore[no-untyped-def]
    store(out, 0, load_part(values, 1, count))
    store(out, WIDTH, between(load_part(values, 1, count), spread(-0.5), spread_from(values, 0)))
    store(out, 2 * WIDTH, side_of(load_part(values, 1, count), spread(0.1)))
    store(out, 3 * WIDTH, times_power(load(values, 0), spread(-3.0)))


@pytest.mark.parametrize("count", [-3, 0, 1, 5, 8, 20])
def test_parts_of_rows_end_in_zeros(count: int) -> None:
    values = np.random.default_rng(1).normal(size=12)
    values[0] = 0.25
    out = np.empty(4 * WIDTH)
    _parts(values, count, out)
    expected = np.where(np.arange(WIDTH) < count, values[1:9], 0.0)
    assert np.array_equal(out[:WIDTH], expected)
    assert np.array_equal(out[WIDTH : 2 * WIDTH], np.clip(expected, -0.5, 0.25))
    assert np.array_equal(out[2 * WIDTH : 3 * WIDTH], np.where(expected > 0.1, 1.0, -1.0))
    assert np.array_equal(out[3 * WIDTH :], values[:8] / 8)


@njit
def _single_sums(values, out):  # type: ignore[no-untyped-def]
    store(out, 0, totals(values, 0))
    for j in range(SINGLES):
        out[SINGLES + j] = total(load(values, j * SINGLES))


def test_sums_of_sixteen_have_the_same_bits_together_and_alone() -> None:
    values = np.random.default_rng(0).normal(size=(SINGLES, SINGLES)).astype(np.float32)
    out = np.empty(2 * SINGLES, np.float32)
    _single_sums(values, out)
    assert out[:SINGLES].tobytes() == out[SINGLES:].tobytes()
    assert np.allclose(out[:SINGLES], values.sum(axis=1), rtol=1e-5)


@njit
def _sixteen(values, count, out, wide):  # type: ignore[no-untyped-def]
    fetch(values, 1 << 40)  # far behind the end
    whole = minus(load_sixteen(values, 1), spread_sixteen(values[0]))
    store(out, 0, rounded(whole))
    store(out, SINGLES, negative(rounded(load_sixteen_part(values, 1, count))))
    store(wide, 0, first_half(rounded(whole)))
    store(wide, WIDTH, second_half(rounded(whole)))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("count", [-1, 0, 1, 9, 16, 30])
def test_sixteen_numbers_of_either_kind_become_float32(count: int, kind: type) -> None:
    values = np.random.default_rng(3).normal(size=SINGLES + 1).astype(kind)
    out, wide = np.empty(2 * SINGLES, np.float32), np.empty(SINGLES)
    _sixteen(values, count, out, wide)
    moved = (values[1:] - values[0]).astype(np.float32)
    assert np.array_equal(out[:SINGLES], moved)
    assert np.array_equal(out[SINGLES:], -np.where(np.arange(SINGLES) < count, values[1:], 0.0).astype(np.float32))
    assert np.array_equal(wide, moved.astype(np.float64))


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
