"""The command line. Each command imports what it needs: packing answers without torch.

Notable:
- an error is one sentence on standard error and exit code 1; ``--json`` prints one object
- ROWS is ``sample:NAME``, ``hub:ID[@revision][:split]``, or a path, glob or folder
"""

from tuning.cli.main import app

__all__ = ["app"]
