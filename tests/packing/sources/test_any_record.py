"""Whatever stands under the names that are known: rows, or a sentence, and never a traceback."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packing.sources import role_names
from packing.sources.errors import SourceError
from packing.sources.load import load_here
from packing.sources.spec import SourceSpec
from tests.packing.source_files import own_cache

__all__ = ["own_cache"]

# fmt: off
TOOLS = (
    "trajectories", "history", "trajectory", "messages_and_choices", "ys", "steps", "infos",
    "doc_id", "arguments", "resps", "attributes", "span_kind", "run_type", "inputs", "outputs",
    "request", "response", "contents", "systemInstruction", "custom_id", "choices", "epoch",
    "id", "scores", "tools", "resourceSpans", "segments", "response_length", "body",
    "candidates", "system", "seqlen", "prompt_len", "role", "from", "value", "type", "parts",
    "message", "kwargs", "data", "text",
)
# fmt: on
NAMES = sorted(
    {name for names in vars(role_names).values() if isinstance(names, tuple) for name in names}
    | set(TOOLS)
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "system", "x"])},
        optional={"content": st.text(max_size=5) | st.none() | st.integers()},
    ),
    max_size=3,
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 400)
    | st.floats(allow_nan=False)
    | st.text(max_size=6)
    | st.lists(st.integers(0, 400), max_size=4)
    | MESSAGES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=8,
)
RECORDS = st.lists(
    st.dictionaries(st.sampled_from(NAMES), VALUES, min_size=1, max_size=5), min_size=1, max_size=3
)


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(RECORDS, st.sampled_from(["jsonl", "json"]), st.booleans(), st.booleans())
def test_rows_or_a_sentence(
    records: list[dict[str, Any]], ending: str, one: bool, leave_out: bool
) -> None:
    if ending == "jsonl":
        content = "".join(json.dumps(r) + "\n" for r in records)
    else:
        content = json.dumps(records[0] if one else records)
    spec = SourceSpec("upload", f"a.{ending}", leave_out_odd=leave_out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("packing.sources.cache.read_entry", lambda *_: None)
        patch.setattr("packing.sources.cache.write_entry", lambda *_: False)
        try:
            loaded = load_here(spec, upload=content.encode())
        except SourceError as error:
            assert "\n" not in str(error)
        else:
            assert len(loaded.rows) and loaded.rows.offsets[-1] == len(loaded.rows.tokens)
