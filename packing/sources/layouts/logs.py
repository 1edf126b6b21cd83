"""Layouts of named tools: inspect_ai, ART, SWE-agent, OpenHands, lm-eval, NeMo RL, slime and more.

Notable:
- each converts one record as that tool writes it, and says None to any other
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from packing.sources import fields
from packing.sources.chunks import Record
from packing.sources.dialects import as_messages
from packing.sources.events import is_event
from packing.sources.layouts.spans import run_of_langsmith, spans

GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}


def _inspect(record: Record, place: str) -> list[Record] | None:
    """A sample of an inspect_ai log."""
    if not (record.keys() >= {"messages", "epoch", "id"}) or "scores" not in record:
        return None
    made: Record = {"messages": as_messages(record["messages"]), "group": record["id"]}
    scores = record["scores"]
    value = next(iter(scores.values()), None) if isinstance(scores, Mapping) else None
    value = value.get("value") if isinstance(value, Mapping) else value
    value = GRADES.get(value) if isinstance(value, str) else value
    return [made | ({"reward": float(value)} if isinstance(value, int | float) else {})]


def _art(record: Record, place: str) -> list[Record] | None:
    """Trajectories of OpenPipe's ART, alone or as a group; only what is a choice is trained."""
    if isinstance(record.get("trajectories"), list):
        inside = [m for t in record["trajectories"] for m in (_art(t, place) or [])]
        return [m | {"group": place} for m in inside] or None
    told = record.get("messages_and_choices")
    if not isinstance(told, list):
        return None
    talk = []
    for item in told:
        chosen = isinstance(item, Mapping) and isinstance(item.get("message"), Mapping)
        message = (as_messages(item) or [item])[0]
        assistant = isinstance(message, Mapping) and message.get("role") == "assistant"
        talk.append({**message, "weight": int(chosen)} if assistant else message)
    made = {k: record[k] for k in ("reward", "tools") if record.get(k) is not None}
    return [{"messages": talk} | made]


def _swe_agent(record: Record, place: str) -> list[Record] | None:
    """A ``.traj`` of SWE-agent: its history is the conversation; demonstrations are context."""
    told = record.get("history")
    if not isinstance(record.get("trajectory"), list) or not fields.is_messages(told):
        return None
    talk = [
        {**m, "weight": 0} if m.get("is_demo") and m.get("role") == "assistant" else m
        for m in told or []
        if isinstance(m, Mapping)
    ]
    info = record.get("info")
    made = {"exit_status": info.get("exit_status")} if isinstance(info, Mapping) else {}
    return [{"messages": talk} | made]


def _open_hands(record: Record, place: str) -> list[Record] | None:
    """Events of OpenHands: a run's history, or a file of them."""
    names = ("history", "trajectory", "events", "messages")
    told = next((e for n in names if isinstance(e := record.get(n), list) and e), [])
    if not told or not is_event(told[0]):
        return None
    made: Record = {"messages": as_messages(told)}
    offers = [e.get("tools") or fields.first(e, "args.tools") or None for e in told]
    tools = next((o for o in offers if isinstance(o, list)), None)
    made |= {"tools": tools} if tools else {}
    kept = {k: v for k, v in record.items() if k in ("instance_id", "resolved", "reward")}
    return [kept | made]


def _tree_of_thoughts(record: Record, place: str) -> list[Record] | None:
    """A problem of the tree-of-thought logs: its final thoughts ``ys`` after the problem ``x``."""
    said = record.get("ys")
    if not isinstance(said, list) or not said or not all(isinstance(y, str) for y in said):
        return None
    steps = record.get("steps")
    first = steps[0] if isinstance(steps, list) and steps else {}
    made: Record = {"completion": said, "prompt": str(first.get("x", record.get("x", "")))}
    infos = record.get("infos")
    if isinstance(infos, list) and all(isinstance(i, Mapping) and "r" in i for i in infos):
        made["rewards"] = [i["r"] for i in infos]
    return [made | {"group": record.get("idx", place)}]


def _lm_eval(record: Record, place: str) -> list[Record] | None:
    """A sample of lm-evaluation-harness: the prompt as it was sent, and each response."""
    given, resps = record.get("arguments"), record.get("resps")
    if "doc_id" not in record or not isinstance(resps, list):
        return None
    if isinstance(given, Mapping):
        given = [given[k] for k in sorted(given)]
    asked = [list(g.values()) if isinstance(g, Mapping) else g for g in given or ()]
    prompt = asked[0][0] if asked else None
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = fields.unpacked(prompt[0])  # messages, as JSON text
    texts = [t for r in resps for t in (r if isinstance(r, list) else [r]) if isinstance(t, str)]
    if texts and prompt:
        return [{"prompt": prompt, "completion": texts, "group": record["doc_id"]}]
    # Likelihoods: every answer was read, none was generated.
    read = [a[0] + a[1] for a in asked if isinstance(a[1], str)]
    return [{"prompt": text, "group": record["doc_id"]} for text in read] or None


def _nemo(record: Record, place: str) -> list[Record] | None:
    """NeMo RL's message log: every message with its token ids."""
    told = record.get("message_log")
    if not isinstance(told, list) or not told or not isinstance(told[0], Mapping):
        return None
    if not all(isinstance(m, Mapping) and "token_ids" in m for m in told):
        talk = as_messages(told)
        return None if talk is None else [{k: v for k, v in record.items()} | {"messages": talk}]
    ids = [i for m in told for i in m["token_ids"]]
    mask: list[int] = []
    for m in told:
        given = m.get("token_loss_mask")
        own = [int(m.get("role") == "assistant")] * len(m["token_ids"])
        mask += given if isinstance(given, list) and len(given) == len(own) else own
    kept = {k: v for k, v in record.items() if k != "message_log"}
    return [kept | _whole(ids, mask)]


def _whole(ids: Any, mask: list[int]) -> Record:
    """Ids of which none is padding."""
    return {"input_ids": ids, "loss_mask": mask, "attention_mask": [1] * len(ids)}


def _nemo_step(record: Record, place: str) -> list[Record] | None:
    """NeMo RL's log of a step: padded ids with their length, masks of tokens and of the sample."""
    ids, mask, count = (record[n] for n in ("token_ids", "token_loss_mask", "input_lengths"))
    if not fields.is_ids(ids) or not isinstance(count, int):
        return None
    trained = [int(m and record.get("sample_loss_mask", 1)) for m in mask[:count]]
    kept = {k: record[k] for k in ("rewards", "agent_ref") if k in record}
    return [kept | _whole(ids[:count], trained)]


def _slime(record: Record, place: str) -> list[Record] | None:
    """slime's samples: all tokens, and how many at the end are the response."""
    count = record.get("response_length")
    ids: Any = record.get("tokens")
    if not isinstance(count, int) or not fields.is_ids(ids):
        return None
    mask = record.get("loss_mask")
    trained = [1] * count if mask is None or not len(mask) else list(mask)
    kept = {k: record[k] for k in ("reward", "group_index") if k in record}
    return [kept | _whole(ids, [0] * (len(ids) - len(trained)) + trained)]


def _tinker(record: Record, place: str) -> list[Record] | None:
    """Tinker's datums: the input's tokens, and targets (one further on) with their weights."""
    chunks, told = record["model_input"]["chunks"], record["loss_fn_inputs"]
    ids = [i for chunk in chunks for i in chunk["tokens"]]
    targets, weights = (
        v["data"] if isinstance(v := told[n], Mapping) else v for n in ("target_tokens", "weights")
    )
    kept = {k: v for k, v in record.items() if k not in ("model_input", "loss_fn_inputs")}
    mask = [0, *(int(w != 0) for w in weights)]
    return [kept | _whole([*ids, int(targets[-1])], mask)]


def _verifiers(record: Record, place: str) -> list[Record] | None:
    """Steps of a verifiers rollout that kept its ids: a row a step, as prime-rl trains them."""
    steps = record.get("trajectory")
    if not isinstance(steps, list) or not steps:
        return None
    around = {k: record[k] for k in ("example_id", "reward") if k in record}
    own = ("prompt_ids", "completion_ids", "completion_mask")
    rows = [around | {k: step["tokens"][k] for k in own} for step in steps]
    return [r | {"prompt_mask": [1] * len(r["prompt_ids"])} for r in rows]


def _triplets(record: Record, place: str) -> list[Record] | None:
    """Prompt and response as objects with ``token_ids`` (Agent Lightning's triplets)."""
    prompt, response = record.get("prompt"), record.get("response")
    if not isinstance(prompt, Mapping) or not isinstance(response, Mapping):
        return None
    if not ("token_ids" in prompt and "token_ids" in response):
        return None
    kept = {k: v for k, v in record.items() if k not in ("prompt", "response")}
    return [kept | {"prompt_ids": prompt["token_ids"], "completion_ids": response["token_ids"]}]


WITHOUT_PROMPTS = (
    "The log keeps thoughts, not the prompts around them: rows are the problem and the thoughts."
)
REBUILT = (
    "Turns are the recorded responses of events; where none is recorded, the thought and a call of "
    "the action. What the agent adds to a prompt on its own is not in the events."
)
Convert = Callable[[Record, str], list[Record] | None]
LOGS: tuple[tuple[str, Convert, str | None], ...] = (
    ("inspect_ai samples", _inspect, None),
    ("ART trajectories", _art, None),
    ("SWE-agent trajectories", _swe_agent, None),
    ("OpenHands events", _open_hands, REBUILT),
    ("tree-of-thought log", _tree_of_thoughts, WITHOUT_PROMPTS),
    ("lm-evaluation-harness samples", _lm_eval, None),
    ("NeMo RL message log", _nemo, None),
    ("NeMo RL log of a step", _nemo_step, None),
    ("slime samples", _slime, None),
    ("Tinker datums", _tinker, None),
    ("verifiers steps", _verifiers, None),
    ("triplets of token ids", _triplets, None),
    ("LangSmith runs", run_of_langsmith, "Runs that are no call of a model are not rows."),
    ("spans", spans, "Spans that are no call of a model are not rows."),
)
