"""More chat templates after the public families: see ``chat_families``."""

from tests.packing.chat_families import (
    _CHATML_TURN,
    _DEEPSEEK,
    CHATML,
    DEEPSEEK,
    GLM,
    HARMONY,
    TOOL_JSON,
    Family,
)

_GEMMA_ASK = "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
_ROLE = "{{ 'model' if m.role == 'assistant' else m.role }}"
_PLAIN_ASK = "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"

MORE: dict[str, Family] = {
    "gpt-oss": Family(
        "{{ '<|start|>system<|message|>You are G.<|end|>' }}{% for m in messages %}"
        "{% if m.role == 'system' %}{{ '<|start|>developer<|message|>' + m.content + '<|end|>' }}"
        "{% elif m.role == 'assistant' %}{% if m.tool_calls %}"
        "{{ '<|start|>assistant<|channel|>commentary to=functions.' }}"
        "{{ m.tool_calls[0].function.name + '<|message|>' }}"
        "{{ m.tool_calls[0].function.arguments | tojson }}{{ '<|call|>' }}{% else %}"
        "{% if loop.last and m.thinking %}"
        "{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}"
        "{% endif %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content }}"
        "{{ '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}{% endif %}"
        "{% elif m.role == 'tool' %}{{ '<|start|>functions.get_weather to=assistant' }}"
        "{{ '<|channel|>commentary<|message|>' }}{{ m.content | tojson }}{{ '<|end|>' }}"
        "{% else %}{{ '<|start|>user<|message|>' + m.content + '<|end|>' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}",
        HARMONY,
        "<|return|>",
        {
            "system": (
                "<|start|>system<|message|>You are G.<|end|>"
                "<|start|>developer<|message|>Be brief.<|end|><|start|>user<|message|>Hi<|end|>"
                "<|start|>assistant⟦<|channel|>final<|message|>Hello.<|end|>⟧"
                "<|start|>user<|message|>Bye<|end|>"
                "<|start|>assistant⟦<|channel|>final<|message|>See you.<|return|>⟧"
            ),
            "thinking": (
                "<|start|>system<|message|>You are G.<|end|><|start|>user<|message|>Hi<|end|>"
                "<|start|>assistant⟦<|channel|>final<|message|>Hello.<|end|>⟧"
                "<|start|>user<|message|>Bye<|end|>"
                "<|start|>assistant⟦<|channel|>analysis<|message|>well<|end|>"
                "<|start|>assistant<|channel|>final<|message|>See you.<|return|>⟧"
            ),
            "tools": (
                "<|start|>system<|message|>You are G.<|end|><|start|>user<|message|>Weather?<|end|>"
                "<|start|>assistant⟦<|channel|>commentary to=functions.get_weather<|message|>"
                '{"city": "Bonn"}<|call|>⟧<|start|>functions.get_weather to=assistant'
                '<|channel|>commentary<|message|>"rain"<|end|>'
                "<|start|>assistant⟦<|channel|>final<|message|>It rains.<|return|>⟧"
            ),
        },
        turns={
            "system": [
                "<|channel|>final<|message|>Hello.<|return|>",
                "<|channel|>final<|message|>See you.<|return|>",
            ],
            "thinking": [
                "<|channel|>analysis<|message|>hm<|end|>"
                "<|start|>assistant<|channel|>final<|message|>Hello.<|return|>",
                "<|channel|>analysis<|message|>well<|end|>"
                "<|start|>assistant<|channel|>final<|message|>See you.<|return|>",
            ],
        },
    ),
    "deepseek-r1": Family(
        _DEEPSEEK + "{% if add_generation_prompt and messages[-1].role != 'tool' %}"
        "{{ '<｜Assistant｜><think>\n' }}{% endif %}",
        DEEPSEEK,
        "<｜end▁of▁sentence｜>",
        {
            "system": (
                "<｜begin▁of▁sentence｜>Be brief.<｜User｜>Hi<｜Assistant｜>"
                "⟦Hello.<｜end▁of▁sentence｜>⟧<｜User｜>Bye<｜Assistant｜>"
                "⟦See you.<｜end▁of▁sentence｜>⟧"
            ),
            "thinking": (
                "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>⟦Hello.<｜end▁of▁sentence｜>⟧"
                "<｜User｜>Bye<｜Assistant｜>⟦See you.<｜end▁of▁sentence｜>⟧"
            ),
            "tools": (
                "<｜begin▁of▁sentence｜><｜User｜>Weather?<｜Assistant｜>"
                '⟦<｜tool▁call▁begin｜>get_weather\n{"city":"Bonn"}<｜tool▁call▁end｜>'
                "<｜end▁of▁sentence｜>⟧<｜tool▁output▁begin｜>rain<｜tool▁output▁end｜>"
                "⟦It rains.<｜end▁of▁sentence｜>⟧"
            ),
        },
        bos="<｜begin▁of▁sentence｜>",
        turns={
            "thinking": [
                "hm\n</think>\n\nHello.<｜end▁of▁sentence｜>",
                "well\n</think>\n\nSee you.<｜end▁of▁sentence｜>",
            ]
        },
        text_arguments=True,
    ),
    "deepseek-v3": Family(
        _DEEPSEEK + "{% if add_generation_prompt and messages[-1].role != 'tool' %}"
        "{{ '<｜Assistant｜>' }}{% endif %}",
        DEEPSEEK,
        "<｜end▁of▁sentence｜>",
        {
            "talk": (
                "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>⟦Hello.<｜end▁of▁sentence｜>⟧"
                "<｜User｜>Bye<｜Assistant｜>⟦See you.<｜end▁of▁sentence｜>⟧"
            ),
        },
        bos="<｜begin▁of▁sentence｜>",
        text_arguments=True,
    ),
    "gemma-2": Family(
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
        "{{ raise_exception('System role not supported') }}{% endif %}"
        "{{ '<start_of_turn>' }}" + _ROLE + "{{ '\n' + m.content | trim + '<end_of_turn>\n' }}"
        "{% endfor %}" + _GEMMA_ASK,
        ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        "<eos>",
        {
            "talk": (
                "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
                "⟦Hello.<end_of_turn>⟧\n<start_of_turn>user\nBye<end_of_turn>\n"
                "<start_of_turn>model\n⟦See you.<end_of_turn>⟧\n"
            ),
        },
        bos="<bos>",
    ),
    "gemma-3": Family(
        "{{ bos_token }}{% set head = messages[0].content + '\n\n' if messages[0].role == 'system' "
        "else '' %}{% for m in messages if m.role != 'system' %}{{ '<start_of_turn>' }}"
        + _ROLE
        + "{{ '\n' + (head if loop.first else '') + m.content | trim + '<end_of_turn>\n' }}"
        "{% endfor %}" + _GEMMA_ASK,
        ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        "<eos>",
        {
            "system": (
                "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n"
                "⟦Hello.<end_of_turn>⟧\n<start_of_turn>user\nBye<end_of_turn>\n"
                "<start_of_turn>model\n⟦See you.<end_of_turn>⟧\n"
            ),
        },
        bos="<bos>",
    ),
    "phi-3": Family(
        "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}"
        "{{ '<|assistant|>\n' if add_generation_prompt else eos_token }}",
        ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"),
        "<|endoftext|>",
        {
            "system": (
                "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\n"
                "⟦Hello.<|end|>⟧\n<|user|>\nBye<|end|>\n<|assistant|>\n⟦See you.<|end|>⟧\n"
                "<|endoftext|>"
            ),
        },
    ),
    "phi-4": Family(
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content }}"
        "{{ '<|im_end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}",
        (*CHATML, "<|im_sep|>"),
        "<|im_end|>",
        {
            "system": (
                "<|im_start|>system<|im_sep|>Be brief.<|im_end|><|im_start|>user<|im_sep|>Hi"
                "<|im_end|><|im_start|>assistant<|im_sep|>⟦Hello.<|im_end|>⟧<|im_start|>user"
                "<|im_sep|>Bye<|im_end|><|im_start|>assistant<|im_sep|>⟦See you.<|im_end|>⟧"
            ),
        },
    ),
    "phi-4-mini": Family(
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}"
        "{% if m.tool_calls %}{{ '<|tool_call|>' }}"
        "{{ m.tool_calls[0].function.arguments | tojson }}{{ '<|/tool_call|>' }}{% endif %}"
        "{{ '<|end|>' }}{% endfor %}"
        "{{ '<|assistant|>' if add_generation_prompt else eos_token }}",
        (
            "<|user|>",
            "<|assistant|>",
            "<|tool|>",
            "<|tool_call|>",
            "<|/tool_call|>",
            "<|end|>",
            "<|endoftext|>",
        ),
        "<|endoftext|>",
        {
            "tools": (
                '<|user|>Weather?<|end|><|assistant|>⟦<|tool_call|>{"city": "Bonn"}<|/tool_call|>'
                "<|end|>⟧<|tool|>rain<|end|><|assistant|>⟦It rains.<|end|>⟧<|endoftext|>"
            ),
        },
    ),
    "glm-4": Family(
        "{{ '[gMASK]<sop>' }}{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
        GLM,
        "<|endoftext|>",
        {
            "system": (
                "[gMASK]<sop><|system|>\nBe brief.<|user|>\nHi<|assistant|>\n⟦Hello.⟧<|user|>\nBye"
                "<|assistant|>\n⟦See you.⟧"
            ),
        },
    ),
    "glm-4.5": Family(
        "{{ '[gMASK]<sop>' }}{% for m in messages %}{% if m.role == 'tool' %}"
        "{{ '<|observation|>\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
        "{% elif m.role == 'assistant' %}{{ '<|assistant|>\n<think>' }}"
        "{% if loop.last %}{{ m.reasoning_content or '' }}{% endif %}{{ '</think>\n' + m.content }}"
        "{% for c in m.tool_calls %}{{ '<tool_call>' + c.function.name + '\n' }}"
        "{% for k, v in c.function.arguments.items() %}"
        "{{ '<arg_key>' + k + '</arg_key>\n<arg_value>' + v + '</arg_value>\n' }}{% endfor %}"
        "{{ '</tool_call>' }}{% endfor %}{% else %}{{ '<|' + m.role + '|>\n' + m.content }}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}",
        GLM,
        "<|endoftext|>",
        {
            "thinking": (
                "[gMASK]<sop><|user|>\nHi<|assistant|>⟦\n<think></think>\nHello.⟧<|user|>\nBye"
                "<|assistant|>⟦\n<think>well</think>\nSee you.⟧"
            ),
            "tools": (
                "[gMASK]<sop><|user|>\nWeather?<|assistant|>⟦\n<think></think>\n"
                "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Bonn</arg_value>\n"
                "</tool_call>⟧<|observation|>\n<tool_response>\nrain\n</tool_response>"
                "<|assistant|>⟦\n<think></think>\nIt rains.⟧"
            ),
        },
        turns={
            "thinking": ["\n<think>hm</think>\nHello.", "\n<think>well</think>\nSee you."],
        },
    ),
    "zephyr": Family(
        "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + eos_token + '\n' }}"
        "{% endfor %}" + _PLAIN_ASK,
        ("</s>",),
        "</s>",
        {
            "system": (
                "<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\n⟦Hello.</s>⟧\n"
                "<|user|>\nBye</s>\n<|assistant|>\n⟦See you.</s>⟧\n"
            ),
        },
    ),
    "vicuna": Family(
        "{% for m in messages %}{% if m.role == 'user' %}{{ 'USER: ' + m.content + ' ' }}"
        "{% elif m.role == 'assistant' %}{{ 'ASSISTANT: ' + m.content + eos_token }}{% else %}"
        "{{ m.content + ' ' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}",
        ("</s>",),
        "</s>",
        {
            "system": (
                "Be brief. USER: Hi ASSISTANT:⟦ Hello.</s>⟧USER: Bye ASSISTANT:⟦ See you.</s>⟧"
            ),
        },
    ),
    "alpaca": Family(
        "{% for m in messages %}{% if m.role == 'user' %}"
        "{{ '### Instruction:\n' + m.content + '\n\n' }}{% else %}"
        "{{ '### Response:\n' + m.content + '\n\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '### Response:\n' }}{% endif %}",
        (),
        "<|endoftext|>",
        {
            "talk": (
                "### Instruction:\nHi\n\n### Response:\n⟦Hello.\n\n⟧### Instruction:\nBye\n\n"
                "### Response:\n⟦See you.\n\n⟧"
            ),
        },
    ),
    "command-r": Family(
        "{{ bos_token }}{% for m in messages %}{{ '<|START_OF_TURN_TOKEN|>' }}"
        "{{ '<|CHATBOT_TOKEN|>' if m.role == 'assistant' else '<|' + m.role | upper + '_TOKEN|>' }}"
        "{{ m.content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}",
        (
            "<BOS_TOKEN>",
            "<|START_OF_TURN_TOKEN|>",
            "<|END_OF_TURN_TOKEN|>",
            "<|USER_TOKEN|>",
            "<|CHATBOT_TOKEN|>",
            "<|SYSTEM_TOKEN|>",
        ),
        "<|END_OF_TURN_TOKEN|>",
        {
            "talk": (
                "<BOS_TOKEN><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hi<|END_OF_TURN_TOKEN|>"
                "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>⟦Hello.<|END_OF_TURN_TOKEN|>⟧"
                "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Bye<|END_OF_TURN_TOKEN|>"
                "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>⟦See you.<|END_OF_TURN_TOKEN|>⟧"
            ),
        },
        bos="<BOS_TOKEN>",
    ),
    "granite": Family(
        "{% for m in messages %}{{ '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content }}"
        "{{ '<|end_of_text|>\n' }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}",
        ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"),
        "<|end_of_text|>",
        {
            "system": (
                "<|start_of_role|>system<|end_of_role|>Be brief.<|end_of_text|>\n"
                "<|start_of_role|>user<|end_of_role|>Hi<|end_of_text|>\n"
                "<|start_of_role|>assistant<|end_of_role|>⟦Hello.<|end_of_text|>⟧\n"
                "<|start_of_role|>user<|end_of_role|>Bye<|end_of_text|>\n"
                "<|start_of_role|>assistant<|end_of_role|>⟦See you.<|end_of_text|>⟧\n"
            ),
        },
    ),
    "olmo": Family(
        "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content }}"
        "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}"
        "{% if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '\n<|assistant|>\n' }}{% endif %}",
        ("<|endoftext|>",),
        "<|endoftext|>",
        {
            "talk": (
                "<|endoftext|><|user|>\nHi\n<|assistant|>\n⟦Hello.<|endoftext|>⟧\n<|user|>\nBye\n"
                "<|assistant|>\n⟦See you.<|endoftext|>⟧"
            ),
        },
        bos="<|endoftext|>",
    ),
    "internlm": Family(
        "{{ bos_token }}{% for m in messages %}" + _CHATML_TURN + "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        (*CHATML, "<s>", "</s>"),
        "</s>",
        {
            "talk": (
                "<s><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Hello.<|im_end|>⟧\n"
                "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n⟦See you.<|im_end|>⟧\n"
            ),
        },
        bos="<s>",
    ),
    "kimi": Family(
        "{% for m in messages %}{{ '<|im_' + m.role + '|>' + m.role + '<|im_middle|>' }}"
        "{{ m.content }}{% for c in m.tool_calls %}"
        "{{ '<|tool_call_begin|>' + c.id + '<|tool_call_argument_begin|>' }}"
        "{{ c.function.arguments | tojson }}{{ '<|tool_call_end|>' }}{% endfor %}"
        "{{ '<|im_end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_assistant|>assistant<|im_middle|>' }}{% endif %}",
        (
            "<|im_user|>",
            "<|im_assistant|>",
            "<|im_tool|>",
            "<|im_middle|>",
            "<|im_end|>",
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ),
        "<|im_end|>",
        {
            "tools": (
                "<|im_user|>user<|im_middle|>Weather?<|im_end|><|im_assistant|>assistant"
                '<|im_middle|>⟦<|tool_call_begin|>call00001<|tool_call_argument_begin|>{"city": '
                '"Bonn"}<|tool_call_end|><|im_end|>⟧<|im_tool|>tool<|im_middle|>rain<|im_end|>'
                "<|im_assistant|>assistant<|im_middle|>⟦It rains.<|im_end|>⟧"
            ),
        },
    ),
    "exaone": Family(
        "{% for m in messages %}{{ '[|' + m.role + '|]' + m.content }}"
        "{% if m.role == 'user' %}{{ '\n' }}{% else %}{{ '[|endofturn|]\n' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '[|assistant|]' }}{% endif %}",
        ("[|system|]", "[|user|]", "[|assistant|]", "[|endofturn|]"),
        "[|endofturn|]",
        {
            "system": (
                "[|system|]Be brief.[|endofturn|]\n[|user|]Hi\n[|assistant|]⟦Hello.[|endofturn|]⟧\n"
                "[|user|]Bye\n[|assistant|]⟦See you.[|endofturn|]⟧\n"
            ),
        },
    ),
    "openchat": Family(
        "{{ bos_token }}{% for m in messages %}{{ 'GPT4 Correct ' + m.role | title + ': ' }}"
        "{{ m.content + '<|end_of_turn|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'GPT4 Correct Assistant:' }}{% endif %}",
        ("<s>", "<|end_of_turn|>"),
        "<|end_of_turn|>",
        {
            "talk": (
                "<s>GPT4 Correct User: Hi<|end_of_turn|>GPT4 Correct Assistant:"
                "⟦ Hello.<|end_of_turn|>⟧GPT4 Correct User: Bye<|end_of_turn|>"
                "GPT4 Correct Assistant:⟦ See you.<|end_of_turn|>⟧"
            ),
        },
        bos="<s>",
    ),
    "nemotron": Family(
        "{% for m in messages %}{{ '<extra_id_1>' + m.role | title + '\n' + m.content + '\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<extra_id_1>Assistant\n' }}{% endif %}",
        ("<extra_id_0>", "<extra_id_1>"),
        "</s>",
        {
            "talk": (
                "<extra_id_1>User\nHi\n<extra_id_1>Assistant\n⟦Hello.\n⟧<extra_id_1>User\nBye\n"
                "<extra_id_1>Assistant\n⟦See you.\n⟧"
            ),
        },
    ),
    "a template with a tools section in its own words": Family(
        "{% if tools %}{{ '<|im_start|>tools\n' }}{{ tools | tojson }}"
        "{{ '<|im_end|>\n' }}{% endif %}{% for m in messages %}"
        "{{ '<|im_start|>' + m.role + '\n' + m.content }}"
        "{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments }}{% endif %}"
        "{{ '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        CHATML,
        "<|im_end|>",
        {
            "tools": (
                f"<|im_start|>tools\n[{TOOL_JSON}]<|im_end|>\n<|im_start|>user\nWeather?<|im_end|>\n"
                '<|im_start|>assistant\n⟦{"city":"Bonn"}<|im_end|>⟧\n'
                "<|im_start|>tool\nrain<|im_end|>\n<|im_start|>assistant\n⟦It rains.<|im_end|>⟧\n"
            ),
        },
        text_arguments=True,
    ),
}
