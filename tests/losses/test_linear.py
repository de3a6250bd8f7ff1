"""Feature maps, and user losses and gradients against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from userdp.data import UserBlock, UserDataset
from userdp.losses import FeatureMap, LinearModel, Logistic, Squared
from userdp.losses import linear as linear_module


def example(seed: int = 0, users: int = 12, rows: int = 150, d: int = 5) -> UserDataset:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, d))
    return UserDataset.from_arrays(X, (rng.random(rows) < 0.5).astype(float), rng.integers(0, users, rows))


def slow_rows(features: FeatureMap, X: np.ndarray) -> np.ndarray:
    rows = np.clip((X - features.center) / features.scale, -features.bound, features.bound)
    return np.hstack([rows, np.ones((len(rows), 1))]) if features.intercept else rows


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_map_shifts_scales_and_clamps(intercept: bool, dtype: type) -> None:
    rng = np.random.default_rng(1)
    features = FeatureMap(rng.normal(size=4), rng.uniform(0.5, 2, 4), 1.5, intercept)
    X = (3 * rng.normal(size=(50, 4))).astype(dtype)
    assert np.allclose(features.rows(X), slow_rows(features, X.astype(float)), rtol=1e-14)
    assert features.dimension == 4 + intercept


def test_rows_of_any_magnitude_are_clamped_without_warnings() -> None:
    features = FeatureMap(np.array([-1e300, 0.0]), np.array([1e-300, 1.0]), bound=20.0, intercept=False)
    rows = features.rows(np.array([[1.7e308, -1e300], [-1.7e308, 1e300], [-1e300, 3.0]]))
    assert rows.tolist() == [[20, -20], [-20, 20], [0, 3]]
    targets = FeatureMap(np.zeros(1), np.ones(1), target_center=-1e308, target_scale=1e-3, target_bound=7.0)
    assert targets.targets(np.array([1.7e308, -1.7e308])).tolist() == [7, -7]


def test_targets_within_bounds_are_kept() -> None:
    values = np.array([0.0, 1.0, -3.5])
    assert FeatureMap.identity(2).targets(values).tolist() == values.tolist()
    assert FeatureMap.identity(2, bound=2.0).targets(values).tolist() == [0, 1, -2]


@pytest.mark.parametrize("intercept", [True, False])
def test_unfold_gives_the_same_predictions_on_the_original_features(intercept: bool) -> None:
    rng = np.random.default_rng(2)
    features = FeatureMap(rng.normal(size=3), rng.uniform(0.5, 2, 3), 1e4, intercept, 5.0, 2.0)
    theta, X = rng.normal(size=features.dimension), rng.normal(size=(20, 3))
    weights, constant = features.unfold(theta)
    assert np.allclose(X @ weights + constant, 5.0 + 2.0 * (features.rows(X) @ theta), rtol=1e-12)


@pytest.mark.parametrize("loss", [Logistic(), Squared()])
@pytest.mark.parametrize("chunk", [1 << 17, 7])
def test_user_losses_and_gradients_equal_plain_numpy(
    loss: Logistic | Squared, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_module, "CHUNK_NUMBERS", chunk)
    data = example()
    rng = np.random.default_rng(3)
    model = LinearModel(loss, FeatureMap(rng.normal(size=5), rng.uniform(0.5, 2, 5), 1.0))
    theta = rng.normal(size=6)
    block = data.blocks[0]
    losses, gradients = model.user_losses(block, theta), model.user_gradients(block, theta)
    for k in range(data.n_users):
        own = block.users(k, k + 1)
        rows = slow_rows(model.features, own.features)
        z = rows @ theta
        assert losses[k] == pytest.approx(loss.value(z, own.target).mean(), rel=1e-12)
        assert np.allclose(gradients[k], loss.derivative(z, own.target) @ rows / len(rows), rtol=1e-11, atol=1e-14)


def test_gradient_is_the_slope_of_the_loss() -> None:
    data, model = example(4), LinearModel(Logistic(), FeatureMap.identity(5, intercept=True))
    theta, step = np.random.default_rng(5).normal(size=6), 1e-6
    block = data.blocks[0]
    gradients = model.user_gradients(block, theta)
    for i in range(6):
        move = step * np.eye(6)[i]
        slope = (model.user_losses(block, theta + move) - model.user_losses(block, theta - move)) / (2 * step)
        assert np.allclose(gradients[:, i], slope, atol=1e-8)


def test_geometry_changes_coordinates() -> None:
    data, rng = example(6), np.random.default_rng(7)
    geometry = rng.normal(size=(5, 3))
    plain, turned = (LinearModel(Logistic(), FeatureMap.identity(5), g) for g in (None, geometry))
    theta = rng.normal(size=3)
    block = data.blocks[0]
    assert np.allclose(turned.user_losses(block, theta), plain.user_losses(block, geometry @ theta), rtol=1e-12)
    assert np.allclose(turned.user_gradients(block, theta), plain.user_gradients(block, geometry @ theta) @ geometry)
    rows = np.full((1, 5), 1e4)
    assert np.linalg.norm(turned.rows(rows)) <= turned.row_bound
    assert turned.dimension == 3


def test_users_without_rows_have_loss_and_gradient_zero() -> None:
    block = UserBlock(np.ones((2, 1)), np.zeros(2), np.array([0, 0, 2, 2]))
    model = LinearModel(Squared(), FeatureMap.identity(1))
    assert model.user_losses(block, np.ones(1)).tolist() == [0.0, 0.5, 0.0]
    assert model.user_gradients(block, np.ones(1)).ravel().tolist() == [0.0, 1.0, 0.0]


def test_a_user_with_a_million_rows_weighs_as_much_as_any_other() -> None:
    block = UserBlock(np.ones((1_000_001, 1), np.float32), np.zeros(1_000_001), np.array([0, 1, 1_000_001]))
    gradients = LinearModel(Squared(), FeatureMap.identity(1)).user_gradients(block, np.array([0.3]))
    assert gradients.ravel().tolist() == pytest.approx([0.3, 0.3], rel=1e-9)


@pytest.mark.parametrize("geometry", [None, np.random.default_rng(0).normal(size=(38, 38))])
def test_what_is_computed_for_a_user_depends_on_nobody_else(geometry: np.ndarray | None) -> None:
    """To the last bit: or replacing one user could move others across a threshold (docs/proofs/histograms.md)."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(400, 37))
    y = (rng.random(400) < 0.5).astype(float)
    model = LinearModel(Logistic(), FeatureMap(np.full(37, 0.1), np.full(37, 1.3)), geometry)
    theta = rng.normal(size=38)
    whole = UserDataset.from_arrays(X, y, rng.integers(0, 60, 400)).blocks[0]
    gradients, losses = model.user_gradients(whole, theta), model.user_losses(whole, theta)
    norms = np.sqrt(np.einsum("ki,ki->k", gradients, gradients))
    for k in range(whole.n_users):
        for start, stop in ((k, k + 1), (max(k - 1, 0), k + 1), (k, min(k + 3, whole.n_users))):
            alone = model.user_gradients(whole.users(start, stop), theta)
            assert np.array_equal(alone[k - start], gradients[k])
            assert np.sqrt(np.einsum("ki,ki->k", alone, alone))[k - start] == norms[k]
            assert model.user_losses(whole.users(start, stop), theta)[k - start] == losses[k]
