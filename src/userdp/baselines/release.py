"""What every baseline returns, and how it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from userdp.accounting import Budget, Guarantee
from userdp.engines import Engine
from userdp.losses.base import Floats, UserModel, phase_gradients
from userdp.mechanisms.gaussian import Channel
from userdp.mechanisms.noise import Noise, noise_from


@dataclass(frozen=True, eq=False)
class BaselineRelease:
    """A released vector, what it promises, and the numbers that decided its noise.

    ``theta`` is in the coordinates of the model that was fitted. ``details`` holds public or released values only.
    """

    theta: Floats
    guarantee: Guarantee
    details: dict[str, Any] = field(default_factory=dict)


def open_channel(epsilon: float, delta: float, random_state: Any) -> Channel:
    """A fresh Gaussian budget and the noise that goes with it; baselines protect against replacing a user."""
    return Channel(Budget.of(epsilon, delta), source_of(random_state))


def source_of(random_state: Any) -> Noise:
    """A seed, None for secure noise, or a source of noise as it is (one baseline may call another)."""
    return random_state if hasattr(random_state, "gaussian") else noise_from(random_state)


def user_gradients(engine: Engine, model: UserModel, theta: Floats) -> Floats:
    """∇h_k(θ) of all users, (n, dimension): for aggregations that compare users with each other."""
    return engine.each(phase_gradients(model, theta))
