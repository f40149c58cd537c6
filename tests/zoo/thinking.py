"""Families whose server writes an empty thought, opens one, or says that there is none; the templates are ours.

EXAONE-4 shows a thought in the last answer only, and only where two variables ask for it. Both Lagunas mark the whole
turn of the assistant as an answer, with what the prompt writes. Step-3.5 opens every thought, and no variable keeps
earlier ones.
"""

from typing import Any

from tests.zoo.families import Family

_EXAONE_4 = """\
{%- if tools or messages[0].role == 'system' -%}
  {{- '[|system|]\\n' + (messages[0].content if messages[0].role == 'system' else '') -}}
  {%- for tool in tools or [] -%}{{- '\\n<tool>' + tool | tojson + '</tool>' -}}{%- endfor -%}
  {{- '[|endofturn|]\\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {%- set content = message.content or '' -%}
    {%- set thought = message.reasoning_content or '' -%}
    {%- if '</think>' in content -%}
      {%- set thought = thought or content.split('</think>')[0].split('<think>')[-1].strip() -%}
      {%- set content = content.split('</think>')[-1].strip() -%}
    {%- endif -%}
    {%- set is_shown = loop.last and content and not skip_think | default(true) -%}
    {{- '[|assistant|]\\n<think>\\n' + (thought if is_shown else '') + '\\n</think>\\n\\n' + content -}}
    {%- for call in message.tool_calls or [] -%}
      {{- ('\\n' if content or not loop.first else '') + '<tool_call>' + call.function | tojson + '</tool_call>' -}}
    {%- endfor -%}
    {{- '[|endofturn|]\\n' -}}
  {%- elif message.role == 'tool' -%}
    {{- '[|tool|]\\n' if loop.first or loop.previtem.role != 'tool' else '\\n' -}}
    {{- '<tool_result>' + {'result': message.content} | tojson + '</tool_result>' -}}
    {{- '' if loop.nextitem and loop.nextitem.role == 'tool' else '[|endofturn|]\\n' -}}
  {%- elif message.role != 'system' -%}{{- '[|user|]\\n' + message.content + '[|endofturn|]\\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '[|assistant|]\\n<think>\\n' + ('' if enable_thinking is true else '\\n</think>\\n\\n') -}}
{%- endif -%}
"""
#: BREAK stands for the line end of XS.2, which 2.1 does not have.
_LAGUNA = """\
{{- bos_token -}}
{%- set system = messages[0].content if messages[0].role == 'system' else 'You are helpful.' -%}
{{- '<system>BREAK' + system -}}
{%- if tools -%}{{- '\\n\\n### Tools\\n\\n' -}}{%- for tool in tools -%}{{- tool | tojson + '\\n' -}}{%- endfor -%}
{%- endif -%}
{{- 'BREAK</system>\\n' -}}
{%- for message in messages -%}
  {%- set content = message.content if message.content is string else '' -%}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
    {{- '<assistant>BREAK' -}}
THOUGHT
    {%- for call in message.tool_calls or [] -%}
      {{- '<tool_call>' + call.function.name + 'BREAK' -}}
      {%- for key, value in call.function.arguments | items -%}
        {{- '<arg_key>' + key + '</arg_key>BREAK<arg_value>' -}}
        {{- (value if value is string else value | tojson) + '</arg_value>BREAK' -}}
      {%- endfor -%}
      {{- '</tool_call>BREAK' -}}
    {%- endfor -%}
    {{- '</assistant>\\n' -}}
    {%- endgeneration -%}
  {%- elif message.role == 'tool' -%}{{- '<tool_response>BREAK' + content + 'BREAK</tool_response>\\n' -}}
  {%- elif message.role == 'user' -%}{{- '<user>BREAK' + content + 'BREAK</user>\\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<assistant>BREAK' + ('<think>' if enable_thinking | default(false) else '</think>') -}}
{%- endif -%}
"""
#: An answer with a thought has it, whatever the prompt begins; one without says that there is none.
_LAGUNA_XS_2 = """\
    {%- set thought = message.reasoning_content or '' -%}
    {%- if '</think>' in content -%}
      {%- set thought = thought or content.split('</think>')[0].split('<think>')[-1] -%}
      {%- set content = content.split('</think>')[-1] -%}
    {%- endif -%}
    {{- ('<think>\\n' + thought | trim + '\\n' if thought else '') + '</think>\\n' -}}
    {{- content | trim + ('\\n' if content | trim else '') -}}
"""
#: Thoughts are a field only, and all answers have one, or none has.
_LAGUNA_21 = """\
    {%- if enable_thinking | default(false) -%}{{- '<think>' + (message.reasoning_content or '') -}}{%- endif -%}
    {{- '</think>' + content -}}
"""
_STEP_35 = """\
{{- bos_token -}}
{%- if tools or messages[0].role == 'system' -%}
  {{- '<|im_start|>system\\n' + (messages[0].content if messages[0].role == 'system' else '') -}}
  {%- if tools -%}{{- '<tools>' + tools | tojson + '</tools>' -}}{%- endif -%}
  {{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- set seen = namespace(last=-1) -%}
{%- for message in messages -%}{%- if message.role == 'user' -%}{%- set seen.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  {%- set content = message.content if message.content is string else '' -%}
  {%- if message.role == 'assistant' -%}
    {%- set thought = message.reasoning_content or '' -%}
    {%- if not thought and '</think>' in content -%}
      {%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\\n') -%}
      {%- set content = content.split('</think>')[-1].lstrip('\\n') -%}
    {%- endif -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- if loop.index0 > seen.last -%}{{- '<think>\\n' + thought + '\\n</think>\\n' -}}{%- endif -%}
    {{- content -}}
    {%- for call in message.tool_calls or [] -%}
      {{- '<tool_call>\\n<function=' + call.function.name + '>\\n' -}}
      {%- for name, value in call.function.arguments | items -%}
        {{- '<parameter=' + name + '>\\n' + value | string + '\\n</parameter>\\n' -}}
      {%- endfor -%}
      {{- '</function>\\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
  {%- elif message.role == 'tool' -%}
    {{- '<|im_start|>tool_response\\n' if loop.first or loop.previtem.role != 'tool' else '' -}}
    {{- '<tool_response>' + content + '</tool_response>' -}}
    {{- '' if loop.nextitem and loop.nextitem.role == 'tool' else '<|im_end|>\\n' -}}
  {%- elif message.role != 'system' -%}{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n<think>\\n' -}}{%- endif -%}
"""


def _laguna(name: str, line_end: str, thought: str) -> Family:
    return Family(
        name=name,
        template=_LAGUNA.replace("THOUGHT\n", thought).replace("BREAK", line_end),
        tokens=(
            *("〈|EOS|〉", "<system>", "</system>", "<user>", "</user>", "<assistant>", "<tool_response>"),
            *("</tool_response>", "<tool_call>", "</tool_call>", "<think>", "</think>", "</assistant>"),
        ),
        ends=("</assistant>",),
        injection="",
    )


def _asked(family: Family, **defaults: bool) -> Family:
    """Return a family as it is with other defaults of the template's variables, in training and serving alike."""
    values = (f"{{%- set {name} = {name} | default({str(value).lower()}) -%}}" for name, value in defaults.items())
    return Family(**{**vars(family), "name": f"{family.name}, thinking", "template": "".join(values) + family.template})


_EXAONE: dict[str, Any] = {
    "tokens": ("[BOS]", "[|system|]", "[|user|]", "[|assistant|]", "[|tool|]", "[|endofturn|]"),
    "ends": ("[|endofturn|]",),
    "injection": "",
    "preprocessing": {"assistant_markers": {"assistant_start": "[|assistant|]\n", "assistant_end": "[|endofturn|]"}},
}
EXAONE_4 = Family(name="EXAONE-4", template=_EXAONE_4, **_EXAONE)
THINKING = (
    EXAONE_4,
    _asked(EXAONE_4, enable_thinking=True, skip_think=False),
    _laguna("Laguna XS.2", "\\n", _LAGUNA_XS_2),
    _laguna("Laguna 2.1", "", _LAGUNA_21),
    Family(
        name="Step-3.5",
        template=_STEP_35,
        tokens=("<｜begin▁of▁sentence｜>", "<|im_start|>", "<|im_end|>"),
        ends=("<|im_end|>",),
        injection="",
    ),
)
