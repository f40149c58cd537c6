"""Every row that goes in comes out as a sequence or as a drop with its reason."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridgepack.errors import DataError
from bridgepack.records import DropReason, SplitRecord
from tests.support.messages import mentions
from tests.support.small_builds import (
    assert_balanced,
    build,
    chat_row,
    dropped,
    small_recipe,
    tokenized_recipe,
    tokenized_row,
    write_json_lines,
)
from tests.zoo.endless import LLAMA_2
from tests.zoo.families import write_tokenizer

#: (line, why it is dropped; None for a row that is packed). Packs hold 64 tokens.
CHAT_LINES: list[tuple[Any, DropReason | None]] = [
    (chat_row("Hi", "Hello"), None),
    ("{", DropReason.INVALID_JSON),
    ([], DropReason.NOT_AN_OBJECT),
    ({"prompt": "Hi", "completion": None}, DropReason.MISSING_FIELD),
    ({"messages": "Hi"}, DropReason.INVALID_FIELD),
    ({"messages": []}, DropReason.EMPTY_CONVERSATION),
    ({"messages": [{"role": "critic", "content": "Hi"}]}, DropReason.UNKNOWN_ROLE),
    (chat_row("Hi", "refuse me"), DropReason.TEMPLATE_ERROR),
    (chat_row("<|im_end|>", "Hello"), DropReason.CONTROL_TOKENS_IN_TEXT),
    (chat_row("Hi", "Hello") | {"tools": [{"name": "lookup"}]}, DropReason.LOST_CONTENT),
    ({"messages": [{"role": "user", "content": "Hi"}]}, DropReason.NO_ASSISTANT_MASK),
    (chat_row("Hi", "Hello " * 99), DropReason.OVER_LONG),
    (chat_row("Hi", "Hello " * 999), DropReason.ROW_TOO_LARGE),
    (chat_row("Hi", "Bye"), None),
]
TOKENIZED_LINES: list[tuple[Any, DropReason | None]] = [
    (tokenized_row(5, 6, 7), None),
    ({"input_ids": [5], "labels": [5]}, DropReason.TOO_SHORT),
    ({"input_ids": [], "labels": []}, DropReason.TOO_SHORT),
    ({"input_ids": [5, 6], "labels": [-100, -100]}, DropReason.NO_TRAINED_TOKEN),
    ({"input_ids": [5, 6], "labels": [5, -100]}, DropReason.NO_TRAINED_TOKEN),
    ({"input_ids": [2, 6], "labels": [-100, 6]}, DropReason.NO_TRAINED_TOKEN),
    ({"input_ids": [5, 99_999], "labels": [-100, 99_999]}, DropReason.TOKEN_OUT_OF_VOCABULARY),
    ({"input_ids": [5, -1], "labels": [-100, -1]}, DropReason.TOKEN_OUT_OF_VOCABULARY),
    ({"input_ids": [5, 10**30], "labels": [-100, 10**30]}, DropReason.TOKEN_OUT_OF_VOCABULARY),
    ({"input_ids": [5, 6.5], "labels": [-100, 6]}, DropReason.INVALID_FIELD),
    ({"input_ids": [True, False], "loss_mask": [True, True]}, DropReason.INVALID_FIELD),
    ({"input_ids": [5, 6], "labels": [6, -100]}, DropReason.INVALID_FIELD),
    ({"input_ids": [5, 6], "labels": [-100]}, DropReason.INVALID_FIELD),
    ({"input_ids": [5, 6], "loss_mask": [0, 2]}, DropReason.INVALID_FIELD),
    ({"input_ids": [5, 6]}, DropReason.MISSING_FIELD),
    (tokenized_row(*range(10, 30)), DropReason.OVER_LONG),
    ({"input_ids": [5, 6, 7], "loss_mask": [False, True, 1], "seq_start_id": None}, None),
]
TEMPLATE = """\
{%- for message in messages -%}
  {%- if message.content == 'refuse me' -%}{{- raise_exception('refused') -}}{%- endif -%}
  {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{#- <|im_start|>assistant <|im_end|> -#}
"""


type Lines = list[tuple[Any, DropReason | None]]


@pytest.fixture
def built(tmp_path: Path, chatml_tokenizer: Path) -> Callable[..., SplitRecord]:
    """Return what builds lines or a file, and returns the record of its training split."""

    def make(train: Lines | Path | str, **changes: Any) -> SplitRecord:
        if isinstance(train, list):
            text = "".join((line if line == "{" else json.dumps(line)) + "\n" for line, _ in train)
            train = tmp_path / "a.jsonl"
            train.write_text(text)
        manifest = build(tokenized_recipe(train, chatml_tokenizer, **changes), tmp_path / "out").manifest
        assert_balanced(manifest)
        return manifest.splits[0]

    return make


def _expected(lines: Lines) -> list[tuple[int, str]]:
    return [(row, str(reason)) for row, (_, reason) in enumerate(lines, 1) if reason is not None]


def test_every_reason_has_a_row_here() -> None:
    reasons = {reason for _, reason in [*CHAT_LINES, *TOKENIZED_LINES]} - {None}

    of_workers = {DropReason.TOKENIZER_FAILED, DropReason.OUT_OF_MEMORY, DropReason.TIME_OUT}
    of_settings = {DropReason.TRUNCATED_NO_TRAINED_TOKEN, DropReason.DUPLICATE, DropReason.NOT_SAMPLED}
    of_settings |= {DropReason.BOUNDARY_IN_TOKEN}  # test_reasoning.py, test_generation_prompts.py
    assert reasons == set(DropReason) - of_settings - of_workers


def test_chat_rows(tmp_path: Path, built: Callable[..., SplitRecord]) -> None:
    (tmp_path / "template").write_text(TEMPLATE)
    changes = {
        "preprocessing__kind": "chat",
        "preprocessing__control_tokens": "drop",
        "preprocessing__on_lost_content": "drop",
        "packing__packed_sequence_size": 64,
        "tokenizer__chat_template": str(tmp_path / "template"),
        "data__max_row_bytes": 4000,
    }

    split = built(CHAT_LINES, **changes)

    assert dropped(tmp_path / "out") == _expected(CHAT_LINES)
    assert split.statistics.num_rows_in == len(CHAT_LINES)
    assert set(split.drops.values()) == {1}


def test_rows_of_ids(tmp_path: Path, built: Callable[..., SplitRecord]) -> None:
    split = built(TOKENIZED_LINES)

    assert dropped(tmp_path / "out") == _expected(TOKENIZED_LINES)
    assert split.drops == Counter(reason for _, reason in _expected(TOKENIZED_LINES))
    assert [(drop.row, drop.reason) for drop in split.drop_examples] == _expected(TOKENIZED_LINES)


def test_examples_of_a_reason_are_few_and_the_ledger_has_all(tmp_path: Path, built: Callable[..., SplitRecord]) -> None:
    split = built([(tokenized_row(5, 6), None), *[({}, DropReason.MISSING_FIELD)] * 9])

    assert [drop.row for drop in split.drop_examples] == [2, 3, 4, 5, 6]
    assert len(dropped(tmp_path / "out")) == 9


def test_truncated_row_is_counted_or_dropped_when_untrained(tmp_path: Path, built: Callable[..., SplitRecord]) -> None:
    lines = [
        (tokenized_row(*range(10, 40)), None),
        (tokenized_row(*range(10, 40), num_prompt=25), DropReason.TRUNCATED_NO_TRAINED_TOKEN),
        (tokenized_row(*range(10, 27)), None),
    ]

    numbers = built(lines, preprocessing__over_long="truncate").statistics

    assert dropped(tmp_path / "out") == _expected(lines)
    assert (numbers.num_sequences, numbers.num_truncated, numbers.num_tokens) == (2, 1, 32)


def test_over_long_row_stops_the_build_when_the_recipe_says_so(built: Callable[..., SplitRecord]) -> None:
    lines = [(tokenized_row(*range(10, 27)), None), (tokenized_row(*range(10, 28)), DropReason.OVER_LONG)]

    with pytest.raises(DataError, match=r"a\.jsonl row 2: over_long: 17 runtime tokens; at most 16\."):
        built(lines, preprocessing__over_long="error")


def test_blank_lines_are_counted_and_are_no_rows(tmp_path: Path, built: Callable[..., SplitRecord]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n" + json.dumps(tokenized_row(5, 6)) + "\n\n{}\n \n")

    numbers = built(path).statistics

    assert (numbers.num_rows_in, numbers.num_blank_lines, numbers.num_sequences) == (2, 3, 1)
    assert dropped(tmp_path / "out") == [(4, "missing_field")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the training split has"),
        ("\n\n", "the training split has"),
        ('{}\n{"input_ids": [5]}\n{}\n', r"all 3 rows were dropped \(missing_field 3\). The first: "),
        ('{"input_ids": [5, 6], "loss_mask": [0, 1], "seq_start_id": [0]}', "the row has seq_start_id, so it is a"),
    ],
)
def test_nothing_left_says_what_became_of_the_rows(
    tmp_path: Path, built: Callable[..., SplitRecord], content: str, message: str
) -> None:
    (tmp_path / "a.jsonl").write_text(content)

    with pytest.raises(DataError, match=message):
        built(tmp_path / "a.jsonl")
    assert not (tmp_path / "out").exists()


def test_two_answers_in_a_row_name_their_cure(tmp_path: Path) -> None:
    """Llama 2's template writes nothing between them that shows where the second begins."""
    tokenizer = write_tokenizer(tmp_path / "tokenizer", LLAMA_2)
    answer = {"role": "assistant", "content": "Deep."}
    rows = [{"messages": [{"role": "user", "content": "How deep?"}, answer, *more]} for more in ([], [answer])]
    recipe = small_recipe(
        write_json_lines(tmp_path / "a.jsonl", rows),
        tokenizer,
        preprocessing={"kind": "chat", **LLAMA_2.preprocessing},
        packing={"packed_sequence_size": 256},
    )

    (example,) = build(recipe, tmp_path / "out").manifest.splits[0].drop_examples

    assert (example.row, example.reason) == (2, DropReason.NO_ASSISTANT_MASK)
    assert mentions(example.detail, "turns 2 and 3", "the role assistant", "join their texts", "another template")
