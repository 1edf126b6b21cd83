"""``python -m tuning``: the same job without a browser."""

from tuning.cli import app

app(prog_name="python -m tuning")
