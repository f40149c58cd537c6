"""Artifacts built in many ways from the same few hundred rows, every one of which is different."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bridgepack.data.build import build_artifact
from bridgepack.data.stages import split as splits
from tests.support.small_builds import chat_row, small_recipe, tokenized_row, write_json_lines

PACKED_SEQUENCE_SIZE = 256
#: Stored tokens of a shard: the rows below give three training shards and one of validation.
SHARD_TOKENS = 4000

_WORDS = ("the", "user", "asks", "a", "question", "and", "assistant", "answers", "in", "one", "line", "of", "twelve")
_NUM_ROWS = {"training": 240, "validation": 40}
_OVER_LONG_ROW = 9


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One way to build."""

    name: str
    #: Kind of input: `chats`, `turns` (chats of two answers), `pairs` or `ids`.
    rows: str = "chats"
    has_validation: bool = True
    packing: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    preprocessing: Mapping[str, Any] = field(default_factory=lambda: {"kind": "chat"})
    parallelism: Mapping[str, Any] = field(default_factory=dict)


def write_inputs(folder: Path) -> Path:
    """Write JSON Lines of every kind of rows for both splits, one of training over-long, and return the folder."""
    rng = random.Random(1234)
    for split, num_rows in _NUM_ROWS.items():
        texts = [(f"{split} {index}: {_text(rng, 2, 8)}?", _text(rng, 2, 24)) for index in range(num_rows)]
        if split == "training":  # of fewer rows, one would be many
            texts[_OVER_LONG_ROW] = (texts[_OVER_LONG_ROW][0], _text(rng, 800, 800))
        first_id = 5 if split == "training" else 6
        kinds = {
            "chats": [chat_row(*text) for text in texts],
            "turns": [_two_answers(*text) for text in texts],
            "pairs": [{"prompt": question, "completion": answer} for question, answer in texts],
            "ids": [_ids(rng, first_id) for _ in texts],
        }
        for kind, rows in kinds.items():
            write_json_lines(folder / f"{split}-{kind}.jsonl", rows)
    return folder


def build_variant(variant: Variant, folder: Path, *, inputs: Path, tokenizer: Path) -> Path:
    data = {"train": str(inputs / f"training-{variant.rows}.jsonl"), **variant.data}
    if variant.has_validation:
        data["validation"] = str(inputs / f"validation-{variant.rows}.jsonl")
    packing = {"packed_sequence_size": PACKED_SEQUENCE_SIZE, **variant.packing}
    sections = {"preprocessing": dict(variant.preprocessing), "parallelism": dict(variant.parallelism)}
    recipe = small_recipe("", tokenizer, name=variant.name, data=data, packing=packing, **sections)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "_SHARD_TOKENS", SHARD_TOKENS)
        return build_artifact(recipe, output=folder / variant.name).output


def _text(rng: random.Random, shortest: int, longest: int) -> str:
    return " ".join(rng.choices(_WORDS, k=rng.randint(shortest, longest)))


def _two_answers(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [*chat_row(question, answer)["messages"], *chat_row("And?", answer[:20])["messages"]]}


def _ids(rng: random.Random, first_id: int) -> dict[str, Any]:
    return tokenized_row(first_id, *rng.choices(range(10, 400), k=rng.randint(5, 90)), 2, num_prompt=3)
