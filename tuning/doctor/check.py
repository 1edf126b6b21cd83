"""Ask AReaL itself: does its structured config take this text?

Notable:
- in a process of its own, with a time limit: nothing of AReaL is imported into this one
- AReaL may be installed, or unpacked anywhere (``pip install --no-deps --target FOLDER areal``)
- without it, our own tables and rules stand in; the answer says which it was
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuning.areal.compose import asked
from tuning.areal.config import ArealConfig
from tuning.areal.schema import VERSION_NAMES, VERSIONS, Version
from tuning.doctor.doctor import check

FOLDER_VARIABLE = "ESPALIER_AREAL"
_TIMEOUT_S = 60.0
_PROBE = Path(__file__).with_name("probe.py")
_START = "fails at start"


class ProbeError(RuntimeError):
    """AReaL could not be asked; the message says why."""


@dataclass(frozen=True)
class Areal:
    """An AReaL to ask: the folder that holds ``areal/``, and its version."""

    root: Path
    version: str

    def speaks_for(self, version: Version) -> bool:
        """Whether this AReaL is of the target ``version``."""
        return self.version == version or (version == "main" and self.version.startswith("2."))

    @property
    def nearest(self) -> Version:
        """The version whose tables are nearest to this AReaL."""
        if self.version in VERSIONS:
            return self.version
        return "1.0.3" if self.version.startswith(("0.", "1.0.0", "1.0.1", "1.0.2")) else "main"


@dataclass(frozen=True)
class Answer:
    """What came of it.

    by:       "AReaL 1.0.4", or the table that stood in for it
    real:     whether AReaL itself was asked
    left_out: top-level keys that belong to the user's own script, not looked at
    """

    accepted: bool
    by: str
    real: bool
    error: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        if not self.accepted:
            return f"Refused by {self.by}: {self.error}"
        if self.real:
            return f"Accepted by {self.by}."
        return f"Accepted by our table of {self.by}'s settings (AReaL itself is not installed)."


def find_areal(folder: str | Path | None = None) -> Areal | None:
    """AReaL in ``folder``, in the folder that ``ESPALIER_AREAL`` names, or installed."""
    named = folder or os.environ.get(FOLDER_VARIABLE)
    if named:
        root = Path(named)
    else:
        spec = importlib.util.find_spec("areal")
        if spec is None or not spec.submodule_search_locations:
            return None
        root = Path(next(iter(spec.submodule_search_locations))).parent
    if not (root / "areal" / "api" / "cli_args.py").is_file():
        return None
    return Areal(root, _version(root))


def _version(root: Path) -> str:
    for found in importlib.metadata.distributions(path=[str(root)]):
        if found.metadata["Name"].lower() == "areal":
            return found.version
    file = root / "areal" / "version.py"
    text = file.read_text() if file.is_file() else ""
    match = re.search(r"""__version__\s*=\s*["']([^"']+)""", text)
    return match.group(1) if match else "of unknown version"


def validate(
    text: str,
    *,
    class_name: str | None = None,
    version: Version = "1.0.4",
    areal: Areal | None = None,
) -> Answer:
    """Whether the config class takes ``text``.

    class_name: one of AReaL's config classes; by default the one that the text is for
    version:    whose table stands in where ``areal`` is None

    Raises ConfigError where the text is no config, ProbeError where AReaL cannot be asked.
    """
    config = ArealConfig.read(text)
    name = class_name or config.class_name
    if areal is None:
        return _by_table(config, version)
    result = ask({"root": str(areal.root), "class": name, "text": text})
    return Answer(
        accepted=bool(result["accepted"]),
        by=f"AReaL {areal.version}",
        real=True,
        error=_shortened(result.get("error", "")),
        left_out=tuple(result.get("left_out", ())),
    )


def ask(
    question: Mapping[str, Any],
    timeout_s: float = _TIMEOUT_S,
    python: str | Path | None = None,
) -> dict[str, Any]:
    """One question to ``probe`` in its own process. Raises ProbeError.

    python: an interpreter that has what AReaL's config classes import; this one by default
    """
    command = [str(python or sys.executable), str(_PROBE)]
    failure = "AReaL's config classes could not be imported"
    try:
        return asked(command, "AReaL", failure, json.dumps(question), timeout_s)
    except OSError as error:
        raise ProbeError(str(error)) from None


def parse_overrides(lines: Sequence[str]) -> str:
    """Empty where Hydra's grammar takes all ``lines``, else its complaint. Raises ProbeError."""
    result = ask({"overrides": list(lines)})
    return "" if result["accepted"] else str(result["error"])


def _by_table(config: ArealConfig, version: Version) -> Answer:
    problems = [
        one.problem for one in check(config, version=version).findings if one.severity == _START
    ]
    name = VERSION_NAMES[version]
    return Answer(not problems, name, real=False, error=" ".join(problems))


def _shortened(error: str) -> str:
    """OmegaConf's message without the lines on its internals."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("reference_type", "object_type"))]
    return "; ".join(kept[:3])
