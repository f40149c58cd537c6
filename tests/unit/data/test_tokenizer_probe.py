"""What a chat template does with the end of a turn and with tool calls is found out and put into the manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.probe import drops_tool_names, end_of_turn_ids
from tests.support.tokenizers import FAMILIES, Family, write_tokenizer

TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
CALLS = "{% for call in m.tool_calls or [] %}CALL{% endfor %}<|im_end|>\n{% endfor %}"


def _template(call: str) -> str:
    return TURNS + CALLS.replace("CALL", call)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("{{ call.function.name }}({{ call.function.arguments | tojson }})", False),
        ("{{ call.id }}({{ call.function.arguments | tojson }})", True),
        ("{{ call.id }}", None),
        ("{{ raise_exception('no tools') }}", None),
        ("{{ call.function.name + call.function.arguments }}", False),
    ],
)
def test_tool_names(tmp_path: Path, call: str, expected: bool | None) -> None:
    folder = write_tokenizer(tmp_path / "tokenizer", Family(name="calls", template=_template(call)))
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(folder)))

    assert drops_tool_names(tokenizer) is expected
    assert tokenizer.identity()["drops_tool_names"] is expected


def test_end_of_turn_of_a_template_that_ends_turns_differently(tmp_path: Path) -> None:
    template = TURNS + "{{ '<|im_end|>' if not loop.last else '\n<|endoftext|>' }}{% endfor %}"
    folder = write_tokenizer(tmp_path / "tokenizer", Family(name="ends", template=template))
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(folder)))

    tokens = tokenizer.added_tokens
    assert end_of_turn_ids(tokenizer) == sorted([tokens["<|im_end|>"], tokens["<|endoftext|>"]])


def test_turns_that_end_with_plain_text_have_no_token(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "tokenizer", Family(name="plain", template=TURNS + "\n###\n{% endfor %}"))

    assert end_of_turn_ids(load_tokenizer(TokenizerConfig(name_or_path=str(folder)))) == []


def test_every_family_ends_its_turns_with_a_token(tmp_path: Path) -> None:
    num_checked = 0
    for family in FAMILIES:
        tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(write_tokenizer(tmp_path / family.name, family))))
        texts = {text for text, index in tokenizer.added_tokens.items() if index in end_of_turn_ids(tokenizer)}
        assert texts <= set(family.control_tokens) | {family.eos_token}
        assert texts, family.name
        num_checked += 1
    assert num_checked > 0


def test_identity_names_what_rules_need(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "tokenizer", Family(name="chatml", template=_template("")))
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(folder)))

    identity = tokenizer.identity()
    assert identity["end_of_turn_ids"] == [tokenizer.added_tokens["<|im_end|>"]]
    assert identity["never_trained"] == {"<|im_start|>": tokenizer.added_tokens["<|im_start|>"]}
    assert identity["bos_token_id"] == tokenizer.added_tokens["<|endoftext|>"]
    assert identity["adds_bos"] is False
