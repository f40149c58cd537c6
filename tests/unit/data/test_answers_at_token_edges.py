"""Tokens across the edges of answers: whose they are, in templates of ours and in those of the reference data."""

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from transformers import AddedToken, ByT5Tokenizer

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.chat import chat_encoder
from bridgepack.data.sequences.encoding import Encoded, encode_examples
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.proof.mask_check import built_sequence, claimed_forms
from bridgepack.proof.masks.judges import RecipeJudges
from bridgepack.records import DropReason
from tests.support.read_rows import ReadingEncoder, encoder_of
from tests.support.small_builds import small_recipe
from tests.zoo.families import Family, write_tokenizer
from tests.zoo.tokenizers import CHATML, FAMILIES, GPT_OSS_FAMILY, GPT_OSS_MARKERS, loaded_tokenizer

BY_NAME = {family.name: family for family in FAMILIES}
ASKED = {"role": "user", "content": "what"}
CALLING = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}]}
CALLED = [
    ASKED,
    {**CALLING, "content": "Look."},
    {"role": "tool", "content": "1"},
    {"role": "assistant", "content": "one"},
]
#: ChatML whose calls begin with a line end, and whose answers are followed by one but for the last.
LINES = """\
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') -}}
  {%- for call in message.tool_calls or [] -%}{{- '\\n<call>' + call.function.name -}}{%- endfor -%}
  {%- if not loop.last -%}{{- '\\n<|im_end|>\\n' -}}{%- endif -%}
{%- endfor -%}
{#- <|im_start|>assistant -#}
"""


def lines_tokenizer(folder: Path) -> ChatTokenizer:
    """Return a tokenizer of bytes and of two line ends, with the template of lines."""
    tokens = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    family = Family(name="lines", template=LINES, tokens=tokens, ends=("<|im_end|>",), injection="")
    return load_tokenizer(TokenizerConfig(name_or_path=str(write_tokenizer(folder / "tokenizer", family))))


def spans(tokenizer: ChatTokenizer, made: object) -> list[str]:
    assert isinstance(made, Encoded), made
    runs = groupby(zip(made.ids, made.mask, strict=True), key=lambda pair: pair[1])
    return [tokenizer.decode([token for token, _ in run]) for is_trained, run in runs if is_trained]


def trained(tokenizer: ChatTokenizer, turns: Sequence[Mapping[str, Any]], **settings: Any) -> list[str]:
    encoder = ReadingEncoder(chat_encoder(tokenizer, ChatPreprocessing(**settings)))
    (made,) = encode_examples(encoder, [{"messages": list(turns)}])
    return spans(tokenizer, made)


def test_a_token_that_begins_in_the_header_is_the_template_s(tmp_path: Path) -> None:
    """The line end of the header and that of the call are one token."""
    tokenizer = lines_tokenizer(tmp_path)
    turns = [ASKED, CALLING, {"role": "tool", "content": "1"}, {"role": "assistant", "content": "one"}]

    assert trained(tokenizer, turns) == ["<call>add\n<|im_end|>\n", "one"]


def test_a_token_that_begins_in_the_answer_is_its_own(tmp_path: Path) -> None:
    """The answer's last line end and that before its end marker are one token."""
    tokenizer = lines_tokenizer(tmp_path)
    turns = [ASKED, {"role": "assistant", "content": "one\n"}, ASKED, {"role": "assistant", "content": "two"}]

    assert trained(tokenizer, turns) == ["one\n\n<|im_end|>\n", "two"]


@pytest.mark.parametrize("end", ["<|im_end|>\n", ""], ids=["with an end of its own", "without an end"])
def test_a_call_behind_the_end_of_its_turn_s_text(tmp_path: Path, end: str) -> None:
    """GigaChat3's calls were left untrained, as the end before them counted as their turn's."""
    call = "{%- for call in message.tool_calls or [] -%}{{- '<call>' + call.function.name + end -}}{%- endfor -%}"
    line = "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
    head = f"{{#- <|im_start|>assistant -#}}{{%- set end = {end!r} -%}}"
    template = f"{head}{{%- for message in messages -%}}{line}{call}{{%- endfor -%}}"
    tokens = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    family = Family(name="behind", template=template, tokens=tokens, ends=("<|im_end|>",), injection="")
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(write_tokenizer(tmp_path / "tokenizer", family))))
    assert trained(tokenizer, CALLED) == [f"Look.<|im_end|>\n<call>add{end}", "one<|im_end|>\n"]


def test_a_second_header_and_an_answer_without_one(tmp_path: Path) -> None:
    """DeepSeek-R1's: as many headers as answers, and yet the last answer was left untrained."""
    template = (
        "{%- for message in messages -%}{%- for call in message.tool_calls or [] -%}"
        "{{- '<|im_start|>assistant\\n<call>' + call.function.name + '<|im_end|>' -}}{%- endfor -%}"
        "{%- if not loop.first and loop.previtem.role == 'tool' -%}{{- message.content + '<|im_end|>' -}}"
        "{%- elif message.role == 'tool' -%}{{- '<result>' + message.content + '</result>' -}}"
        "{%- else -%}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' -}}{%- endif -%}"
        "{%- endfor -%}"
    )
    tokens = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    family = Family(name="again", template=template, tokens=tokens, ends=("<|im_end|>",), injection="")
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(write_tokenizer(tmp_path / "tokenizer", family))))

    calling = "<call>add<|im_end|><|im_start|>assistant\nLook.<|im_end|>"
    assert trained(tokenizer, CALLED) == [*calling.split("<|im_start|>"), "one<|im_end|>"]


@pytest.mark.parametrize(("after_eos", "end"), [("mask", "<|im_end|> "), ("train", "<|im_end|> \n")])
def test_a_line_end_behind_a_blank_behind_eos(tmp_path: Path, after_eos: str, end: str) -> None:
    tokenizer = loaded_tokenizer(tmp_path, BY_NAME["chatml-sentencepiece"])
    (answer,) = trained(tokenizer, [ASKED, {"role": "assistant", "content": "one"}], labels_after_eos=after_eos)

    assert answer.endswith(end)


@pytest.mark.parametrize("field", ["thinking", "reasoning", "reasoning_content"])
def test_thoughts_are_given_in_the_field_that_the_template_reads(tmp_path: Path, field: str) -> None:
    tokenizer = loaded_tokenizer(tmp_path, GPT_OSS_FAMILY)
    turns = [ASKED, {"role": "assistant", "content": "three", field: "four"}]

    assert trained(tokenizer, turns, assistant_markers=GPT_OSS_MARKERS) == [
        "<|channel|>analysis<|message|>four<|end|><|start|>assistant<|channel|>final<|message|>three<|return|>"
    ]


def bytes_in_python(*tokens: str) -> ChatTokenizer:
    """Return a tokenizer written in Python, which reports no positions, with ChatML's template and added tokens."""
    tokenizer = ByT5Tokenizer(extra_ids=0)
    tokenizer.add_tokens([AddedToken(text, special=True, normalized=False) for text in tokens])
    tokenizer.eos_token = "<|im_end|>"
    return ChatTokenizer(tokenizer, TokenizerConfig(name_or_path="bytes"), CHATML.template)


@pytest.mark.parametrize("text", ["one", "one<|im_start|>user\nx", " one\n", "one<|im_end|>", ""])
def test_a_tokenizer_that_reports_no_positions(text: str) -> None:
    """Markers in texts leave a scan uncertain: the places are then those of tokens that always cut a text."""
    tokenizer = bytes_in_python("<|im_start|>", "<|im_end|>")
    turns = [ASKED, {"role": "assistant", "content": text}, ASKED, {"role": "assistant", "content": "two"}]

    assert tokenizer.backend is None
    # what opens a turn is never trained
    assert trained(tokenizer, turns) == [*f"{text}<|im_end|>\n".split("<|im_start|>"), "two<|im_end|>\n"]


def test_a_row_whose_places_no_token_tells_is_dropped_by_name() -> None:
    """Without a token that begins a turn only a scan can find answers, and a text has its marker."""
    tokenizer = bytes_in_python("<|im_end|>")
    encoder = ReadingEncoder(chat_encoder(tokenizer, ChatPreprocessing()))
    plain, marked = ([ASKED, {"role": "assistant", "content": text}] for text in ("one", "one <|im_start|>user\nx"))

    made, dropped = encode_examples(encoder, [{"messages": plain}, {"messages": marked}])
    assert spans(tokenizer, made) == ["one<|im_end|>\n"]
    assert isinstance(dropped, RowError)
    assert dropped.reason == DropReason.CONTROL_TOKENS_IN_TEXT


#: Recipe of the reference data -> the answers of its first row, as they are trained.
CALL_OF_DEEPSEEK = (
    '</think>\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="search">\n<｜DSML｜parameter name="city" '
    'string="true">Uri</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls><｜end▁of▁sentence｜>'
)
CALL_OF_BIELIK = '<tool_call>\n{"name": "search", "arguments": {"city": "Uri"}}\n</tool_call><|im_end|>\n'
CALLS_OF_KIMI = (
    "<think></think><|tool_calls_section_begin|>"
    + "".join(
        f'<|tool_call_begin|>c{number}<|tool_call_argument_begin|>{{"city": "Uri"}}<|tool_call_end|>'
        for number in (1, 2, 3)
    )
    + "<|tool_calls_section_end|><|im_end|>"
)
ANSWER = "lake winter answer table summer letter."
REFERENCE_ANSWERS = {
    "end_marker_after_newline_untrained": ["The lake is deep.\n<|end|>", "It is cold."],
    "header_token_trained_after_tool_result": [CALL_OF_DEEPSEEK, "</think>It is sunny.<｜end▁of▁sentence｜>"],
    "bielik": [CALL_OF_BIELIK, "Sunny.<|im_end|>\n"],
    "masks_false_alarm_phi4mini": ["The lake is deep.<|end|>", "It is cold.<|end|>"],
    "reasoning_alias_gptoss_reasoning_content": [
        "<|channel|>analysis<|message|>I think so.<|end|><|start|>assistant<|channel|>final<|message|>Deep.<|return|>"
    ],
    "blank_between_eos_and_newline": [f"{ANSWER}<|im_end|> "],
    "eos_with_rstrip": [f"{ANSWER}<|im_end|>\n"],
    "lfm25": [f"{ANSWER}<|im_end|>\n"],
    "minimax_m25": [f"{ANSWER}[e~["],
    "masks_false_alarm_kimi_k25": [CALLS_OF_KIMI, "<think></think>It is sunny.<|im_end|>"],
}
#: Of each recipe so many rows are judged by the proof, which is slow.
NUM_JUDGED = 3


@pytest.mark.reference_data
@pytest.mark.parametrize("name", REFERENCE_ANSWERS)
def test_reference_templates(reference_data: Path, name: str) -> None:
    folder = reference_data / "cases" / "answers4"
    if not folder.is_dir():
        pytest.skip("the reference data has no answers4")
    given = json.loads((folder / f"{name}.recipe.yaml").read_text())
    recipe = small_recipe(
        "rows.jsonl", folder / given["tokenizer"]["name_or_path"], preprocessing=given["preprocessing"]
    )
    tokenizer = load_tokenizer(recipe.override({"tokenizer.template_date": "2026-01-02"}).tokenizer)
    rows = [json.loads(line) for line in (folder / given["data"]["train"]).read_text().splitlines()]

    made = encode_examples(ReadingEncoder(encoder_of(recipe, tokenizer), recipe.preprocessing), rows)
    assert all(isinstance(item, Encoded) for item in made)
    assert spans(tokenizer, made[0]) == REFERENCE_ANSWERS[name]
    judge = RecipeJudges(recipe, tokenizer, claimed_forms(recipe, tokenizer)).of_source("chat", ())
    verdicts = [judge.judge(row, built_sequence(item)) for row, item in list(zip(rows, made, strict=True))[:NUM_JUDGED]]
    kinds = {finding.kind for verdict in verdicts for finding in verdict.findings}
    assert kinds <= {"tool-call-lost"}  # Kimi-K2.5 writes the ids of calls for their names
    assert any(verdict.num_judges for verdict in verdicts)
