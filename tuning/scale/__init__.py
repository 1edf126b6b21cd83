"""All batches of a training set at many caps: counted whole, or sampled with its error."""

from tuning.scale.count import CapCount, Count, Figure, count
from tuning.scale.launchers import LAUNCHERS, LauncherError

__all__ = ["LAUNCHERS", "CapCount", "Count", "Figure", "LauncherError", "count"]
