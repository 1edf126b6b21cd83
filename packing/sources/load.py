"""``load``: a SourceSpec in, Rows out, with what was found on the way.

Notable:
- the only entry that pages and commands need; everything a person did wrong is a SourceError
- a child process reads, so that nothing in a file or a template can hold up or fill this one
- the result of a load is kept on disk by content; where no file has changed since, it is taken
  from there without a look into any
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from packing.sources import cache, sandbox
from packing.sources.chat.tokenizer import BUNDLED
from packing.sources.columns import Column, describe
from packing.sources.errors import SourceError
from packing.sources.files.hub import is_saved_dataset
from packing.sources.files.opened import open_source
from packing.sources.files.paths import SourceFile, find_files
from packing.sources.here import (
    OTHER_TOKENIZER,
    Progress,
    check_tokenizer,
    load_here,
    load_with_key,
    never,
    no_word,
    tokenizer_named,
)
from packing.sources.loaded import Loaded, keep, restored
from packing.sources.odd import OddRecords
from packing.sources.records.reading import RECOGNISED_FROM
from packing.sources.spec import SourceSpec

__all__ = ["OTHER_TOKENIZER", "Progress", "columns_of", "load", "load_here", "tokenizer_named"]

DOWNLOAD_SECONDS = 3600.0


def load(
    spec: SourceSpec,
    progress: Callable[[Progress], None] = no_word,
    cancelled: Callable[[], bool] = never,
    allowed_roots: Sequence[Path] | None = None,
    upload: bytes | None = None,
) -> Loaded:
    """The rows of a source, read by a child process that can be ended at any moment.

    Takes and raises what ``load_here`` does. What a file or a template does to the child (memory,
    endless work) is a SourceError here. Only what is our own, a bundled sample with the bundled
    tokenizer, is read here.
    """
    if spec.kind == "sample" and spec.tokenizer in (None, BUNDLED):
        return load_here(spec, progress, cancelled, allowed_roots, upload)
    seen, files = _seen_key(spec, allowed_roots)
    if seen and (key := cache.read_seen(seen)) and (loaded := _kept(key, None, spec)):
        return loaded
    # A download says nothing until it is there.
    silence = DOWNLOAD_SECONDS if spec.kind == "hub" else sandbox.SILENCE_SECONDS
    with tempfile.TemporaryDirectory(prefix="espalier-rows-") as scratch:
        payload = _payload(spec, allowed_roots, upload) | {"scratch": scratch}
        made = sandbox.run(
            _load_in_child, payload, lambda p: progress(Progress(**p)), cancelled, silence=silence
        )
        passing = made["folder"] == scratch
        loaded = _kept(made["key"], Path(made["folder"]), spec, passing)
        if loaded is None:
            raise SourceError(f"{spec.location}: the rows were made and are gone; load it again.")
        if files and not seen and loaded.provenance.files == len(files):
            # Written a moment ago: is it still what was read?
            content = cache.content_digest(files, lambda _: None, never)
            seen = _seen_key(spec, allowed_roots)[0]
            seen = seen if content == loaded.provenance.content else None
        if seen and not passing:
            cache.write_seen(seen, made["key"])
    return replace(loaded, provenance=replace(loaded.provenance, from_cache=made["from_cache"]))


def _seen_key(
    spec: SourceSpec, allowed_roots: Sequence[Path] | None
) -> tuple[str | None, list[SourceFile]]:
    """What a load of files is remembered by, without a look into them, and the files.

    None where one was written a moment ago, and for other sources.
    """
    others: list[str] = []
    if spec.kind != "file":
        return None, []
    try:
        if is_saved_dataset(Path(spec.location).expanduser()):
            return None, []
        check_tokenizer(spec, allowed_roots)
        files = find_files(spec.location, allowed_roots, others)
        key = cache.seen_key(spec.to_json(), others, [f.path for f in files if f.path])
        return key, files
    except (SourceError, OSError):
        return None, []  # the child says what is wrong


def _kept(key: str, folder: Path | None, spec: SourceSpec, passing: bool = False) -> Loaded | None:
    """The rows of an entry; None where it is gone, or was made with another tokenizer.

    passing: the folder will not be there for long: the rows are taken into memory
    """
    entry = cache.read_entry(key, folder)
    if entry is None:
        return None
    arrays, meta = entry
    made_with = meta["provenance"]["tokenizer_fingerprint"]
    tokenizer = tokenizer_named(spec.tokenizer or BUNDLED) if made_with else None
    if tokenizer and tokenizer.fingerprint != made_with:
        return None
    if passing:
        arrays = {name: np.array(array) for name, array in arrays.items()}
    return restored(arrays, meta, spec, tokenizer)


def _payload(
    spec: SourceSpec, allowed_roots: Sequence[Path] | None, upload: bytes | None
) -> dict[str, Any]:
    """What a child process is told of a source."""
    return {
        "spec": spec.to_json(),
        "roots": None if allowed_roots is None else [str(r) for r in allowed_roots],
        "upload": None if upload is None else np.frombuffer(upload, dtype=np.uint8),
    }


def _unpacked(payload: Mapping[str, Any]) -> tuple[SourceSpec, list[Path] | None, bytes | None]:
    roots = None if payload["roots"] is None else [Path(r) for r in payload["roots"]]
    upload = None if payload["upload"] is None else payload["upload"].tobytes()
    return SourceSpec.from_json(payload["spec"]), roots, upload


def _load_in_child(payload: dict[str, Any], send: sandbox.Send) -> dict[str, Any]:
    """Loads in the child: rows go through the cache, or through a folder where it takes none."""
    spec, roots, upload = _unpacked(payload)
    loaded, key = load_with_key(spec, lambda p: send(asdict(p)), never, roots, upload)
    folder = cache.cache_folder()
    if key is None or cache.read_entry(key) is None:
        key = key or loaded.rows.fingerprint
        folder = Path(payload["scratch"])
        os.environ["ESPALIER_CACHE"] = str(folder)
        keep(key, loaded)
    return {"key": key, "folder": str(folder), "from_cache": loaded.provenance.from_cache}


def columns_of(
    spec: SourceSpec,
    allowed_roots: Sequence[Path] | None = None,
    upload: bytes | None = None,
) -> tuple[Column, ...]:
    """The columns of a source as they are in its files, for roles given by hand.

    The file is looked at by a child process, as ``load`` reads it. Raises SourceError where there
    are no records.
    """
    payload = _payload(spec, allowed_roots, upload)
    made = sandbox.run(_columns_in_child, payload, no_word, never)
    return tuple(Column(**column) for column in made["columns"])


def _columns_in_child(payload: dict[str, Any], send: sandbox.Send) -> dict[str, Any]:
    opened = open_source(*_unpacked(payload))
    found = describe(opened.peek(RECOGNISED_FROM, OddRecords(True)).records)
    return {"columns": [asdict(column) for column in found]}
