"""User-level DP gradient descent: noise, neighbours, the adaptive clip, and the benchmark's fast version of it."""

from __future__ import annotations

import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.baselines.users import Recorder, dataset, random_users
from userdp.accounting import compose, delta_of
from userdp.baselines import user_dpgd
from userdp.baselines.user_dpgd import COUNT_SHARE, next_clip
from userdp.losses import FeatureMap, Hinge, LinearModel, Logistic, Pinball, Squared
from userdp.mechanisms.noise import SeededNoise

MODEL = LinearModel(Logistic(), FeatureMap.identity(3))
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def run(data, **options):
    noise = options.pop("noise", Recorder())
    return user_dpgd(data, options.pop("model", MODEL), **BUDGET, **options, random_state=noise), noise


@pytest.mark.parametrize("adaptive", [False, True])
def test_noise_follows_from_the_definition(adaptive):
    """σ ≥ 2C√T/(nμ) for a μ that gives (ε, δ), with the counts' share of μ² taken off."""
    release, noise = run(random_users(40, 5, 3), clip=0.3, steps=7, adaptive=adaptive)
    clips = release.details["clips"]
    sums, counts = (noise.scales[0::2], noise.scales[1::2]) if adaptive else (noise.scales, [])
    gdps = [2 * clip / 40 / sigma for clip, sigma in zip(clips, sums)] + [1 / sigma for sigma in counts]
    assert delta_of(1.0, compose(gdps)) <= 1e-6
    assert delta_of(1.0, compose(gdps)) > 0.99e-6
    assert sums[0] == pytest.approx(
        2 * 0.3 * math.sqrt(7 / (1 - COUNT_SHARE * adaptive)) / 40 / release.guarantee.gdp, rel=1e-3
    )


@pytest.mark.parametrize("clip", [0.2, 5.0])
def test_worst_neighbour_of_one_step(clip):
    """Opposite users of any size stay within 2C/n, and reach it."""
    rng = np.random.default_rng(0)
    model = LinearModel(Squared(), FeatureMap.identity(2))
    others = [rng.normal(size=(4, 2)) for _ in range(9)]
    labels = [rng.normal(size=4) for _ in range(9)]
    candidates = [(np.array([[1e3, 0.0]]), np.array([y])) for y in (1e3, -1e3)]
    candidates += [(rng.normal(size=(3, 2)) * 10.0**k, rng.normal(size=3)) for k in range(-2, 4)]
    ends = []
    for rows, target in candidates:
        data = dataset([*others, rows], [*labels, target])
        release, noise = run(data, model=model, clip=clip, steps=1, rate=1.0)
        ends.append(release.theta)
    distances = [np.linalg.norm(a - b) for a in ends for b in ends]
    assert max(distances) <= noise.scales[0] * release.guarantee.gdp
    assert max(distances) == pytest.approx(2 * clip / 10, rel=1e-6)


def test_worst_neighbour_of_the_count():
    """One user inside or outside the clip changes the count by 1, which is what its noise is made for."""
    rng = np.random.default_rng(1)
    others = [rng.normal(size=(2, 3)) for _ in range(5)]
    seen = []
    for row in (np.zeros((1, 3)), np.full((1, 3), 50.0)):
        noise = Recorder()
        values = []
        noise.gaussian = lambda v, scale, values=values: values.append((np.array(v), scale)) or np.array(v)
        release, _ = run(dataset([*others, row]), noise=noise, clip=1.0, steps=1, adaptive=True)
        seen.append(values[1])
    assert abs(seen[0][0] - seen[1][0]) == pytest.approx(1.0)
    assert seen[0][1] >= 1.0 / (release.guarantee.gdp * math.sqrt(COUNT_SHARE)) * (1 - 1e-12)


def test_the_adaptive_clip_moves_towards_the_median():
    assert next_clip(1.0, 1.0, 1.0) == pytest.approx(math.exp(-0.1))
    assert next_clip(1.0, -7.0, 1.0) == pytest.approx(math.exp(0.1))
    assert next_clip(1e-4, 1.0, 1.0) == 1e-4


def test_it_learns():
    data = random_users(400, 20, 3)
    features, target, _ = data.arrays()
    release, _ = run(data, clip=0.5, rate=2.0, noise=SeededNoise(3))
    assert np.mean((features @ release.theta > 0) == target) > 0.7
    last, _ = run(data, clip=0.5, rate=2.0, noise=SeededNoise(3), average=False)
    assert np.linalg.norm(last.theta - release.theta) > 0
    assert release.guarantee.reproducible


def test_bad_settings_are_refused():
    for wrong in ({"clip": 0.0}, {"clip": 1.0, "steps": 0}, {"clip": 1.0, "rate": -1.0}):
        with pytest.raises(ValueError, match="must be positive"):
            run(random_users(5, 2, 3), **wrong)


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Pinball(0.9, width=0.05), Hinge(width=0.05)], ids=str)
def test_the_fast_version_of_the_benchmark_is_the_same(monkeypatch, loss):
    """Without noise, the batched kernel and the library give the same point."""
    folder = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(str(folder))
    for name in ("accuracy_data", "accuracy_grid"):
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
    task = sys.modules["accuracy_data"]._synthetic("small", 60, 8, 4, 0)
    task = replace(task, loss=loss)
    grid = sys.modules["accuracy_grid"].Grid(task, 1e-6)
    setting = sys.modules["accuracy_grid"].Setting(1e9, 0.5, 10, 1.0, 0)
    monkeypatch.setattr(sys.modules["accuracy_grid"], "gdp_of", lambda epsilon, delta: 1e12)
    _, mean = grid._descend([setting])
    release, _ = run(task.dataset, model=LinearModel(task.loss, task.map), clip=grid.clips[0.5], steps=10, rate=1.0)
    np.testing.assert_allclose(mean[:, 0], release.theta, atol=2e-5)
    assert float(grid.risks(mean)[0]) == pytest.approx(task.risk(mean[:, 0]), abs=1e-6)
