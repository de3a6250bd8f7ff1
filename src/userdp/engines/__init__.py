"""Sum-over-users engines."""

from userdp.engines.base import Engine, Kernel, Sums
from userdp.engines.local import LocalEngine

__all__ = ["Engine", "Kernel", "LocalEngine", "Sums"]
