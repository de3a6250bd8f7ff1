"""Rows grouped by user: blocks, datasets, loading."""

from userdp.data.blocks import UserBlock
from userdp.data.dataset import UserDataset
from userdp.data.tables import DataError

__all__ = ["DataError", "UserBlock", "UserDataset"]
