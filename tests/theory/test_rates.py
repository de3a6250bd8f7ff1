"""Table 1: exponents as printed, values as products of powers."""

from __future__ import annotations

import math

import pytest

from userdp.theory import TABLE_1, find_rate


@pytest.mark.parametrize(
    ("problem", "curvature", "source", "exponents"),
    [
        ("ERM", "convex", "paper", (-1, -0.5, 0.5)),
        ("ERM", "strongly convex", "paper", (-2, -1, 1)),
        ("SCO", "convex", "paper", (-1, -0.5, 0.5)),
        ("SCO", "strongly convex", "paper", (-2, -1, 1)),
        ("ERM", "convex", "BassilyST14", (-1, 0, 0.5)),
        ("ERM", "strongly convex", "BassilyST14", (-2, 0, 1)),
        ("SCO", "convex", "BassilyFTT19", (-1, 0, 0.5)),
        ("SCO", "strongly convex", "FeldmanKT20", (-2, 0, 1)),
        ("ERM", "convex", "NarayananME22", (-1, -0.5, 0.5)),
        ("ERM", "strongly convex", "NarayananME22", (-2, -1, 1)),
        ("SCO", "convex", "NarayananME22", (-1, -0.5, 0.5)),
    ],
)
def test_exponents(problem: str, curvature: str, source: str, exponents: tuple[float, float, float]) -> None:
    rate = find_rate(problem, curvature, source=source)
    assert tuple(rate.exponents.values()) == exponents


def test_there_are_eleven_entries_and_each_is_found() -> None:
    assert len(TABLE_1) == 11
    assert [find_rate(rate.problem, rate.curvature, source=rate.source) for rate in TABLE_1] == list(TABLE_1)
    with pytest.raises(ValueError, match="no strongly convex SCO row from 'NarayananME22'"):
        find_rate("SCO", "strongly convex", source="NarayananME22")


@pytest.mark.parametrize("rate", TABLE_1)
def test_slopes_of_values_match_exponents_where_privacy_dominates(rate: object) -> None:
    """Tiny ε makes the private term dominate; doubling a size moves the value by its power of two."""
    at = {"n": 1e3, "m": 10.0, "d": 50.0}
    budget = {"epsilon": 1e-9, "delta": 1e-6}
    for name, exponent in rate.exponents.items():
        ratio = rate.value(**(at | {name: 2 * at[name]}), **budget) / rate.value(**at, **budget)
        assert math.log2(ratio) == pytest.approx(exponent, abs=1e-3)


def test_statistical_terms_and_scales() -> None:
    sco = find_rate("SCO", "strongly convex")
    large = sco.value(1e12, 4, 1, 1.0, 0.3, lipschitz=3.0, strong_convexity=2.0)
    assert large == pytest.approx(9 / 2 / 4e12, rel=1e-6)
    convex = find_rate("ERM", "convex")
    assert convex.value(10, 1, 4, 1.0, math.exp(-1), radius=5.0, lipschitz=3.0) == pytest.approx(5 * 3 * 2 / 10)


@pytest.mark.parametrize("bad", [{"n": 0}, {"m": -1}, {"epsilon": 0.0}, {"delta": 1.0}])
def test_bad_arguments_are_refused(bad: dict[str, float]) -> None:
    arguments = {"n": 10, "m": 1, "d": 2, "epsilon": 1.0, "delta": 0.1} | bad
    with pytest.raises(ValueError, match="must"):
        TABLE_1[0].value(**arguments)
