"""Pointwise convex losses, and how a row's prediction becomes a user's loss."""

from userdp.losses.absolute import Absolute, Huber, Pinball
from userdp.losses.base import ConvexLoss, Loss
from userdp.losses.check import LossError, check_loss
from userdp.losses.general import GeneralModel, SubgradientModel
from userdp.losses.hinge import Hinge
from userdp.losses.linear import FeatureMap, LinearModel
from userdp.losses.logistic import Logistic
from userdp.losses.squared import Squared

__all__ = [
    "Absolute",
    "ConvexLoss",
    "FeatureMap",
    "GeneralModel",
    "Hinge",
    "Huber",
    "LinearModel",
    "Logistic",
    "Loss",
    "LossError",
    "Pinball",
    "Squared",
    "SubgradientModel",
    "check_loss",
]
