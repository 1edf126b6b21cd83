"""Datasets of the Hugging Face Hub, and folders that ``Dataset.save_to_disk`` wrote.

Notable:
- a set is read from ``datasets``' own Arrow cache, or streamed; no code of a set is ever run
- streaming makes ``datasets`` import torch where it is installed; the Arrow cache does not
- every way a set can fail to load is one sentence with the mend
- a token for private sets comes from the environment (HF_TOKEN), never from a setting of ours
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from packing.sources.chunks import Chunk
from packing.sources.errors import SourceError, Where, shown
from packing.sources.files.paths import SourceFile, check_allowed
from packing.sources.files.records import CHUNK_RECORDS, arrow_chunks
from packing.sources.spec import SourceSpec

NO_CONNECTION = (
    "ConnectionError",
    "OfflineModeIsEnabled",
    "TransportError",
    "ConnectError",
    "ConnectTimeout",
    "ReadTimeout",
    "LocalEntryNotFoundError",
    "HfHubHTTPError",
)
DICT_FILE = "dataset_dict.json"
STATE_FILE = "state.json"


def open_hub(spec: SourceSpec) -> tuple[Any, str | None]:
    """(``Dataset``, or ``IterableDataset`` when streaming; the commit it is of, where known).

    Without a split, ``train`` is taken, or the first there is.
    """
    where = Where(spec.location)
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", spec.location):
        raise where.error("is not a dataset id", "write it as owner/name")
    if Path(spec.location).exists():
        raise where.error(
            "is a file or folder here", "give it as a path, or run this from another folder"
        )
    import datasets

    datasets.disable_progress_bars()
    try:
        builder = datasets.load_dataset_builder(
            spec.location, name=spec.config, revision=spec.revision
        )
        if spec.streaming:
            made = builder.as_streaming_dataset(split=spec.split)
        else:
            builder.download_and_prepare()
            made = builder.as_dataset(split=spec.split)
    except Exception as error:  # the library, its file system and its HTTP client raise many kinds
        raise explained(error, spec) from None
    if isinstance(made, dict):
        made = made["train"] if "train" in made else next(iter(made.values()))
    commit = str(builder.hash)
    return made, commit if re.fullmatch("[0-9a-f]{40}", commit) else spec.revision


def is_saved_dataset(folder: Path) -> bool:
    """Whether ``save_to_disk`` wrote this folder."""
    return (folder / DICT_FILE).is_file() or (
        (folder / STATE_FILE).is_file() and (folder / "dataset_info.json").is_file()
    )


def open_saved(spec: SourceSpec, folder: Path, allowed_roots: Sequence[Path] | None) -> Any:
    """The ``Dataset`` of a folder of ``save_to_disk``; its files must lie inside it."""
    where = Where(spec.location)
    base = folder
    if (folder / DICT_FILE).is_file():
        splits = _named_in(folder / DICT_FILE, where, "splits")
        split = spec.split or ("train" if "train" in splits else next(iter(splits), ""))
        if split not in splits:
            raise where.error(
                f"there is no split {shown(split)}", f"choose one of {', '.join(splits) or 'none'}"
            )
        base = folder / split
    elif spec.split not in (None, "train"):
        raise where.error(f"there is no split {shown(spec.split)}", "leave the split out")
    for name in _named_in(base / STATE_FILE, where, "_data_files"):
        check_allowed(base / name, f"{spec.location}: {name}", allowed_roots)
    import datasets

    try:
        return datasets.load_from_disk(str(base))
    except Exception as error:  # pyarrow, json and the library itself: all mean a broken folder
        raise where.error(
            f"the saved dataset cannot be read ({_first_line(error)})", "save it again"
        ) from None


def dataset_files(dataset: Any) -> list[SourceFile]:
    """The Arrow files a dataset reads from; none where it is streamed or held in memory."""
    files = getattr(dataset, "cache_files", None)
    if not isinstance(files, list):
        return []
    return [SourceFile(Path(f["filename"]).name, Path(f["filename"])) for f in files]


def dataset_chunks(
    dataset: Any, spec: SourceSpec, columns: Sequence[str] | None = None
) -> Iterator[Chunk]:
    """Records of an open dataset. Raises SourceError where a download fails on the way."""
    try:
        if hasattr(dataset, "num_rows"):
            wanted = [c for c in dataset.column_names if columns is None or c in columns]
            table = dataset.select_columns(wanted).with_format("arrow")
            total = dataset.num_rows
            if not total:
                yield Chunk(spec.location, 0, [], None, 1.0)
            for start in range(0, total, CHUNK_RECORDS):
                batch = table[start : start + CHUNK_RECORDS]
                yield from arrow_chunks(batch, spec.location, start, total)
            return
        first, records = 0, []
        for record in dataset:
            records.append(dict(record))
            if len(records) >= CHUNK_RECORDS // 4:
                yield Chunk(spec.location, first, records, None, 0.0)
                first, records = first + len(records), []
        if records or not first:
            yield Chunk(spec.location, first, records, None, 1.0)
    except SourceError:
        raise
    except Exception as error:  # as in open_hub: a stream reads the network row by row
        raise explained(error, spec) from None


def explained(error: BaseException, spec: SourceSpec) -> SourceError:
    """One sentence for whatever ``datasets`` raised."""
    where = Where(spec.location)
    chain: list[BaseException] = []
    step: BaseException | None = error
    while step is not None and len(chain) < 10:
        chain.append(step)
        step = step.__cause__ or step.__context__
    kinds = {k.__name__ for e in chain for k in type(e).__mro__}
    text = " ".join(str(e) for e in chain)
    if "GatedRepoError" in kinds or "gated dataset" in text:
        return where.error(
            "the dataset asks for its terms to be accepted",
            "accept them on its page and set HF_TOKEN to your token",
        )
    if "RevisionNotFoundError" in kinds or "doesn't exist for dataset" in text:
        return where.error(f"there is no revision {shown(spec.revision)}", "check the revision")
    if "DatasetNotFoundError" in kinds or "RepositoryNotFoundError" in kinds:
        return where.error(
            "no such dataset, or it is private",
            "check the spelling, or set HF_TOKEN to a token that may read it",
        )
    found = re.search(r"Unknown split .*?Should be one of (\[.*?\])", text) or re.search(
        r"Bad split: .*?Available splits: (\[.*?\])", text
    )
    if found:
        return where.error(
            f"there is no split {shown(spec.split)}", f"choose one of {_listed(found[1])}"
        )
    found = re.search(
        r"(?:BuilderConfig .*? not found\. Available:|available configs:) (\[.*?\])", text
    ) or re.search(r"configurations in the cache: ([\w., -]+\w)", text)
    if found:
        return where.error(
            f"there is no configuration {shown(spec.config)}"
            if spec.config
            else "the dataset has several configurations",
            f"choose one of {_listed(found[1])}",
        )
    if "scripts are no longer supported" in text:
        return where.error(
            "the dataset is a program, and programs in data are not run",
            "choose a version of it with data files (often the revision refs/convert/parquet)",
        )
    if kinds & set(NO_CONNECTION):
        return where.error(
            "the Hub cannot be reached",
            "check the connection (and HF_ENDPOINT, HF_HUB_OFFLINE), or give a local file",
        )
    return where.error(f"cannot be loaded ({_first_line(error)})", "check the id and its files")


def _named_in(path: Path, where: Where, key: str) -> list[str]:
    """Names listed in one of ``save_to_disk``'s files; a name with a folder in it is refused."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))[key]
        names = [n if isinstance(n, str) else n["filename"] for n in value]
    except (OSError, ValueError, KeyError, TypeError):
        raise where.error(f"{path.name} of the saved dataset is broken", "save it again") from None
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
            raise where.error(
                f"{path.name} names a file outside the folder ({shown(name)})", "save it again"
            )
    return names


def _listed(names: str) -> str:
    """``['a', 'b']`` as a person writes it."""
    return ", ".join(re.findall(r"'([^']*)'", names)) or names


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0][:160] if text else type(error).__name__
