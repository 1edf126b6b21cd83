"""Chat templates after the public families, written for the tests; what each trains is marked.

Notable:
- none is a copy: each does, in a few lines, what makes its family special (headers, ends, what
  becomes of reasoning, how calls and results of tools are written)
- ``⟦…⟧`` in an expected text was set by hand: it is what an engine generated
"""

from dataclasses import dataclass, field
from typing import Any

TOOL: dict[Any, Any] = {"type": "function", "function": {"name": "get_weather"}}
TOOL_JSON = '{"type": "function", "function": {"name": "get_weather"}}'
CALL = '{"name": "get_weather", "arguments": {"city": "Bonn"}}'


def said(content: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def called(arguments: Any) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments}
    return said("", tool_calls=[{"id": "call00001", "type": "function", "function": function}])


HI, BYE = {"role": "user", "content": "Hi"}, {"role": "user", "content": "Bye"}
RAIN = {"role": "tool", "content": "rain", "tool_call_id": "call00001", "name": "get_weather"}
TALK = [HI, said("Hello."), BYE, said("See you.")]
TALKS: dict[str, list[dict[str, Any]]] = {
    "talk": TALK,
    "system": [{"role": "system", "content": "Be brief."}, *TALK],
    "thinking": [
        HI,
        said("Hello.", reasoning_content="hm"),
        BYE,
        said("See you.", reasoning_content="well"),
    ],
    "tools": [
        {"role": "user", "content": "Weather?"},
        called('{"city":"Bonn"}'),
        RAIN,
        said("It rains."),
    ],
}


@dataclass(frozen=True)
class Family:
    """A template with the tokens it writes, and its texts of ``TALKS`` with marks.

    turns: of a talk, what each turn generated, where that is not what ``texts`` marks
    text_arguments: it writes arguments as they are
    """

    template: str
    special: tuple[str, ...]
    eos: str
    texts: dict[str, str]
    bos: str | None = None
    turns: dict[str, list[str]] = field(default_factory=dict)
    text_arguments: bool = False


CHATML = ("<|im_start|>", "<|im_end|>")
_CHATML_TURN = "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
_ASK = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
_CALLS = (
    '{% for c in m.tool_calls %}{{ \'\n<tool_call>\n{"name": "\' + c.function.name + '
    "'\", \"arguments\": ' }}{{ c.function.arguments | tojson }}{{ '}\n</tool_call>' }}"
    "{% endfor %}"
)
_LLAMA = (
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim }}"
    "{{ '<|eot_id|>' }}"
)
_LLAMA_ASK = (
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
LLAMA = (
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
)
DEEPSEEK = (
    "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>",
    "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁output▁begin｜>",
    "<｜tool▁output▁end｜>",
)  # fmt: skip
_DEEPSEEK = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ m.content }}"
    "{% elif m.role == 'user' %}{{ '<｜User｜>' + m.content }}"
    "{% elif m.role == 'tool' %}"
    "{{ '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}"
    "{% elif m.tool_calls %}{{ '<｜Assistant｜>' }}{% for c in m.tool_calls %}"
    "{{ '<｜tool▁call▁begin｜>' + c.function.name + '\n' + c.function.arguments }}"
    "{{ '<｜tool▁call▁end｜>' }}{% endfor %}{{ eos_token }}"
    "{% else %}{% if not loop.first and loop.previtem.role != 'tool' %}{{ '<｜Assistant｜>' }}"
    "{% endif %}{{ m.content.split('</think>')[-1] + eos_token }}{% endif %}{% endfor %}"
)
MISTRAL = (
    "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
)  # fmt: skip
HARMONY = ("<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>", "<|call|>")
GLM = ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")

FAMILIES: dict[str, Family] = {
    "chatml": Family(
        "{% for m in messages %}" + _CHATML_TURN + "{% endfor %}" + _ASK,
        CHATML,
        "<|im_end|>",
        {
            "talk": (
                "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Hello.<|im_end|>⟧\n"
                "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n⟦See you.<|im_end|>⟧\n"
            ),
            "system": (
                "<|im_start|>system\nBe brief.<|im_end|>\n"
                "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Hello.<|im_end|>⟧\n"
                "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n⟦See you.<|im_end|>⟧\n"
            ),
        },
    ),
    "qwen2.5": Family(
        "{{ '<|im_start|>system\n' }}{% if messages[0].role == 'system' %}"
        "{{ messages[0].content }}{% else %}{{ 'You are Q.' }}{% endif %}"
        "{% if tools %}{% for t in tools %}{{ '\n' }}{{ t | tojson }}{% endfor %}{% endif %}"
        "{{ '<|im_end|>\n' }}{% for m in messages %}"
        "{% if m.role == 'user' %}" + _CHATML_TURN + "{% elif m.role == 'assistant' %}"
        "{{ '<|im_start|>assistant' }}{% if m.content %}{{ '\n' + m.content }}{% endif %}"
        + _CALLS
        + "{{ '<|im_end|>\n' }}{% elif m.role == 'tool' %}"
        "{% if messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}"
        "{{ '\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
        "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}"
        "{% endif %}{% endif %}{% endfor %}" + _ASK,
        CHATML,
        "<|im_end|>",
        {
            "talk": (
                "<|im_start|>system\nYou are Q.<|im_end|>\n"
                "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Hello.<|im_end|>⟧\n"
                "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n⟦See you.<|im_end|>⟧\n"
            ),
            "tools": (
                f"<|im_start|>system\nYou are Q.\n{TOOL_JSON}<|im_end|>\n"
                "<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n"
                f"⟦<tool_call>\n{CALL}\n</tool_call><|im_end|>⟧\n"
                "<|im_start|>user\n<tool_response>\nrain\n</tool_response><|im_end|>\n"
                "<|im_start|>assistant\n⟦It rains.<|im_end|>⟧\n"
            ),
        },
    ),
    "qwen3": Family(
        "{% set ns = namespace(last=0) %}{% for m in messages %}"
        "{% if m.role == 'user' and not m.content.startswith('<tool_response>') %}"
        "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}"
        "{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}"
        "{% set thought = m.reasoning_content or '' %}"
        "{% if loop.index0 > ns.last and (loop.last or thought) %}"
        "{{ '<think>\n' + thought.strip('\n') + '\n</think>\n\n' }}{% endif %}"
        "{{ m.content.lstrip('\n') }}" + _CALLS + "{{ '<|im_end|>\n' }}"
        "{% elif m.role == 'tool' %}{{ '<|im_start|>user\n<tool_response>\n' + m.content }}"
        "{{ '\n</tool_response><|im_end|>\n' }}{% else %}"
        + _CHATML_TURN
        + "{% endif %}{% endfor %}"
        + _ASK,
        CHATML,
        "<|im_end|>",
        {
            "system": (
                "<|im_start|>system\nBe brief.<|im_end|>\n"
                "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Hello.<|im_end|>⟧\n"
                "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
                "⟦<think>\n\n</think>\n\nSee you.<|im_end|>⟧\n"
            ),
            "thinking": (
                "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Hello.<|im_end|>⟧\n"
                "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
                "⟦<think>\nwell\n</think>\n\nSee you.<|im_end|>⟧\n"
            ),
            "tools": (
                "<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n"
                f"⟦\n<tool_call>\n{CALL}\n</tool_call><|im_end|>⟧\n"
                "<|im_start|>user\n<tool_response>\nrain\n</tool_response><|im_end|>\n"
                "<|im_start|>assistant\n⟦<think>\n\n</think>\n\nIt rains.<|im_end|>⟧\n"
            ),
        },
        turns={
            "system": [
                "<think>\n\n</think>\n\nHello.<|im_end|>",
                "<think>\n\n</think>\n\nSee you.<|im_end|>",
            ],
            "thinking": [
                "<think>\nhm\n</think>\n\nHello.<|im_end|>",
                "<think>\nwell\n</think>\n\nSee you.<|im_end|>",
            ],
            "tools": [
                f"<think>\n\n</think>\n\n\n<tool_call>\n{CALL}\n</tool_call><|im_end|>",
                "<think>\n\n</think>\n\nIt rains.<|im_end|>",
            ],
        },
    ),
    "qwen3-thinking": Family(
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}"
        "{% if loop.last %}{{ '<think>\n' + (m.reasoning_content or '') + '\n</think>\n\n' }}"
        "{% endif %}{{ m.content + '<|im_end|>\n' }}{% else %}" + _CHATML_TURN + "{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}"
        "{% endif %}",
        CHATML,
        "<|im_end|>",
        {
            "thinking": (
                "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Hello.<|im_end|>⟧\n"
                "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n<think>\n"
                "⟦well\n</think>\n\nSee you.<|im_end|>⟧\n"
            ),
        },
        turns={
            "thinking": [
                "hm\n</think>\n\nHello.<|im_end|>",
                "well\n</think>\n\nSee you.<|im_end|>",
            ]
        },
    ),
    "qwen3-coder": Family(
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
        "{% for c in m.tool_calls %}{{ '<tool_call>\n<function=' + c.function.name + '>\n' }}"
        "{% for k, v in c.function.arguments | items %}"
        "{{ '<parameter=' + k + '>\n' + v + '\n</parameter>\n' }}{% endfor %}"
        "{{ '</function>\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}" + _ASK,
        CHATML,
        "<|im_end|>",
        {
            "tools": (
                "<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n"
                "⟦<tool_call>\n<function=get_weather>\n<parameter=city>\nBonn\n</parameter>\n"
                "</function>\n</tool_call><|im_end|>⟧\n"
                "<|im_start|>tool\nrain<|im_end|>\n<|im_start|>assistant\n⟦It rains.<|im_end|>⟧\n"
            ),
        },
    ),
    "hermes": Family(
        "{{ bos_token }}{% if tools %}{{ '<|im_start|>system\n<tools>' }}{% for t in tools %}"
        "{{ t | tojson }}{% endfor %}{{ '</tools><|im_end|>\n' }}{% endif %}"
        "{% for m in messages %}{% if m.role == 'tool' %}"
        "{{ '<|im_start|>tool\n<tool_response>\n' + m.content + '\n</tool_response><|im_end|>\n' }}"
        "{% elif m.tool_calls %}{{ '<|im_start|>assistant' }}" + _CALLS + "{{ '<|im_end|>\n' }}"
        "{% else %}" + _CHATML_TURN + "{% endif %}{% endfor %}" + _ASK,
        (*CHATML, "<|begin_of_text|>"),
        "<|im_end|>",
        {
            "tools": (
                f"<|begin_of_text|><|im_start|>system\n<tools>{TOOL_JSON}</tools><|im_end|>\n"
                "<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n"
                f"⟦<tool_call>\n{CALL}\n</tool_call><|im_end|>⟧\n"
                "<|im_start|>tool\n<tool_response>\nrain\n</tool_response><|im_end|>\n"
                "<|im_start|>assistant\n⟦It rains.<|im_end|>⟧\n"
            ),
        },
        bos="<|begin_of_text|>",
    ),
    "llama-3": Family(
        "{{ bos_token }}{% for m in messages %}" + _LLAMA + "{% endfor %}" + _LLAMA_ASK,
        LLAMA,
        "<|eot_id|>",
        {
            "system": (
                "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
                "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\n⟦Hello.<|eot_id|>⟧"
                "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\n⟦See you.<|eot_id|>⟧"
            ),
        },
        bos="<|begin_of_text|>",
    ),
    "llama-3.1": Family(
        "{{ bos_token }}{{ '<|start_header_id|>system<|end_header_id|>\n\nToday: 26 Jul 2024\n' }}"
        "{{ '<|eot_id|>' }}{% for m in messages %}{% if m.tool_calls %}"
        '{{ \'<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "\' }}'
        '{{ m.tool_calls[0].function.name + \'", "parameters": \' }}'
        "{{ m.tool_calls[0].function.arguments | tojson }}{{ '}<|eot_id|>' }}"
        "{% elif m.role == 'tool' %}{{ '<|start_header_id|>ipython<|end_header_id|>\n\n' }}"
        "{{ m.content | tojson }}{{ '<|eot_id|>' }}{% else %}" + _LLAMA + "{% endif %}"
        "{% endfor %}" + _LLAMA_ASK,
        LLAMA,
        "<|eot_id|>",
        {
            "tools": (
                "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
                "Today: 26 Jul 2024\n<|eot_id|>"
                "<|start_header_id|>user<|end_header_id|>\n\nWeather?<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\n"
                '⟦{"name": "get_weather", "parameters": {"city": "Bonn"}}<|eot_id|>⟧'
                '<|start_header_id|>ipython<|end_header_id|>\n\n"rain"<|eot_id|>'
                "<|start_header_id|>assistant<|end_header_id|>\n\n⟦It rains.<|eot_id|>⟧"
            ),
        },
        bos="<|begin_of_text|>",
    ),
    "llama-3.1 with its interpreter": Family(
        "{% for m in messages %}{% if m.tool_calls %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n<|python_tag|>' }}"
        "{{ m.tool_calls[0].function.name + '.call(' }}"
        "{% for k, v in m.tool_calls[0].function.arguments.items() %}{{ k + '=\"' + v + '\"' }}"
        "{% endfor %}{{ ')<|eom_id|>' }}{% else %}"
        + _LLAMA
        + "{% endif %}{% endfor %}"
        + _LLAMA_ASK,
        (*LLAMA, "<|python_tag|>"),
        "<|eot_id|>",
        {
            "tools": (
                "<|start_header_id|>user<|end_header_id|>\n\nWeather?<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\n"
                '⟦<|python_tag|>get_weather.call(city="Bonn")<|eom_id|>⟧'
                "<|start_header_id|>tool<|end_header_id|>\n\nrain<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\n⟦It rains.<|eot_id|>⟧"
            ),
        },
    ),
    "llama-2": Family(
        "{% for m in messages %}{% if m.role == 'system' %}"
        "{% elif m.role == 'user' %}{{ bos_token + '[INST] ' }}"
        "{% if loop.index0 == 1 and messages[0].role == 'system' %}"
        "{{ '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' }}{% endif %}"
        "{{ m.content.strip() + ' [/INST]' }}{% else %}{{ ' ' + m.content.strip() + ' ' }}"
        "{{ eos_token }}{% endif %}{% endfor %}",
        ("<s>", "</s>"),
        "</s>",
        {
            "talk": ("<s>[INST] Hi [/INST]⟦ Hello. </s>⟧<s>[INST] Bye [/INST]⟦ See you. </s>⟧"),
            "system": (
                "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST]⟦ Hello. </s>⟧"
                "<s>[INST] Bye [/INST]⟦ See you. </s>⟧"
            ),
        },
        bos="<s>",
    ),
    "mistral v1": Family(
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}"
        "{% if loop.index0 % 2 %}{{ raise_exception('roles must alternate') }}{% endif %}"
        "{{ '[INST] ' + m.content + ' [/INST]' }}{% else %}{{ ' ' + m.content + eos_token }}"
        "{% endif %}{% endfor %}",
        ("<s>", "</s>"),
        "</s>",
        {"talk": "<s>[INST] Hi [/INST]⟦ Hello.</s>⟧[INST] Bye [/INST]⟦ See you.</s>⟧"},
        bos="<s>",
    ),
    "mistral v3": Family(
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}"
        "{% if tools and loop.index0 == 0 %}{{ '[AVAILABLE_TOOLS]' }}{{ tools | tojson }}"
        "{{ '[/AVAILABLE_TOOLS]' }}{% endif %}{{ '[INST]' + m.content + '[/INST]' }}"
        "{% elif m.tool_calls %}{{ '[TOOL_CALLS][' }}{% for c in m.tool_calls %}"
        "{% if c.id | length != 9 %}{{ raise_exception('ids have nine letters') }}{% endif %}"
        '{{ \'{"name": "\' + c.function.name + \'", "arguments": \' }}'
        "{{ c.function.arguments | tojson }}{{ ', \"id\": \"' + c.id + '\"}' }}{% endfor %}"
        "{{ ']' + eos_token }}{% elif m.role == 'tool' %}"
        '{{ \'[TOOL_RESULTS]{"content": \' + m.content + \', "call_id": "\' + m.tool_call_id }}'
        "{{ '\"}[/TOOL_RESULTS]' }}{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}",
        MISTRAL,
        "</s>",
        {
            "talk": "<s>[INST]Hi[/INST]⟦Hello.</s>⟧[INST]Bye[/INST]⟦See you.</s>⟧",
            "tools": (
                f"<s>[AVAILABLE_TOOLS][{TOOL_JSON}][/AVAILABLE_TOOLS][INST]Weather?[/INST]"
                '⟦[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Bonn"}, '
                '"id": "call00001"}]</s>⟧'
                '[TOOL_RESULTS]{"content": rain, "call_id": "call00001"}[/TOOL_RESULTS]'
                "⟦It rains.</s>⟧"
            ),
        },
        bos="<s>",
    ),
    "mistral small": Family(
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
        "{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}{% elif m.role == 'user' %}"
        "{{ '[INST]' + m.content + '[/INST]' }}{% else %}{{ m.content + eos_token }}{% endif %}"
        "{% endfor %}",
        MISTRAL,
        "</s>",
        {
            "system": (
                "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Hi[/INST]⟦Hello.</s>⟧"
                "[INST]Bye[/INST]⟦See you.</s>⟧"
            ),
        },
        bos="<s>",
    ),
}
