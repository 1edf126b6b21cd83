"""More shapes of public tools: events, messages a row each, batches, and what stands beside."""

from __future__ import annotations

import json
from typing import Any

from tests.packing.sources.shapes import ASKED, END, PAIR, Shape, document, lines, said, table, user
from tests.packing.sources.shapes import text as plain

CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"c": "ls"}'}}
CALLED = '<tool_call>\n{"name": "bash", "arguments": {"c": "ls"}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
SYSTEM = f"<|im_start|>system\nBe brief.{END}"


def event(source: str, **more: Any) -> dict[str, Any]:
    return {"source": source, "timestamp": "2025-01-01T00:00:00", **more}


def told(identity: str) -> dict[str, Any]:
    """What OpenHands keeps of the response that an action came from."""
    calls = [CALL, {**CALL, "id": "c2"}]
    message = {"role": "assistant", "content": "look", "tool_calls": calls}
    response = {"id": "r1", "choices": [{"message": message}]}
    named = {"function_name": "bash", "tool_call_id": identity}
    return {"tool_call_metadata": named | {"model_response": response}}


EVENTS = [
    event("agent", action="system", args={"content": "Be brief.", "tools": TOOLS}),
    event("user", action="message", args={"content": "1+1?"}),
    event("environment", observation="recall", content="not shown", extras={}),
    event("agent", action="run", args={"command": "ls", "thought": "look"}, **told("c1")),
    event("agent", observation="run", content="a.py", extras={}, **told("c1")),
    event("agent", action="run", args={"command": "ls", "thought": ""}, **told("c2")),
    event("agent", observation="run", content="b.py", extras={}, **told("c2")),
    event("environment", observation="agent_state_changed", content="", extras={}),
    event("agent", action="message", args={"content": "2"}),
]
OF_EVENTS = f"Be brief.|1+1?|«look\n{CALLED}\n{CALLED}{END}»|a.py|b.py|«2{END}»"
SDK_EVENTS = [
    event("agent", kind="SystemPromptEvent", system_prompt={"text": "Be brief."}, tools=TOOLS),
    event("user", kind="MessageEvent", llm_message=user("1+1?")),
    event(
        "agent",
        kind="ActionEvent",
        thought=[{"type": "text", "text": "look"}],
        tool_call={"id": "c1", "name": "bash", "arguments": '{"c": "ls"}'},
        llm_response_id="r1",
    ),
    event(
        "environment",
        kind="ObservationEvent",
        tool_name="bash",
        tool_call_id="c1",
        observation={"content": [{"type": "text", "text": "a.py"}]},
    ),
    event("environment", kind="ConversationStateUpdateEvent", key="k", value=1),
    event("agent", kind="MessageEvent", llm_message=said("2")),
]


def messages(name: str, turn: str, *chats: tuple[Any, list[str]]) -> list[dict[str, Any]]:
    """Messages of chats as rows; the turns of all chats one after the other."""
    rows = [
        {name: chat, turn: n, "role": ("user", "assistant")[n % 2], "content": content}
        for chat, contents in chats
        for n, content in enumerate(contents)
    ]
    return sorted(rows, key=lambda row: -int(row[turn]))


TWO = (("a", ["1+1?", "2"]), ("b", ["1+1?", "3"]))
THREE = f"1+1?|«3{END}»"
TREE: list[dict[str, Any]] = [
    {"message_id": "1", "parent_id": None, "role": "prompter", "text": "1+1?"},
    {"message_id": "2", "parent_id": "1", "role": "assistant", "text": "2"},
    {"message_id": "3", "parent_id": "1", "role": "assistant", "text": "3"},
    {"message_id": "4", "parent_id": "3", "role": "prompter", "text": "sure?"},
    {"message_id": "5", "parent_id": "4", "role": "assistant", "text": "no"},
]
SHAREGPT = [{"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "2"}]
REQUEST = {"messages": [user("1+1?")]}
RESPONSE = {"choices": [{"message": said("2")}]}
IDS: tuple[list[int], list[int]] = ([1, 2, 3, 4], [0, 0, 1, 1])

MORE: dict[str, Shape] = {
    "openhands-output.jsonl": Shape(
        lines({"instance_id": "i", "history": EVENTS, "metrics": {}}), [OF_EVENTS], [0]
    ),
    "openhands-trajectory.json": Shape(document(EVENTS), [OF_EVENTS], [0]),
    "openhands-sdk.jsonl": Shape(
        lines({"instance_id": "i", "history": SDK_EVENTS}),
        [f"Be brief.|1+1?|«look\n{CALLED}{END}»|a.py|«2{END}»"],
        [0],
    ),
    "messages.parquet": Shape(
        table(*messages("conversation_id", "turn", *TWO)), [ASKED, THREE], [0, 0]
    ),
    "messages.csv": Shape(
        plain(
            "chat_id,message_idx,role,content\na,0,user,1+1?\nb,0,user,1+1?\n"
            "b,1,assistant,3\na,1,assistant,2\n"
        ),
        [ASKED, THREE],
        [0, 0],
    ),
    "trials.parquet": Shape(
        table(
            *(
                {"task_id": 7, "trial": t, **m}
                for t, answer in enumerate("23")
                for m in (user("1+1?"), said(answer))
            )
        ),
        [ASKED, THREE],
        [0, 0],
    ),
    "oasst-messages.jsonl": Shape(
        lines(*({"message_tree_id": "1", **m} for m in TREE)),
        [ASKED, f"1+1?|«3{END}»|sure?|«no{END}»"],
        [0, 0],
    ),
    "skyrl.jsonl": Shape(
        lines({"input_prompt": [user("1+1?")], "output_response": "2", "score": 1.0}), [ASKED], [0]
    ),
    "skyrl-batch.json": Shape(
        document(
            {
                "prompt_token_ids": [[1, 2], [1, 2]],
                "response_ids": [[3, 4], [5]],
                "loss_masks": [[1, 1], [1]],
                "rewards": [1.0, 0.0],
            }
        ),
        [IDS, ([1, 2, 5], [0, 0, 1])],
        [0, 0],
    ),
    "atropos.jsonl": Shape(
        lines({"tokens": [[1, 2, 3, 4]], "masks": [[-100, -100, 3, 4]], "scores": [1.0]}),
        [IDS],
        [0],
    ),
    "tinker-datums.jsonl": Shape(
        lines(
            {
                "model_input": {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3]}]},
                "loss_fn_inputs": {
                    "target_tokens": {"data": [2, 3, 4]},
                    "weights": {"data": [0.0, 1.0, 1.0]},
                },
            }
        ),
        [IDS],
        [0],
    ),
    "tinker-samples.jsonl": Shape(
        lines({"prompt_tokens": [1, 2], "sampled_tokens": [3, 4], "logprobs": [-1, -1]}), [IDS], [0]
    ),
    "verifiers-steps.jsonl": Shape(
        lines(
            {
                "example_id": 0,
                "prompt": [user("1+1?")],
                "completion": [said("2")],
                "trajectory": [
                    {
                        "tokens": {
                            "prompt_ids": [1, 2],
                            "completion_ids": [3, 4],
                            "completion_mask": [1, 1],
                        }
                    }
                ],
            }
        ),
        [IDS],
        [0],
    ),
    "nemo-rl-step.jsonl": Shape(
        lines(
            {
                "content": "1+1?2",
                "token_ids": [1, 2, 3, 4, 0, 0],
                "token_loss_mask": [0, 0, 1, 1, 0, 0],
                "sample_loss_mask": 1.0,
                "input_lengths": 4,
                "rewards": 1.0,
            }
        ),
        [IDS],
        [0],
    ),
    "nemo-gym.jsonl": Shape(
        lines(
            {
                "responses_create_params": {"input": [user("1+1?")]},
                "response": {
                    "output": [
                        {"type": "function_call", "name": "bash", "arguments": '{"c": "ls"}'},
                        {"type": "function_call_output", "output": "a.py"},
                        {"type": "message", **said("2")},
                    ]
                },
            }
        ),
        [f"1+1?|«{CALLED}{END}»|a.py|«2{END}»"],
        [0],
    ),
    "trl-stepwise.jsonl": Shape(
        lines({"prompt": "1+1?", "completions": ["One.", "Two."], "labels": [True, False]}),
        [f"1+1?|«One.\nTwo.{END}»"],
        [0],
    ),
    "trl-tools.jsonl": Shape(
        lines(
            {
                "prompt": [user("1+1?")],
                "completion": [
                    {"role": "assistant", "tool_calls": [CALL]},
                    {"role": "tool", "name": "bash", "content": "a.py"},
                    said("2"),
                ],
                "tools": TOOLS,
            }
        ),
        [f"1+1?|«{CALLED}{END}»|a.py|«2{END}»"],
        [0],
    ),
    "swe-rebench.parquet": Shape(
        table({"instance_id": "i", "trajectory": PAIR, "tools": json.dumps(TOOLS), "resolved": 1}),
        [f"<tools>|{ASKED}"],
        [0],
    ),
    "swe-agent-ai.parquet": Shape(
        table(
            {
                "trajectory": [
                    {"role": "system", "text": "", "system_prompt": "Be brief."},
                    {"role": "user", "text": "1+1?", "system_prompt": None},
                    {"role": "ai", "text": "2", "system_prompt": None},
                ]
            }
        ),
        [f"{SYSTEM}|{ASKED}"],
        [0],
    ),
    "langfuse.jsonl": Shape(
        lines(
            {"traceId": "t", "type": "SPAN", "input": {"a": 1}, "output": None},
            {"traceId": "t", "type": "GENERATION", "input": [user("1+1?")], "output": said("2")},
        ),
        [ASKED],
        [0],
    ),
    "litellm.jsonl": Shape(
        lines({**REQUEST, "response": RESPONSE, "outputs": ["2"]}), [ASKED], [0]
    ),
    "mlflow.jsonl": Shape(
        lines({"request": json.dumps(REQUEST), "response": json.dumps(RESPONSE)}), [ASKED], [0]
    ),
    "weave.jsonl": Shape(lines({"inputs": REQUEST, "output": RESPONSE}), [ASKED], [0]),
    "bedrock.jsonl": Shape(
        lines(
            {
                "input": {
                    "inputBodyJson": {
                        "messages": [{"role": "user", "content": [{"text": "1+1?"}]}],
                        "system": [{"text": "Be brief."}],
                    }
                },
                "output": {"outputBodyJson": {"output": {"message": said("2")}}},
            }
        ),
        [f"{SYSTEM}|{ASKED}"],
        [0],
    ),
    "gemini-live.jsonl": Shape(
        lines(
            {
                "contents": [{"role": "user", "parts": [{"text": "1+1?"}]}],
                "response": {"candidates": [{"content": {"parts": [{"text": "2"}]}}]},
            }
        ),
        [ASKED],
        [0],
    ),
    "lm-eval-chat.jsonl": Shape(
        lines(
            {
                "doc_id": 0,
                "arguments": {"gen_args_0": {"arg_0": [json.dumps([user("1+1?")])], "arg_1": {}}},
                "resps": [["2", "3"]],
                "target": "2",
            }
        ),
        [ASKED, THREE],
        [0, 0],
    ),
    "lm-eval-choices.jsonl": Shape(
        lines(
            {
                "doc_id": 0,
                "arguments": {f"gen_args_{n}": {"arg_0": "1+1?", "arg_1": n} for n in "23"},
                "resps": [[["-1.0", "True"]], [["-2.0", "False"]]],
                "target": "0",
            }
        ),
        ["1+1?2", "1+1?3"],
        [0, 0],
    ),
    "lighteval.parquet": Shape(
        table({"full_prompt": "1+1?", "predictions": ["2"], "gold": ["2"]}), [ASKED], [0]
    ),
    "sharegpt-system.json": Shape(
        document([{"system": "Be brief.", "conversations": SHAREGPT}]), [f"{SYSTEM}|{ASKED}"], [0]
    ),
    "samples-by-task.json": Shape(
        document({"t1": [{"messages": PAIR}], "t2": [{"messages": [user("2+2?"), said("4")]}]}),
        [ASKED, f"2+2?|«4{END}»"],
        [0, 1],
    ),
    "openai-completions.jsonl": Shape(
        lines({"prompt": "1+1?", "choices": [{"text": "2"}, {"text": "3"}], "model": "m"}),
        [ASKED, THREE],
        [0, 0],
    ),
    "safe-rlhf.parquet": Shape(
        table({"prompt": "1+1?", "response_0": "2", "response_1": "3", "better_response_id": 0}),
        [ASKED, THREE],
        [0, 0],
    ),
    "system-and-user.jsonl": Shape(
        lines({"system_prompt": "Be brief.", "user_prompt": "1+1?", "response": "2"}),
        [f"{SYSTEM}|{ASKED}"],
        [0],
    ),
    "arena.parquet": Shape(
        table({"conversation_a": PAIR, "conversation_b": [user("1+1?"), said("3")]}),
        [ASKED, THREE],
        [0, 0],
    ),
    "openmath.parquet": Shape(
        table({"problem": "1+1?", "generated_solution": "2", "expected_answer": "2"}), [ASKED], [0]
    ),
    "xlam.json": Shape(
        document([{"query": "1+1?", "answers": '[{"name": "bash"}]', "tools": json.dumps(TOOLS)}]),
        [f'1+1?|«[{{"name": "bash"}}]{END}»'],
        [0],
    ),
    "smolagents.json": Shape(
        document(
            [
                {
                    "messages": [
                        user("1+1?"),
                        {"role": "tool-call", "content": "add"},
                        {"role": "tool-response", "content": "a.py"},
                        said("2"),
                    ]
                }
            ]
        ),
        [f"1+1?|«add{END}»|a.py|«2{END}»"],
        [0],
    ),
}
