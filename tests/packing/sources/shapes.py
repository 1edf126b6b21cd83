"""Small files in the shapes of public tools, made here, with the rows they hold marked by hand.

Notable:
- a row of text is written as its pieces in order; what is trained stands in «», and is compared
  whole; what is not trained has to stand between, in this order
- a row of ids is two lists: the ids, and 1 where they are trained
- the template's empty think block is not written: whether it is there is the template's to say
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Row = str | tuple[list[int], list[int]]
Write = Callable[[Path], None]
END = "<|im_end|>"


@dataclass(frozen=True)
class Shape:
    """write: makes the file under its name; rows, groups: what it holds."""

    write: Write
    rows: Sequence[Row]
    groups: Sequence[int]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def lines(*records: Any) -> Write:
    return lambda path: _write(path, "".join(json.dumps(r) + "\n" for r in records))


def document(value: Any, indent: int | None = 1) -> Write:
    return lambda path: _write(path, json.dumps(value, indent=indent))


def table(*records: dict[str, Any]) -> Write:
    return lambda path: pq.write_table(pa.Table.from_pylist(list(records)), path)


def text(content: str) -> Write:
    return lambda path: _write(path, content)


def folder(**files: Write) -> Write:
    """Files of a folder by name; two underscores stand for a slash."""

    def write(path: Path) -> None:
        for name, made in files.items():
            inner = path / name.replace("__", "/").replace("_json", ".json")
            inner.parent.mkdir(parents=True, exist_ok=True)
            made(inner)

    return write


def archive(members: dict[str, Any]) -> Write:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
            for name, value in members.items():
                out.writestr(name, json.dumps(value))

    return write


def arrow(*records: dict[str, Any]) -> Write:
    def write(path: Path) -> None:
        made = pa.Table.from_pylist(list(records))
        with pa.ipc.new_stream(path, made.schema) as out:
            out.write_table(made)

    return write


def tokens_npz(path: Path) -> None:
    mask = np.array([0, 1, 1, 0, 1], dtype=np.uint8)
    np.savez(path, tokens=[7, 8, 9, 7, 5], offsets=[0, 3, 5], groups=[4, 4], loss_mask=mask)


def gzipped(*records: Any) -> Write:
    def write(path: Path) -> None:
        out = io.BytesIO()
        out.write("".join(json.dumps(r) + "\n" for r in records).encode())
        path.write_bytes(gzip.compress(out.getvalue()))

    return write


def _write(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")


def areal(sample: int, end: str) -> dict[str, Any]:
    """One generation, a tool's answer, and another generation."""
    segments = [
        ("prompt", f"<|im_start|>user\ntwo?{END}\n<|im_start|>assistant\n"),
        ("gen", f"look{END}"),
        ("context", f"\n<|im_start|>user\n2{END}\n<|im_start|>assistant\n"),
        ("gen", end + END),
    ]
    return {
        "task_id": 7,
        "sample_idx": sample,
        "seqlen": 0,
        "prompt_len": 0,
        "head_version": 3,
        "tail_version": 3,
        "version_rle": [[3, 2]],
        "reward": float(sample),
        "prompt": segments[0][1],
        "completion": "".join(t for _, t in segments[1:]),
        "segments": [{"role": r, "len": 0, "text": t} for r, t in segments],
    }


def chat_span(question: str, answer: str) -> dict[str, Any]:
    return {
        "name": "ChatCompletion",
        "span_kind": "LLM",
        "context": {"trace_id": "t1", "span_id": "s"},
        "attributes": {
            "llm.input_messages": [{"message": user(question)}],
            "llm.output_messages": [{"message": said(answer)}],
        },
    }


def otel(key: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": json.dumps(messages)}}


def inspect_sample(number: int, epoch: int, answer: str, grade: str) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": "add", "arguments": {"a": 1}}
    return {
        "id": number,
        "epoch": epoch,
        "input": "1+1?",
        "target": "2",
        "messages": [
            user("1+1?"),
            {"role": "assistant", "content": "adding", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "function": "add", "content": "2"},
            said(answer),
        ],
        "output": {"model": "m", "choices": [{"message": said(answer), "stop_reason": "stop"}]},
        "scores": {"match": {"value": grade, "answer": answer}},
    }


CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def inspect_row(answer: str) -> str:
    return f"1+1?|«adding\n{CALL}{END}»|2|«{answer}{END}»"


PAIR = [user("1+1?"), said("2")]
ASKED = f"1+1?|«2{END}»"

SHAPES: dict[str, Shape] = {
    # -- of trainers -----------------------------------------------------------------------------
    "areal-rollouts": Shape(
        folder(rollout__3__7_jsonl=lines(areal(1, "two"), areal(0, "2"))),
        [f"two?|«look{END}»|2|«2{END}»", f"two?|«look{END}»|2|«two{END}»"],
        [0, 0],
    ),
    "areal-evaluated": Shape(
        folder(
            **{
                "rollout__3__7_jsonl": lines(areal(0, "2")),
                "eval-rollout__3__7_jsonl": lines(areal(0, "never trained")),
            }
        ),
        [f"two?|«look{END}»|2|«2{END}»"],
        [0],
    ),
    "trl-completions.parquet": Shape(
        table(
            {"step": 1, "prompt": "1+1=", "completion": "2", "correct": 1.0, "advantage": 0.5},
            {"step": 1, "prompt": "1+1=", "completion": "3", "correct": 0.0, "advantage": -0.5},
            {"step": 2, "prompt": "1+1=", "completion": "2", "correct": 1.0, "advantage": 0.0},
        ),
        [f"1+1=|«2{END}»", f"1+1=|«3{END}»", f"1+1=|«2{END}»"],
        [0, 0, 1],
    ),
    "trl-ids.jsonl": Shape(
        lines(
            {
                "prompt_ids": [0, 0, 11, 12],
                "prompt_mask": [0, 0, 1, 1],
                "completion_ids": [21, 22, 2, 0],
                "completion_mask": [1, 1, 1, 0],
            },
            {
                "prompt_ids": [0, 0, 11, 12],
                "prompt_mask": [0, 0, 1, 1],
                "completion_ids": [21, 23, 24, 2],
                "completion_mask": [1, 1, 1, 1],
            },
        ),
        [([11, 12, 21, 22, 2], [0, 0, 1, 1, 1]), ([11, 12, 21, 23, 24, 2], [0, 0, 1, 1, 1, 1])],
        [0, 0],
    ),
    "verl-step_3.jsonl": Shape(
        lines(
            {"input": "user\n1+1?\nassistant\n", "output": "2", "gts": "2", "score": 1, "step": 3},
            {"input": "user\n1+1?\nassistant\n", "output": "3", "gts": "2", "score": 0, "step": 3},
        ),
        [f"1+1?|«2{END}»", f"1+1?|«3{END}»"],
        [0, 0],
    ),
    "verl-batch.parquet": Shape(
        table(
            {
                "prompts": [9, 9, 11, 12],
                "responses": [21, 31, 22, 9],
                "attention_mask": [0, 0, 1, 1, 1, 1, 1, 0],
                "response_mask": [1, 0, 1, 0],
                "uid": "a",
            },
            {
                "prompts": [9, 9, 11, 12],
                "responses": [21, 9, 9, 9],
                "attention_mask": [0, 0, 1, 1, 1, 0, 0, 0],
                "response_mask": [1, 0, 0, 0],
                "uid": "a",
            },
        ),
        [([11, 12, 21, 31, 22], [0, 0, 1, 0, 1]), ([11, 12, 21], [0, 0, 1])],
        [0, 0],
    ),
    "verl-prompts.parquet": Shape(
        table(
            {
                "data_source": "gsm8k",
                "prompt": [user("1+1?")],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": "2"},
                "extra_info": {"answer": "2", "index": 0, "split": "train"},
            }
        ),
        ["1+1?"],
        [0],
    ),
    "openrlhf.jsonl": Shape(
        lines(
            {"prompt": "1+1=", "label": "2", "response": "2", "reward": 1},
            {"prompt": "2+2=", "label": "4", "response": "4", "reward": 1},
        ),
        [f"1+1=|«2{END}»", f"2+2=|«4{END}»"],
        [0, 1],
    ),
    "prime-rl.jsonl": Shape(
        lines(
            {
                "example_id": 5,
                "prompt_ids": [11, 12],
                "prompt_mask": [False, False],
                "completion_ids": [21, 31, 22],
                "completion_mask": [True, False, True],
                "advantage": 0.5,
                "reward": 1.0,
            }
        ),
        [([11, 12, 21, 31, 22], [0, 0, 1, 0, 1])],
        [0],
    ),
    "slime.jsonl": Shape(
        lines(
            *(
                {
                    "group_index": 0,
                    "index": n,
                    "prompt": "1+1?",
                    "tokens": [11, 12, 21, 31, 22 + n],
                    "response": "…",
                    "response_length": 3,
                    "loss_mask": [1, 0, 1],
                    "reward": 1.0,
                    "status": "completed",
                }
                for n in (0, 1)
            )
        ),
        [([11, 12, 21, 31, 22], [0, 0, 1, 0, 1]), ([11, 12, 21, 31, 23], [0, 0, 1, 0, 1])],
        [0, 0],
    ),
    "nemo-rl.jsonl": Shape(
        lines(
            {
                "message_log": [
                    {"role": "user", "content": "1+1?", "token_ids": [11, 12]},
                    {"role": "assistant", "content": "2", "token_ids": [21, 22]},
                    {"role": "environment", "content": "right", "token_ids": [31]},
                    {"role": "assistant", "content": "done", "token_ids": [23]},
                ],
                "idx": 0,
            }
        ),
        [([11, 12, 21, 22, 31, 23], [0, 0, 1, 1, 0, 1])],
        [0],
    ),
    "agent-lightning.jsonl": Shape(
        lines(
            {
                "prompt": {"token_ids": [11, 12]},
                "response": {"token_ids": [21]},
                "reward": 1.0,
                "rollout_id": "r",
            }
        ),
        [([11, 12, 21], [0, 0, 1])],
        [0],
    ),
    "art-groups.jsonl": Shape(
        lines(
            {
                "trajectories": [
                    {
                        "messages_and_choices": [
                            user("1+1?"),
                            said("an example, not sampled"),
                            user("go on"),
                            {"finish_reason": "stop", "index": 0, "message": said(a)},
                        ],
                        "reward": r,
                        "metrics": {},
                    }
                    for a, r in (("2", 1.0), ("3", 0.0))
                ],
                "exceptions": [],
            }
        ),
        [
            f"1+1?|an example, not sampled|go on|«2{END}»",
            f"1+1?|an example, not sampled|go on|«3{END}»",
        ],
        [0, 0],
    ),
    "verifiers.jsonl": Shape(
        lines(
            {
                "example_id": 0,
                "prompt": [user("1+1?")],
                "completion": [said("2")],
                "answer": "2",
                "reward": 1.0,
            },
            {
                "example_id": 0,
                "prompt": [user("1+1?")],
                "completion": [said("3")],
                "answer": "2",
                "reward": 0.0,
            },
        ),
        [ASKED, f"1+1?|«3{END}»"],
        [0, 0],
    ),
    "rllm.json": Shape(
        document(
            {
                "trajectories": [
                    {"task": "sum", "steps": [{"chat_completions": PAIR}], "reward": 1.0},
                    {"task": "sum", "steps": [{"chat_completions": PAIR}], "reward": 0.0},
                ]
            }
        ),
        [ASKED, ASKED],
        [0, 0],
    ),
    # -- of engines ------------------------------------------------------------------------------
    "vllm-outputs.jsonl": Shape(
        lines(
            {
                "request_id": "1",
                "prompt": "1+1=",
                "prompt_token_ids": [11, 12],
                "outputs": [
                    {"index": 0, "text": "2", "token_ids": [21, 2], "finish_reason": "stop"},
                    {"index": 1, "text": "3", "token_ids": [22, 2], "finish_reason": "stop"},
                ],
                "finished": True,
            }
        ),
        [([11, 12, 21, 2], [0, 0, 1, 1]), ([11, 12, 22, 2], [0, 0, 1, 1])],
        [0, 0],
    ),
    "vllm-server.jsonl": Shape(
        lines(
            {
                "id": "cmpl",
                "prompt_token_ids": [11, 12],
                "choices": [{"index": 0, "token_ids": [21, 2], "message": said("2")}],
            }
        ),
        [([11, 12, 21, 2], [0, 0, 1, 1])],
        [0],
    ),
    "sglang.jsonl": Shape(
        lines({"input_ids": [11, 12], "output_ids": [21, 2], "meta_info": {"id": "x"}}),
        [([11, 12, 21, 2], [0, 0, 1, 1])],
        [0],
    ),
    # -- of agents and evaluations ---------------------------------------------------------------
    "tau-bench.json": Shape(
        document(
            [
                {
                    "task_id": 0,
                    "trial": n,
                    "reward": float(n),
                    "info": {"task": {}},
                    "traj": [{"role": "system", "content": "Be brief."}, *PAIR],
                }
                for n in (0, 1)
            ]
        ),
        [f"Be brief.|{ASKED}", f"Be brief.|{ASKED}"],
        [0, 0],
    ),
    "tau2-bench.json": Shape(
        document(
            {
                "timestamp": "2026",
                "info": {"num_trials": 2},
                "tasks": [{"id": "0", "description": {"purpose": "x"}}],
                "simulations": [
                    {"id": "a", "task_id": "0", "trial": n, "messages": PAIR} for n in (0, 1)
                ],
            }
        ),
        [ASKED, ASKED],
        [0, 0],
    ),
    "swe-agent.traj": Shape(
        document(
            {
                "environment": "swe_main",
                "trajectory": [{"action": "ls", "observation": "a.py", "response": "ls"}],
                "history": [
                    {"role": "system", "content": "You fix bugs.", "agent": "main"},
                    {"role": "user", "content": "a demonstration", "is_demo": True},
                    {"role": "assistant", "content": "shown", "is_demo": True},
                    {"role": "user", "content": "fix it", "agent": "main"},
                    {"role": "assistant", "content": "ls", "action": "ls"},
                    {"role": "user", "content": "a.py"},
                    {"role": "assistant", "content": "submit", "action": "submit"},
                ],
                "info": {"exit_status": "submitted"},
            }
        ),
        [f"You fix bugs.|a demonstration|shown|fix it|«ls{END}»|a.py|«submit{END}»"],
        [0],
    ),
    "mini-swe-agent.traj.json": Shape(
        document(
            {
                "info": {"exit_status": "Submitted", "submission": "diff"},
                "messages": [user("fix it"), said("ls"), user("a.py"), said("done")],
                "trajectory_format": "mini-swe-agent-1",
            }
        ),
        [f"fix it|«ls{END}»|a.py|«done{END}»"],
        [0],
    ),
    "inspect.eval": Shape(
        archive(
            {
                "header.json": {"version": 2, "status": "success"},
                "samples/1_epoch_1.json": inspect_sample(1, 1, "2", "C"),
                "samples/1_epoch_2.json": inspect_sample(1, 2, "3", "I"),
                "summaries.json": [],
            }
        ),
        [inspect_row("2"), inspect_row("3")],
        [0, 0],
    ),
    "inspect.json": Shape(
        document(
            {
                "version": 2,
                "status": "success",
                "eval": {"task": "sums", "dataset": {"samples": 1}},
                "samples": [inspect_sample(1, 1, "2", "C"), inspect_sample(1, 2, "3", "I")],
            }
        ),
        [inspect_row("2"), inspect_row("3")],
        [0, 0],
    ),
    "lm-eval-samples.jsonl": Shape(
        lines(
            {
                "doc_id": 0,
                "doc": {"question": "1+1?"},
                "target": "2",
                "arguments": {"gen_args_0": {"arg_0": "Q: 1+1?\nA:", "arg_1": {"until": ["\n"]}}},
                "resps": [[" 2"]],
                "filtered_resps": ["2"],
            }
        ),
        [f"Q: 1+1?\nA:|« 2{END}»"],
        [0],
    ),
    "tree-of-thought.json": Shape(
        document(
            [
                {
                    "idx": 900,
                    "ys": ["4+9=13\n13+10=23\n", "4+9=13\n13*2=26\n"],
                    "steps": [{"step": 0, "x": "4 9 10 13", "ys": [""], "new_ys": []}],
                    "infos": [{"r": 0}, {"r": 1}],
                    "usage_so_far": {"cost": 0.1},
                }
            ]
        ),
        [f"4 9 10 13|«4+9=13\n13+10=23\n{END}»", f"4 9 10 13|«4+9=13\n13*2=26\n{END}»"],
        [0, 0],
    ),
    "humaneval-samples.jsonl": Shape(
        lines(
            {"task_id": "HumanEval/0", "completion": "    return [1, 2]\n"},
            {"task_id": "HumanEval/0", "completion": "    return 3\n"},
        ),
        [f"«    return [1, 2]\n{END}»", f"«    return 3\n{END}»"],
        [0, 0],
    ),
    # -- of APIs and their logs ------------------------------------------------------------------
    "openai-finetune.jsonl": Shape(lines({"messages": PAIR}), [ASKED], [0]),
    "openai-batch.jsonl": Shape(
        lines(
            {
                "id": "batch_req_1",
                "custom_id": "q1",
                "response": {
                    "status_code": 200,
                    "body": {"choices": [{"index": 0, "message": said("2")}]},
                },
                "error": None,
            }
        ),
        [f"«2{END}»"],
        [0],
    ),
    "openai-log.jsonl": Shape(
        lines(
            {
                "request": {"model": "m", "messages": [user("1+1?")], "n": 2},
                "response": {"choices": [{"message": said("2")}, {"message": said("3")}]},
            }
        ),
        [ASKED, f"1+1?|«3{END}»"],
        [0, 0],
    ),
    "openai-responses.jsonl": Shape(
        lines(
            {
                "request": {"instructions": "Be brief.", "input": "1+1?"},
                "response": {
                    "output": [
                        {
                            "type": "message",
                            "role": "assistant",
                            "content": [{"type": "output_text", "text": "2"}],
                        }
                    ]
                },
            }
        ),
        [f"Be brief.|{ASKED}"],
        [0],
    ),
    "anthropic-log.jsonl": Shape(
        lines(
            {
                "request": {"system": "Be brief.", "messages": [user("1+1?")]},
                "response": {"role": "assistant", "content": [{"type": "text", "text": "2"}]},
            }
        ),
        [f"Be brief.|{ASKED}"],
        [0],
    ),
    "gemini-tuning.jsonl": Shape(
        lines(
            {
                "systemInstruction": {"role": "system", "parts": [{"text": "Be brief."}]},
                "contents": [
                    {"role": "user", "parts": [{"text": "1+1?"}]},
                    {"role": "model", "parts": [{"text": "2"}]},
                ],
            }
        ),
        [f"Be brief.|{ASKED}"],
        [0],
    ),
    "gemini-batch.jsonl": Shape(
        lines(
            {
                "request": {"contents": [{"role": "user", "parts": [{"text": "1+1?"}]}]},
                "response": {
                    "candidates": [{"content": {"role": "model", "parts": [{"text": "2"}]}}]
                },
                "status": "",
            }
        ),
        [ASKED],
        [0],
    ),
    "langsmith-runs.jsonl": Shape(
        lines(
            {"run_type": "chain", "inputs": {"q": "x"}, "outputs": {"a": "y"}, "trace_id": "t"},
            {
                "run_type": "llm",
                "trace_id": "t",
                "inputs": {
                    "messages": [
                        [
                            {
                                "lc": 1,
                                "type": "constructor",
                                "id": ["langchain", "schema", "messages", "HumanMessage"],
                                "kwargs": {"content": "1+1?"},
                            }
                        ]
                    ]
                },
                "outputs": {
                    "generations": [
                        [
                            {
                                "text": "2",
                                "message": {
                                    "lc": 1,
                                    "id": ["langchain", "schema", "messages", "AIMessage"],
                                    "kwargs": {"content": "2"},
                                },
                            }
                        ]
                    ]
                },
            },
        ),
        [ASKED],
        [0],
    ),
    "phoenix-spans.jsonl": Shape(
        lines({"name": "chain", "span_kind": "CHAIN", "attributes": {}}, chat_span("1+1?", "2")),
        [ASKED],
        [0],
    ),
    "otel-traces.json": Shape(
        document(
            {
                "resourceSpans": [
                    {
                        "resource": {"attributes": []},
                        "scopeSpans": [
                            {
                                "spans": [
                                    {
                                        "traceId": "t",
                                        "spanId": "s",
                                        "name": "chat m",
                                        "attributes": [
                                            otel(
                                                "gen_ai.input.messages",
                                                [
                                                    {
                                                        "role": "user",
                                                        "parts": [
                                                            {"type": "text", "content": "1+1?"}
                                                        ],
                                                    }
                                                ],
                                            ),
                                            otel(
                                                "gen_ai.output.messages",
                                                [
                                                    {
                                                        "role": "assistant",
                                                        "parts": [{"type": "text", "content": "2"}],
                                                    }
                                                ],
                                            ),
                                        ],
                                    }
                                ]
                            }
                        ],
                    }
                ]
            }
        ),
        [ASKED],
        [0],
    ),
    "langchain.jsonl": Shape(
        lines(
            {
                "messages": [
                    {"type": "human", "data": {"content": "1+1?"}},
                    {"type": "ai", "data": {"content": "2", "tool_calls": []}},
                ]
            }
        ),
        [ASKED],
        [0],
    ),
    # -- of data sets ----------------------------------------------------------------------------
    "sharegpt.json": Shape(
        document(
            [
                {
                    "id": "x",
                    "conversations": [
                        {"from": "human", "value": "1+1?"},
                        {"from": "gpt", "value": "2"},
                    ],
                }
            ]
        ),
        [ASKED],
        [0],
    ),
    "alpaca.json": Shape(
        document(
            [
                {"instruction": "Add the numbers.", "input": "1 and 1", "output": "2"},
                {"instruction": "Say hi.", "input": "", "output": "hi"},
            ]
        ),
        [f"Add the numbers.\n1 and 1|«2{END}»", f"Say hi.|«hi{END}»"],
        [0, 1],
    ),
    "llama-factory.json": Shape(
        document(
            [
                {
                    "instruction": "and 2+2?",
                    "input": "",
                    "output": "4",
                    "system": "Be brief.",
                    "history": [["1+1?", "2"]],
                }
            ]
        ),
        [f"Be brief.|1+1?|2|and 2+2?|«4{END}»"],
        [0],
    ),
    "dolly.jsonl": Shape(
        lines(
            {
                "instruction": "When was it?",
                "context": "It was in 1999.",
                "response": "1999",
                "category": "closed_qa",
            }
        ),
        [f"When was it?\nIt was in 1999.|«1999{END}»"],
        [0],
    ),
    "squad.jsonl": Shape(
        lines({"id": "1", "context": "It was in 1999.", "question": "When?", "answer": "1999"}),
        [f"It was in 1999.\n\nWhen?|«1999{END}»"],
        [0],
    ),
    "openorca.jsonl": Shape(
        lines({"id": "1", "system_prompt": "Be brief.", "question": "1+1?", "response": "2"}),
        [f"Be brief.|{ASKED}"],
        [0],
    ),
    "ultrafeedback.jsonl": Shape(
        lines(
            {
                "source": "x",
                "instruction": "1+1?",
                "models": ["a", "b"],
                "completions": [
                    {"model": "a", "response": "2", "overall_score": 9.0},
                    {"model": "b", "response": "3", "overall_score": 2.0},
                ],
            }
        ),
        [ASKED, f"1+1?|«3{END}»"],
        [0, 0],
    ),
    "dpo-pairs.jsonl": Shape(
        lines({"prompt": "1+1=", "chosen": "2", "rejected": "3"}),
        [f"1+1=|«2{END}»", f"1+1=|«3{END}»"],
        [0, 0],
    ),
    "gsm8k.jsonl": Shape(
        lines({"question": "1+1?", "answer": "It is 2.\n#### 2"}),
        [f"1+1?|«It is 2.\n#### 2{END}»"],
        [0],
    ),
    "gsm8k-solutions.jsonl": Shape(
        lines(
            {
                "question": "1+1?",
                "ground_truth": "2",
                "6b": {"solution": "3", "is_correct": False},
                "175b": {"solution": "2", "is_correct": True},
            }
        ),
        [ASKED, f"1+1?|«3{END}»", ASKED],
        [0, 0, 0],
    ),
    "open-r1.jsonl": Shape(
        lines({"problem": "1+1?", "answer": "2", "generations": ["[2]", "3"], "uuid": "u"}),
        [f"1+1?|«[2]{END}»", f"1+1?|«3{END}»"],
        [0, 0],
    ),
    "messages-and-answers.jsonl": Shape(
        lines(
            {"messages": [user("1+1?")], "response": "2", "group_id": 1.0},
            {"messages": [user("1+1?")], "response": "3", "group_id": "1"},
        ),
        [ASKED, f"1+1?|«3{END}»"],
        [0, 0],
    ),
    # -- containers ------------------------------------------------------------------------------
    "wrapper.json": Shape(
        document({"rollouts": [{"messages": PAIR}] * 2, "metadata": {"model": "m", "tags": [1]}}),
        [ASKED, ASKED],
        [0, 0],
    ),
    "chats.json": Shape(document([PAIR, PAIR]), [ASKED, ASKED], [0, 0]),
    "one-chat.json": Shape(document(PAIR), [ASKED], [0]),
    "chat.jsonlines": Shape(lines(*PAIR), [ASKED], [0]),
    "rollouts": Shape(lines({"messages": PAIR}, {"messages": PAIR}), [ASKED, ASKED], [0, 0]),
    "cells.csv": Shape(
        text(
            "task_id,messages\n"
            '1,"[{""role"": ""user"", ""content"": ""1+1?""}, '
            '{""role"": ""assistant"", ""content"": ""2""}]"\n'
        ),
        [ASKED],
        [0],
    ),
    "dataset.arrow": Shape(arrow({"text": "[1, 2, 3]"}), ["[1, 2, 3]"], [0]),
    "tokens.npz": Shape(tokens_npz, [([7, 8, 9], [0, 1, 1]), ([7, 5], [0, 1])], [0, 0]),
    "rollouts.jsonl.gz": Shape(
        gzipped({"prompt": "1+1=", "completions": ["2", "3"], "rewards": [1, 0]}),
        [f"1+1=|«2{END}»", f"1+1=|«3{END}»"],
        [0, 0],
    ),
    "run": Shape(
        folder(
            step_1_jsonl=lines({"prompt": "1+1=", "response": "2", "group_id": 0}),
            step_2_jsonl=lines({"prompt": "2+2=", "response": "4", "group_id": 0}),
            config_json=document({"model": "m", "lr": 0.1}),
            metrics_jsonl=lines({"step": 1, "loss": 0.5}),
        ),
        [f"1+1=|«2{END}»", f"2+2=|«4{END}»"],
        [0, 1],
    ),
}
