"""Writes ``tuning/areal/schemas/VERSION.json`` from AReaL's own config classes.

    python -m scripts.areal_schema 1.0.4                 # the wheel of the package index
    python -m scripts.areal_schema main --root CHECKOUT  # a checkout of AReaL's repository

Notable:
- makes an environment of its own with what AReaL's classes import, and asks them there
- types and defaults are the dataclasses' own; a validator of one field is found by trying values:
  what a class refuses, and in which words, is what the file says
- checks that join several fields cannot be found so; they are ``tuning/areal/joined.py``
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import types
import typing
import venv
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROBE = ROOT / "tuning" / "doctor" / "probe.py"
SCHEMAS = ROOT / "tuning" / "areal" / "schemas"
NEEDS = ("omegaconf==2.4.0.dev2", "hydra-core==1.4.0.dev1", "numpy", "pyyaml", "packaging", "lark")
_TOP = ("PPOConfig", "SFTConfig", "RWConfig", "DPOConfig")
_BOGUS = "no such value"
_NUMBERS = (-1_000_000, -1, -0.5, 0, 1e-9, 0.5, 1, 2, 4, 1000)
# What a class needs before it can be made at all, and fields whose bounds another field sets.
_BASES: dict[str, dict[str, Any]] = {"AgentConfig": {"agent_cls_path": "a.b"}}
_JOINED = {("RejectionSamplingConfig", "upper"), ("RejectionSamplingConfig", "lower")}
_ALIASES = ("fp32", "bf16", "fp16", "float32", "bfloat16", "float16")


def make_environment(folder: Path) -> Path:
    """A Python with what AReaL's config classes need; made once. Returns its interpreter."""
    python = folder / "bin" / "python"
    if not (folder / ".made").is_file():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--pre", *NEEDS], check=True)
        (folder / ".made").touch()
    return python


def unpack_wheel(version: str, folder: Path) -> Path:
    """AReaL's published wheel, unpacked without its dependencies. Returns the folder."""
    if not (folder / "areal").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        subprocess.run([*pip, "--target", str(folder), f"areal=={version}"], check=True)
    return folder


def inspect(root: str) -> dict[str, Any]:
    """Class to field to what is known of it, for every class that a config reaches."""
    spec = importlib.util.spec_from_file_location("probe", PROBE)
    assert spec is not None and spec.loader is not None
    probe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(probe)
    cli_args = probe.load_cli_args(root)
    found: dict[str, Any] = {}
    queue = [getattr(cli_args, name) for name in _TOP if hasattr(cli_args, name)]
    while queue:
        cls = queue.pop()
        if cls.__name__ in found:
            continue
        hints = typing.get_type_hints(cls)
        found[cls.__name__] = {
            one.name: _field(cls, one, hints[one.name]) for one in dataclasses.fields(cls)
        }
        queue += [inner for hint in hints.values() for inner in _classes(hint)]
    return dict(sorted(found.items()))


def _classes(hint: Any) -> Iterator[Any]:
    if dataclasses.is_dataclass(hint):
        yield hint
    for inner in typing.get_args(hint):
        yield from _classes(inner)


def _field(cls: Any, one: dataclasses.Field[Any], hint: Any) -> dict[str, Any]:
    kinds = [inner for inner in typing.get_args(hint) if inner is not types.NoneType]
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    known: dict[str, Any] = {"type": "|".join(map(_name, kinds)) if union else _name(hint)}
    if union and len(kinds) < len(typing.get_args(hint)):
        known["optional"] = True
    known["default"] = _plain(_default(one))
    documented = one.metadata.get("choices")
    enforced = {} if (cls.__name__, one.name) in _JOINED else _enforced(cls, one, hint)
    if documented and "choices" not in enforced:
        known["documented"] = list(documented)
    return known | enforced


def _name(hint: Any) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is typing.Any:
        return "any"
    if origin in (list, tuple):
        return f"list[{_name(inner[0])}]"
    if origin is dict:
        return f"dict[{_name(inner[0])},{_name(inner[1])}]"
    return str(hint.__name__)


def _plain(value: Any) -> Any:
    """A default as JSON: of a class, only what differs from the class's own defaults."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            one.name: _plain(getattr(value, one.name))
            for one in dataclasses.fields(value)
            if getattr(value, one.name) != _default(one)
        }
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    return value


def _default(one: dataclasses.Field[Any]) -> Any:
    make: Any = one.default_factory
    return one.default if make is dataclasses.MISSING else make()


def _enforced(cls: Any, one: dataclasses.Field[Any], hint: Any) -> dict[str, Any]:
    """What the class refuses in this field alone: ``choices``, ``least``, ``above``, ``lengths``.

    ``says`` is its complaint, with ``{}`` in the place of the value.
    """
    if not hasattr(cls, "__post_init__") or _refusal(cls, {}) is not None:
        return {}
    default, kinds = _default(one), {hint, *typing.get_args(hint)}
    if str in kinds:
        return _choices(cls, one, types.NoneType in kinds)
    if isinstance(default, list | tuple) and default:
        taken = [n for n in range(4) if _refusal(cls, {one.name: [default[0]] * n}) is None]
        if len(taken) < 4:
            complaint = _refusal(cls, {one.name: [default[0]] * 3}) or ""
            return {"lengths": taken, "says": _template(complaint, "3")}
    if kinds & {int, float} and bool not in kinds:
        numbers: list[float] = [n for n in _NUMBERS if float in kinds or isinstance(n, int)]
        refused = {n: _refusal(cls, {one.name: n}) for n in numbers}
        fine = [n for n in numbers if refused[n] is None]
        below = [n for n in numbers if refused[n] is not None and fine and n < min(fine)]
        if below:
            bound = {"above": 0} if min(fine) == 1e-9 else {"least": min(fine)}
            worst = max(below)
            return bound | {"says": _template(refused[worst] or "", str(worst))}
    return {}


def _choices(cls: Any, one: dataclasses.Field[Any], optional: bool) -> dict[str, Any]:
    complaint = _refusal(cls, {one.name: _BOGUS})
    if complaint is None:
        empty = _refusal(cls, {one.name: ""})
        if empty is None:
            return {}
        blank = {"blank": True} if _refusal(cls, {one.name: "  "}) is None else {}
        return {"nonempty": True, "says": empty} | blank
    quoted = sorted(re.findall(r"'([^']*)'", complaint))  # a set is printed in any order
    tried = [*one.metadata.get("choices", ()), *quoted, *_ALIASES]
    tried += [_default(one), *(["vllm", "sglang"]), *([None] if optional else [])]
    taken = [t for t in dict.fromkeys(tried) if _refusal(cls, {one.name: t}) is None]
    slash = {"slash": True} if _refusal(cls, {one.name: "a/b"}) is None else {}
    return {"choices": taken, "says": _template(complaint, _BOGUS)} | slash


def _refusal(cls: Any, values: dict[str, Any]) -> str | None:
    base = _BASES.get(cls.__name__, {})
    if cls.__name__ == "RWConfig":
        critic = typing.get_type_hints(cls)["actor"](is_critic=True)
        base = {"actor": critic}
    try:
        cls(**base | values)
    except Exception as error:  # whatever it raises, it refuses
        return str(error) or type(error).__name__
    return None


def _template(complaint: str, value: str) -> str:
    ordered = re.sub(
        r"\{('[^{}]*')\}",
        lambda m: "{{" + ", ".join(sorted(m.group(1).split(", "))) + "}}",
        complaint.splitlines()[0],
    )
    return ordered.replace(value, "{}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("version", help="the file's name: 1.0.4, main …")
    parser.add_argument("--root", type=Path, help="a checkout, or an unpacked wheel")
    parser.add_argument("--environment", type=Path, help="a folder to keep; else a temporary one")
    parser.add_argument("--inspect", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inspect:
        sys.stdout.write("\n" + json.dumps(inspect(str(given.root))))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.environment or Path(temporary)
        python = make_environment(folder / "environment")
        root = given.root or unpack_wheel(given.version, folder / "wheel")
        done = subprocess.run(
            [python, __file__, given.version, "--root", str(root), "--inspect"],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(done.stderr.strip().splitlines()[-1])
    classes = json.loads(done.stdout.splitlines()[-1])
    lines = [f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in classes.items()]
    out = SCHEMAS / f"{given.version}.json"
    out.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    sys.stdout.write(f"{out}: {len(classes)} classes\n")


if __name__ == "__main__":
    main()
