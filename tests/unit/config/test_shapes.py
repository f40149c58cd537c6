"""The layouts that read the rows of a source: of one kind, one for each shape, the same on every machine."""

from typing import Any

import pytest

from bridgepack.config.layouts.sayings import as_flow
from bridgepack.config.layouts.shapes import shapes_of
from bridgepack.errors import ConfigError

Row = dict[str, Any]
TURNS = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "It is 4."}]
CHAT = {"messages": TURNS}
PAIR = {"prompt": "What is 2 + 2?", "completion": "It is 4."}
NO_CHAT = {"prompt": None, "completion": None}


def _found(rows: list[Row], kind: str = "chat") -> list[tuple[str, int]]:
    return [(shape.name, shape.num_rows) for shape in shapes_of(rows, kind=kind)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([CHAT], [("messages", 1)]),
        ([{"conversations": TURNS}, {"conversations": [{"from": "gpt", "value": "Hi."}]}], [("sharegpt", 2)]),
        (
            [{**CHAT, **NO_CHAT}, {**PAIR, "messages": None}, {**PAIR, "messages": None}],
            [("prompt_completion", 2), ("messages", 1)],
        ),
        ([CHAT, PAIR], [("messages", 1), ("prompt_completion", 1)]),
        ([PAIR, CHAT], [("prompt_completion", 1), ("messages", 1)]),
        ([CHAT, {"text": "Nothing that a chat reads."}, {}], [("messages", 1)]),
        ([{}, {"messages": []}], []),
    ],
)
def test_each_shape_has_its_layout(rows: list[Row], expected: list[tuple[str, int]]) -> None:
    assert _found(rows) == expected


@pytest.mark.parametrize(
    ("row", "kind", "layout"),
    [
        (PAIR, "prompt_completion", "{kind: prompt_completion, prompt: '{prompt}', completion: '{completion}'}"),
        (
            {"instruction": "Add.", "input": "2, 2", "output": "It is 4.", "system": "Be brief."},
            "prompt_completion",
            "{kind: prompt_completion, prompt: ['{instruction}', '{input}'], completion: '{output}'}",
        ),
        ({"text": "A document, and no more.", "title": "What it is about"}, "text", "{kind: text}"),
        ({"body": "A document, and no more."}, "text", "{kind: text, text: '{body}'}"),
        (
            {"input_ids": [5, 6], "labels": [-100, 6]},
            "tokenized",
            "{kind: tokenized, input_ids: input_ids}",
        ),
    ],
)
def test_the_kind_narrows_the_choice(row: Row, kind: str, layout: str) -> None:
    (shape,) = shapes_of([row], kind=kind)

    assert as_flow(shape.layout) == layout


@pytest.mark.parametrize(
    ("row", "kind", "other"),
    [(CHAT, "text", "chat"), ({"text": "A document, and no more."}, "chat", "text"), (CHAT, "tokenized", "chat")],
)
def test_rows_of_another_kind_say_which(row: Row, kind: str, other: str) -> None:
    with pytest.raises(ConfigError) as caught:
        shapes_of([row], kind=kind, data_name="data.train")

    assert str(caught.value).startswith("data.train: ")
    assert f"Set preprocessing.kind to {other}" in str(caught.value)


def test_two_layouts_that_leave_no_text_are_both_named() -> None:
    with pytest.raises(ConfigError) as caught:
        shapes_of([{**CHAT, "prompt": "Who made the moon?", "completion": "Nobody knows that."}], kind="chat")

    assert "{from_column: messages}" in str(caught.value)
    assert "content: '{prompt}'" in str(caught.value)


def test_the_layout_that_reads_all_text_wins() -> None:
    row = {"instruction": "Add these.", "input": "2 and 2", "output": "It is 4."}

    assert _found([row, {**row, "input": ""}]) == [("alpaca", 2)]


@pytest.mark.parametrize("kind", ["chat", "prompt_completion"])
def test_rows_that_are_not_to_be_trained_are_refused(kind: str) -> None:
    rows = [{**PAIR, "label": True}, {**PAIR, "label": False}]

    with pytest.raises(ConfigError, match="label marks bad completions"):
        shapes_of(rows, kind=kind)


def test_a_system_text_and_tools_of_later_rows_are_read() -> None:
    (shape,) = shapes_of([CHAT], kind="chat")
    (known,) = shapes_of([{**CHAT, "system": "Be brief.", "tools": [{"name": "f", "parameters": {}}]}], kind="chat")

    assert "{role: system, content: '{system}'}" in as_flow(shape.layout)
    assert "tools: [tools, functions, tool_defs]" in as_flow(shape.layout)
    assert "tools: tools}" in as_flow(known.layout)
