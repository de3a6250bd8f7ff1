"""Mean estimation and linear losses."""

from __future__ import annotations

import numpy as np

from userdp.data import UserDataset
from userdp.losses.vector import LinearPart, VectorModel

ROWS = np.random.default_rng(0).normal(size=(12, 3))
BLOCK = UserDataset.from_arrays(ROWS, None, np.repeat([0, 1, 2], [2, 4, 6])).blocks[0]
THETA = np.array([0.3, -0.2, 0.7])


def test_mean_loss_is_the_squared_distance() -> None:
    model = VectorModel.mean(3, zeta=0.7)
    expected = [0.7 * np.mean(np.sum((THETA - part) ** 2, axis=1)) for part in np.split(ROWS, [2, 6])]
    np.testing.assert_allclose(model.user_losses(BLOCK, THETA), expected)


def test_gradients_match_differences() -> None:
    for model in (VectorModel.mean(3, zeta=0.7), VectorModel.linear(3, slope=1.3)):
        for i in range(3):
            step = 1e-6 * np.eye(3)[i]
            numeric = (model.user_losses(BLOCK, THETA + step) - model.user_losses(BLOCK, THETA - step)) / 2e-6
            np.testing.assert_allclose(model.user_gradients(BLOCK, THETA)[:, i], numeric, atol=1e-6)


def test_the_linear_part_and_the_common_quadratic_make_up_the_loss() -> None:
    model, center = VectorModel.mean(3, zeta=0.7), np.array([0.1, 0.2, -0.4])
    forces, _ = LinearPart(model, center).forces(BLOCK, np.inf)
    step = THETA - center
    rebuilt = model.user_losses(BLOCK, center) + forces @ step + model.curvature / 2 * step @ step
    np.testing.assert_allclose(rebuilt, model.user_losses(BLOCK, THETA))


def test_forces_are_capped_whatever_the_rows() -> None:
    wild = UserDataset.from_arrays(1e200 * ROWS, None, np.repeat([0, 1, 2], [2, 4, 6])).blocks[0]
    forces, capped = LinearPart(VectorModel.mean(3), np.zeros(3)).forces(wild, 0.5)
    assert np.all(np.linalg.norm(forces, axis=1) <= 0.5)
    assert capped == 3
