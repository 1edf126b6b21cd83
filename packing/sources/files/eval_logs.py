"""``.eval`` logs of inspect_ai: an archive with one JSON file a sample, read in place.

Notable:
- nothing is unpacked to disk; a sample may be as long as any other record
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator

from packing.sources.chunks import Chunk
from packing.sources.errors import Where
from packing.sources.files.json_parse import as_record, decoded, parsed
from packing.sources.files.paths import SourceFile

MAX_SAMPLE_BYTES = 64 << 20
_SAMPLES = "samples/"


def eval_chunks(file: SourceFile) -> Iterator[Chunk]:
    """The samples of a log, in the order it keeps them. Raises SourceError if it is not one."""
    where = Where(file.name)
    try:
        with file.open() as raw, zipfile.ZipFile(raw) as archive:
            members = [m for m in archive.infolist() if m.filename.startswith(_SAMPLES)]
            if not members:
                raise where.error("holds no samples", "give a log that has finished a sample")
            for n, member in enumerate(m for m in members if m.filename.endswith(".json")):
                at = Where(f"{file.name}: {member.filename}", n)
                if member.file_size > MAX_SAMPLE_BYTES:
                    raise at.error(
                        f"the sample is longer than {MAX_SAMPLE_BYTES >> 20} MiB", "take it out"
                    )
                with archive.open(member) as opened:
                    text = decoded(opened.read(MAX_SAMPLE_BYTES + 1), at)
                record = as_record(parsed(text, at), text, at)
                yield Chunk(file.name, n, [record], None, (n + 1) / len(members))
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise where.error(
            f"not readable as a log of inspect_ai ({error})",
            "write it as JSON: inspect log convert --to json",
        ) from None
    except NotImplementedError:
        raise where.error(
            "is compressed in a way that is not read here",
            "write it as JSON: inspect log convert --to json",
        ) from None
