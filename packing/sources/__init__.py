"""Where rows come from: files, dumps, the Hub and bundled sets, read into ``Rows``."""

from packing.sources.chat.tokenizer import BUNDLED
from packing.sources.chat.tokenizer_files import BUNDLED_FOLDER
from packing.sources.columns import Column
from packing.sources.errors import LoadCancelled, SourceError
from packing.sources.expansions import COUNTED_RECORDS, Expansion, either_way, has_a_choice
from packing.sources.files.columnar import write_npz
from packing.sources.files.paths import COMPRESSIONS, FORMATS, READABLE, find_files
from packing.sources.load import OTHER_TOKENIZER, Progress, columns_of, load, tokenizer_named
from packing.sources.loaded import Loaded, Provenance
from packing.sources.problems import Flag, over_context
from packing.sources.samples import SAMPLES
from packing.sources.spec import DROPPED, ROLES, SPEAKERS, Simulate, SourceSpec, parse_rows

__all__ = [
    "BUNDLED",
    "BUNDLED_FOLDER",
    "COMPRESSIONS",
    "COUNTED_RECORDS",
    "DROPPED",
    "FORMATS",
    "OTHER_TOKENIZER",
    "READABLE",
    "ROLES",
    "SAMPLES",
    "SPEAKERS",
    "Column",
    "Expansion",
    "Flag",
    "LoadCancelled",
    "Loaded",
    "Progress",
    "Provenance",
    "Simulate",
    "SourceError",
    "SourceSpec",
    "columns_of",
    "either_way",
    "find_files",
    "has_a_choice",
    "load",
    "over_context",
    "parse_rows",
    "tokenizer_named",
    "write_npz",
]
