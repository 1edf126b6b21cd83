"""What AReaL's parser and its config classes refuse, each fault at its place."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from tuning.areal.config import AGENT_KEYS, REMOVED, UNKNOWN
from tuning.areal.names import PLUGIN_ATTENTION
from tuning.areal.parser import Refusal, raw_at, sections
from tuning.areal.schema import (
    REQUIRED,
    VERSION_NAMES,
    Field,
    field_at,
    table,
    versions_with,
)
from tuning.doctor.rules.base import Case, Found, rule, word

_REMOVED = {
    "behave_imp_weight_cap": "rejection_sampling: {level: token, action: mask, upper: X}",
    "behave_imp_weight_mode": "rejection_sampling: {level: token, action: mask, upper: X}",
    "allocation_mode": "a `backend` for the actor and one for the rollout",
    "async_training": "rollout.max_head_offpolicyness",
}
_SOURCE = "api/cli_args.py; OmegaConf structured configs"


def _refusals(case: Case, kind: str) -> Iterator[Refusal]:
    if case.config.class_name:
        yield from (r for r in case.config.parsed(case.version).refusals if r.kind == kind)


@rule("hydra-compose", "fails at start", "Hydra, as areal/api/cli_args.py calls it", "file")
def hydra_compose(case: Case) -> Iterator[Found]:
    if case.config.refused:
        yield Found(
            "Hydra cannot compose this file with its `defaults`.",
            "Put the missing file where Hydra looks for it, or take the entry out.",
            says=case.config.refused,
            path="defaults",
        )
    file = case.config.file
    if file is not None and file.suffix != ".yaml":
        yield Found(
            f"The file's name ends in {file.suffix or 'nothing'}; Hydra reads .yaml files only.",
            f"Call it {file.stem}.yaml.",
            says=f"Cannot find primary config '{file.name}'",
        )


@rule("unknown-key", "fails at start", _SOURCE, "file")
def unknown_key(case: Case) -> Iterator[Found]:
    for one in _refusals(case, "unknown key"):
        yield _unknown(case, one.path, one.section, one.says)
    known = table(case.version, case.config.class_name)
    parsed = case.config.parsed(case.version)
    for key in (one for one in parsed.own if known and one not in AGENT_KEYS):
        # A script may extend the top level; a misspelt or a removed key is not its own.
        near = difflib.get_close_matches(key, set(known) - set(case.config.values), 1, 0.85)
        if near or versions_with(case.config.class_name, key):
            yield _unknown(case, key, case.config.class_name, f"Key '{key}' not in '{{}}'")


def _unknown(case: Case, path: str, section: str, says: str) -> Found:
    name = path.rpartition(".")[2]
    owner = section or case.config.class_name
    versions = versions_with(case.config.class_name, path)
    close = difflib.get_close_matches(name, list(table(case.version, owner)), 1)
    fix: dict[str, Any] = {} if "[" in path else {path: REMOVED}
    if name in _REMOVED:
        advice = f"It was removed; write {_REMOVED[name]} instead."
    elif versions:
        names = ", ".join(VERSION_NAMES[v] for v in versions)
        advice = f"Remove {path}: {names} have it, this version has not."
    else:
        advice = f"Did you mean {close[0]}?" if close else f"Remove {path}."
        value = raw_at(case.config.values, path)
        right = f"{path.rpartition('.')[0]}.{close[0]}".lstrip(".") if close else ""
        if right and fix and not case.config.has(right) and not isinstance(value, dict | list):
            fix = {right: value} | fix
    return Found(
        f"{path} is no setting of {VERSION_NAMES[case.version]}'s {owner}.",
        advice,
        says=says.replace("{}", owner),
        path=path,
        fix=fix,
    )


@rule("wrong-type", "fails at start", _SOURCE, "file")
def wrong_type(case: Case) -> Iterator[Found]:
    for one in _refusals(case, "wrong type"):
        known = field_at(case.version, case.config.class_name, one.path)
        number = _number(one.value)
        if one.value is None:
            problem, mend = f"{one.path} is empty.", "Write a value, or remove the line"
        elif known is not None and known.section:
            problem = f"{one.path} is {one.value!r}, but holds settings ({known.section})."
            mend = "Write them below it, indented"
        elif isinstance(one.value, list | dict):
            problem = f"{one.path} holds something that it cannot hold: {one.says}."
            mend = f"Correct what stands below {one.path}"
        else:
            problem = f"{one.path} is {_shown(one.value)}; {_wanted(known)}."
            mend = f"Write {_wanted(known, short=True)}"
        fix: dict[str, Any] = {}
        if number is not None and known is not None and known.type == "int":
            mend, fix = f"Write {one.path}: {number}", {one.path: number}
        elif known is not None and known.default not in (None, "", REQUIRED) and not known.section:
            mend += _default(known)
            fix = {} if isinstance(known.default, list | dict) else {one.path: known.default}
        yield Found(problem, f"{mend}.", says=one.says, path=one.path, fix=fix)


@rule("interpolation", "fails at start", _SOURCE, "file")
def interpolation(case: Case) -> Iterator[Found]:
    for one in _refusals(case, "interpolation"):
        if case.config.fragment and "not found" in one.says:
            continue  # the rest of the config may hold it
        yield Found(
            f"{one.path} refers to what is not there or cannot be there: {_shown(one.value)}.",
            "Correct the reference, or write the value out.",
            says=one.says,
            path=one.path,
        )


@rule("missing-value", "fails at start", "api/cli_args.py, MISSING", "file")
def missing_value(case: Case) -> Iterator[Found]:
    if case.config.fragment or case.config.trainer == "rollout":
        return  # the rest of the config may hold them
    for one in _refusals(case, "missing value"):
        name = one.path.rpartition(".")[2]
        advice: str | None = _ADVICE.get(one.path)
        fix: dict[str, Any] = {}
        if advice is None and one.path != name and name in _ABOVE:
            advice = f"${{{_ABOVE[name]}}}"
            fix = {one.path: advice} if case.config.has(_ABOVE[name]) else {}
        if one.path == "train_dataset.type":
            advice = {"ppo": "rl"}.get(case.config.trainer, case.config.trainer)
            fix = {one.path: advice}
        removed = name == "backend" and case.config.has("allocation_mode")
        more = "; allocation_mode no longer counts" if removed else ""
        yield Found(
            f"{one.path} is missing{more}.",
            f"Write {one.path}: {advice or _EXAMPLES.get(name, 'a value')}.",
            says=one.says,
            path=one.path,
            fix=fix,
        )


_ABOVE = {
    "experiment_name": "experiment_name",
    "trial_name": "trial_name",
    "fileroot": "cluster.fileroot",
}
_ADVICE = {
    "experiment_name": "a name",
    "trial_name": "a name",
    "train_dataset.path": "the data set",
    "rollout.backend": "sglang:d4, or vllm:d4",
}
_EXAMPLES = {"backend": "an engine and its ranks, such as fsdp:d8"}


def parsed_fields(case: Case) -> Iterator[tuple[str, Field, Any]]:
    """Path, field and value of everything that the parser took."""
    if not case.config.class_name:
        return
    parsed = case.config.parsed(case.version)
    for above, name, values in sections(parsed.values, case.version, case.config.class_name):
        for key, known in table(case.version, name).items():
            value = values.get(key, known.default)
            if value is not UNKNOWN and value != REQUIRED:
                yield (f"{above}.{key}" if above else key), known, value


@rule("wrong-value", "fails at start", "api/cli_args.py, __post_init__ of the class", "file")
def wrong_value(case: Case) -> Iterator[Found]:
    for path, known, value in parsed_fields(case):
        if not known.refuses(value) or (value == PLUGIN_ATTENTION and case.trees):
            continue
        length = len(value) if known.lengths and hasattr(value, "__len__") else value
        fix = {} if known.lengths or known.default in (None, "") else {path: known.default}
        what = f"has {length} entries" if known.lengths else f"is {_shown(value)}"
        default = "" if known.lengths else _default(known)
        yield Found(
            f"{path} {what}; {_allowed(known)}.",
            f"Write {_allowed(known)}{default}.",
            says=known.says.replace("{}", str(length)),
            path=path,
            fix=fix,
        )


@rule("undocumented-value", "no effect", "api/cli_args.py, choices of the field", "file")
def undocumented_value(case: Case) -> Iterator[Found]:
    """The classes do not check these; what reads them later may fail."""
    for path, known, value in parsed_fields(case):
        if path == "actor.weight_update_mode" and case.config.trainer == "ppo":
            continue  # the trainer refuses what it does not know
        unusual = value not in (*known.documented, known.default, None)
        if known.documented and unusual:
            names = ", ".join(_shown(one) for one in known.documented)
            yield Found(
                f"{path} is {_shown(value)}; AReaL's help knows {names}.",
                f"Choose one of {names}.",
                path=path,
                when="not when the file is read; what uses the value may fail",
                fix={path: known.default},
            )


@rule("quoted-number", "no effect", _SOURCE, "file")
def quoted_number(case: Case) -> Iterator[Found]:
    for path, known, raw in _written(case, case.config.values, case.config.class_name, ""):
        read = case.get(path)
        if known.type in ("int", "float", "bool") and isinstance(raw, str) and "${" not in raw:
            if read is UNKNOWN or isinstance(read, str) or read is None:
                continue
            yield Found(
                f'{path} is the text "{raw}"; AReaL reads it as {word(read)}.',
                f"Write {path}: {word(read)}, without quotes.",
                path=path,
                when="never: it is converted",
                fix={path: read},
            )


def _written(
    case: Case, values: Mapping[str, Any], name: str, above: str
) -> Iterator[tuple[str, Field, Any]]:
    fields = table(case.version, name)
    for key, raw in values.items():
        known = fields.get(str(key))
        if known is None:
            continue
        yield f"{above}{key}", known, raw
        if known.section and isinstance(raw, Mapping):
            yield from _written(case, raw, known.section, f"{above}{key}.")


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else word(value)


_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}


def _wanted(known: Field | None, short: bool = False) -> str:
    kind = "" if known is None else known.type
    words = _WORDS.get(kind) or ("a list" if kind.startswith("list") else "another kind of value")
    return words if short else f"AReaL wants {words}"


def _allowed(known: Field) -> str:
    if known.lengths:
        return f"{' or '.join(map(str, known.lengths))} of them"
    if known.choices:
        return f"one of {', '.join(_shown(one) for one in known.choices)}"
    if known.least is not None:
        return f"{known.least} or more"
    return "more than 0" if known.above is not None else "text that is not empty"


def _default(known: Field) -> str:
    if known.default in (None, "", REQUIRED):
        return ""
    return f" (AReaL's default is {_shown(known.default)})"


def _number(value: Any) -> int | None:
    """The whole number that was surely meant, such as 8192 for 8k or 8192.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        text = value.strip().lower().replace(",", "").replace(" ", "")
        for ending, factor in {"k": 1024, "ki": 1024, "m": 1024**2}.items():
            if text.endswith(ending) and text[: -len(ending)].isdecimal():
                return int(text[: -len(ending)]) * factor
        if text.isdecimal():
            return int(text)
    return None
