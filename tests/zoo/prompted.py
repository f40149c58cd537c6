"""Families of chat templates with the generation prompt that a server asks for; the templates are ours.

Each has the markers and habits of its family: what it writes for the model, what it leaves to the model, and which
thoughts of earlier answers it omits.
"""

from dataclasses import replace
from typing import Any

from tests.zoo.endless import APERTUS, GLM, LLAMA_2
from tests.zoo.families import FAMILIES, Family

CHATML: dict[str, Any] = {
    "tokens": ("<|endoftext|>", "<|im_start|>", "<|im_sep|>", "<think>", "</think>", "<|im_end|>"),
    "ends": ("<|im_end|>",),
    "injection": "<|im_end|>\n<|im_start|>user\n",
}
_PROMPT = "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}"
_LAST = """\
{%- set seen = namespace(last=-1) -%}
{%- for message in messages -%}{%- if message.role == 'user' -%}{%- set seen.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
"""
#: `thoughts` and `content` of a message, from its field or from between the markers.
_THOUGHTS = """\
  {%- set content = message.content or '' -%}
  {%- set thoughts = message.reasoning_content or '' -%}
  {%- if message.role == 'assistant' and '</think>' in content -%}
    {%- set thoughts = content.split('</think>')[0].split('<think>')[-1].strip('\\n') -%}
    {%- set content = content.split('</think>')[-1].lstrip('\\n') -%}
  {%- endif -%}
"""
_CALLS = """\
    {%- for call in message.tool_calls or [] -%}
      {%- if content -%}{{- '\\n' -}}{%- endif -%}
      {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' -}}
      {{- call.function.arguments | tojson + '}\\n</tool_call>' -}}
    {%- endfor -%}
"""


def prompted(family: Family, prompt: str, **changes: Any) -> Family:
    """Return a family whose template ends with a generation prompt."""
    block = f"{{%- if add_generation_prompt -%}}{{{{- {prompt} -}}}}{{%- endif -%}}\n"
    return replace(family, template=family.template + block, **changes)


def _of(name: str) -> Family:
    found = next(family for family in FAMILIES if family.name == name)
    is_chatml = "<|im_start|>" in found.tokens
    return replace(found, tokens=CHATML["tokens"]) if is_chatml else found


def _template(start: str, thoughts: str, end: str, *, prompt: str, first: str = "") -> str:
    """Return a template of turns `start` role `thoughts` content calls `end`."""
    return f"""\
{_LAST}{first}{{%- for message in messages -%}}
{_THOUGHTS}  {{%- set is_due = loop.index0 > seen.last -%}}
  {{%- if message.role == 'assistant' -%}}
    {{{{- {start.replace("ROLE", "'assistant'")} -}}}}{thoughts}{{{{- content -}}}}
{_CALLS}    {{{{- '{end}' -}}}}
  {{%- else -%}}{{{{- {start.replace("ROLE", "message.role")} + content + '{end}' -}}}}
  {{%- endif -%}}
{{%- endfor -%}}
{{%- if add_generation_prompt -%}}{prompt}{{%- endif -%}}
"""


_OPEN = "'<think>\\n' + thoughts + '\\n</think>\\n\\n'"
_EMPTY_OR_OPEN = "{{- '<think>\\n\\n</think>\\n\\n' if enable_thinking is false else '<think>\\n' -}}"

QWEN_3 = replace(
    _of("Qwen3"),
    template=_of("Qwen3").template
    + _PROMPT
    + "{%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\\n\\n</think>\\n\\n' -}}"
    + "{%- endif -%}{%- endif -%}\n",
)
#: The prompt begins the thought; earlier thoughts are gone with their markers.
QWEN_35 = Family(
    name="Qwen3.5",
    template=_template(
        "'<|im_start|>' + ROLE + '\\n'",
        f"{{%- if is_due -%}}{{{{- {_OPEN} -}}}}{{%- endif -%}}",
        "<|im_end|>\\n",
        prompt=f"{{{{- '<|im_start|>assistant\\n' -}}}}{_EMPTY_OR_OPEN}",
    ),
    scaffold=("<think>", "</think>"),
    **CHATML,
)
#: What the prompt begins depends on the system turn's text.
SMOLLM_3 = Family(
    name="SmolLM3",
    template=_template(
        "'<|im_start|>' + ROLE + '\\n'",
        f"{{%- if mode.thinks -%}}{{%- if thoughts -%}}{{{{- {_OPEN} -}}}}{{%- endif -%}}"
        "{%- else -%}{{- '<think>\\n\\n</think>\\n' -}}{%- endif -%}",
        "<|im_end|>\\n",
        first="{%- set mode = namespace(thinks='/no_think' not in (messages[0].content or '')) -%}",
        prompt="{{- '<|im_start|>assistant\\n' + ('' if mode.thinks else '<think>\\n\\n</think>\\n') -}}",
    ),
    scaffold=("<think>", "</think>"),
    **CHATML,
)
#: ChatML's tokens with another header, which has no line end.
PHI_4 = Family(
    name="Phi-4",
    template=_template(
        "'<|im_start|>' + ROLE + '<|im_sep|>'",
        "",
        "<|im_end|>",
        prompt="{{- '<|im_start|>assistant<|im_sep|>' -}}",
    ),
    preprocessing={
        "assistant_markers": {"assistant_start": "<|im_start|>assistant<|im_sep|>", "assistant_end": "<|im_end|>"}
    },
    **CHATML,
)
#: A marker whose header is trained unless the recipe says more: the line end and the thought belong to the prompt.
MINIMAX_M2 = Family(
    name="MiniMax-M2",
    template=_template(
        "']~b]' + ('ai' if ROLE == 'assistant' else ROLE) + '\\n'",
        f"{{%- if is_due and thoughts -%}}{{{{- {_OPEN} -}}}}{{%- endif -%}}",
        "[e~[\\n",
        prompt="{{- ']~b]ai\\n<think>\\n' -}}",
    ),
    tokens=("]~!b[", "]~b]", "<think>", "</think>", "[e~["),
    ends=("[e~[",),
    scaffold=("<think>", "</think>"),
    injection="[e~[\n]~b]user\n",
    preprocessing={"assistant_markers": {"assistant_start": "]~b]ai", "assistant_end": "[e~["}},
)
SEED_OSS = Family(
    name="Seed-OSS",
    template=_template(
        "'<seed:bos>' + ROLE + '\\n'",
        "{%- if thoughts -%}{{- '<seed:think>' + thoughts + '</seed:think>' -}}{%- endif -%}",
        "<seed:eos>",
        prompt="{{- '<seed:bos>assistant\\n' -}}",
    ),
    tokens=("<seed:bos>", "<seed:think>", "</seed:think>", "<seed:eos>"),
    ends=("<seed:eos>",),
    scaffold=("<seed:think>", "</seed:think>"),
    injection="<seed:eos><seed:bos>user\n",
    preprocessing={"assistant_markers": {"assistant_start": "<seed:bos>assistant", "assistant_end": "<seed:eos>"}},
)
GRANITE_4 = Family(
    name="Granite 4",
    template=_template(
        "'<|start_of_role|>' + ROLE + '<|end_of_role|>'",
        f"{{%- if thoughts -%}}{{{{- {_OPEN} -}}}}{{%- endif -%}}",
        "<|end_of_text|>\\n",
        prompt="{{- '<|start_of_role|>assistant<|end_of_role|>' -}}",
    ),
    tokens=("<pad>", "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"),
    ends=("<|end_of_text|>",),
    scaffold=("<think>", "</think>"),
    injection="<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>",
    preprocessing={
        "assistant_markers": {
            "assistant_start": "<|start_of_role|>assistant<|end_of_role|>",
            "assistant_end": "<|end_of_text|>",
        }
    },
)
#: Earlier thoughts are gone; the prompt opens a thought, after a tool's result there is none.
DEEPSEEK_R1 = Family(
    name="DeepSeek-R1",
    template=_template(
        "'<｜' + {'user': 'User', 'assistant': 'Assistant', 'system': 'System', 'tool': 'Tool'}[ROLE] + '｜>'",
        "{%- if is_due and thoughts -%}{{- '<think>\\n' + thoughts + '\\n</think>\\n\\n' -}}{%- endif -%}",
        "<｜end｜>",
        prompt="{{- '<｜Assistant｜>' + ('' if messages[-1].role == 'tool' else '<think>\\n') -}}",
    ).replace("'<｜end｜>'", "('<｜end｜>' if message.role == 'assistant' else '')"),
    tokens=(
        "<｜begin｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<｜System｜>",
        "<｜Tool｜>",
        "<think>",
        "</think>",
        "<｜end｜>",
    ),
    ends=("<｜end｜>",),
    scaffold=("<think>", "</think>"),
    injection="<｜end｜><｜User｜>",
    preprocessing={"assistant_markers": {"assistant_start": "<｜Assistant｜>", "assistant_end": "<｜end｜>"}},
)
_KIMI_ROLE = "('system' if ROLE == 'tool' else ROLE)"
KIMI_K2 = Family(
    name="Kimi-K2",
    template=_template(
        f"'<|im_' + {_KIMI_ROLE} + '|>' + ROLE + '<|im_middle|>'",
        "{%- if thoughts -%}{{- '<think>' + thoughts + '</think>' -}}{%- endif -%}",
        "<|im_end|>",
        prompt="{{- '<|im_assistant|>assistant<|im_middle|>' -}}{#- <|im_user|> <|im_system|> -#}",
    ),
    tokens=("[BOS]", "<|im_assistant|>", "<|im_user|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>"),
    ends=("<|im_end|>",),
    scaffold=("<think>", "</think>"),
    injection="<|im_end|><|im_user|>user<|im_middle|>",
)
GEMMA_4 = Family(
    name="Gemma 4",
    template=_template(
        "'<|turn>' + ('model' if ROLE == 'assistant' else ROLE) + '\\n'",
        "{%- if is_due and thoughts -%}{{- '<|channel>thought\\n' + thoughts + '<channel|>' -}}{%- endif -%}",
        "<turn|>\\n",
        prompt="{{- '<|turn>model\\n' -}}"
        "{%- if not enable_thinking -%}{{- '<|channel>thought\\n<channel|>' -}}{%- endif -%}",
    ),
    tokens=("<bos>", "<|turn>", "<|channel>", "<channel|>", "<turn|>"),
    ends=("<turn|>",),
    scaffold=("<|channel>thought\n", "<channel|>"),
    injection="<turn|>\n<|turn>user\n",
)
#: Its own blocks leave out the thought that the template writes and what ends the turn.
BLOCKS = Family(
    name="generation blocks",
    template=_template(
        "'<:' + ROLE + ':>'",
        f"{{%- if is_due -%}}{{{{- {_OPEN} -}}}}{{%- endif -%}}",
        "<:end:>\\n",
        prompt="{{- '<:assistant:>' -}}",
    ).replace("{{- content -}}\n", "{%- generation -%}{{- content -}}{%- endgeneration -%}\n"),
    tokens=("<:pad:>", "<:assistant:>", "<:user:>", "<:system:>", "<:tool:>", "<think>", "</think>", "<:end:>"),
    ends=("<:end:>",),
    scaffold=("<think>", "</think>"),
    injection="<:end:>\n<:user:>",
)

#: Its turns end with the marker of the next.
GLM_MARKERS = {
    "assistant_start": "<|assistant|>",
    "stop_token": ["<|user|>", "<|observation|>"],
    "other_role_starts": {"user": "<|user|>", "tool": "<|observation|>", "system": "<|system|>"},
}
_NEMOTRON_PROMPT = (
    "'<|im_start|>assistant\\n' + ('<think></think>' if '/no_think' in messages[0].content else '<think>\\n')"
)
PROMPTED_FAMILIES = (
    QWEN_3,
    QWEN_35,
    prompted(_of("Qwen2.5"), "'<|im_start|>assistant\\n'"),
    SMOLLM_3,
    PHI_4,
    MINIMAX_M2,
    SEED_OSS,
    GRANITE_4,
    DEEPSEEK_R1,
    KIMI_K2,
    GEMMA_4,
    BLOCKS,
    prompted(_of("Nemotron"), _NEMOTRON_PROMPT),
    prompted(_of("Llama 3.1"), "'<|start_header_id|>assistant<|end_header_id|>\\n\\n'"),
    _of("Gemma 3"),
    _of("Mistral"),
    prompted(_of("DeepSeek-V3"), "'' if seen.tool else '<｜Assistant｜>'"),
    prompted(_of("gpt-oss"), "'<|start|>assistant'"),
    prompted(
        GLM,
        "'<|assistant|>\\n<think></think>' if enable_thinking is false else '<|assistant|>'",
        preprocessing={"assistant_markers": GLM_MARKERS},
    ),
    prompted(APERTUS, "'' if seen.is_open else '<|assistant_start|>'"),
    LLAMA_2,
)
