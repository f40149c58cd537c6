"""Rows are read by a recipe's layouts, and what nobody reads is named."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from ruamel.yaml import YAML

from bridgepack.config.recipe.preprocessing import (
    Preprocessing,
    PromptCompletionPreprocessing,
    TokenizedPreprocessing,
)
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.layouts.calls import as_function
from bridgepack.errors import ConfigError, RowError
from bridgepack.records import DropReason
from bridgepack.records.rows import ReadRow
from tests.support.messages import mentions
from tests.support.read_rows import read_row, reader_for
from tests.support.small_builds import build, small_recipe, write_json_lines
from tests.zoo.families import FAMILIES, write_tokenizer

ASKED = {"role": "user", "content": "{question}"}
ANSWERED = {"role": "assistant", "content": "{answer}"}
TURNS = [
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "Sure?"},
]
COLUMN_OF_WORDS = "asked with care"
TOKENS = TokenizedPreprocessing(kind="tokenized")
WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}


def _row(row: dict[str, Any], *messages: Any, **layout: Any) -> ReadRow:
    return reader_for(layout={"kind": "chat", "messages": list(messages), **layout}).read(row)


def _read(row: dict[str, Any], *messages: Any, **layout: Any) -> Mapping[str, Any]:
    return _row(row, *messages, **layout).columns


def _said(row: dict[str, Any], *messages: Any, **layout: Any) -> str:
    with pytest.raises(RowError) as caught:
        _read(row, *messages, **layout)
    return f"{caught.value.reason}: {caught.value.detail}"


def _turn(role: str, content: str | None, **others: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **others}


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"instruction": "Correct.", "input": "recieve"}, "Correct.\n\nText:\nrecieve"),
        ({"instruction": "Say hi.", "input": ""}, "Say hi."),
        ({"instruction": "Say hi.", "input": " \n"}, "Say hi."),
        ({"instruction": "Say hi.", "input": None}, "Say hi."),
        ({"instruction": "Say hi."}, "Say hi."),
        ({"instruction": "", "input": "recieve"}, "Text:\nrecieve"),
    ],
)
def test_a_piece_whose_columns_are_empty_is_left_out(row: dict[str, Any], prompt: str) -> None:
    asked = {"role": "user", "content": ["{instruction}", "Text:\n{input}"]}

    found = _read({**row, "output": "ok"}, asked, {"role": "assistant", "content": "{output}"})

    assert found == {"messages": [_turn("user", prompt), _turn("assistant", "ok")]}


@pytest.mark.parametrize("row", [{"question": None}, {}, {"question": "q", "answer": None}, {"question": "q"}])
def test_a_text_without_its_column_drops_the_row(row: dict[str, Any]) -> None:
    assert _said({"other": 1, **row}, ASKED, ANSWERED).startswith("missing_field: ")


@pytest.mark.parametrize("value", [["4"], {"text": "4"}, True])
def test_a_value_that_is_no_text_drops_the_row(value: Any) -> None:
    said = _said({"question": "2+2?", "answer": value}, ASKED, ANSWERED)

    assert mentions(said, f"invalid_field: answer is a {type(value).__name__}; ", "must be text")


def test_turns_of_a_column_and_turns_made_from_columns_are_joined() -> None:
    parts = {"from_column": "input"}, {"role": "assistant", "content": "{output}"}

    found = _read({"input": TURNS, "output": "Yes, 4."}, *parts)

    assert found["messages"] == [*TURNS, _turn("assistant", "Yes, 4.")]
    assert _read({"input": json.dumps(TURNS), "output": "Yes, 4."}, *parts) == found
    assert mentions(_said({"input": "2+2?", "output": "4"}, *parts), "invalid_field: input is a str; ", "list of turns")


@pytest.mark.parametrize("others", [{}, {"id": 7}])
def test_a_constant_system_text_stands_before_turns_of_a_column(others: dict[str, Any]) -> None:
    found = _read({"messages": TURNS, **others}, {"role": "system", "content": "Be kind."}, {"from_column": "messages"})

    assert found == {"messages": TURNS, "system": "Be kind."}


@pytest.mark.parametrize("others", [[], [{"role": "assistant", "content": "{reply}"}]])
def test_every_column_can_be_a_path(others: list[Any]) -> None:
    tools, settings = [WEATHER, {**WEATHER, "name": "time"}], {"x": 1, "unset": None}
    row = {"data": {"turns": TURNS, "tools": tools, "settings": settings}, "reply": "4"}
    layout = {"tools": "data.tools", "chat_template_kwargs": "data.settings"}

    found = _read(row, {"from_column": "data.turns"}, *others, **layout)

    assert found == {
        "messages": [*TURNS, *(_turn("assistant", "4") for _ in others)],
        "tools": [{"type": "function", "function": tool} for tool in tools],
        "chat_template_kwargs": {"x": 1},
    }


def test_white_space_of_a_pair_stays_where_it_is_not_stripped() -> None:
    layout = {"kind": "prompt_completion", "prompt": "Q: {q}\n", "completion": "{a}"}

    settings = PromptCompletionPreprocessing(kind="prompt_completion", strip_whitespace=False)

    found = reader_for(settings, layout=layout).read({"q": " 2 + 2? ", "a": " 4"}).columns

    assert found == {"prompt": "Q:  2 + 2? \n", "completion": " 4"}


def test_reasoning_and_calls_are_part_of_the_answer() -> None:
    answer = {"role": "assistant", "content": "{answer}", "reasoning_content": "{thinking}", "tool_calls": "calls"}
    calls = [{"name": "weather", "arguments": {"city": "Bern"}}]
    row = {"question": "q", "answer": "a", "thinking": "t", "calls": json.dumps(calls), "tools": json.dumps([WEATHER])}

    found = _read(row, ASKED, answer, tools=["functions", "tools"])

    called = [{"type": "function", "function": calls[0]}]
    assert found["messages"][1] == _turn("assistant", "a", reasoning_content="t", tool_calls=called)
    assert found["tools"] == [{"type": "function", "function": WEATHER}]
    bare = _read({"question": "q", "answer": "", "thinking": "", "calls": calls, "tools": "[]"}, ASKED, answer)
    assert bare == {"messages": [_turn("user", "q"), _turn("assistant", "", tool_calls=called)]}


def test_variables_of_the_template_have_a_value_for_each_in_the_column() -> None:
    variable = {"enable_thinking": {"column": "reasoning", "values": {"on": True, "off": False}}}
    row = {"question": "q", "answer": "a"}

    read = [
        _read({**row, "reasoning": value}, ASKED, ANSWERED, chat_template_kwargs=variable) for value in ("on", "off")
    ]

    assert [found["chat_template_kwargs"] for found in read] == [{"enable_thinking": True}, {"enable_thinking": False}]
    assert "chat_template_kwargs" not in _read(row, ASKED, ANSWERED, chat_template_kwargs=variable)
    said = _said({**row, "reasoning": "low"}, ASKED, ANSWERED, chat_template_kwargs=variable)
    assert mentions(said, "invalid_field: reasoning is 'low'; ", ": on, off")


def test_a_path_names_a_value_inside_a_column_unless_a_column_has_that_name() -> None:
    answer = {"role": "assistant", "content": "{answers.text.0}"}

    inner = _read({"question": "q", "answers": {"text": ["200 m"], "answer_start": [3]}}, ASKED, answer)
    whole = _read({"question": "q", "answers.text.0": "300 m"}, ASKED, answer)

    assert [found["messages"][1]["content"] for found in (inner, whole)] == ["200 m", "300 m"]
    assert _said({"question": "q", "answers": {"text": []}}, ASKED, answer).startswith("missing_field: answers.text.0")


@pytest.mark.parametrize("tools", [[], "[]", "", " ", None, {}, "{}", "null"])
@pytest.mark.parametrize("layout", [{"tools": "tools"}, None])
def test_empty_tools_are_absent(tools: Any, layout: dict[str, Any] | None) -> None:
    row = {"messages": TURNS, "tools": tools}

    found = _read(row, {"from_column": "messages"}, **layout) if layout else read_row(row).columns

    assert found == {"messages": TURNS}


@pytest.mark.parametrize("name", ["functions", "tool_defs"])
def test_schemas_under_other_names_are_read(name: str) -> None:
    assert read_row({"messages": TURNS, name: [WEATHER]}).columns["tools"] == [as_function(WEATHER)]


@pytest.mark.parametrize(
    ("prompt", "completion"),
    [
        (TURNS[:1], [_turn("assistant", "4")]),
        (TURNS[:1], "4"),
        ("2+2?", [_turn("assistant", "4")]),
        ("2+2?", "4"),
    ],
)
def test_prompt_and_completion_are_texts_or_turns(prompt: Any, completion: Any) -> None:
    read = read_row({"prompt": prompt, "completion": completion}).columns["messages"]

    assert read == [TURNS[0], _turn("assistant", "4")]


def test_unread_columns_are_kept_apart_and_ignored_ones_are_not() -> None:
    row = {"question": "q", "answer": "a", "thinking": "Long thoughts.", "id": 7, "note": "", "extra": None}

    found = _row(row, ASKED, ANSWERED, ignore=["id"])

    assert dict(found.unread) == {"thinking": "Long thoughts."}
    assert found.columns == {"messages": [_turn("user", "q"), _turn("assistant", "a")]}


@pytest.mark.parametrize(
    ("ignored", "read"), [("labels", {"loss_mask": [0, 1]}), ("loss_mask", {"labels": [-100, 2]}), ("id", None)]
)
def test_an_ignored_mask_trains_nothing(ignored: str, read: dict[str, Any] | None) -> None:
    reader = reader_for(TOKENS, layout={"kind": "tokenized", "ignore": [ignored]})
    row = {"input_ids": [1, 2], "labels": [-100, 2], "loss_mask": [0, 1], "id": 7}

    assert reader.read(row).columns == {"input_ids": [1, 2], **(read or {"loss_mask": [0, 1]})}
    assert reader.read({"input_ids": [1, 2], ignored: [1, 1]}).columns == {"input_ids": [1, 2]}


def test_a_column_beside_one_with_the_name_of_a_path_is_unread() -> None:
    found = _row({"question": "q", "a.b": "read", "a": {"b": "Not read."}}, ASKED, _turn("assistant", "{a.b}"))

    assert found.columns["messages"][1] == _turn("assistant", "read")
    assert dict(found.unread) == {"a": {"b": "Not read."}}


@pytest.mark.parametrize(
    ("ignored", "unread"), [([], {"answer.why": "2 and 2 make 4."}), (["answer.why"], {}), (["answer"], {})]
)
def test_what_a_path_leaves_of_its_column_is_unread(ignored: list[str], unread: dict[str, Any]) -> None:
    row = {"question": "2+2?", "answer": {"text": ["4"], "why": "2 and 2 make 4.", "source": None}}

    found = _row(row, ASKED, _turn("assistant", "{answer.text.0}"), ignore=ignored)

    assert found.columns["messages"][1] == _turn("assistant", "4")
    assert dict(found.unread) == unread


#: (section, its older fields, rows that they read, what the layouts that replace them make of these)
REPLACED: list[tuple[str, dict[str, Any], dict[str, Any], list[dict[str, Any]]]] = [
    (
        "preprocessing",
        {"kind": "chat", "conversation_column": "talk"},
        {"talk": TURNS, "system": "Be brief."},
        [{"messages": TURNS, "system": "Be brief."}],
    ),
    (
        "preprocessing",
        {"kind": "chat", "prompt_column": "q", "completion_column": "a", "tools_column": "t"},
        {"q": "2+2?", "a": "4", "t": [WEATHER], "prompt": "other"},
        [{"messages": [_turn("user", "2+2?"), _turn("assistant", "4")], "tools": [as_function(WEATHER)]}],
    ),
    (
        "preprocessing",
        {"kind": "chat", "conversation_column": "talk", "prompt_column": "q"},
        {"q": "2+2?", "completion": "4"},
        [{"messages": [_turn("user", "2+2?"), _turn("assistant", "4")]}],
    ),
    (
        "preprocessing",
        {"kind": "chat", "chat_template_kwargs_column": "how"},
        {"messages": TURNS, "how": {"a": 1}},
        [{"messages": TURNS, "chat_template_kwargs": {"a": 1}}],
    ),
    (
        "preprocessing",
        {"kind": "prompt_completion", "prompt_column": "q", "prompt_template": "Q: {prompt} {{x}}"},
        {"q": " 2+2? ", "completion": " 4"},
        [{"prompt": "Q: 2+2? {x}", "completion": "4"}],
    ),
    (
        "preprocessing",
        {"kind": "tokenized", "input_ids_column": "ids", "labels_column": "l"},
        {"ids": [1, 2], "l": [-100, 2]},
        [{"input_ids": [1, 2], "labels": [-100, 2]}],
    ),
    (
        "preprocessing",
        {"kind": "tokenized", "loss_mask_column": "m"},
        {"input_ids": [1, 2], "m": [0, 1]},
        [{"input_ids": [1, 2], "loss_mask": [0, 1]}],
    ),
    (
        "data.train",
        {"columns": {"messages": "talk", "tools": "t", "system": "rules"}},
        {"talk": TURNS, "t": [WEATHER], "rules": "Be brief."},
        [{"messages": TURNS, "system": "Be brief.", "tools": [as_function(WEATHER)]}],
    ),
    (
        "data.train",
        {"columns": {"prompt": "q", "completion": "a"}, "kind": "prompt_completion"},
        {"q": "2+2?", "a": "4", "messages": "of no use"},
        [{"messages": [_turn("user", "2+2?"), _turn("assistant", "4")]}, {"prompt": "2+2?", "completion": "4"}],
    ),
    (
        "data.train",
        {"columns": {"input_ids": "ids", "labels": "l"}},
        {"ids": [1, 2], "l": [-100, 2]},
        [{"input_ids": [1, 2], "labels": [-100, 2]}],
    ),
]


@pytest.mark.parametrize(("section", "fields", "row", "expected"), REPLACED)
def test_an_older_field_names_the_layout_that_says_the_same(
    section: str, fields: dict[str, Any], row: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    changes = {section: {"path": "a.jsonl", **fields} if section == "data.train" else fields}
    with pytest.raises(ConfigError) as caught:
        small_recipe("a.jsonl", "tokenizer").override(changes)

    name = next(name for name in fields if name != "kind" or section == "data.train")
    assert str(caught.value).startswith(f"{section}.{name} is ")
    made = []
    for layout in _layouts_in(str(caught.value)):
        kind = (layout[0] if isinstance(layout, list) else layout)["kind"]
        data = {"train": "a.jsonl", "layout": layout}
        recipe = small_recipe("", "tokenizer", data=data, preprocessing={"kind": kind})
        made.append(reader_for(recipe.preprocessing, layout=recipe.data.layout).read(row).columns)
    assert made == expected


def _layouts_in(message: str) -> Iterator[Any]:
    """Yield the layouts that a message says to write, as they would be read from a recipe."""
    for text in re.split(r"layout(?: on a source)?: ", message)[1:]:
        depths = accumulate((char in "{[") - (char in "}]") for char in text)
        yield YAML(typ="safe").load(text[: next(index for index, depth in enumerate(depths) if depth == 0) + 1])


def test_a_source_of_chats_needs_no_kind() -> None:
    with pytest.raises(ConfigError, match=r"data\.train\.kind is 'chat'; .* detected\. Remove"):
        small_recipe("", "tokenizer", data={"train": {"path": "a.jsonl", "kind": "chat"}})


def test_tokens_of_the_same_rows_are_stored_for_each_way_to_read_them(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = write_json_lines(tmp_path / "rows.jsonl", [{"prompt": "2+2?", "completion": "4"}])
    texts = {"kind": "prompt_completion", "prompt": "{prompt}", "completion": "{completion}"}
    sources = [{"path": str(rows), "layout": {**texts, "prompt": text}} for text in ("{prompt}", "{absent}")]
    recipe = small_recipe(sources, chatml_tokenizer, preprocessing={"kind": "prompt_completion"})

    split = build(recipe, tmp_path / "artifact").manifest.splits[0]

    assert (split.statistics.num_sequences, split.drops) == (1, {DropReason.MISSING_FIELD: 1})


LAYOUT = {"kind": "chat", "messages": [ASKED, ANSWERED]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data.layout": LAYOUT, "preprocessing.kind": "prompt_completion"}, "layout is chat, and"),
        ({"data.layout": [LAYOUT, LAYOUT]}, "layout twice, as entries 0 and 1"),
        ({"data.layout": [LAYOUT, {"kind": "text"}]}, "data.layout has layouts of the"),
        ({"data.layout": []}, "data.layout is []"),
        ({"data.layout": "messages"}, "data.layout is 'messages'"),
        ({"data.layout": {**LAYOUT, "ignore": ["a", "a"]}}, "data.layout.ignore names 'a' twice"),
        (
            {"data.layout": {"kind": "prose"}},
            "data.layout.kind is 'prose'; allowed: chat, prompt_completion, text, tokenized",
        ),
        (
            {"data.layout": {"kind": "chat", "messages": [_turn("user", "hi")]}},
            "must name a column",
        ),
    ],
)
def test_a_layout_is_the_only_way_to_say_how_rows_are_read(changes: dict[str, Any], said: str) -> None:
    recipe = small_recipe("a.jsonl", "tokenizer", preprocessing={"kind": "chat"})

    with pytest.raises(ConfigError) as caught:
        recipe.override(changes)

    assert said in str(caught.value)


def _recipe(tmp_path: Path, tokenizer: Path, rows: list[dict[str, Any]], **changes: Any) -> SFTRecipe:
    data = write_json_lines(tmp_path / "rows.jsonl", rows)
    recipe = small_recipe(data, tokenizer, preprocessing={"kind": "chat"}, packing={"packed_sequence_size": 256})
    return recipe.override({name.replace("__", "."): value for name, value in changes.items()})


def test_a_build_counts_what_nobody_reads(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = [
        {
            "question": f"How much is {number} and two?",
            "answer": str(number + 2),
            "thinking": "One adds the two numbers, one by one." if number % 2 else "",
            "copy": f"How much is {number} and two?",
            "id": f"row-{number}",
        }
        for number in range(4)
    ]

    recipe = _recipe(tmp_path, chatml_tokenizer, rows, data__layout=LAYOUT)
    split = build(recipe, tmp_path / "out").manifest.splits[0]

    found = {field.name: (field.holds, field.num_rows, field.num_rows_read, field.row) for field in split.unread}
    assert found == {
        "copy": ("identifier", 4, 4, 1),
        "id": ("identifier", 4, 4, 1),
        "thinking": ("text", 2, 4, 2),
    }
    assert split.lost_content == {"unread": 2}
    assert mentions(split.lost_examples[0].detail, "thinking is not read: 'One adds ", " one by one.'")


def test_text_that_is_not_read_drops_rows_where_lost_content_does(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = [{"question": "q", "answer": "a", "context": text} for text in ("The lake is deep and cold.", "")]
    changes = {"data__layout": LAYOUT, "preprocessing__on_lost_content": "drop"}

    split = build(_recipe(tmp_path, chatml_tokenizer, rows, **changes), tmp_path / "out").manifest.splits[0]

    assert split.drops == {DropReason.LOST_CONTENT: 1}
    assert mentions(split.drop_examples[0].detail, "unread: context ", "not read: 'The lake ")


def test_fields_of_turns_that_the_template_does_not_name_are_unread(tmp_path: Path, chatml_tokenizer: Path) -> None:
    answer = {**_turn("assistant", "4"), "confidence": 0.5, "critique": "This answer could explain more of its way."}

    recipe = _recipe(tmp_path, chatml_tokenizer, [{"messages": [TURNS[0], answer]}])
    split = build(recipe, tmp_path / "out").manifest.splits[0]

    found = {field.name: field.holds for field in split.unread}
    assert found == {"messages.confidence": "identifier", "messages.critique": "text"}


def test_items_of_a_list_that_no_path_reads_are_named() -> None:
    """The second of two earlier questions vanished under a layout that reads the first."""
    row = {"history": [["Where?", "In Uri."], ["Whose is it?", "Nobody's."]], "question": "Deep?", "answer": "Yes."}
    first = [{"role": "user", "content": "{history.0.0}"}, {"role": "assistant", "content": "{history.0.1}"}]
    read = _row(row, *first, ASKED, ANSWERED)

    assert [message["content"] for message in read.columns["messages"]] == ["Where?", "In Uri.", "Deep?", "Yes."]
    assert read.unread == {"history.*": ["Whose is it?", "Nobody's."]}
    as_text = _row({**row, "history": json.dumps(row["history"])}, *first, ASKED, ANSWERED)
    assert (as_text.columns, as_text.unread) == (read.columns, read.unread)


@pytest.mark.parametrize("column", [{"from_column": "turns"}, {"from_column": "path.turns"}])
def test_lists_of_a_role_and_a_text_are_turns_before_a_question_of_columns_too(column: dict[str, str]) -> None:
    """They were pairs beside other turns: the role `user` was a question, its text was trained."""
    turns = [["system", "Be brief."], ["user", "2+2?"], ["assistant", "4"]]
    row = {"turns": turns, "path": {"turns": json.dumps(turns)}, "question": "Deep?", "answer": "Yes."}

    assert _read(row, column, ASKED, ANSWERED)["messages"] == [
        *(_turn(role, content) for role, content in turns),
        _turn("user", "Deep?"),
        _turn("assistant", "Yes."),
    ]


FLAGS = [
    *({name: 0} for name in ("weight", "loss", "loss_weight", "loss_mask", "loss_scale", "mask")),
    *({name: False} for name in ("train", "training", "trainable", "loss")),
    {"loss_weight": 0.0},
    *({name: value} for name, value in (("Loss", 0), ("lossWeight", False), ("train", "False"), ("weight", "0"))),
]


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("is_of_row", [True, False])
def test_flags_about_the_loss_are_read_or_named(
    tmp_path: Path, chatml_tokenizer: Path, flag: dict[str, Any], is_of_row: bool
) -> None:
    draft = {**_turn("assistant", "Bad draft."), **({} if is_of_row else flag)}
    rows = [
        {"messages": [TURNS[0], draft], **(flag if is_of_row else {})},
        {"messages": [TURNS[0], _turn("assistant", "Good answer.")]},
    ]
    recipe = _recipe(tmp_path, chatml_tokenizer, rows)

    unread = build(recipe, tmp_path / "unread").manifest.splits[0]
    read = build(recipe.override({"preprocessing.message_weights": "mask"}), tmp_path / "read").manifest.splits[0]

    assert (unread.lost_content, unread.statistics.num_sequences) == ({"weight": 1}, 2)
    assert (read.lost_content, read.drops) == ({}, {DropReason.NO_TRAINED_TOKEN: 1})
    assert not [field for field in read.unread if field.holds == "flag"]


@pytest.mark.parametrize("answer", [{"answer": ""}, {"answer": " \n"}, {"answer": None}, {}])
def test_rows_without_an_answer_are_dropped_by_the_name_of_its_column(answer: dict[str, Any]) -> None:
    asked = {"role": "user", "content": ["{question}", "{context}"]}

    assert _said({"question": "2+2?", "context": None, **answer}, asked, ANSWERED).startswith(
        "missing_field: answer is "
    )
    assert _read({"question": "", "answer": "4"}, ASKED, ANSWERED)["messages"][1]["content"] == "4"


@pytest.mark.parametrize(
    "layout",
    [
        {"kind": "chat", "messages": [{"role": "user", "content": f"{{{COLUMN_OF_WORDS}}}"}, ANSWERED]},
        {"kind": "prompt_completion", "prompt": f"{{{COLUMN_OF_WORDS}}}", "completion": "{answer}"},
        {"kind": "text", "text": f"{{{COLUMN_OF_WORDS}}}"},
        {"kind": "tokenized", "input_ids": COLUMN_OF_WORDS},
    ],
)
def test_a_column_of_several_words_is_named_whole(layout: dict[str, Any]) -> None:
    settings = TypeAdapter(Preprocessing).validate_python({"kind": layout["kind"]})

    with pytest.raises(RowError) as caught:
        reader_for(settings, layout=layout).read({"answer": "4"})

    assert caught.value.detail.startswith(f"{COLUMN_OF_WORDS} is missing")


def test_columns_of_several_words_that_have_no_turns_are_named_whole() -> None:
    said = _said({COLUMN_OF_WORDS: []}, {"from_column": COLUMN_OF_WORDS})

    assert said == f"empty_conversation: {COLUMN_OF_WORDS} has no turns"


def test_a_field_of_turns_with_the_name_of_a_variable_of_the_template_is_unread(tmp_path: Path) -> None:
    family = next(one for one in FAMILIES if one.name == "Qwen3")
    schema = {"type": "function", "function": {"name": "depth", "description": "The depth of a lake."}}
    system = {**_turn("system", "Be brief."), "tools": json.dumps([schema])}
    recipe = _recipe(tmp_path, write_tokenizer(tmp_path / "qwen3", family), [{"messages": [system, *TURNS]}])
    split = build(recipe, tmp_path / "out").manifest.splits[0]

    assert [(field.name, field.holds) for field in split.unread] == [("messages.tools", "text")]


def test_a_system_text_beside_one_of_the_turns_is_unread_by_the_name_of_its_column(
    tmp_path: Path, chatml_tokenizer: Path
) -> None:
    rows = [{"persona": "Be long.", "messages": [_turn("system", "Be brief."), *TURNS]}]
    layout = {"kind": "chat", "messages": [{"role": "system", "content": "{persona}"}, {"from_column": "messages"}]}
    recipe = _recipe(tmp_path, chatml_tokenizer, rows).override({"data.layout": layout})
    split = build(recipe, tmp_path / "out").manifest.splits[0]

    assert [(field.name, field.holds) for field in split.unread] == [("persona", "text")]
