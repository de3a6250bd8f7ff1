"""Convex models trained under user-level differential privacy.

One person may contribute many rows; the guarantee covers all of them at once.
"""

from userdp.estimators import LogisticRegression

__version__ = "0.1.0"
__all__ = ["LogisticRegression"]
