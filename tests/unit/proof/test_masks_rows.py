"""Rows that the proof of masks does not read: they are not judged, with the reason, and never count as agreeing."""

import importlib.util
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bridgepack.proof.mask_check import check_masks
from bridgepack.proof.masks.masks import MaskOptions
from bridgepack.proof.masks.rows.conversation import UnreadableRowError
from bridgepack.proof.masks.rows.formats import format_of
from bridgepack.proof.masks.rows.turns import message_of, untrained_turns
from tests.mutants.rooms import PROJECT
from tests.support.small_builds import small_recipe, write_json_lines
from tests.zoo.tokenizers import CHATML, write_tokenizer

USER, ANSWER = {"role": "user", "content": "Two?"}, {"role": "assistant", "content": "Four."}


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"context": "A lake.", "question": "What?", "answer": "It."}], "context"),
        ([{"passage": "A lake.", "query": "What?", "reply": "It."}], "these columns"),
    ],
)
def test_a_shape_of_no_document_is_not_judged(tmp_path: Path, rows: list[dict[str, Any]], reason: str) -> None:
    """A layout that the build detects, and the proof does not know."""
    train = write_json_lines(tmp_path / "rows.jsonl", rows)
    tokenizer = write_tokenizer(tmp_path / "tokenizer", CHATML)
    recipe = small_recipe(train, tokenizer, preprocessing={"kind": "chat"}, packing={"packed_sequence_size": 4096})

    report = check_masks(recipe, MaskOptions(num_rows=None))

    assert (report.outcome, report.num_agreed, report.num_not_judged) == ("could not run", 0, 1)
    (why,) = {why for item in report.derivations for why in item.reasons}
    assert reason in why


@pytest.mark.parametrize(
    "turn",
    [
        "Hi",
        {"speaker": "human", "text": "Hi"},
        {"role": "critic", "content": "Hi"},
        {"role": "user", "content": 7},
        {"from": "function_call", "value": "no JSON"},
        {"from": "function_call", "value": []},
        {"role": "assistant", "content": None, "tool_calls": "{"},
        {"role": "assistant", "content": [{"toolUse": {"name": "f", "input": {}}}]},
        {"role": "assistant", "content": [{"type": "tool-call", "toolName": "f", "args": {}}]},
        {"role": "model", "content": [{"text": "I look.", "thought": True}]},
    ],
)
def test_turns_of_unknown_shape(turn: Any) -> None:
    with pytest.raises(UnreadableRowError):
        message_of(turn, {})


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        ({"from": "Human", "value": "Hi"}, {"role": "user", "content": "Hi"}),
        (
            {"role": "assistant", "content": "Hi", "name": None, "tool_calls": []},
            {"role": "assistant", "content": "Hi"},
        ),
        ({"from": "expert", "value": "Hi"}, {"role": "assistant", "content": "Hi"}),
        (
            {"from": "function_call", "value": '{"name": "f", "arguments": {"a": 1}}'},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}],
            },
        ),
    ],
)
def test_messages_of_turns(turn: Any, expected: Any) -> None:
    assert message_of(turn, {"expert": "assistant"}) == expected


@pytest.mark.parametrize(
    ("flags", "row_flags", "expected"),
    [
        ({"weight": 0}, {}, {1}),
        ({"weight": 1}, {}, set()),
        ({"train": False}, {}, {1}),
        ({"loss": "1.0"}, {}, set()),
        ({}, {"Loss-Mask": 0}, {1}),
        ({"weight": None}, {}, set()),
    ],
)
def test_flags_of_answers(flags: Any, row_flags: Any, expected: set[int]) -> None:
    assert untrained_turns([USER, {**ANSWER, **flags}], [USER, ANSWER], row_flags) == expected


@pytest.mark.parametrize("flags", [{"weight": 0.5}, {"mask": True}, {"train": "maybe"}])
def test_flags_that_say_neither(flags: Any) -> None:
    with pytest.raises(UnreadableRowError):
        untrained_turns([USER, {**ANSWER, **flags}], [USER, ANSWER], {})


@pytest.mark.parametrize("kind", ["chat", "prompt_completion", "text"])
def test_a_row_without_any_known_column(kind: str) -> None:
    with pytest.raises(UnreadableRowError):
        format_of({"id": 1}, kind)


def test_the_contract_names_every_room_that_makes_masks() -> None:
    """import-linter refuses a name that does not exist, so a new room has to be added where it is made."""
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (item for item in contracts if item.get("source_modules") == ["bridgepack.proof.masks"])
    rooms = [
        "bridgepack.config.layouts",
        *(f"bridgepack.data.{name}" for name in ("answers", "layouts", "sequences", "templates")),
    ]
    present = {room for room in rooms if importlib.util.find_spec(room) is not None}

    assert set(contract["forbidden_modules"]) == present
    assert not contract.get("allow_indirect_imports")
