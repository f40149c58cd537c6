"""Loading a tokenizer: what its files may ask for, and templates that cannot be used."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing, PromptCompletionPreprocessing
from bridgepack.data.sequences.chat import ChatEncoder
from bridgepack.data.sequences.encoding import Encoded, encode_examples
from bridgepack.data.sequences.prompt_completion import PromptCompletionEncoder
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.errors import RowError, TokenizerError
from bridgepack.records import DropReason, Example
from tests.support.tokenizers import CHATML, THINKING, TokenizerJson, write_tokenizer

QUESTION = {"role": "user", "content": "What does the user ask?"}
HALF = "\ud83d"
ANSWER = {"role": "assistant", "content": "The user asks what the user asks."}


def _example(**columns: object) -> Example:
    return Example(file_index=0, row=1, columns=columns)


def _cut_and_pad(tokenizer: TokenizerJson) -> None:
    tokenizer["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    tokenizer["padding"] = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }


def test_truncation_and_padding_in_tokenizer_json_do_not_count(tmp_path: Path) -> None:
    examples = [_example(prompt=QUESTION["content"], completion=ANSWER["content"])]
    results = []
    for name, family in (("plain", CHATML), ("cutting", replace(CHATML, edit=_cut_and_pad))):
        tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(write_tokenizer(tmp_path / name, family))))
        settings = PromptCompletionPreprocessing(kind="prompt_completion")
        results.append(encode_examples(PromptCompletionEncoder(tokenizer, settings), examples))

    assert results[0] == results[1]
    assert isinstance(results[0][0], Encoded)
    assert json.loads((tmp_path / "cutting" / "tokenizer.json").read_text())["truncation"]["max_length"] == 4


def test_template_that_is_not_jinja_stops_the_build(tmp_path: Path) -> None:
    broken = "{%- for message in messages -%}\n{{ message.content \n{%- endfor -%}<|im_start|>assistant<|im_end|>"
    folder = write_tokenizer(tmp_path, replace(CHATML, template=broken))
    encoder = ChatEncoder(load_tokenizer(TokenizerConfig(name_or_path=str(folder))), ChatPreprocessing(), {})

    with pytest.raises(TokenizerError, match="line 3 of its chat template is not valid Jinja"):
        encode_examples(encoder, [_example(messages=[QUESTION, ANSWER])])


def test_half_a_character_costs_its_row_and_no_other(tmp_path: Path) -> None:
    """JSON inside a column, as ShareGPT's tools and function calls are, may hold one that the reader cannot see."""
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(write_tokenizer(tmp_path, CHATML))))
    call = {"from": "function_call", "value": json.dumps({"name": "smile", "arguments": {"face": HALF}})}
    asked = {"from": "human", "value": "Smile."}

    broken, whole = encode_examples(
        ChatEncoder(tokenizer, ChatPreprocessing(), {}),
        [_example(conversations=[asked, call]), _example(messages=[QUESTION, ANSWER])],
    )

    assert isinstance(broken, RowError)
    assert broken.reason == DropReason.INVALID_FIELD
    assert "U+D83D" in broken.detail
    assert isinstance(whole, Encoded)


def test_half_a_character_that_the_template_leaves_out_does_no_harm(tmp_path: Path) -> None:
    """Old answers of this template are found by a scan only, which looks for markers in all of a row's texts."""
    folder = write_tokenizer(tmp_path, THINKING)
    encoder = ChatEncoder(load_tokenizer(TokenizerConfig(name_or_path=str(folder))), ChatPreprocessing(), {})
    tools = json.dumps([{"name": f"<|im_end|>{HALF}"}])

    (encoded,) = encode_examples(encoder, [_example(messages=[QUESTION, ANSWER] * 2, tools=tools)])

    assert isinstance(encoded, Encoded)
    assert any(encoded.mask)
