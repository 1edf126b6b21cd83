"""What is kept and carried: runs, files, the history, and two plans beside each other."""

from tuning.workspace.compare import Compared, ComparedFigure, compare, percent, same_rows, written
from tuning.workspace.compare_side import TOKENS, Side, StepAt, side_of
from tuning.workspace.compare_text import aligned_columns, compare_line, plan_of_link, text_of
from tuning.workspace.file import (
    open_workspace,
    read_sweep_file,
    read_workspace,
    save_workspace,
    workspace_bytes,
)
from tuning.workspace.here import take_in
from tuning.workspace.history import (
    HistoryError,
    Run,
    export,
    runs,
    workspace_of_plan,
)
from tuning.workspace.rows import tags_of
from tuning.workspace.workspace import (
    SavedPoint,
    Source,
    Workspace,
    WorkspaceError,
    points_of,
    sweep_of,
)

__all__ = [
    "TOKENS",
    "Compared",
    "ComparedFigure",
    "HistoryError",
    "Run",
    "SavedPoint",
    "Side",
    "Source",
    "StepAt",
    "Workspace",
    "WorkspaceError",
    "aligned_columns",
    "compare",
    "compare_line",
    "export",
    "open_workspace",
    "percent",
    "plan_of_link",
    "points_of",
    "read_sweep_file",
    "read_workspace",
    "runs",
    "same_rows",
    "save_workspace",
    "side_of",
    "sweep_of",
    "tags_of",
    "take_in",
    "text_of",
    "workspace_bytes",
    "workspace_of_plan",
    "written",
]
