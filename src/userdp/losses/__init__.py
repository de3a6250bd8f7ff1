"""Pointwise convex losses, and how a row's prediction becomes a user's loss."""

from userdp.losses.base import Loss
from userdp.losses.linear import FeatureMap, LinearModel
from userdp.losses.logistic import Logistic
from userdp.losses.squared import Squared

__all__ = ["FeatureMap", "LinearModel", "Logistic", "Loss", "Squared"]
