"""Families that show an answer otherwise once the conversation goes on; the templates are ours."""

from tests.zoo import tokenizers as families

#: Like Qwen3's: the thoughts of an exchange stay until the next user turn; results stand in user turns.
EXCHANGES = families._with_macros("""\
{%- set seen = namespace(last=-1) -%}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}{%- set seen.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- if loop.index0 > seen.last and message.reasoning_content -%}
      {{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' -}}
    {%- endif -%}
    {{- text_of(message.content).split('</think>')[-1].lstrip('\\n') + calls_of(message) -}}
  {%- elif message.role == 'tool' -%}
    {{- '<|im_start|>user\\n<tool_response>' + text_of(message.content) + '</tool_response>' -}}
  {%- else -%}
    {{- '<|im_start|>' + message.role + '\\n' + text_of(message.content) -}}
  {%- endif -%}
  {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
""")
#: The same with generation blocks around what the assistant writes.
EXCHANGES_MARKED = (
    EXCHANGES.replace(
        "    {%- if loop.index0 > seen.last and", "    {%- generation -%}\n    {%- if loop.index0 > seen.last and"
    )
    .replace("+ calls_of(message) -}}\n", "+ calls_of(message) + '<|im_end|>' -}}\n    {%- endgeneration -%}\n")
    .replace("  {{- '<|im_end|>\\n' -}}", "  {{- '\\n' if message.role == 'assistant' else '<|im_end|>\\n' -}}")
)
#: Like Qwen3.5's: the same, but the server opens the thoughts, and an answer without any has an empty block.
OPENING = (
    EXCHANGES.replace("loop.index0 > seen.last and message.reasoning_content", "loop.index0 > seen.last")
    .replace("message.reasoning_content +", "(message.reasoning_content or '') +")
    .replace("'<|im_start|>assistant\\n' -}}{%- endif -%}", "'<|im_start|>assistant\\n<think>\\n' -}}{%- endif -%}")
)
#: Keeps everything, and writes a token behind the end of the whole text, like Phi-3's.
KEEPING = families._with_macros("""\
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' + text_of(message.content) + calls_of(message) + '<|im_end|>\\n' -}}
{%- endfor -%}
{{- '<|im_start|>assistant\\n' if add_generation_prompt else '<|endoftext|>' -}}
""")
#: Like gpt-oss's: the last answer ends with another token than earlier ones.
OTHER_END = families._with_macros("""\
{%- for message in messages -%}
  {{- '<|start|>' + message.role + '<|channel|>final<|message|>' + text_of(message.content) -}}
  {{- '<|return|>' if loop.last and message.role == 'assistant' else '<|end|>' -}}
{%- endfor -%}
{{- '<|start|>assistant<|channel|>final<|message|>' if add_generation_prompt -}}
""")
FAMILIES = {
    "exchanges": families.Family(name="exchanges", template=EXCHANGES),
    "exchanges-marked": families.Family(name="exchanges-marked", template=EXCHANGES_MARKED),
    "opening": families.Family(name="opening", template=OPENING),
    "keeping": families.Family(name="keeping", template=KEEPING),
    "other-end": families.Family(
        name="other-end",
        template=OTHER_END,
        control_tokens=("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>"),
        eos_token="<|return|>",
        assistant_markers={
            "assistant_start": "<|start|>assistant<|channel|>final<|message|>",
            "assistant_end": "<|return|>",
            "assistant_end_fallbacks": ("<|end|>",),
            "other_role_starts": {"any": "<|start|>"},
        },
    ),
}
