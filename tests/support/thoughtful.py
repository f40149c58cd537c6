"""Families that show an answer otherwise once the conversation goes on, rows for them, and what a server would send."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.zoo import tokenizers as families

Message = dict[str, Any]

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


def said(role: str, content: str, **fields: Any) -> Message:
    return {"role": role, "content": content, **fields}


def call(query: str, thought: str = "") -> Message:
    function = {"name": "lookup", "arguments": {"query": query}}
    thoughts = {"reasoning_content": thought} if thought else {}
    return said("assistant", "", tool_calls=[{"type": "function", "function": function}], **thoughts)


#: Two answers, each with a thought.
TWO_THOUGHTS = [
    said("user", "one"),
    said("assistant", "first", reasoning_content="think of one"),
    said("user", "two"),
    said("assistant", "second", reasoning_content="think of two"),
]
#: Two calls and an answer in one exchange, then another exchange, then a question without an answer.
AGENT = [
    said("system", "answer in one line"),
    said("user", "ask"),
    call("words", "think of words"),
    said("tool", "ten"),
    call("limit", "think of a limit"),
    said("tool", "two"),
    said("assistant", "twelve", reasoning_content="ten and two"),
    said("user", "and then"),
    said("assistant", "thirty", reasoning_content="the rest"),
    said("user", "thank you"),
]
PLAIN = [said("user", "one"), said("assistant", "first"), said("user", "two"), said("assistant", "second")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """What a server sends for the turns before an answer, and what the model should write then; ids."""

    context: list[int]
    answer: list[int]


class Server:
    """Renders as a server does: transformers' own chat template and tokenizer."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder)

    def served(self, messages: Sequence[Message], answer: int, tools: Any = None) -> Served:
        """Return what is served for one answer, in tokens as a server makes them: of the whole text."""
        before = self._text(messages[:answer], tools, add_generation_prompt=True)
        whole = self._text(messages[: answer + 1], tools)
        assert whole.startswith(before), "the prompt must not go on after the header"
        context = self._ids(before)
        return Served(context=context, answer=self._ids(whole)[len(context) :])

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids)))

    def _text(self, messages: Sequence[Message], tools: Any, **options: Any) -> str:
        return str(self._tokenizer.apply_chat_template(list(messages), tools=tools, tokenize=False, **options))

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


def answers_of(messages: Sequence[Message]) -> list[int]:
    return [index for index, message in enumerate(messages) if message["role"] == "assistant"]


def spans_of(mask: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of each run of ones."""
    start = None
    for index, bit in enumerate([*mask, 0]):
        if bit and start is None:
            start = index
        elif not bit and start is not None:
            yield start, index
            start = None


def write_rows(path: Path, conversations: Sequence[Sequence[Message]], **columns: Any) -> Path:
    rows: list[Mapping[str, Any]] = [{"messages": list(messages), **columns} for messages in conversations]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
