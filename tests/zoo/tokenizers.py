"""Small tokenizers, one per family of chat templates and per way of cutting text at control tokens.

The templates are ours: each has the turn markers and the habits of its family (trimming, folding the system turn into
the user's, dropping old thoughts), nothing more. The vocabulary is a few hundred byte-level merges.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.examples import train_chatml_tokenizer
from bridgepack.examples.tokenizer import chatml_template

TEXTS = (
    "The user asks a question and the assistant answers it in one line.",
    "system developer user assistant tool model bot human final analysis commentary",
    '{"name": "lookup", "arguments": {"query": "words", "limit": 10}}',
    "Twelve and thirty make forty-two; what is left of it is left to you.",
)
VOCAB_SIZE = 400
#: A ChatML template that has the user's turns in generation blocks, too.
TRAINS_USER_TURNS = """\
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' -}}
  {%- if message.role != 'system' -%}
    {%- generation -%}{{- message.content + '<|im_end|>' -}}{%- endgeneration -%}
  {%- endif -%}
  {{- '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

TokenizerJson = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A chat template and the tokenizer that goes with it."""

    name: str
    template: str
    control_tokens: tuple[str, ...] = ("<|im_start|>", "<|im_end|>")
    #: One of them.
    eos_token: str = "<|im_end|>"
    #: Changes tokenizer.json before it is written.
    edit: Callable[[TokenizerJson], None] = lambda tokenizer: None
    #: `preprocessing.assistant_markers` of the recipe; empty where the family is known.
    assistant_markers: Mapping[str, Any] = field(default_factory=dict)


def write_tokenizer(folder: Path, family: Family) -> Path:
    train_chatml_tokenizer(folder, TEXTS, vocab_size=VOCAB_SIZE)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    for text in family.control_tokens:
        if text not in tokenizer["model"]["vocab"]:
            _add_token(tokenizer, text)
    family.edit(tokenizer)
    path.write_text(json.dumps(tokenizer))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": family.eos_token,
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(family.template)
    return folder


def loaded_tokenizer(folder: Path, family: Family) -> ChatTokenizer:
    return load_tokenizer(TokenizerConfig(name_or_path=str(write_tokenizer(folder, family))))


def _add_token(tokenizer: TokenizerJson, text: str) -> None:
    tokenizer["model"]["vocab"][text] = index = len(tokenizer["model"]["vocab"])
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer["added_tokens"].append({"id": index, "content": text, **flags, "special": True})


def _merge_newlines(tokenizer: TokenizerJson) -> None:
    """Two newlines become one token, so a turn that begins with one swallows the newline of its marker."""
    tokenizer["model"]["vocab"]["ĊĊ"] = len(tokenizer["model"]["vocab"])
    tokenizer["model"]["merges"].append(["Ċ", "Ċ"])
    tokenizer["pre_tokenizer"] = _merging_pre_tokenizer()


def _merging_pre_tokenizer() -> TokenizerJson:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def _forget_added_tokens(tokenizer: TokenizerJson) -> None:
    """Turn markers become ordinary text of several tokens, except the one that ends a sequence."""
    tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if token["content"] != "<|im_start|>"]


def _strip_around_added_tokens(tokenizer: TokenizerJson) -> None:
    """Turn markers swallow the white space before and after them."""
    for token in tokenizer["added_tokens"]:
        token["lstrip"] = token["rstrip"] = token["content"].startswith("<|im_")


def _drop_spaces(tokenizer: TokenizerJson) -> None:
    """A space only separates words, so that `x y` has the tokens of `x` and of `y`."""
    word, bytes_of_word = {"type": "WhitespaceSplit"}, {**_merging_pre_tokenizer(), "use_regex": False}
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [word, bytes_of_word]}


def _like_sentencepiece(tokenizer: TokenizerJson) -> None:
    """Each text between added tokens gets a leading space, spaces are letters, unknown letters become bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers, trainers

    byte_tokens = [f"<0x{value:02X}>" for value in range(256)]
    kept = [token["content"] for token in tokenizer["added_tokens"]]
    retrained = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True))
    retrained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    retrained.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=2 * VOCAB_SIZE, special_tokens=[*kept, *byte_tokens], max_token_length=8, show_progress=False
    )
    retrained.train_from_iterator(TEXTS, trainer)
    tokenizer.update(json.loads(retrained.to_str()))
    tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if token["content"] in kept]


def without_generation_blocks(template: str) -> str:
    """Return a template without the lines that open or close a generation block."""
    return "".join(line for line in template.splitlines(keepends=True) if "generation -%}" not in line)


#: Text of a message whose content is text, null or a list of parts; calls as JSON.
_MACROS = """\
{%- macro text_of(content) -%}
  {%- if content is string -%}
    {{- content -}}
  {%- elif content -%}
    {%- for part in content -%}{{- part.text -}}{%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- macro calls_of(message) -%}
  {%- for call in message.tool_calls or [] -%}
    {{- '<tool_call>' + (call.function or call) | tojson + '</tool_call>' -}}
  {%- endfor -%}
{%- endmacro -%}
"""


def _with_macros(template: str) -> str:
    return _MACROS + template


CHATML_THINKING = _with_macros("""\
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- set text = text_of(message.content) -%}
    {%- if loop.last -%}
      {{- '<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n\\n' -}}
    {%- endif -%}
    {{- text.split('</think>')[-1].lstrip('\\n') + calls_of(message) -}}
  {%- else -%}
    {{- '<|im_start|>' + message.role + '\\n' + text_of(message.content) -}}
  {%- endif -%}
  {{- '<|im_end|>\\n' -}}
{%- endfor -%}
""")

#: The end marker of ChatML is trained with its newline; this template's generation block holds both.
CHATML_NEEDS_USER = _with_macros("""\
{%- if not messages | selectattr('role', 'equalto', 'user') | list -%}
  {{- raise_exception('This chat template needs a user turn') -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- generation -%}
    {{- text_of(message.content) + calls_of(message) + '<|im_end|>\\n' -}}
    {%- endgeneration -%}
  {%- else -%}
    {{- '<|im_start|>' + message.role + '\\n' + text_of(message.content) + '<|im_end|>\\n' -}}
  {%- endif -%}
{%- endfor -%}
""")

LLAMA3 = _with_macros("""\
{{- bos_token -}}
{%- for message in messages -%}
  {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' -}}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
    {{- text_of(message.content) | trim + calls_of(message) + '<|eot_id|>' -}}
    {%- endgeneration -%}
  {%- else -%}
    {%- if loop.first and tools -%}{{- tools | tojson + '\\n\\n' -}}{%- endif -%}
    {{- text_of(message.content) | trim + '<|eot_id|>' -}}
  {%- endif -%}
{%- endfor -%}
""")

GEMMA = _with_macros("""\
{{- bos_token -}}
{%- set first = messages[0] -%}
{%- set preamble = text_of(first.content) + '\\n\\n' if first.role == 'system' else '' -%}
{%- for message in (messages[1:] if preamble else messages) -%}
  {{- '<start_of_turn>model\\n' if message.role == 'assistant' else '<start_of_turn>user\\n' -}}
  {{- preamble if loop.first -}}
  {{- text_of(message.content) | trim + calls_of(message) + '<end_of_turn>\\n' -}}
{%- endfor -%}
""")

#: A call ends with the token that opens the tool's result, behind which the answer stands in the same turn.
_GEMMA4_TOOLS = _with_macros("""\
{{- bos_token -}}
{%- set seen = namespace(is_open=false) -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {%- if not seen.is_open -%}{{- '<|turn>model\\n' -}}{%- endif -%}
    {%- set seen.is_open = message.tool_calls is defined -%}
    {{- text_of(message.content) | trim -}}
    {%- for call in message.tool_calls or [] -%}
      {{- '<|tool_call>' + call.function.name + '<tool_call|>' -}}
    {%- endfor -%}
    {{- '<|tool_response>' if seen.is_open else '<turn|>\\n' -}}
  {%- elif message.role == 'tool' -%}{{- text_of(message.content) + '<tool_response|>' -}}
  {%- else -%}{{- '<|turn>' + message.role + '\\n' + text_of(message.content) | trim + '<turn|>\\n' -}}
  {%- endif -%}
{%- endfor -%}
""")

#: Nothing ends an answer, and thoughts of answers before the last question are left out unless it is told to keep them.
_GLM_52 = _with_macros("""\
{{- '[gMASK]<sop>' -}}
{%- set seen = namespace(last=-1) -%}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}{%- set seen.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- '<|assistant|><think>' -}}
    {%- if loop.index0 > seen.last or (clear_thinking is defined and not clear_thinking) -%}
      {{- message.reasoning_content or '' -}}
    {%- endif -%}
    {{- '</think>' + text_of(message.content) + calls_of(message) -}}
  {%- elif message.role == 'tool' -%}
    {%- if messages[loop.index0 - 1].role != 'tool' -%}{{- '<|observation|>' -}}{%- endif -%}
    {{- '<tool_response>' + text_of(message.content) + '</tool_response>' -}}
  {%- else -%}{{- '<|' + message.role + '|>' + text_of(message.content) -}}
  {%- endif -%}
{%- endfor -%}
""")

_MINIMAX_M3 = _with_macros("""\
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- ']~b]ai\\n<mm:think></mm:think>' + text_of(message.content) -}}
    {%- for call in message.tool_calls or [] -%}{{- 'calls ' + call.function.name -}}{%- endfor -%}
  {%- elif message.role == 'tool' -%}{{- ']~b]tool\\n' + text_of(message.content) -}}
  {%- else -%}
    {%- if message.role == 'system' -%}{{- ']~!b[' -}}{%- endif -%}
    {{- ']~b]' + message.role + '\\n' + text_of(message.content) -}}
  {%- endif -%}
  {{- '[e~[\\n' -}}
{%- endfor -%}
""")

KIMI = _with_macros("""\
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}{{- '<|im_assistant|>assistant<|im_middle|>' -}}
  {%- elif message.role == 'user' -%}{{- '<|im_user|>user<|im_middle|>' -}}
  {%- else -%}{{- '<|im_system|>' + message.role + '<|im_middle|>' -}}
  {%- endif -%}
  {{- text_of(message.content) + calls_of(message) + '<|im_end|>' -}}
{%- endfor -%}
""")

HARMONY = _with_macros("""\
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {%- if message.reasoning_content and loop.last -%}
      {{- '<|start|>assistant<|channel|>analysis<|message|>' + message.reasoning_content + '<|end|>' -}}
    {%- endif -%}
    {%- if message.tool_calls -%}
      {{- '<|start|>assistant to=functions<|channel|>commentary<|message|>' + calls_of(message) + '<|call|>' -}}
    {%- else -%}
      {{- '<|start|>assistant<|channel|>final<|message|>' + text_of(message.content) -}}
      {{- '<|return|>' if loop.last else '<|end|>' -}}
    {%- endif -%}
  {%- else -%}
    {{- '<|start|>' + message.role + '<|message|>' + text_of(message.content) + '<|end|>' -}}
  {%- endif -%}
{%- endfor -%}
""")

#: Like gpt-oss's: thoughts before a call only while no answer follows, a call by its function's name, and a result that
#: begins as no role does. The last turn has its thought, and another end.
GPT_OSS = _with_macros("""\
{{- '<|start|>system<|message|>' + strftime_now('%Y-%m-%d') + '<|end|>' -}}
{%- set seen = namespace(call=none) -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' and 'tool_calls' in message -%}
    {%- set answers = messages[loop.index:] | selectattr('role', 'equalto', 'assistant') -%}
    {%- if message.thinking and not answers | rejectattr('tool_calls') | list -%}
      {{- '<|start|>assistant<|channel|>analysis<|message|>' + message.thinking + '<|end|>' -}}
    {%- endif -%}
    {%- set seen.call = message.tool_calls[0].function.name -%}
    {{- '<|start|>assistant to=functions.' + seen.call + '<|channel|>commentary json<|message|>' -}}
    {{- message.tool_calls[0].function.arguments | tojson + '<|call|>' -}}
  {%- elif message.role == 'assistant' -%}
    {%- if loop.last and message.thinking -%}
      {{- '<|start|>assistant<|channel|>analysis<|message|>' + message.thinking + '<|end|>' -}}
    {%- endif -%}
    {{- '<|start|>assistant<|channel|>final<|message|>' + text_of(message.content) -}}
    {{- '<|return|>' if loop.last else '<|end|>' -}}
  {%- elif message.role == 'tool' -%}
    {{- '<|start|>functions.' + seen.call + ' to=assistant<|channel|>commentary<|message|>' -}}
    {{- message.content | tojson + '<|end|>' -}}
  {%- else -%}
    {{- '<|start|>' + message.role + '<|message|>' + text_of(message.content) + '<|end|>' -}}
  {%- endif -%}
{%- endfor -%}
""")

UNKNOWN = _with_macros("""\
{{- bos_token -}}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- '<|bot|>' -}}
    {%- generation -%}
    {{- text_of(message.content) + calls_of(message) + '<|stop|>' -}}
    {%- endgeneration -%}
  {%- else -%}
    {{- '<|human|>' + text_of(message.content) -}}
  {%- endif -%}
{%- endfor -%}
""")
_HARMONY_TOKENS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>")
#: `preprocessing.assistant_markers` for it, as docs/preprocessing.md has them.
GPT_OSS_MARKERS: dict[str, Any] = {
    "assistant_start": "<|start|>assistant",
    "assistant_end": "<|return|>",
    "assistant_end_fallbacks": ("<|end|>", "<|call|>"),
    "other_role_starts": {"any": "<|start|>"},
    "joins_starts": True,
}
_UNKNOWN: dict[str, Any] = {"control_tokens": ("<|bot|>", "<|human|>", "<|stop|>"), "eos_token": "<|stop|>"}
_UNKNOWN_MARKERS = {"assistant_start": "<|bot|>", "assistant_end": "<|stop|>"}
_LLAMA3_TOKENS = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_LLAMA3: dict[str, Any] = {"control_tokens": _LLAMA3_TOKENS, "eos_token": "<|eot_id|>"}
_GEMMA: dict[str, Any] = {"control_tokens": ("<start_of_turn>", "<end_of_turn>"), "eos_token": "<end_of_turn>"}
_GEMMA4 = GEMMA.replace("<start_of_turn>", "<|turn>").replace("<end_of_turn>", "<turn|>")

GPT_OSS_FAMILY = Family(name="gpt-oss", template=GPT_OSS, control_tokens=_HARMONY_TOKENS, eos_token="<|return|>")
CHATML = Family(name="chatml", template=chatml_template())
NOT_SPACE_SENSITIVE = Family(name="chatml-without-spaces", template=chatml_template(), edit=_drop_spaces)
GEMMA4_TOOLS = Family(
    name="gemma4-tools",
    template=_GEMMA4_TOOLS,
    control_tokens=("<|turn>", "<turn|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>"),
    eos_token="<turn|>",
)
GLM_52 = Family(
    name="glm-5.2",
    template=_GLM_52,
    control_tokens=("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    eos_token="<|user|>",
)
MINIMAX_M3 = Family(
    name="minimax-m3",
    template=_MINIMAX_M3,
    control_tokens=("]~!b[", "]~b]", "[e~[", "<mm:think>", "</mm:think>"),
    eos_token="[e~[",
)
#: Its old answers look other than when they were the last, so that renders of prefixes do not find them.
THINKING = Family(name="chatml-thinking", template=CHATML_THINKING)
#: Not among FAMILIES: the host stops where a prefix has no user turn.
NEEDS_USER = Family(name="chatml-needs-user", template=without_generation_blocks(CHATML_NEEDS_USER))
#: Its old answers look other too, and nothing marks the turns between them: the host cannot tell which end is whose.
AMBIGUOUS = Family(
    name="gemma-thinking",
    template=GEMMA.replace("{{- preamble if", "{{- '<think></think>' if loop.last -}}{{- preamble if"),
    **_GEMMA,
)
FAMILIES = (
    CHATML,
    Family(name="chatml-generation", template=chatml_template(with_generation_blocks=True)),
    *(
        Family(name=f"chatml-{name}", template=chatml_template(), edit=edit)
        for name, edit in (
            ("merged-newlines", _merge_newlines),
            ("text-markers", _forget_added_tokens),
            ("stripping", _strip_around_added_tokens),
            ("sentencepiece", _like_sentencepiece),
        )
    ),
    THINKING,
    NOT_SPACE_SENSITIVE,
    Family(name="llama3", template=without_generation_blocks(LLAMA3), **_LLAMA3),
    Family(name="llama3-generation", template=LLAMA3, **_LLAMA3),
    Family(name="gemma", template=GEMMA, edit=_merge_newlines, **_GEMMA),
    Family(name="gemma4", template=_GEMMA4, control_tokens=("<|turn>", "<turn|>"), eos_token="<turn|>"),
    Family(
        name="kimi",
        template=KIMI,
        control_tokens=("<|im_assistant|>", "<|im_user|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>"),
    ),
    Family(name="harmony", template=HARMONY, control_tokens=_HARMONY_TOKENS, eos_token="<|return|>"),
    Family(
        name="recipe-markers-sentencepiece",
        template=without_generation_blocks(UNKNOWN),
        edit=_like_sentencepiece,
        assistant_markers=_UNKNOWN_MARKERS,
        **_UNKNOWN,
    ),
    Family(
        name="recipe-markers",
        template=without_generation_blocks(UNKNOWN),
        assistant_markers=_UNKNOWN_MARKERS | {"other_role_starts": {"user": "<|human|>"}},
        **_UNKNOWN,
    ),
    Family(name="recipe-markers-generation", template=UNKNOWN, assistant_markers=_UNKNOWN_MARKERS, **_UNKNOWN),
    Family(name="generation-only", template=UNKNOWN, **_UNKNOWN),
)
