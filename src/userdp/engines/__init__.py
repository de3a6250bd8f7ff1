"""Sum-over-users engines."""

from userdp.engines.base import Engine, Kernel, Sums
from userdp.engines.labels import Labelled, distinct_targets
from userdp.engines.local import LocalEngine

__all__ = ["Engine", "Kernel", "Labelled", "LocalEngine", "Sums", "distinct_targets"]
