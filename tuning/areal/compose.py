"""A config composed by Hydra itself: ``defaults`` lists, groups and packages as Hydra reads them.

Notable:
- in a process of its own: Hydra keeps global state, and a file may be anything
- only files of a folder are composed; of a text alone nothing beside it can be known
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_TIMEOUT_S = 60.0
_SCRIPT = """
import json, sys
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
try:
    with initialize_config_dir(sys.argv[1], version_base=None):
        found = OmegaConf.to_container(compose(sys.argv[2]), resolve=False)
    answer = {"values": found}
except Exception as error:
    answer = {"error": type(error).__name__ + ": " + str(error)}
print(json.dumps(answer, default=str))
"""


class ComposeError(ValueError):
    """Hydra cannot compose the file; the message is Hydra's own."""


def needs_hydra(values: Mapping[str, Any], text: str) -> bool:
    """Whether Hydra makes something else of the file than its own keys."""
    return "defaults" in values or "hydra" in values or bool(re.search(r"(?m)^#\s*@package", text))


def compose(file: Path) -> dict[str, Any]:
    """What Hydra makes of ``file``. Raises ComposeError, or OSError where it cannot be asked."""
    name = file.name.split(".yaml")[0]
    command = [sys.executable, "-c", _SCRIPT, str(file.parent.resolve()), name]
    answer = asked(command, "Hydra", "Hydra could not be asked")
    if "error" in answer:
        lines = [line.strip() for line in answer["error"].splitlines() if line.strip()]
        raise ComposeError(" ".join(lines[:2]))
    return {str(key): value for key, value in answer["values"].items()}


def asked(
    command: Sequence[str],
    who: str,
    failure: str,
    question: str = "",
    timeout_s: float = _TIMEOUT_S,
) -> dict[str, Any]:
    """The JSON object that ``command`` prints last. Raises OSError that says what happened.

    question: its standard input
    """
    try:
        done = subprocess.run(
            command, input=question, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"{who} did not answer within {timeout_s:.0f} seconds") from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise OSError(f"{failure}: {last[0]}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer
