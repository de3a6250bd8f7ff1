"""Algorithm 1: the exact search, the plan, refusals before data, the certificate, both relations."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable

import numpy as np
import pytest

from userdp.mechanisms.deletion import (
    SearchTooLarge,
    del_output_pert,
    deletion_sensitivity,
    plan_deletion,
)
from userdp.mechanisms.deletion_search import Watch, deletion_steps, search_size, smallest_stable
from userdp.mechanisms.noise import SeededNoise
from userdp.mechanisms.tdlap import TDLap

# κ = 3, so 14 users are enough; literal constants.
EASY = {"epsilon": 30.0, "delta": 1e-3}


def mean(users: tuple[float, ...]) -> float:
    return sum(users) / len(users)


def untouchable(users: object) -> float:
    raise AssertionError("f was called before the plan was accepted")


def brute_sensitivity(f: Callable[[tuple[float, ...]], float], users: tuple[float, ...], radius: int) -> float:
    """Definition 3.2, word for word."""
    worst = 0.0
    for size in range(min(radius, len(users)) + 1):
        for rest in itertools.combinations(users, len(users) - size):
            for i in range(len(rest)):
                worst = max(worst, abs(f(rest) - f(rest[:i] + rest[i + 1 :])))
    return worst


def hashed(users: tuple[float, ...]) -> float:
    """A function without any structure; deterministic, and also defined on nobody."""
    return math.sin(1e3 * sum((k + 1) * user for k, user in enumerate(users))) * 2.0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("radius", range(5))
def test_sensitivity_matches_the_definition(seed: int, radius: int) -> None:
    users = tuple(np.random.default_rng(seed).normal(size=6).tolist())
    for f in (mean, hashed):
        assert deletion_sensitivity(f, users, radius) == pytest.approx(brute_sensitivity(f, users, radius))


def test_sensitivity_of_vectors_is_euclidean() -> None:
    users = tuple(np.random.default_rng(0).normal(size=(5, 3)))
    whole = np.mean(users, axis=0)
    expected = max(np.linalg.norm(whole - np.mean(users[:i] + users[i + 1 :], axis=0)) for i in range(5))
    assert deletion_sensitivity(lambda rest: np.mean(rest, axis=0), users, 0) == pytest.approx(expected)


@pytest.mark.parametrize("slope", [1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_smallest_stable_set_matches_the_definition(slope: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    n, reach, largest = 7, 5, 3
    users = tuple(np.round(generator.normal(size=n) + 20 * (generator.random(n) < 0.3), 2).tolist())
    threshold = 1.5 if seed % 2 else 3.6
    f = mean_or_zero if seed % 4 else hashed
    steps = deletion_steps(lambda rest: np.array([f(rest)]), users, reach)
    expected = None
    for size in range(largest + 1):
        for gone in itertools.combinations(range(n), size):
            rest = tuple(user for position, user in enumerate(users) if position not in gone)
            if expected is None and brute_sensitivity(f, rest, reach - slope * size) <= threshold:
                expected = gone
    assert smallest_stable(steps, n, threshold, lambda size: reach - slope * size, largest) == expected


def mean_or_zero(users: tuple[float, ...]) -> float:
    return mean(users) if users else 0.0


def test_nobody_left_is_stable() -> None:
    steps = deletion_steps(lambda rest: np.array([hashed(rest)]), (1.0, 2.0), 2)
    assert [len(step) for step in steps] == [1, 2, 1]
    assert smallest_stable(steps, 2, 1e-9, lambda size: 6, 2) == (0, 1)


def test_f_sees_each_subset_once_in_order() -> None:
    seen: list[tuple[int, ...]] = []

    def f(users: tuple[int, ...]) -> float:
        seen.append(users)
        return 0.0

    deletion_sensitivity(f, (0, 1, 2, 3, 4), 2)
    assert len(seen) == len(set(seen)) == search_size(5, 2) == 1 + 5 + 10 + 10
    assert all(list(users) == sorted(users) for users in seen)


def test_plan_at_epsilon_one() -> None:
    plan = plan_deletion(130, 1.0, 1e-6, target=0.01)
    assert (plan.kappa, plan.radius, plan.minimum_users) == (32, 128, 130)
    assert plan.sigma == pytest.approx(40.71, rel=1e-3)
    assert plan.evaluations == sum(math.comb(130, j) for j in range(130))
    assert (plan.event.epsilon, plan.event.delta) == (1.0, 1e-6)
    with pytest.raises(ValueError, match=r"needs at least 130 users .*got 129"):
        plan_deletion(129, 1.0, 1e-6, target=0.01)


def test_refusals_come_before_data() -> None:
    with pytest.raises(SearchTooLarge, match=r"about 10\^39 evaluations .*allow_exponential"):
        del_output_pert(untouchable, [0] * 130, 1.0, 1e-6, 0.1)
    with pytest.raises(ValueError, match="needs at least 14 users"):
        del_output_pert(untouchable, [0] * 13, target=1.0, **EASY)
    with pytest.raises(ValueError, match="target must be a positive"):
        del_output_pert(untouchable, [0] * 14, target=0.0, **EASY)
    with pytest.raises(ValueError, match="inexactness must be"):
        del_output_pert(untouchable, [0] * 14, target=1.0, inexactness=-1.0, **EASY)
    with pytest.raises(ValueError, match="noise or random_state"):
        del_output_pert(untouchable, [0] * 14, target=1.0, noise=SeededNoise(0), random_state=1, **EASY)
    with pytest.raises(ValueError, match="belong to adjacency='add-remove'"):
        del_output_pert(untouchable, [0] * 14, target=1.0, declared_users=14, **EASY)
    with pytest.raises(ValueError, match="needs declared_users"):
        del_output_pert(untouchable, [0] * 20, target=1.0, adjacency="add-remove", **EASY)
    with pytest.raises(ValueError, match="fallback must be finite"):
        del_output_pert(
            untouchable, [0] * 20, target=1.0, adjacency="add-remove", declared_users=20, fallback=math.nan, **EASY
        )


def test_stable_data_is_released_whole() -> None:
    users = tuple(np.linspace(-1, 1, 14).tolist())
    release = del_output_pert(mean, users, target=1.0, random_state=3, **EASY)
    assert not release.bottom
    assert release.diagnostics.deleted == ()
    assert release.value == pytest.approx(mean(users) + release.plan.sigma * gaussian_after_tail(3, release.plan))
    assert release.guarantee.reproducible


def gaussian_after_tail(seed: int, plan: object) -> float:
    noise = SeededNoise(seed)
    TDLap(plan.calibration.tail_epsilon, plan.calibration.tail_delta).sample(noise)
    return float(noise.gaussian(np.zeros(1), 1.0)[0])


def test_outliers_are_deleted_before_release() -> None:
    users = (50.0, *np.linspace(-1, 1, 13).tolist(), -70.0)
    release = del_output_pert(mean, users, target=1.0, constants="exact", random_state=0, **EASY)
    assert release.diagnostics.deleted == (0, 14)
    assert abs(release.value[0]) < 8 * release.plan.sigma


def test_bottom_occurs_as_often_as_it_should() -> None:
    """ε = 8: κ = 2, R is 2 mostly. Three outliers give ⊥ unless R ≥ 3; 150 runs, five-sigma band, false alarm < 1e-3.

    (Bernstein's inequality at these counts; the seed is fixed.)
    """
    users = (90.0, -90.0, 200.0, *np.linspace(-0.5, 0.5, 7).tolist())
    noise = SeededNoise(11)
    runs = [
        del_output_pert(mean, users, 8.0, 0.01, 1.0, constants="exact", noise=noise, progress=False) for _ in range(150)
    ]
    calibration = runs[0].plan.calibration
    expected = float(TDLap(calibration.tail_epsilon, calibration.tail_delta).pmf()[:3].sum())
    spread = math.sqrt(expected * (1 - expected) / 150)
    observed = sum(run.bottom for run in runs) / 150
    assert calibration.kappa == 2
    assert 0.8 < expected < 0.99
    assert abs(observed - expected) < 5 * spread
    assert all(run.value is None for run in runs if run.bottom)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_wild_values_neither_raise_nor_warn(bad: float) -> None:
    users = (1.0,) * 13 + (-1.0,)

    def f(rest: tuple[float, ...]) -> list[float]:
        return [bad if -1.0 in rest else 0.0, 1e308]

    release = del_output_pert(f, users, target=1.0, random_state=0, **EASY)
    assert release.diagnostics.deleted == (13,)


def test_certificate_skips_the_search() -> None:
    calls: list[int] = []

    def f(users: tuple[float, ...]) -> float:
        calls.append(len(users))
        return mean(users)

    radii: list[int] = []

    def certificate(radius: int) -> float:
        radii.append(radius)
        return 0.5

    users = tuple(np.linspace(0, 0.1, 200).tolist())
    release = del_output_pert(f, users, 1.0, 1e-6, 0.5, certificate=certificate, allow_exponential=True, random_state=0)
    assert calls == [200]
    assert radii == [128]
    assert release.diagnostics.certified
    assert not release.bottom


@pytest.mark.parametrize("claim", [1.0 + 1e-9, math.inf, math.nan])
def test_failed_certificate_means_the_full_search(claim: float) -> None:
    users = tuple(np.linspace(-1, 1, 14).tolist())
    release = del_output_pert(mean, users, target=1.0, certificate=lambda radius: claim, random_state=3, **EASY)
    plain = del_output_pert(mean, users, target=1.0, random_state=3, **EASY)
    assert not release.diagnostics.certified
    assert release.value == plain.value


def test_true_certificates_agree_with_the_search() -> None:
    """Whenever the exact Δ̄_{4κ} is at most the target, the search also deletes nobody."""
    for seed in range(4):
        users = tuple(np.random.default_rng(seed).uniform(-1, 1, 14).tolist())
        exact = deletion_sensitivity(mean, users, 12)
        for target, deletes_nobody in ((exact, True), (0.99 * exact, False)):
            release = del_output_pert(mean, users, target=target, random_state=seed, **EASY)
            assert (release.diagnostics.deleted == ()) is deletes_nobody


def test_inexactness_widens_the_test_and_the_noise() -> None:
    users = tuple(np.linspace(-1, 1, 14).tolist())
    exact = deletion_sensitivity(mean, users, 12)
    refused = del_output_pert(mean, users, target=0.9 * exact, random_state=0, **EASY)
    accepted = del_output_pert(mean, users, target=0.9 * exact, inexactness=0.06 * exact, random_state=0, **EASY)
    assert refused.diagnostics.deleted != ()
    assert accepted.diagnostics.deleted == ()
    assert accepted.plan.sigma == pytest.approx(refused.plan.sigma * 1.02 / 0.9)


def test_add_remove_uses_the_fallback_and_the_declared_size() -> None:
    options = {"target": 1.0, "constants": "exact", "adjacency": "add-remove", "fallback": [0.0], "declared_users": 14}
    for n in (0, 1, 5, 14, 15):
        users = tuple(np.linspace(-1, 1, n).tolist())
        release = del_output_pert(mean, users, 8.0, 0.01, random_state=n, progress=False, **options)
        assert release.plan.n_users == release.guarantee.n_users == 14
        assert release.plan.minimum_users == 14
        assert release.guarantee.adjacency == "add-remove"
    with pytest.raises(ValueError, match="needs at least 14 users"):
        del_output_pert(untouchable, [0] * 14, 8.0, 0.01, **(options | {"declared_users": 13}))
    with pytest.raises(ValueError, match="fallback has 1 coordinates, but f returns 2"):
        del_output_pert(lambda rest: [0.0, 0.0], [0] * 14, 8.0, 0.01, **options)


def test_certificate_is_not_consulted_for_subsets_it_cannot_cover() -> None:
    """With fewer users than planned the test meets the fallback value, which no certificate about f can bound."""

    def certificate(radius: int) -> float:
        raise AssertionError("consulted")

    release = del_output_pert(
        mean,
        (5.0,) * 10,
        8.0,
        0.01,
        1.0,
        constants="exact",
        adjacency="add-remove",
        declared_users=14,
        fallback=0.0,
        certificate=certificate,
        random_state=0,
    )
    assert not release.diagnostics.certified


def test_secure_noise_by_default() -> None:
    release = del_output_pert(lambda rest: [0.0, 1.0], (0.0,) * 14, target=1.0, **EASY)
    assert not release.guarantee.reproducible
    assert release.value.shape == (2,)
    assert "deleted" not in repr(release)


def test_delta_must_cover_the_grid_of_the_noise() -> None:
    with pytest.raises(ValueError, match="too small to release 1 numbers"):
        del_output_pert(lambda rest: 0.0, (0.0,) * 40, 30.0, 1e-19, 1.0, allow_exponential=True)


def test_progress_appears_only_after_two_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = time.monotonic()
    for started, enabled, shown in ((now, True, False), (now - 3, True, True), (now - 3, False, False)):
        with Watch(3000, enabled, _started=started) as watch:
            list(watch.each(iter(range(600))))
            assert (watch._bar is not None) is shown
    assert capsys.readouterr().out == ""
