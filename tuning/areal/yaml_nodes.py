"""What reading and editing a YAML text share: its errors, and the way to a node."""

from __future__ import annotations

import yaml

REMOVED = "<removed>"
"""In place of a value: the key goes, with what stands below it."""


class ConfigError(ValueError):
    """The file cannot be used; the message says where, why, and the smallest mend."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(f"Line {line}: {message}" if line else message)
        self.line = line


def child(node: yaml.Node, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Key and value of ``name`` in a mapping; None where it has none, or is no mapping."""
    if not isinstance(node, yaml.MappingNode):
        return None
    for key, value in node.value:
        if key.value == name:
            return key, value
    return None
