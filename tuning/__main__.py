"""``python -m tuning``, or ``espalier`` where the wheel is installed: the job without a browser.

Notable:
- ``app`` starts the console; its file lies in a folder of its own in the wheel, because Streamlit
  puts that folder first on the path, where ``kernels`` may be another distribution's
"""

import os
import sys
from pathlib import Path

import typer

from tuning.cli import app
from tuning.plan.commands import PROGRAM


@app.command("app", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def console(context: typer.Context) -> None:
    """Start the app and print its URL; what follows goes to Streamlit."""
    top = Path(__file__).resolve().parents[1]
    entry = next(path for path in (top / "console" / "app.py", top / "app.py") if path.exists())
    command = [sys.executable, "-m", "streamlit", "run", str(entry), *context.args]
    os.execv(sys.executable, command)


def main() -> None:
    app(prog_name=PROGRAM)


if __name__ == "__main__":
    main()
