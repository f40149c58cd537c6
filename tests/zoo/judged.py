"""The families whose masks are judged: those of `tokenizers`, some with a generation prompt, and Mistral's."""

from dataclasses import replace

from tests.zoo.tokenizers import AMBIGUOUS, FAMILIES, NEEDS_USER, Family

#: Family -> what its template writes where the assistant is to go on.
PROMPTS = {
    "chatml-thinking": "<|im_start|>assistant\\n",
    "llama3": "<|start_header_id|>assistant<|end_header_id|>\\n\\n",
    "llama3-generation": "<|start_header_id|>assistant<|end_header_id|>\\n\\n",
    "gemma": "<start_of_turn>model\\n",
    "kimi": "<|im_assistant|>assistant<|im_middle|>",
    "harmony": "<|start|>assistant",
    "generation-only": "<|bot|>",
    "recipe-markers": "<|bot|>",
}
#: No words tell user from assistant, the user's turn ends where the assistant's begins, and a tool call has a mark.
MISTRAL = Family(
    name="mistral",
    template="""\
{{- bos_token -}}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- ' ' + (message.content or '') | trim -}}
    {%- if message.tool_calls -%}{{- '[TOOL_CALLS]' + message.tool_calls | tojson -}}{%- endif -%}
    {{- eos_token -}}
  {%- elif message.role == 'tool' -%}
    {{- '[TOOL_RESULTS]' + message.content + '[/TOOL_RESULTS]' -}}
  {%- elif message.role == 'user' -%}
    {{- '[INST] ' + message.content | trim + ' [/INST]' -}}
  {%- endif -%}
{%- endfor -%}
""",
    control_tokens=("[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "</s>"),
    eos_token="</s>",
    assistant_markers={"assistant_start": "[/INST]", "assistant_end": "</s>"},
)


def _prompted(family: Family) -> Family:
    prompt = f"{{%- if add_generation_prompt -%}}{{{{- '{PROMPTS[family.name]}' -}}}}{{%- endif -%}}\n"
    return replace(family, name=f"{family.name}-prompted", template=family.template + prompt)


PROMPTED = tuple(_prompted(family) for family in FAMILIES if family.name in PROMPTS)
JUDGED_FAMILIES = (*FAMILIES, NEEDS_USER, AMBIGUOUS, MISTRAL, *PROMPTED)
