"""A YAML file of a user: read without trust, and edited so that every other byte stays.

Notable:
- values are read as AReaL reads them: OmegaConf's YAML 1.1 over libyaml, no Python objects (it
  takes tabs between words, which YAML's Python reader refuses)
- size, depth and the expansion of aliases are bounded before anything is built
- an edit replaces or inserts the tuned words only; comments, anchors and quotes stay untouched
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml

from tuning.areal.yaml_edit import remove_key, set_value
from tuning.areal.yaml_nodes import REMOVED, ConfigError, child

__all__ = ["ConfigError", "YamlText", "too_large"]

MOST_BYTES = 256 * 1024
MOST_NODES = 5_000
_DEEPEST = 40
_MOST_REFERENCES = 20


@dataclass(frozen=True)
class YamlText:
    """A mapping as written: its text, and what it says."""

    text: str

    @classmethod
    def read(cls, source: str | bytes) -> YamlText:
        """Raises ConfigError for anything that is not one sane YAML mapping."""
        if len(source) > MOST_BYTES:
            raise too_large(len(source))
        found = cls(source if isinstance(source, str) else _decoded(source))
        found._check()
        return found

    @cached_property
    def root(self) -> yaml.MappingNode:
        """The tree of nodes with their places in the text."""
        node = _composed(self.text)
        if node is None:
            raise ConfigError("the file is empty. A config starts with lines such as `actor:`.")
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError("the file is no mapping. A config is made of `key: value` lines.", 1)
        return node

    @cached_property
    def values(self) -> dict[str, Any]:
        """Plain values, interpolations as written."""
        from omegaconf import OmegaConf
        from omegaconf.errors import GrammarParseError, OmegaConfBaseException

        try:
            read = yaml.load(self.text, Loader=_loader())
            plain = OmegaConf.to_container(OmegaConf.create(read), resolve=False)
        except yaml.YAMLError as error:
            raise _sentence(error, self.text) from None
        except GrammarParseError as error:
            lines = enumerate(self.text.splitlines(), 1)
            line = next((n for n, text in lines if text.count("${") > text.count("}")), None)
            raise ConfigError(
                f"OmegaConf cannot read an interpolation: {_first_line(error)}. Write it as "
                "`${a.b}`, with its closing brace.",
                line,
            ) from None
        except OmegaConfBaseException as error:
            raise ConfigError(
                f"OmegaConf takes no such thing: {_first_line(error)}. Write text, a number, true "
                "or false, a list or a mapping."
            ) from None
        except ValueError as error:
            raise ConfigError(f"a value cannot be read: {_first_line(error)}") from None
        assert isinstance(plain, dict)
        return {str(key): value for key, value in plain.items()}

    def line(self, path: str) -> int | None:
        """The line (from 1) of the key at ``path``, or of the nearest key above it.

        An element of a list is written ``key[0]``.
        """
        node: yaml.Node = self.root
        found = None
        for part in path.replace("[", ".[").split("."):
            if part.startswith("[") and isinstance(node, yaml.SequenceNode):
                place = int(part.strip("[]"))
                if place < len(node.value):
                    node = node.value[place]
                    found = node.start_mark.line + 1
                continue
            pair = child(node, part)
            if pair is None:
                return found
            found, node = pair[0].start_mark.line + 1, pair[1]
        return found

    def with_values(self, changes: Mapping[str, Any]) -> YamlText:
        """The text with ``changes`` (dotted path to bool, int, float, str or REMOVED) in it.

        Raises ConfigError where a path runs through something that is no mapping.
        """
        edited = self
        for path, value in changes.items():
            parts = path.split(".")
            if value == REMOVED:
                edited = YamlText(remove_key(edited.text, edited.root, parts))
            else:
                edited = YamlText(set_value(edited.text, edited.root, parts, value))
        return edited

    def _check(self) -> None:
        sizes: dict[int, int] = {}
        open_nodes: set[int] = set()
        mappings: dict[int, yaml.MappingNode] = {}  # each before those below it

        def size(node: yaml.Node) -> int:
            if id(node) in sizes:
                return sizes[id(node)]
            if isinstance(node, yaml.MappingNode):
                mappings[id(node)] = node
            if id(node) in open_nodes:
                line = node.start_mark.line + 1
                raise ConfigError("an anchor contains itself. Write the value out.", line)
            open_nodes.add(id(node))
            if isinstance(node, yaml.ScalarNode) and node.value.count("${") > _MOST_REFERENCES:
                raise ConfigError(
                    f"a value has {node.value.count('${'):,} references; at most "
                    f"{_MOST_REFERENCES} are read. Write it out.",
                    node.start_mark.line + 1,
                )
            total = 1 + sum(size(below) for below in _children(node))
            if total > MOST_NODES:
                raise ConfigError(
                    f"this part has more than {MOST_NODES:,} values, those of its aliases "
                    "(`*name`) counted, and no config has. Remove nested aliases, or choose the "
                    "config.",
                    node.start_mark.line + 1,
                )
            open_nodes.discard(id(node))
            sizes[id(node)] = total
            return total

        size(self.root)
        for mapping in mappings.values():
            seen: dict[str, int] = {}
            for key, _ in mapping.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    raise ConfigError("a key is a list or mapping. Write a plain name.", line)
                if key.value in seen and key.value != "<<":
                    raise ConfigError(
                        f"`{key.value}` is set twice, first on line {seen[key.value]}; AReaL's "
                        "reader stops here. Remove one of the two.",
                        line,
                    )
                seen[key.value] = line


def _loader() -> type[Any]:
    """OmegaConf's scalars and constructors over libyaml, which AReaL's OmegaConf reads with."""
    from omegaconf._utils import get_yaml_loader

    theirs = get_yaml_loader()
    kept = ("yaml_implicit_resolvers", "yaml_constructors")
    return type("_Loader", (yaml.CSafeLoader,), {name: getattr(theirs, name) for name in kept})


def _composed(text: str) -> yaml.Node | None:
    """The nodes of ``text`` if libyaml takes it."""
    try:
        depth = 0
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            opens = isinstance(event, yaml.CollectionStartEvent)
            depth += opens - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise _nested()
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise _sentence(_in_pythons_words(text) or error, text) from None
    try:  # the places that edits rest on are those of YAML's Python reader, where it can read
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return node


def _in_pythons_words(text: str) -> yaml.YAMLError | None:
    """The same complaint from YAML's Python reader, whose sentences are for people."""
    try:
        yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        return error
    except RecursionError:
        raise _nested() from None
    return None


def _nested() -> ConfigError:
    return ConfigError(
        f"the file is nested more than {_DEEPEST} levels deep; no config is. Check its brackets."
    )


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError("this is not UTF-8 text. Save the file as UTF-8.", line) from None


def too_large(size: int) -> ConfigError:
    """The refusal of a file of ``size`` bytes."""
    return ConfigError(
        f"the file has {size / 2**20:.1f} MiB; a training config has a few KiB (at most "
        f"{MOST_BYTES // 1024} KiB are read). Choose the config, not a data file or log."
    )


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key
            yield value
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _sentence(error: yaml.YAMLError, text: str) -> ConfigError:
    """A parser's complaint with its line and a mend."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return ConfigError(f"this is no YAML text: {_first_line(error)}. Choose a .yaml file.")
    mark = error.problem_mark or error.context_mark
    problem = error.problem or "it cannot be parsed"
    if mark is None:
        return ConfigError(f"{problem}.")
    line = mark.line + 1
    if r"'\t'" in problem:
        return ConfigError(
            "a tab stands where YAML takes only spaces. Replace it by two spaces a level.", line
        )
    mend = {
        "mapping values are not allowed here": "Put the value in quotes, or the second key on a "
        "line of its own.",
        "expected ',' or": "Close the bracket that is open there.",
        "found undefined alias": "Define it with `&` above, or write the value out.",
        "could not determine a constructor": "Remove the `!` tag; AReaL's reader takes plain "
        "values only.",
        "but found another document": "Keep one document: remove the second `---`.",
        "found unexpected end of stream": "Close the quote that is open there.",
    }
    advice = next((m for start, m in mend.items() if problem.startswith(start)), None)
    if advice is None:
        advice = "Check indentation, colons and quotes of this line and the one before."
    if error.context_mark and error.context_mark.line + 1 != line:
        line = error.context_mark.line + 1 if "end>" in problem else line
    return ConfigError(f"{problem}. {advice}", line)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
