"""A tokenizer out of its files: the bundled one, of a folder, or of the Hub.

Notable:
- transformers takes two seconds to import and brings torch: it is the way out for those without
  tokenizer.json
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packing.sources.chat.tokenizer import BUNDLED, Tokenizer, TokenizerError

BUNDLED_FOLDER = Path(__file__).parents[1] / "assets" / "tokenizer"
TOKENIZER_FILE = "tokenizer.json"
TOOL_TEMPLATE_FILE = "additional_chat_templates/tool_use.jinja"
SIDE_FILES = (
    "tokenizer_config.json",
    "chat_template.jinja",
    TOOL_TEMPLATE_FILE,
    "special_tokens_map.json",
)
TEMPLATES = ("default", "tool_use")
SPECIAL_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")


def load_tokenizer(name: str) -> Tokenizer:
    """The tokenizer ``name``: ``bundled``, a local folder, or a model or dataset id of the Hub.

    Hub files come from the local cache where they are there; a private or gated one needs the
    token in ``HF_TOKEN``. Raises TokenizerError: not found, private, no connection, unreadable.
    """
    folder = BUNDLED_FOLDER if name == BUNDLED else Path(name).expanduser()
    if folder.is_dir():
        if (folder / TOKENIZER_FILE).is_file():
            return _from_files(name, {f: folder / f for f in (TOKENIZER_FILE, *SIDE_FILES)})
        return _through_transformers(name, str(folder))
    if folder.is_file():
        raise TokenizerError(f"{name} is a file; give the folder that it is in")
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise TokenizerError(f"{name}: there is no such folder; check the path")
    from packing.sources.files import hub_client as _hub

    try:
        files = _hub.download(name, TOKENIZER_FILE, SIDE_FILES)
    except _hub.HubError as error:
        raise TokenizerError(str(error)) from error
    return _through_transformers(name, name) if files is None else _from_files(name, files)


def _from_files(name: str, files: Mapping[str, Path]) -> Tokenizer:
    import tokenizers

    raw = files[TOKENIZER_FILE].read_bytes()
    try:
        backend = tokenizers.Tokenizer.from_buffer(raw)
    except Exception as error:  # the library raises plain exceptions
        raise TokenizerError(
            f"{name}: {TOKENIZER_FILE} cannot be read ({error}); download it again"
        ) from error
    config = _side_file(name, files, "special_tokens_map.json")
    config |= _side_file(name, files, "tokenizer_config.json")
    template = files.get("chat_template.jinja")
    templates = _templates(config.get("chat_template"))
    if template is not None and template.is_file():
        tool_file = files.get(TOOL_TEMPLATE_FILE)
        has_tools = tool_file is not None and tool_file.is_file()
        templates = (
            template.read_text(encoding="utf-8"),
            tool_file.read_text(encoding="utf-8") if tool_file and has_tools else None,
        )
    special = {key: text for key in SPECIAL_NAMES if (text := _token_text(config.get(key)))}
    return _tokenizer(name, raw, templates, special, backend)


def _tokenizer(
    name: str,
    raw: bytes,
    templates: tuple[str | None, str | None],
    special: Mapping[str, str],
    backend: Any,
) -> Tokenizer:
    # Some tokenizer.json files cut or pad, which would change rows silently.
    backend.no_padding()
    backend.no_truncation()
    digest = hashlib.blake2b(raw, digest_size=8)
    digest.update(json.dumps([templates, sorted(special.items())]).encode())
    return Tokenizer(name, digest.hexdigest(), *templates, special, backend)


def _side_file(name: str, files: Mapping[str, Path], file: str) -> dict[str, Any]:
    path = files.get(file)
    if path is None or not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{name}: {file} is not JSON ({error}); download it again") from error
    return content if isinstance(content, dict) else {}


def _templates(value: Any) -> tuple[str | None, str | None]:
    """(default, the one for tools) of a template, or of several named ones."""
    if isinstance(value, list):
        value = {entry.get("name"): entry.get("template") for entry in value}
    named = value if isinstance(value, Mapping) else {"default": value}
    default, tools = (t if isinstance(t := named.get(n), str) else None for n in TEMPLATES)
    return default, tools


def _token_text(value: Any) -> str | None:
    """Special tokens are written as text or as an object with ``content``."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _through_transformers(name: str, path: str) -> Tokenizer:
    """Tokenizers without tokenizer.json, made fast by ``AutoTokenizer``; no remote code is run."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path, use_fast=True, trust_remote_code=False)
    except Exception as error:  # any of a dozen classes; only the first line is for people
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TokenizerError(
            f"{name} holds no tokenizer that can be loaded ({reason}); give a folder or Hub id "
            f"with a {TOKENIZER_FILE}"
        ) from error
    if not tokenizer.is_fast:
        raise TokenizerError(
            f"{name} has only a slow tokenizer; save it with a {TOKENIZER_FILE} first"
        )
    backend = tokenizer.backend_tokenizer
    special = {key: text for key in SPECIAL_NAMES if (text := getattr(tokenizer, key, None))}
    templates = _templates(tokenizer.chat_template)
    return _tokenizer(name, backend.to_str().encode(), templates, special, backend)
