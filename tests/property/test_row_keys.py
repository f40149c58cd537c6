"""Every key of a call and of a schema is read or named, whatever its name is."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridgepack.config.layouts.keys import CALL, SCHEMA
from bridgepack.errors import RowError
from bridgepack.records.rows import ReadRow
from tests.support.read_rows import read_row

TEXT = "Look at it in the atlas."
CALLS: tuple[dict[str, Any], ...] = (
    {"id": "c1", "type": "function", "function": {"name": "depth", "arguments": {"lake": TEXT}}},
    {"name": "depth", "arguments": {"lake": TEXT}, "id": "c1"},
    {"name": "depth", "args": {"lake": TEXT}, "id": "c1", "type": "tool_call"},
    {"tool_name": "depth", "tool_input": {"lake": TEXT}},
)
#: Turns that hold a call as a part (Anthropic, Gemini) or as themselves (ms-swift): the call, and the turn around it.
CALLS_OF_APIS: tuple[tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]], ...] = (
    (
        {"id": "c1", "name": "depth", "input": {"lake": TEXT}},
        lambda call: {"role": "assistant", "content": [{"type": "tool_use", **call}]},
    ),
    (
        {"id": "c1", "name": "depth", "args": {"lake": TEXT}},
        lambda call: {"role": "model", "parts": [{"functionCall": call}]},
    ),
    ({"name": "depth", "arguments": {"lake": TEXT}}, lambda call: {"role": "tool_call", **call}),
    ({"name": "depth", "arguments": {"lake": TEXT}}, lambda call: {"role": "tool_call", "content": json.dumps(call)}),
)
SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "function", "function": {"name": "depth", "description": TEXT, "parameters": {"type": "object"}}},
    {"name": "depth", "description": TEXT, "inputSchema": {"type": "object"}},
    {"name": "depth", "description": TEXT, "input_schema": {"type": "object"}},
    {"name": "depth", "description": TEXT, "args_schema": {"type": "object"}},
    {"functionDeclarations": [{"name": "depth", "description": TEXT, "parameters": {"type": "object"}}]},
)


def _with_key(item: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """Yield an object with each of its keys in turn, at its own level and in its function, under another name."""
    for key in item:
        yield {name if other == key else other: value for other, value in item.items()}
        if key == "function":
            yield from ({**item, key: function} for function in _with_key(item[key], name))
        elif key == "functionDeclarations":
            yield from ({key: [schema]} for schema in _with_key(item[key][0], name))


def _named(row: ReadRow) -> set[str]:
    return {path.rpartition(".")[2] for path in (*row.unread, *row.other_keys)}


@given(st.text(st.characters(categories=["Ll", "Lu", "Nd"], include_characters="_-"), min_size=1, max_size=12))
def test_each_key_under_an_unknown_name_is_named(name: str) -> None:
    num_checked = 0
    for call in CALLS:
        for changed in _with_key(call, name):
            for turn in (
                {"role": "assistant", "content": "", "tool_calls": [changed]},
                {"from": "function_call", "value": json.dumps(changed)},
            ):
                _check(turn, [], name, is_known=bool(CALL.key(name)) or name in CALL.others)
                num_checked += 1
    for call, turn_of in CALLS_OF_APIS:
        for changed in _with_key(call, name):
            _check(turn_of(changed), [], name, is_known=bool(CALL.key(name)) or name in CALL.others)
            num_checked += 1
    for schema in SCHEMAS:
        for changed in _with_key(schema, name):
            turn = {"role": "assistant", "content": "Hi"}
            _check(turn, [changed], name, is_known=bool(SCHEMA.key(name)) or name in SCHEMA.others)
            num_checked += 1
    assert num_checked > 0


def _check(turn: dict[str, Any], tools: list[Any], name: str, *, is_known: bool) -> None:
    try:
        row = read_row({"messages": [{"role": "user", "content": "How deep?"}, turn], "tools": tools})
    except RowError:
        return  # the row is dropped, with a reason
    assert is_known or name in _named(row), (turn, tools)
