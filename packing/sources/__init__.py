"""Where rows come from: files, dumps, the Hub and bundled sets, read into ``Rows``."""

from packing.sources.chat.tokenizer import BUNDLED
from packing.sources.errors import LoadCancelled, SourceError
from packing.sources.files.paths import find_files
from packing.sources.load import Progress, load, tokenizer_named
from packing.sources.loaded import Loaded, Provenance
from packing.sources.problems import Flag, over_context
from packing.sources.samples import SAMPLES
from packing.sources.spec import ROLES, Simulate, SourceSpec, parse_rows

__all__ = [
    "BUNDLED",
    "ROLES",
    "SAMPLES",
    "Flag",
    "LoadCancelled",
    "Loaded",
    "Progress",
    "Provenance",
    "Simulate",
    "SourceError",
    "SourceSpec",
    "find_files",
    "load",
    "over_context",
    "parse_rows",
    "tokenizer_named",
]
