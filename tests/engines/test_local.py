"""The local engine: same bits for any number of threads, whole users, a true bound on its rounding error."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from userdp.data import UserBlock, UserDataset
from userdp.engines import LocalEngine
from userdp.engines.base import Sums
from userdp.losses import FeatureMap, LinearModel, Logistic


def example(users: int = 300, rows: int = 4000, d: int = 4) -> UserDataset:
    rng = np.random.default_rng(0)
    ids = rng.zipf(1.4, rows) % users
    return UserDataset.from_arrays(rng.normal(size=(rows, d)), (rng.random(rows) < 0.5).astype(float), ids)


def gradient_sum(block: UserBlock, model: LinearModel, theta: np.ndarray) -> Sums:
    gradients = model.user_gradients(block, theta)
    return gradients.sum(axis=0), np.array([float(block.n_users)])


MODEL = LinearModel(Logistic(), FeatureMap.identity(4))
THETA = np.array([0.3, -1.0, 2.0, 0.1])
MODEL_GRADIENTS = MODEL.user_gradients


def test_same_bits_for_any_number_of_threads() -> None:
    """Many times: helpers have memory of their own, and code that looks at addresses would differ now and then."""
    data = example()
    engines = [LocalEngine(data, threads, 64, 16) for threads in (1, 2, 3, 8)]
    expected = engines[0].each(MODEL_GRADIENTS, THETA).tobytes()
    for _ in range(50):
        assert all(engine.each(MODEL_GRADIENTS, THETA).tobytes() == expected for engine in engines)
    totals = {engine.sum(gradient_sum, MODEL, THETA)[0].tobytes() for engine in engines}
    assert len(totals) == 1


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_phases_have_the_same_bits_for_any_threads_and_chunks(kind: type) -> None:
    data = example()
    block = data.blocks[0]
    data = UserDataset((UserBlock(block.features.astype(kind), block.target, block.offsets),), data.users, data.columns)
    phase = MODEL.phase(THETA)
    expected = LocalEngine(data, 1).each(phase).tobytes()
    for threads, rows, users in ((2, 64, 16), (3, 50, 3), (1, 1, 1), (8, 1000, 300)):
        assert LocalEngine(data, threads, rows, users).each(phase).tobytes() == expected


@pytest.mark.parametrize(("rows", "users"), [(8192, 4096), (1, 1), (50, 3)])
def test_sum_equals_plain_numpy_whatever_the_chunks(rows: int, users: int) -> None:
    data = example()
    total, count = LocalEngine(data, 2, rows, users).sum(gradient_sum, MODEL, THETA)
    X, y, owner = data.arrays()
    expected = np.zeros(4)
    for k in range(data.n_users):
        own = owner == k
        expected += (1 / (1 + np.exp(-X[own] @ THETA)) - y[own]) @ X[own] / own.sum()
    assert np.allclose(total, expected, rtol=1e-11)
    assert count[0] == data.n_users


def test_each_keeps_the_order_of_users_over_chunks_and_blocks() -> None:
    data = example()
    twice = UserDataset(data.blocks * 2, data.users + tuple(("again", user) for user in data.users), data.columns)
    engine = LocalEngine(twice, 2, 64, 16)
    found = engine.each(MODEL.user_losses, THETA)
    assert np.array_equal(found, np.tile(MODEL.user_losses(data.blocks[0], THETA), 2))
    assert engine.n_users == 2 * data.n_users


def test_kernels_see_whole_users_only() -> None:
    data = example()
    seen = LocalEngine(data, 2, 30, 7).each(lambda block: np.diff(block.offsets).astype(float))
    assert seen.tolist() == data.rows_per_user.tolist()


def plain_sum(block: UserBlock) -> Sums:
    return (block.features.sum(axis=0),)


@pytest.mark.parametrize("users", [16, 4096])
def test_rounding_bound_is_true_on_cancelling_sums(users: int) -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=20_000) * 10.0 ** rng.uniform(-8, 8, 20_000)
    values = np.concatenate([values, -values[::-1] * (1 + 1e-12)])
    engine = LocalEngine(UserDataset.from_arrays(values[:, None]), 2, 8192, users)
    (computed,) = engine.sum(plain_sum)
    exact = sum((Fraction(value) for value in values.tolist()), Fraction(0))
    size = float(np.abs(values).sum())
    assert abs(float(Fraction(float(computed[0])) - exact)) <= engine.rounding * size
    assert engine.rounding < 1e-11


def test_rounding_bound_does_not_depend_on_the_data() -> None:
    """It enters the noise, so it must be public."""
    small, large = example(users=20, rows=30), example()
    assert LocalEngine(small).rounding == LocalEngine(large).rounding


def test_adding_many_chunks_loses_nothing() -> None:
    values = np.full(3_001, 0.1)
    values[0] = 1e12
    (computed,) = LocalEngine(UserDataset.from_arrays(values[:, None]), 1, 1, 1).sum(plain_sum)
    exact = sum((Fraction(value) for value in values.tolist()), Fraction(0))
    assert computed[0] == float(exact)


def test_no_users_is_an_error() -> None:
    empty = UserDataset((UserBlock(np.empty((0, 1)), np.empty(0), np.zeros(1, np.int64)),), (), ("x0",))
    with pytest.raises(ValueError, match="the dataset has no users"):
        LocalEngine(empty).sum(plain_sum)
