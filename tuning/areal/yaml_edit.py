"""Edits of a YAML text that leave every other byte as it was.

Notable:
- a value is replaced where it stands; a new key goes beside its nearest relative
- an alias is not followed: ``*spec`` becomes ``{<<: *spec, key: value}``, so that other users of
  the anchor keep their value
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from tuning.areal.yaml_nodes import ConfigError, child

_NEIGHBOURS = ("enable_tree_training", "mb_spec", "max_tokens_per_mb", "path", "backend")


def set_value(text: str, node: yaml.Node, parts: list[str], value: Any) -> str:
    """``text`` with one value set.

    node:  the root of the text's nodes
    parts: the path, key by key; missing keys are added
    value: bool, int, float, str or None

    Raises ConfigError where the path runs through something that is no mapping.
    """
    for depth, part in enumerate(parts):
        pair = child(node, part)
        if pair is None:
            assert isinstance(node, yaml.MappingNode)
            return _insert(text, node, parts[depth:], value)
        key, node = pair
        rest = parts[depth + 1 :]
        is_scalar = isinstance(node, yaml.ScalarNode)
        alias = _alias_after(text, key, node)
        if alias:
            start, end = alias
            name = text[start:end]
            new = _scalar(value) if not rest else f"{{<<: {name}, {_flow(rest, value)}}}"
            return text[:start] + new + text[end:]
        if not rest and is_scalar:
            return _replace(text, key, node, _scalar(value))
        if isinstance(node, yaml.MappingNode) and rest:
            continue
        if rest and is_scalar and node.tag == "tag:yaml.org,2002:null":
            return _replace(text, key, node, f"{{{_flow(rest, value)}}}")
        raise ConfigError(
            f"`{'.'.join(parts[: depth + 1])}` is no mapping here, so "
            f"`{'.'.join(parts[depth + 1 :]) or part}` cannot be set. Write it out as a mapping.",
            key.start_mark.line + 1,
        )
    raise AssertionError("a path has at least one part")


def remove_key(text: str, root: yaml.Node, parts: list[str]) -> str:
    """``text`` without one key and what stands below it; a section that is empty then goes too.

    Raises ConfigError where the key comes from an alias, or is all that the file holds.
    """
    above = [root]
    for part in parts[:-1]:
        pair = child(above[-1], part)
        if pair is None or _alias_after(text, *pair):
            raise ConfigError(f"`{'.'.join(parts)}` is not written here. Take it out by hand.")
        above.append(pair[1])
    pair, parent = child(above[-1], parts[-1]), above[-1]
    if pair is None or not isinstance(parent, yaml.MappingNode):
        raise ConfigError(f"`{'.'.join(parts)}` is not written here. Take it out by hand.")
    if len(parent.value) == 1:
        if len(parts) == 1:
            raise ConfigError("This key is all that the file holds.", pair[0].start_mark.line + 1)
        return remove_key(text, root, parts[:-1])
    if not parent.flow_style:
        lines = text.splitlines(keepends=True)
        del lines[pair[0].start_mark.line : _last_line(*pair) + 1]
        return "".join(lines)
    place = [key.value for key, _ in parent.value].index(parts[-1])
    if place:  # with the comma before it
        start = parent.value[place - 1][1].end_mark.index
        return text[:start] + text[pair[1].end_mark.index :]
    return text[: pair[0].start_mark.index] + text[parent.value[1][0].start_mark.index :]


def _alias_after(text: str, key: yaml.Node, value: yaml.Node) -> tuple[int, int] | None:
    """Where ``*name`` stands as the value of ``key``."""
    if value.start_mark.index > key.end_mark.index:
        return None
    match = re.compile(r"\s*:\s*(\*[^\s,\]}#]+)").match(text, key.end_mark.index)
    return match.span(1) if match else None


def _replace(text: str, key: yaml.Node, node: yaml.Node, new: str) -> str:
    start, end = node.start_mark.index, node.end_mark.index
    if start == end:  # nothing stands after the colon
        colon = text.index(":", key.end_mark.index) + 1
        return f"{text[:colon]} {new}{text[colon:]}"
    properties = re.compile(r"(?:[&!]\S+\s+)+").match(text, start, end)
    return text[: properties.end() if properties else start] + new + text[end:]


def _insert(text: str, parent: yaml.MappingNode, parts: list[str], value: Any) -> str:
    if parent.flow_style:
        close = parent.end_mark.index - 1
        comma = ", " if parent.value else ""
        head = text[:close].rstrip() if not parent.value else text[:close]
        return f"{head}{comma}{_flow(parts, value)}{text[close:]}"
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = parent.value[0][0].start_mark.column
    pairs = {key.value: (key, node) for key, node in parent.value}
    beside = next((pairs[name] for name in _NEIGHBOURS if name in pairs), parent.value[-1])
    lines = text.splitlines(keepends=True)
    after = _last_line(*beside)
    while after + 1 < len(lines) and _comment_inside(lines[after + 1], indent):
        after += 1
    if not lines[after].endswith(("\n", "\r")):
        lines[after] += newline
    new = "".join(
        f"{' ' * (indent + 2 * depth)}{part}:"
        + (f" {_scalar(value)}" if depth == len(parts) - 1 else "")
        + newline
        for depth, part in enumerate(parts)
    )
    lines.insert(after + 1, new)
    return "".join(lines)


def _comment_inside(line: str, indent: int) -> bool:
    """Whether a line is a comment of an entry whose key stands at ``indent``."""
    bare = line.lstrip(" ")
    return bare.startswith("#") and len(line) - len(bare) > indent


def _last_line(key: yaml.Node, value: yaml.Node) -> int:
    """The last line, from 0, that belongs to an entry."""
    if value.end_mark.index <= key.end_mark.index:  # an alias, or nothing
        return key.end_mark.line
    if isinstance(value, yaml.CollectionNode) and not value.flow_style and value.value:
        last = value.value[-1]
        return _last_line(*last) if isinstance(last, tuple) else _last_line(key, last)
    line = value.end_mark.line
    return line - 1 if value.end_mark.column == 0 and line > value.start_mark.line else line


def _flow(parts: list[str], value: Any) -> str:
    *above, last = parts
    written = _scalar(value)
    text = f"{last}: " + (f'"{written}"' if written.startswith("${") else written)
    for part in reversed(above):
        text = f"{part}: {{{text}}}"
    return text


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z_][\w./-]*", value) or re.fullmatch(r"\$\{[\w.]+\}", value)
        # PyYAML ends a bare scalar's document with a line of dots.
        return value if plain else yaml.safe_dump(value).removesuffix("...\n").strip()
    return str(value)
