"""Calculators: the numbers quoted in the documentation, and consistency with the mechanisms."""

from __future__ import annotations

import math

import pytest

from userdp.accounting.gdp import gdp_of
from userdp.mechanisms.deletion import plan_deletion
from userdp.theory import (
    capped_sigma,
    deletion_sigma,
    deletion_target,
    kappa,
    minimum_users,
    noise_table,
    rows_to_win,
    user_gradient,
    worst_case_sigma,
)


def test_numbers_at_epsilon_one() -> None:
    assert (kappa(1.0, 1e-6), minimum_users(1.0, 1e-6)) == (32, 130)
    assert minimum_users(1.0, 1e-6, adjacency="add-remove") == 6 * 32 + 2
    assert deletion_sigma(1.0, 1e-6, 1.0) == pytest.approx(4071, rel=1e-3)
    assert worst_case_sigma(1.0, 1e-6, 1.0, 1.0, 1) == pytest.approx(8.45, rel=1e-3)


@pytest.mark.parametrize("constants", ["literal", "tight", "exact"])
@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_calculators_agree_with_the_mechanism(constants: str, adjacency: str) -> None:
    plan = plan_deletion(300, 2.0, 1e-4, 0.3, constants=constants, adjacency=adjacency)
    assert plan.sigma == deletion_sigma(2.0, 1e-4, 0.3, constants, adjacency)
    assert plan.minimum_users == minimum_users(2.0, 1e-4, constants, adjacency)
    assert plan.kappa == kappa(2.0, 1e-4, constants, adjacency)


def test_target_rules() -> None:
    paper = deletion_target("paper", 2.0, 0.5, 1000, 50, 0.01, radius=128)
    union = deletion_target("union", 2.0, 0.5, 1000, 50, 0.01, radius=128)
    assert paper == pytest.approx(10 * 2 * math.sqrt(math.log(100)) / (0.5 * 1000 * math.sqrt(50)))
    assert union == pytest.approx(
        5 * 2 * math.sqrt(129 * math.log(1000) + math.log(100)) / (0.5 * (1000 - 129) * math.sqrt(50))
    )
    with pytest.raises(ValueError, match="rule must be"):
        deletion_target("other", 1.0, 1.0, 10, 1, 0.1, radius=1)


def test_worst_case_and_capped_releases() -> None:
    gdp = gdp_of(1.0, 1e-6)
    assert worst_case_sigma(1.0, 1e-6, 3.0, 2.0, 100) == pytest.approx(2 * 3 / (2 * 100 * gdp))
    assert capped_sigma(1.0, 1e-6, 0.3, 2.0, 100, "add-remove") == pytest.approx(0.3 / (2 * 100 * gdp))


def test_rows_at_which_each_mechanism_wins() -> None:
    """Literal: 1e8 to 3e8 rows per user with the paper's Δ, about 1e10 with the union bound; capped: hundreds."""
    for beta, low, high in ((1e-2, 1e8, 1.2e8), (1e-6, 3e8, 3.4e8)):
        literal, union, *_ = noise_table(1.0, 1e-6, n=1000, m=100, beta=beta)
        assert low < literal.rows_to_win < high
        assert 5e9 < union.rows_to_win < 2e10
    table = {row.mechanism: row for row in noise_table(1.0, 1e-6, n=1000, m=100, beta=1e-2)}
    assert 100 < table["capped release"].rows_to_win < 1000
    assert table["deletion test, exact, union Δ"].rows_to_win < table["deletion test, tight, union Δ"].rows_to_win


def test_winning_number_of_rows_is_where_the_noise_crosses() -> None:
    for row in noise_table(1.0, 1e-5, n=500, m=100):
        if 1 < row.rows_to_win < math.inf:
            at = {r.mechanism: r.sigma for r in noise_table(1.0, 1e-5, n=500, m=int(row.rows_to_win))}
            assert at[row.mechanism] <= at["worst-case output perturbation"] * (1 + 1e-9)
    assert rows_to_win(2.0, 10, 1.0) == 40


def test_too_few_users_is_said_not_raised() -> None:
    table = noise_table(1.0, 1e-6, n=50, m=100)
    assert [row.available for row in table] == [False] * 6 + [True, True]
    assert all(math.isinf(row.sigma) for row in table if not row.available)
    assert table[0].minimum_users == 130


def test_smooth_certificate_is_cheaper() -> None:
    rough = noise_table(1.0, 1e-6, n=100_000, m=10)[5]
    smooth = noise_table(1.0, 1e-6, n=100_000, m=10, smoothness=1.0)[5]
    assert smooth.sigma < rough.sigma / 100
    assert user_gradient(1.0, 100, 4, 0.01) == pytest.approx(5 * math.sqrt(math.log(1e4) / 4))
