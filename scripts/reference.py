"""The reference pages of docs/, written from the code: ``python -m scripts.reference``.

Notable:
- commands come from their options, rules from their table, the library from its faces; a test
  holds the committed pages to what this would write
"""

from __future__ import annotations

import importlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer.main

from tuning.cli import app
from tuning.doctor import RULES

DOCS = Path(__file__).resolve().parents[1] / "docs"
# Folders with a public face, in the order in which a reader meets them.
FACES = (
    "packing",
    "packing.sources",
    "packing.packers",
    "packing.batch",
    "tuning.areal",
    "tuning.doctor",
    "tuning.workspace",
    "tuning.report",
)
_SHARED_BY = 3  # commands that take an option alike, for it to be listed once for all
_WRITTEN = "Written from the code by `python -m scripts.reference`; do not edit.\n"


def command_line() -> str:
    """Every command with its arguments, options, defaults and help; shared options once."""
    commands = list(_commands(typer.main.get_command(app), ()))
    tables = {
        words: {p.opts[0]: _option(p) for p in command.params if p.param_type_name == "option"}
        for words, command in commands
    }
    counted = Counter(line for table in tables.values() for line in table.values())
    shared = [line for line, commands_with in counted.items() if commands_with >= _SHARED_BY]
    head = ["| option | default | |", "|---|---|---|"]
    lines = ["# Commands", "", _WRITTEN]
    for words, command in commands:
        arguments = [p.name.upper() for p in command.params if p.param_type_name == "argument"]
        usage = " ".join(["python -m tuning", words, *arguments, "[OPTIONS]"])
        lines += [
            f"## {words}",
            "",
            _prose(command.help),
            "",
            "```console",
            f"$ {usage}",
            "```",
            "",
        ]
        own = [line for line in tables[words].values() if line not in shared]
        lines += [*head, *own, ""] if own else []
        others = [f"`{name}`" for name, line in tables[words].items() if line in shared]
        if others:
            lines += [f"And from the [shared options](#shared-options): {', '.join(others)}.", ""]
    return "\n".join([*lines, "## Shared options", "", *head, *shared, ""])


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", {})
    if not children:
        yield " ".join(words), command
    for name, child in children.items():
        yield from _commands(child, (*words, name))


def _option(option: Any) -> str:
    names = " ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    unset = option.required or option.default in (None, "", (), []) or callable(option.default)
    default = "**needed**" if option.required else "" if unset else f"`{option.default}`"
    return f"| {names} | {default} | {_cell(option.help or '')} |"


def rules() -> str:
    """Every rule of the doctor, by what it is about."""
    lines = ["# Rules of the doctor", "", _WRITTEN]
    lines += [
        "`python -m tuning check CONFIG` and the Export page look for these; what is wrong in"
    ]
    lines += ["a file, AReaL's words for it and the mend are said there.", ""]
    by_module: dict[str, list[Any]] = {}
    for rule in RULES:
        by_module.setdefault(rule.check.__module__, []).append(rule)
    for module, held in by_module.items():
        lines += [f"## {_prose(importlib.import_module(module).__doc__).rstrip('.')}", ""]
        lines += ["| rule | it | without trees too | in AReaL |", "|---|---|---|---|"]
        for rule in held:
            always = "yes" if rule.always else ""
            lines.append(f"| `{rule.id}` | {rule.severity} | {always} | {_cell(rule.source)} |")
        lines.append("")
    return "\n".join(lines)


def library() -> str:
    """Every public name of every face, with its signature and docstring."""
    lines = ["# The library", "", _WRITTEN]
    for face in FACES:
        module = importlib.import_module(face)
        lines += [f"## {face}", "", inspect.getdoc(module) or "", ""]
        made = {name: vars(module)[name] for name in module.__all__}
        plain = {n: v for n, v in made.items() if not (inspect.isclass(v) or inspect.isroutine(v))}
        if plain:
            lines += ["| value | |", "|---|---|"]
            lines += [f"| `{name}` | {_value(value)} |" for name, value in plain.items()] + [""]
        for name in (name for name in made if name not in plain):
            first, _, rest = (inspect.getdoc(made[name]) or "").partition("\n\n")
            lines += [f"### {name}", "", *_signature(name, made[name]), first, ""]
            lines += ["```text", rest, "```", ""] if rest else []
            lines += _methods(made[name])
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, int | str):
        return f"`{value!r}`"
    choices = get_args(value) if get_origin(value) is Literal else ()
    if isinstance(value, Mapping | tuple):
        choices = tuple(choice for choice in value if isinstance(choice, str))
    return "one of " + ", ".join(f"`{choice}`" for choice in choices) if choices else ""


def _methods(made: Any) -> list[str]:
    """A line for each public method and property of a class that says something of itself."""
    lines = []
    for name, member in vars(made).items() if inspect.isclass(made) else ():
        plain = getattr(member, "func", getattr(member, "__func__", member))
        words = _prose(getattr(plain, "__doc__", None))
        if name.startswith("_") or not words:
            continue
        if isinstance(member, classmethod | staticmethod) or inspect.isfunction(member):
            name += (
                f"({', '.join(_parameters(plain)[0 if isinstance(member, staticmethod) else 1 :])})"
            )
            lines.append(f"- `{name}`: {words}")
        elif isinstance(member, property | cached_property):
            lines.append(f"- `{name}`: {words}")
    return [*lines, ""] if lines else []


class _Bare(str):
    """An annotation as it was written."""

    __repr__ = str.__str__


def _parameters(made: Any) -> list[str]:
    return [
        str(
            p.replace(
                annotation=_Bare(p.annotation) if isinstance(p.annotation, str) else p.annotation,
                default=_Bare("…") if " at 0x" in repr(p.default) else p.default,
            )
        )
        for p in inspect.signature(made).parameters.values()
    ]


def _signature(name: str, made: Any) -> list[str]:
    if inspect.isclass(made) and issubclass(made, Exception):
        return []
    returned = ""
    if not inspect.isclass(made):
        returned = f" -> {inspect.signature(made).return_annotation}"
    parameters = _parameters(made)
    short = f"{name}({', '.join(parameters)}){returned}"
    long = f"{name}(\n" + "".join(f"    {p},\n" for p in parameters) + f"){returned}"
    return ["```python", short if len(short) <= 100 else long, "```", ""]


def _prose(text: str | None) -> str:
    return " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES: dict[str, Callable[[], str]] = {
    "command-line.md": command_line,
    "rules.md": rules,
    "library.md": library,
}


def main() -> None:
    for name, write in PAGES.items():
        (DOCS / name).write_text(write(), encoding="utf-8")
        print(DOCS / name)


if __name__ == "__main__":
    main()
