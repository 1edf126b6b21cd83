"""Keys and values that AReaL's config classes would refuse."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from tuning.areal.config import UNKNOWN
from tuning.areal.schema import VERSION_NAMES, Field, WrongType, convert, is_open, table
from tuning.doctor.rules.base import Case, Found, rule


def _walk(
    case: Case, section: str, values: Mapping[str, Any], above: str
) -> Iterator[tuple[str, str, Field | None, Any]]:
    """Path, class, field and resolved value of each key that a table covers."""
    fields = table(case.version, section)
    for key, raw in values.items():
        value = case.config.resolve(raw)
        known = fields.get(str(key))
        path = f"{above}{key}"
        yield path, section, known, value
        if known is not None and known.section and isinstance(value, Mapping):
            yield from _walk(case, known.section, value, f"{path}.")


def _keys(case: Case) -> Iterator[tuple[str, str, Field | None, Any]]:
    return _walk(case, case.config.class_name, case.config.values, "")


@rule("unknown-key", "fails at start", "OmegaConf structured configs", always=True)
def unknown_key(case: Case) -> Iterator[Found]:
    for path, section, known, _ in _keys(case):
        if known is not None or is_open(case.version, section):
            continue
        if "." not in path and case.config.trainer != "engine":
            continue  # a script may extend the top level with its own class
        name = path.rpartition(".")[2]
        close = difflib.get_close_matches(name, table(case.version, section), 1)
        advice = f"Did you mean {close[0]}?" if close else f"Remove {path}."
        yield Found(
            f"{path} is no setting of {VERSION_NAMES[case.version]}'s {section}.",
            advice,
            says=f"Key '{name}' not in '{section}'",
            path=path,
        )


@rule("wrong-type", "fails at start", "OmegaConf structured configs", always=True)
def wrong_type(case: Case) -> Iterator[Found]:
    for path, _, known, value in _keys(case):
        if known is None or value is UNKNOWN or known.type == "any" or value == "???":
            continue
        if value is None:
            if not known.optional:
                yield Found(
                    f"{path} is empty.",
                    f"Write a value{_default(known)}, or remove the line.",
                    says=f"Incompatible value 'None' for field of type '{known.type}'",
                    path=path,
                )
            continue
        if known.section:
            if not isinstance(value, Mapping):
                yield Found(
                    f"{path} is {value!r}, but holds settings of its own ({known.section}).",
                    "Write them below it, indented.",
                    says=f"Invalid type assigned: {type(value).__name__} is not a subclass of "
                    f"{known.section}",
                    path=path,
                )
            continue
        try:
            convert(known.type, value)
        except WrongType as error:
            number = _number(value)
            mend = f"Write {path}: {number}." if number and known.type == "int" else ""
            yield Found(
                f"{path} is {_shown(value)}; {_wanted(known)}.",
                mend or f"Write {_wanted(known, short=True)}{_default(known)}.",
                says=str(error),
                path=path,
                fix={path: int(number)} if mend and number else {},
            )


@rule("quoted-number", "no effect", "OmegaConf structured configs", always=True)
def quoted_number(case: Case) -> Iterator[Found]:
    for path, _, known, value in _keys(case):
        if known is None or known.type not in ("int", "float", "bool"):
            continue
        if isinstance(value, str) and value is not UNKNOWN and value != "???":
            try:
                read = convert(known.type, value)
            except WrongType:
                continue
            shown = str(read).lower() if isinstance(read, bool) else str(read)
            yield Found(
                f'{path} is the text "{value}"; AReaL reads it as {shown}.',
                f"Write {path}: {shown}, without quotes.",
                path=path,
                when="never: it is converted",
            )


_MANDATORY = ["experiment_name", "trial_name", "train_dataset.path", "train_dataset.type"]
_ADVICE = {
    "experiment_name": "a name",
    "trial_name": "a name",
    "train_dataset.path": "the data set",
    "train_dataset.type": "rl (or sft, dpo, rw)",
}


@rule("missing-value", "fails at start", "api/cli_args.py, MISSING", always=True)
def missing_value(case: Case) -> Iterator[Found]:
    section = case.config.values.get("actor")
    whole = isinstance(section, Mapping) and case.config.has("train_dataset")
    if case.config.trainer != "engine" and not whole:
        return  # a fragment: the rest of the config may hold them
    names = [case.path("experiment_name"), case.path("trial_name")]
    if whole:
        names += _MANDATORY
    for path in names:
        name = path.rpartition(".")[2]
        if case.get(path) == "???":
            value = _ADVICE.get(path) or "${" + name + "}"
            yield Found(
                f"{path} is missing.",
                f"Write {path}: {value}.",
                says=f"Missing mandatory value: {path}",
                path=path,
            )


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, str) else str(value)


def _wanted(known: Field, short: bool = False) -> str:
    words = {
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
        "str": "text",
    }.get(known.type, f"one of {', '.join(known.choices)}")
    return words if short else f"AReaL wants {words}"


def _default(known: Field) -> str:
    if known.default in (None, "", "???"):
        return ""
    shown = str(known.default).lower() if isinstance(known.default, bool) else known.default
    return f" (AReaL's default is {shown})"


def _number(value: Any) -> str | None:
    """The whole number that was surely meant, such as 8192 for 8k or 8192.0."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str):
        text = value.strip().lower().replace(",", "").replace(" ", "")
        scale = {"k": 1024, "ki": 1024, "m": 1024**2}
        for ending, factor in scale.items():
            if text.endswith(ending) and text[: -len(ending)].isdecimal():
                return str(int(text[: -len(ending)]) * factor)
        if text.isdecimal():
            return text
    return None
