"""Families whose answers end otherwise than with a marker of their own, with their templates.

GLM ends an answer with the marker of the next turn, and the last with nothing. Apertus ends it when a turn follows, and
writes what a tool answers into the assistant's turn. Llama 2's marks of the user's turn are plain text, as those of the
first Mistral. Llama 3.1 ends a call with `<|eom_id|>` where it has tools of its own, and calls the tool `ipython`.
"""

import json

from tests.zoo.families import Arguments, Family

_GLM_TEMPLATE = """\
{%- macro text_of(content) -%}
  {%- if content is string -%}{{- content -}}
  {%- elif content -%}{%- for part in content -%}{{- part.text if part is mapping else part -}}{%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{{- '[gMASK]<sop>' -}}
{%- if tools -%}{{- '<|system|>\\n' -}}{%- for tool in tools -%}{{- tool | tojson + '\\n' -}}{%- endfor -%}{%- endif -%}
{%- set seen = namespace(last=-1) -%}
{%- for message in messages -%}{%- if message.role == 'user' -%}{%- set seen.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}{{- '<|user|>\\n' + text_of(message.content) -}}
  {%- elif message.role == 'assistant' -%}
    {%- set content = text_of(message.content) -%}
    {%- set thoughts = message.reasoning_content or '' -%}
    {%- if '</think>' in content -%}
      {%- set thoughts = content.split('</think>')[0].split('<think>')[-1] -%}
      {%- set content = content.split('</think>')[-1] -%}
    {%- endif -%}
    {{- '<|assistant|>\\n<think>' + (thoughts.strip() if loop.index0 > seen.last else '') + '</think>' -}}
    {%- if content.strip() -%}{{- '\\n' + content.strip() -}}{%- endif -%}
    {%- for call in message.tool_calls or [] -%}
      {%- set call = call.function or call -%}
      {{- '\\n<tool_call>' + call.name -}}
      {%- for key, value in call.arguments.items() -%}
        {{- '\\n<arg_key>' + key + '</arg_key>\\n<arg_value>' -}}
        {{- value if value is string else value | tojson -}}
        {{- '</arg_value>' -}}
      {%- endfor -%}
      {{- '\\n</tool_call>' -}}
    {%- endfor -%}
  {%- elif message.role == 'tool' -%}
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|observation|>' -}}{%- endif -%}
    {%- for part in ([message.content] if message.content is string else message.content) -%}
      {{- '\\n<tool_response>\\n' -}}{{- part -}}{{- '\\n</tool_response>' -}}
    {%- endfor -%}
  {%- elif message.role == 'system' -%}{{- '<|system|>\\n' + text_of(message.content) -}}
  {%- endif -%}
{%- endfor -%}
"""
_APERTUS_TEMPLATE = """\
{{- bos_token -}}
{%- set seen = namespace(is_open=false) -%}
{%- for message in messages -%}
  {%- set content = message.content if message.content is string else '' -%}
  {%- if message.role == 'assistant' -%}
    {%- if not seen.is_open -%}{{- '<|assistant_start|>' -}}{%- set seen.is_open = true -%}{%- endif -%}
    {{- content -}}
    {%- if message.tool_calls -%}
      {{- '<|tools_prefix|>[' -}}
      {%- for call in message.tool_calls -%}
        {%- set call = call.function or call -%}
        {{- '{"' + call.name + '": ' + call.arguments | tojson + '}' + ('' if loop.last else ', ') -}}
      {%- endfor -%}
      {{- ']<|tools_suffix|>' -}}
    {%- endif -%}
  {%- elif message.role == 'tool' -%}{{- '[' + content + ']' -}}
  {%- else -%}
    {%- if seen.is_open -%}{{- '<|assistant_end|>' -}}{%- set seen.is_open = false -%}{%- endif -%}
    {{- '<|' + message.role + '_start|>' + content + '<|' + message.role + '_end|>' -}}
  {%- endif -%}
{%- endfor -%}
"""
_LLAMA_2_TEMPLATE = """\
{%- for message in messages -%}
  {%- if message.role == 'user' -%}{{- bos_token + '[INST] ' + message.content.strip() + ' [/INST]' -}}
  {%- elif message.role == 'assistant' -%}{{- ' ' + message.content.strip() + ' ' + eos_token -}}
  {%- else -%}{{- raise_exception('Only user and assistant roles are supported') -}}
  {%- endif -%}
{%- endfor -%}
"""


def _xml_call(name: str, arguments: Arguments) -> str:
    texts = {key: item if isinstance(item, str) else json.dumps(item) for key, item in arguments.items()}
    lines = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{text}</arg_value>\n" for key, text in texts.items())
    return f"<tool_call>{name}\n{lines}</tool_call>"


GLM = Family(
    name="GLM",
    template=_GLM_TEMPLATE,
    tokens=(
        *("<pad>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<tool_call>"),
        *("</tool_call>", "<think>", "</think>", "<|endoftext|>"),
    ),
    ends=("<|user|>", "<|observation|>"),
    scaffold=("<think>", "</think>"),
    call=_xml_call,
    injection="<|user|>\n",
    preprocessing={
        "assistant_markers": {
            "assistant_start": "<|assistant|>",
            "assistant_end": "<|user|>",
            "assistant_end_fallbacks": ["<|observation|>"],
        }
    },
)
APERTUS = Family(
    name="Apertus",
    template=_APERTUS_TEMPLATE,
    tokens=(
        *("<s>", "<|system_start|>", "<|system_end|>", "<|user_start|>", "<|user_end|>", "<|assistant_start|>"),
        *("<|tools_prefix|>", "<|tools_suffix|>", "<|assistant_end|>"),
    ),
    ends=("<|assistant_end|>",),
    scaffold=("<|tools_prefix|>[", "]<|tools_suffix|>", ","),
    call=lambda name, arguments: f'{{"{name}": {json.dumps(arguments, ensure_ascii=False)}}}',
    injection="<|assistant_end|><|user_start|>",
    preprocessing={
        "assistant_markers": {"assistant_start": "<|assistant_start|>", "assistant_end": "<|assistant_end|>"}
    },
)
LLAMA_2 = Family(
    name="Llama 2",
    template=_LLAMA_2_TEMPLATE,
    tokens=("<s>", "</s>"),
    ends=("</s>",),
    injection="</s><s>[INST] ",
    preprocessing={"assistant_markers": {"assistant_start": "[/INST]", "assistant_end": "</s>"}},
)
#: Those of the table of quirks.
ENDLESS = (GLM, APERTUS, LLAMA_2)

_LLAMA_31_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
  {%- if message.role == 'tool' -%}
    {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + message.content + '<|eot_id|>' -}}
  {%- else -%}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + (message.content or '') | trim -}}
    {%- for call in message.tool_calls or [] -%}
      {{- '{"name": "' + call.function.name + '", "parameters": ' + call.function.arguments | tojson + '}' -}}
    {%- endfor -%}
    {{- '<|eom_id|>' if message.tool_calls else '<|eot_id|>' -}}
  {%- endif -%}
{%- endfor -%}
"""
LLAMA_31 = Family(
    name="Llama 3.1 with its own tools",
    template=_LLAMA_31_TEMPLATE,
    tokens=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"),
    ends=("<|eot_id|>", "<|eom_id|>"),
    injection="<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
)
ENDLESS_FAMILIES = (GLM, APERTUS, LLAMA_31, LLAMA_2)
