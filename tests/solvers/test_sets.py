"""Projections, normal cones and the slack that makes every certificate valid."""

from __future__ import annotations

import math

import numpy as np
import pytest

from userdp.losses.base import Floats
from userdp.solvers.sets import Ball, Box, ConvexSet, WholeSpace, Within, tangent

ZERO = np.zeros(3)
SETS: dict[str, ConvexSet] = {
    "space": WholeSpace(),
    "ball": Ball(np.array([0.3, 0.0, -0.2]), 0.7),
    "box": Box(np.array([-0.5, -1.0, 0.0]), np.array([0.5, 0.2, math.inf])),
    "box in ball": Within(Box(np.full(3, -0.5), np.full(3, 0.5)), Ball(np.array([0.4, 0.1, 0.5]), 0.45)),
    "ball in ball": Within(Ball(ZERO, 1.0), Ball(np.array([0.8, 0.0, 0.0]), 0.6)),
    "twice cut": Within(
        Within(Box(np.full(3, -1.0), np.full(3, 1.0)), Ball(np.array([1.0, 0.0, 0.0]), 0.8)),
        Ball(np.array([0.9, 0.3, 0.0]), 0.5),
    ),
}


def points_of(domain: ConvexSet, count: int = 200) -> Floats:
    generator = np.random.default_rng(0)
    return np.array([domain.project(point) for point in generator.normal(scale=2.0, size=(count, 3))])


@pytest.mark.parametrize("name", SETS)
def test_projection_satisfies_the_variational_inequality(name: str) -> None:
    domain = SETS[name]
    members = points_of(domain)
    for point in np.random.default_rng(1).normal(scale=2.0, size=(50, 3)):
        near = domain.project(point)
        assert np.max((members - near) @ (point - near)) <= 1e-9
        np.testing.assert_allclose(domain.project(near), near, atol=1e-12)


@pytest.mark.parametrize("name", SETS)
def test_the_slack_bounds_the_support_function_everywhere(name: str) -> None:
    """sup ⟨vector, z − point⟩ ≤ slack, at points on faces, near them and inside."""
    domain = SETS[name]
    members = points_of(domain)
    generator = np.random.default_rng(2)
    for point in members[:60]:
        for mix in (0.0, 1e-10, 0.1):
            inside = domain.project((1 - mix) * point + mix * members[0])
            normal = domain.normal(inside, generator.normal(size=3))
            assert np.max((members - inside) @ normal.vector) <= normal.slack + 1e-12


@pytest.mark.parametrize("name", SETS)
def test_normal_and_tangent_parts_are_moreau_decomposition(name: str) -> None:
    """Orthogonal, and the tangential part points into the set: a small step along it leaves it by second order only."""
    domain = SETS[name]
    for point in points_of(domain)[:60]:
        direction = np.random.default_rng(3).normal(size=3)
        normal, rest = domain.normal(point, direction).vector, tangent(domain, point, direction)
        assert abs(normal @ rest) <= 1e-6
        step = 1e-5
        moved = domain.project(point + step * rest)
        assert np.linalg.norm(moved - point - step * rest) <= 1e-3 * step * (1 + np.linalg.norm(rest)) ** 2


def test_impossible_sets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"radius .* positive, got 0"):
        Ball(ZERO, 0.0)
    with pytest.raises(ValueError, match="lower ≤ upper"):
        Box(np.ones(3), ZERO)
    with pytest.raises(ValueError, match="outside the set"):
        Within(Ball(ZERO, 1.0), Ball(np.array([3.0, 0.0, 0.0]), 1.0))
