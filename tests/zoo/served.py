"""Families of chat templates with what each writes where the assistant goes on; the templates are ours.

They have the markers and the habits of the families: which thoughts are kept, what the generation prompt begins, what
ends an answer. Eight come from the table of quirks.
"""

from dataclasses import replace
from typing import Any

from tests.zoo.endless import APERTUS, GLM, LLAMA_2
from tests.zoo.families import FAMILIES as QUIRKS
from tests.zoo.families import Family
from tests.zoo.thinking import THINKING

_CHATML: dict[str, Any] = {
    "tokens": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "ends": ("<|im_end|>",),
    "injection": "<|im_end|>\n<|im_start|>user\n",
}
#: The thought and the answer of a message, whether the thought is a field or stands in the content.
_PARTED = """\
  {%- set content = message.content if message.content is string else '' -%}
  {%- set thought = message.reasoning_content or '' -%}
  {%- if not thought and '</think>' in content -%}
    {%- set thought = content.split('</think>')[0].split('<think>')[-1].strip() -%}
    {%- set content = content.split('</think>')[-1].lstrip() -%}
  {%- endif -%}
"""
#: Position of the last user turn.
_LAST = """\
{%- set seen = namespace(last=-1) -%}
{%- for message in messages -%}{%- if message.role == 'user' -%}{%- set seen.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
"""
_CALLS = """\
  {%- for call in message.tool_calls or [] -%}
    {{- ('\\n' if content or not loop.first else '') + '<tool_call>\\n' + (call.function or call) | tojson -}}
    {{- '\\n</tool_call>' -}}
  {%- endfor -%}
"""
_TOOLS = "{%- if tools -%}{{- '<|im_start|>system\\n' + tools | tojson + '<|im_end|>\\n' -}}{%- endif -%}\n"

#: Like Qwen3.5: old thoughts go unless `preserve_thinking`, and the prompt begins the thought.
_QWEN_35 = f"""\
{_TOOLS}{_LAST}
{{%- for message in messages -%}}
{_PARTED}
  {{%- if message.role == 'assistant' -%}}
    {{{{- '<|im_start|>assistant\\n' -}}}}
    {{%- if loop.index0 > seen.last or preserve_thinking | default(false) -%}}
      {{{{- '<think>\\n' + thought + '\\n</think>\\n\\n' -}}}}
    {{%- endif -%}}
    {{{{- content -}}}}
{_CALLS}
    {{{{- '<|im_end|>\\n' -}}}}
  {{%- elif message.role == 'tool' -%}}
    {{{{- '<|im_start|>user\\n<tool_response>\\n' + content + '\\n</tool_response><|im_end|>\\n' -}}}}
  {{%- else -%}}
    {{{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' -}}}}
  {{%- endif -%}}
{{%- endfor -%}}
{{%- if add_generation_prompt -%}}
  {{{{- '<|im_start|>assistant\\n<think>\\n' + ('\\n</think>\\n\\n' if enable_thinking is false else '') -}}}}
{{%- endif -%}}
"""
#: Like SmolLM3: what is written stays, the day stands in the system turn, and the prompt has an empty thought or none.
_SMOLLM_3 = """\
{{- '<|im_start|>system\\nToday Date: ' + strftime_now('%d %B %Y') + '\\n' -}}
{%- if messages[0].role == 'system' -%}{{- messages[0].content -}}{%- endif -%}
{%- if tools -%}{{- tools | tojson -}}{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- '<|im_start|>assistant\\n' + message.content | default('', true) -}}
    {%- for call in message.tool_calls or [] -%}{{- '<tool_call>' + call.function | tojson + '</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
  {%- elif message.role != 'system' -%}
    {{- '<|im_start|>' + ('user' if message.role == 'tool' else message.role) + '\\n' + message.content -}}
    {{- '<|im_end|>\\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' + ('<think>\\n\\n</think>\\n' if enable_thinking is false else '') -}}
{%- endif -%}
"""
#: Like DeepSeek-R1: everything up to the end of the thought goes from earlier answers, and the prompt begins one.
_DEEPSEEK_R1 = """\
{{- bos_token -}}
{%- if messages[0].role == 'system' -%}{{- messages[0].content -}}{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}{{- '<｜User｜>' + message.content -}}
  {%- elif message.role == 'tool' -%}{{- '<｜tool▁output▁begin｜>' + message.content + '<｜tool▁output▁end｜>' -}}
  {%- elif message.role == 'assistant' -%}
    {%- set content = message.content if message.content is string else '' -%}
    {{- '<｜Assistant｜>' + content.split('</think>')[-1] -}}
    {%- for call in message.tool_calls or [] -%}
      {{- '<｜tool▁call▁begin｜>' + call.function.name + '<｜tool▁sep｜>' + call.function.arguments | tojson -}}
      {{- '<｜tool▁call▁end｜>' -}}
    {%- endfor -%}
    {{- eos_token -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<｜Assistant｜><think>\\n' -}}{%- endif -%}
"""
#: Like Kimi-K2: nothing is taken off.
_KIMI_K2 = """\
{%- if tools -%}{{- '<|im_system|>tool_declare<|im_middle|>' + tools | tojson + '<|im_end|>' -}}{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}{{- '<|im_assistant|>assistant<|im_middle|>' -}}
  {%- elif message.role == 'user' -%}{{- '<|im_user|>user<|im_middle|>' -}}
  {%- else -%}{{- '<|im_system|>' + message.role + '<|im_middle|>' -}}
  {%- endif -%}
  {{- message.content | default('', true) -}}
  {%- for call in message.tool_calls or [] -%}
    {{- '<|tool_call_begin|>' + call.function.name + '<|tool_call_argument_begin|>' -}}
    {{- call.function.arguments | tojson + '<|tool_call_end|>' -}}
  {%- endfor -%}
  {{- '<|im_end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_assistant|>assistant<|im_middle|>' -}}{%- endif -%}
"""
#: Like Seed-OSS: thoughts are a field between markers of its own, and stay.
_SEED_OSS = """\
{%- for message in messages -%}
  {{- '<seed:bos>' + message.role + '\\n' -}}
  {%- if message.reasoning_content -%}{{- '<seed:think>' + message.reasoning_content + '</seed:think>' -}}{%- endif -%}
  {{- message.content | default('', true) -}}
  {%- for call in message.tool_calls or [] -%}
    {{- '<seed:tool_call>' + call.function | tojson + '</seed:tool_call>' -}}
  {%- endfor -%}
  {{- '<seed:eos>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<seed:bos>assistant\\n' -}}{%- endif -%}
"""
#: Like Granite 4: a system turn is always there.
_GRANITE_4 = """\
{%- if messages[0].role != 'system' -%}
  {{- '<|start_of_role|>system<|end_of_role|>You are a helpful assistant.<|end_of_text|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {{- '<|start_of_role|>' + ('user' if message.role == 'tool' else message.role) + '<|end_of_role|>' -}}
  {{- message.content | default('', true) -}}
  {%- for call in message.tool_calls or [] -%}{{- '<tool_call>' + call.function | tojson + '</tool_call>' -}}
  {%- endfor -%}
  {{- '<|end_of_text|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_of_role|>assistant<|end_of_role|>' -}}{%- endif -%}
"""
#: Like ERNIE 4.5: plain text before turns, one token after answers, which begins the next question, too.
_ERNIE_45 = """\
{{- bos_token -}}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}{{- 'User: ' + message.content + '\\n' -}}
  {%- elif message.role == 'tool' -%}{{- 'Tool: ' + message.content + '\\n' -}}
  {%- elif message.role == 'assistant' -%}
    {{- 'Assistant: ' + message.content | default('', true) -}}
    {%- for call in message.tool_calls or [] -%}{{- call.function | tojson -}}{%- endfor -%}
    {{- eos_token -}}
  {%- else -%}{{- message.content + '\\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'Assistant: ' -}}{%- endif -%}
"""
#: Like Gemma 4: thoughts of earlier answers go, the prompt writes the header of the turn alone.
_GEMMA_4 = f"""\
{{{{- bos_token -}}}}{_LAST}
{{%- for message in messages -%}}
{_PARTED}
  {{%- if message.role == 'assistant' -%}}
    {{{{- '<|turn>model\\n' -}}}}
    {{%- if thought and loop.index0 > seen.last -%}}{{{{- '<|channel>thought\\n' + thought + '<channel|>' -}}}}
    {{%- endif -%}}
    {{{{- content | trim -}}}}
    {{%- for call in message.tool_calls or [] -%}}{{{{- '<|tool_call>' + call.function | tojson + '<tool_call|>' -}}}}
    {{%- endfor -%}}
  {{%- else -%}}
    {{{{- '<|turn>' + ('user' if message.role == 'tool' else message.role) + '\\n' + content | trim -}}}}
  {{%- endif -%}}
  {{{{- '<turn|>\\n' -}}}}
{{%- endfor -%}}
{{%- if add_generation_prompt -%}}{{{{- '<|turn>model\\n' -}}}}{{%- endif -%}}
"""
#: Like MiniMax-M2: the prompt begins the thought, of which earlier answers have none.
_MINIMAX_M2 = f"""\
{{{{- ']~!b[' -}}}}{_LAST}
{{%- for message in messages -%}}
{_PARTED}
  {{%- if message.role == 'assistant' -%}}
    {{{{- ']~b]ai\\n' -}}}}
    {{%- if thought and loop.index0 > seen.last -%}}
      {{{{- '<think>\\n' + thought + '\\n</think>\\n\\n' -}}}}
    {{%- endif -%}}
    {{{{- content -}}}}
{_CALLS}
  {{%- else -%}}
    {{{{- ']~b]' + message.role + '\\n' + content -}}}}
  {{%- endif -%}}
  {{{{- '[e~[\\n' -}}}}
{{%- endfor -%}}
{{%- if add_generation_prompt -%}}{{{{- ']~b]ai\\n<think>\\n' -}}}}{{%- endif -%}}
"""
#: Like Phi-4: ChatML with a separator.
_PHI_4 = """\
{%- for message in messages -%}
  {{- '<|im_start|>' + ('user' if message.role == 'tool' else message.role) + '<|im_sep|>' -}}
  {{- message.content | default('', true) -}}
  {%- for call in message.tool_calls or [] -%}{{- call.function | tojson -}}{%- endfor -%}
  {{- '<|im_end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant<|im_sep|>' -}}{%- endif -%}
"""


def _markers(start: str | list[str], end: str, **more: Any) -> dict[str, Any]:
    return {"assistant_markers": {"assistant_start": start, "assistant_end": end, **more}}


_QUIRK_PROMPTS = {
    "Llama 3.1": "'<|start_header_id|>assistant<|end_header_id|>\\n\\n'",
    "Qwen3": "'<|im_start|>assistant\\n' + ('<think>\\n\\n</think>\\n\\n' if enable_thinking is false else '')",
    "Qwen2.5": "'<|im_start|>assistant\\n'",
    "Mistral": "''",
    "DeepSeek-V3": "'<｜Assistant｜>' if messages[-1].role != 'tool' else '<｜tool▁outputs▁end｜>'",
    "gpt-oss": "'<|start|>assistant'",
    "Nemotron": "'<|im_start|>assistant\\n' + ('<think></think>' if enable_thinking is false else '<think>\\n')",
    "GLM": "'<|assistant|>' + ('\\n<think></think>' if enable_thinking is false else '')",
    "Apertus": "'' if seen.is_open else '<|assistant_start|>'",
    "Llama 2": "''",
}


def prompted(family: Family) -> Family:
    """Return a family of the table of quirks with a generation prompt, if its template has none."""
    if "add_generation_prompt" in family.template:
        return family
    prompt = f"{{%- if add_generation_prompt -%}}{{{{- {_QUIRK_PROMPTS[family.name]} -}}}}{{%- endif -%}}"
    return replace(family, template=family.template + prompt)


#: Like Nemotron: a switch keeps old thoughts.
_NEMOTRON_SWITCH = {
    "elif loop.index0 + offset < seen.last": (
        "elif loop.index0 + offset < seen.last and truncate_history_thinking | default(true)"
    )
}


def _with_switch(family: Family) -> Family:
    template = family.template
    for old, new in _NEMOTRON_SWITCH.items():
        assert old in template or family.name != "Nemotron"
        template = template.replace(old, new)
    return replace(family, template=template)


SERVED_FAMILIES = (
    *(_with_switch(prompted(family)) for family in (*QUIRKS, GLM, APERTUS, LLAMA_2)),
    Family(name="Qwen3.5", template=_QWEN_35, **_CHATML),
    Family(name="SmolLM3", template=_SMOLLM_3, **_CHATML),
    Family(
        name="DeepSeek-R1",
        template=_DEEPSEEK_R1,
        tokens=(
            *("<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁output▁begin｜>"),
            *("<｜tool▁output▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
            "<｜end▁of▁sentence｜>",
        ),
        ends=("<｜end▁of▁sentence｜>",),
        injection="",
        preprocessing=_markers("<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
    ),
    Family(
        name="Kimi-K2",
        template=_KIMI_K2,
        tokens=(
            *("[BOS]", "<|im_assistant|>", "<|im_user|>", "<|im_system|>", "<|im_middle|>", "<|tool_call_begin|>"),
            *("<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|im_end|>"),
        ),
        ends=("<|im_end|>",),
        injection="",
    ),
    Family(
        name="Seed-OSS",
        template=_SEED_OSS,
        tokens=("<seed:bos>", "<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>", "<seed:eos>"),
        ends=("<seed:eos>",),
        injection="",
        preprocessing=_markers("<seed:bos>assistant\n", "<seed:eos>"),
    ),
    Family(
        name="Granite 4",
        template=_GRANITE_4,
        tokens=("<|pad|>", "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"),
        ends=("<|end_of_text|>",),
        injection="",
        preprocessing=_markers("<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>"),
    ),
    Family(
        name="ERNIE 4.5",
        template=_ERNIE_45,
        tokens=("<|begin_of_sentence|>", "<|end_of_sentence|>"),
        ends=("<|end_of_sentence|>",),
        injection="",
        preprocessing=_markers("Assistant: ", "<|end_of_sentence|>"),
    ),
    Family(
        name="Gemma 4",
        template=_GEMMA_4,
        tokens=("<bos>", "<|turn>", "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<turn|>"),
        ends=("<turn|>",),
        injection="",
    ),
    Family(
        name="MiniMax-M2",
        template=_MINIMAX_M2,
        tokens=("]~!b[", "]~b]", "[e~["),
        ends=("[e~[",),
        injection="",
        preprocessing=_markers("]~b]ai\n", "[e~["),
    ),
    Family(
        name="Phi-4",
        template=_PHI_4,
        tokens=("<|endoftext|>", "<|im_start|>", "<|im_sep|>", "<|im_end|>"),
        ends=("<|im_end|>",),
        injection="",
        preprocessing=_markers("<|im_start|>assistant<|im_sep|>", "<|im_end|>"),
    ),
    *THINKING,
)
