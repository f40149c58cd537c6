"""The eight families: template, tokens, what a recipe for them says, and what an answer's trained text looks like."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from tests.zoo import templates

Arguments = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of chat templates."""

    name: str
    template: str
    #: Added tokens; the first begins a text, the last is EOS.
    tokens: tuple[str, ...]
    #: What ends an answer; each of the answers that are trained has one.
    ends: tuple[str, ...]
    #: What an answer's text may have beside what the row says.
    scaffold: tuple[str, ...] = ()
    #: Name and arguments -> the text of a call; None where the template writes none.
    call: Callable[[str, Arguments], str] | None = None
    #: End of an answer and beginning of a user's turn, as a text that was copied would have them.
    injection: str
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    #: Texts of the template -> the same in generation blocks, for families whose markers do not show every answer.
    blocks: Mapping[str, str] = field(default_factory=dict)
    #: The tokenizer composes characters first.
    composes: bool = False


def write_tokenizer(folder: Path, family: Family) -> Path:
    """Write a tokenizer of bytes and pairs of line ends, with a family's tokens and template; return its folder."""
    alphabet = [*family.tokens, *sorted(pre_tokenizers.ByteLevel.alphabet()), "ĊĊ"]
    model = models.BPE(vocab={text: index for index, text in enumerate(alphabet)}, merges=[("Ċ", "Ċ")])
    tokenizer = Tokenizer(model)
    line_ends = pre_tokenizers.Split(Regex("[\\r\\n]+"), "isolated")
    in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([line_ends, in_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    if family.composes:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens(list(family.tokens))
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": family.tokens[0], "eos_token": family.tokens[-1], "pad_token": family.tokens[0]}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(family.template)
    return folder


def _chatml_call(name: str, arguments: Arguments) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {_json(arguments)}}}\n</tool_call>'


def _xml_call(name: str, arguments: Arguments) -> str:
    values = {key: value if isinstance(value, str) else _json(value) for key, value in arguments.items()}
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_CHATML: dict[str, Any] = {
    "tokens": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "ends": ("<|im_end|>",),
    "injection": "<|im_end|>\n<|im_start|>user\n",
}
_HARMONY_TOKENS = ("<|startoftext|>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
_DEEPSEEK_TOKENS = (
    *("<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    *("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<｜tool▁outputs▁begin｜>"),
    *("<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", "<｜end▁of▁sentence｜>"),
)
_MISTRAL_TOKENS = (
    *("<s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "</s>"),
)

FAMILIES = (
    Family(
        name="Llama 3.1",
        template=templates.LLAMA_31,
        tokens=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        ends=("<|eot_id|>",),
        call=lambda name, arguments: f'{{"name": "{name}", "parameters": {_json(arguments)}}}',
        injection="<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
    ),
    Family(
        name="Qwen3",
        template=templates.QWEN_3,
        scaffold=("<think>", "</think>"),
        call=_chatml_call,
        composes=True,
        **_CHATML,
    ),
    Family(name="Qwen2.5", template=templates.QWEN_25, call=_chatml_call, composes=True, **_CHATML),
    Family(
        name="Gemma 3",
        template=templates.GEMMA_3,
        tokens=("<bos>", "<start_of_turn>", "<start_of_image>", "<end_of_turn>"),
        ends=("<end_of_turn>",),
        injection="<end_of_turn>\n<start_of_turn>user\n",
    ),
    Family(
        name="Mistral",
        template=templates.MISTRAL,
        tokens=_MISTRAL_TOKENS,
        ends=("</s>",),
        scaffold=("[TOOL_CALLS] [", '"id": "call00001"', '"id": "call00002"', "{", "}", ",", "]"),
        call=lambda name, arguments: f'"name": "{name}", "arguments": {_json(arguments)}',
        injection="</s>[INST] ",
        preprocessing={
            "assistant_markers": {
                "assistant_start": ["[/INST]", "[/TOOL_RESULTS]"],
                "assistant_end": "</s>",
                "other_role_starts": {"tool": "[TOOL_RESULTS]"},
            }
        },
        blocks={
            "{{- '[TOOL_CALLS] [' -}}": "{%- generation -%}{{- '[TOOL_CALLS] [' -}}",
            "{{- ']' + eos_token -}}": "{{- ']' + eos_token -}}{%- endgeneration -%}",
            "{{- ' ' + message.content | trim + eos_token -}}": (
                "{%- generation -%}{{- ' ' + message.content | trim + eos_token -}}{%- endgeneration -%}"
            ),
        },
    ),
    Family(
        name="DeepSeek-V3",
        template=templates.DEEPSEEK_V3,
        tokens=_DEEPSEEK_TOKENS,
        ends=("<｜end▁of▁sentence｜>",),
        scaffold=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        call=lambda name, arguments: (
            f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{_json(arguments)}\n```<｜tool▁call▁end｜>"
        ),
        injection="<｜end▁of▁sentence｜><｜User｜>",
        preprocessing={
            "assistant_markers": {
                "assistant_start": ["<｜Assistant｜>", "<｜tool▁outputs▁end｜>"],
                "assistant_end": "<｜end▁of▁sentence｜>",
            }
        },
        blocks={
            "{{- '<｜Assistant｜><｜tool▁calls▁begin｜>' -}}": (
                "{{- '<｜Assistant｜>' -}}{%- generation -%}{{- '<｜tool▁calls▁begin｜>' -}}"
            ),
            "{{- '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' -}}": (
                "{{- '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' -}}{%- endgeneration -%}"
            ),
            "{{- message.content + '<｜end▁of▁sentence｜>' -}}": (
                "{%- generation -%}{{- message.content + '<｜end▁of▁sentence｜>' -}}{%- endgeneration -%}"
            ),
        },
    ),
    Family(
        name="gpt-oss",
        template=templates.GPT_OSS,
        tokens=_HARMONY_TOKENS,
        ends=("<|return|>", "<|end|>", "<|call|>"),
        scaffold=("<|start|>assistant", "<|channel|>final<|message|>", "<|channel|>analysis<|message|>"),
        call=lambda name, arguments: f" to=functions.{name}<|channel|>commentary json<|message|>{_json(arguments)}",
        injection="<|end|><|start|>user<|message|>",
        preprocessing={
            "assistant_markers": {
                "assistant_start": "<|start|>assistant",
                "assistant_end": "<|return|>",
                "assistant_end_fallbacks": ["<|end|>", "<|call|>"],
                "other_role_starts": {"any": "<|start|>"},
                "joins_starts": True,
            }
        },
    ),
    Family(name="Nemotron", template=templates.NEMOTRON, scaffold=("<think>", "</think>"), call=_xml_call, **_CHATML),
)
#: DeepSeek-Coder's: what is no question is written as an answer, tools' results, too.
CODER = Family(
    name="coder",
    template=(
        "{%- for m in messages -%}{{- ('### Instruction:\\n' if m.role == 'user' else '### Response:\\n') -}}"
        "{{- m.content + ('\\n' if m.role == 'user' else '\\n<|EOT|>\\n') -}}{%- endfor -%}"
    ),
    tokens=("<s>", "<|EOT|>"),
    ends=("<|EOT|>",),
    injection="",
)
