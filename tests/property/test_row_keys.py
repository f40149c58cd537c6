"""Every key of a call and of a schema is read or named, whatever its name is."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridgepack.config.layouts.keys import CALL, RESULT, SCHEMA, TURN
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
#: Turns that hold a call as a part, an item or themselves: the call, and the turns around it.
CALLS_OF_APIS: Mapping[str, tuple[dict[str, Any], Callable[[dict[str, Any]], Any]]] = {
    "Anthropic": (
        {"id": "c1", "name": "depth", "input": {"lake": TEXT}},
        lambda call: {"role": "assistant", "content": [{"type": "tool_use", **call}]},
    ),
    "Gemini": (
        {"id": "c1", "name": "depth", "args": {"lake": TEXT}},
        lambda call: {"role": "model", "parts": [{"functionCall": call}]},
    ),
    "Bedrock": (
        {"toolUseId": "c1", "name": "depth", "input": {"lake": TEXT}},
        lambda call: {"role": "assistant", "content": [{"toolUse": call}]},
    ),
    "Vercel": (
        {"toolCallId": "c1", "toolName": "depth", "input": {"lake": TEXT}},
        lambda call: {"role": "assistant", "content": [{"type": "tool-call", **call}]},
    ),
    "Vercel's interfaces": (
        {"toolCallId": "c1", "state": "output-available", "input": {"lake": TEXT}, "output": "200"},
        lambda call: {"role": "assistant", "parts": [{"type": "tool-depth", **call}]},
    ),
    "Vercel's invocations": (
        {"toolCallId": "c1", "toolName": "depth", "state": "result", "args": {"lake": TEXT}, "result": "200"},
        lambda call: {"role": "assistant", "parts": [{"type": "tool-invocation", "toolInvocation": call}]},
    ),
    "OpenTelemetry": (
        {"id": "c1", "name": "depth", "arguments": {"lake": TEXT}},
        lambda call: {"role": "assistant", "parts": [{"type": "tool_call", **call}]},
    ),
    "Haystack": (
        {"id": "c1", "tool_name": "depth", "arguments": {"lake": TEXT}},
        lambda call: {"role": "assistant", "content": [{"tool_call": call}]},
    ),
    "LlamaIndex": (
        {"tool_call_id": "c1", "tool_name": "depth", "tool_kwargs": {"lake": TEXT}},
        lambda call: {"role": "assistant", "blocks": [{"block_type": "tool_call", **call}]},
    ),
    "Responses": (
        {"call_id": "c1", "name": "depth", "arguments": json.dumps({"lake": TEXT})},
        lambda call: {"type": "function_call", **call},
    ),
    "ms-swift": ({"name": "depth", "arguments": {"lake": TEXT}}, lambda call: {"role": "tool_call", **call}),
    "ShareGPT": (
        {"name": "depth", "arguments": {"lake": TEXT}},
        lambda call: {"role": "tool_call", "content": json.dumps(call)},
    ),
}
#: The same of what a tool returned.
RESULTS_OF_APIS: Mapping[str, tuple[dict[str, Any], Callable[[dict[str, Any]], Any]]] = {
    "Anthropic": (
        {"tool_use_id": "c1", "content": TEXT},
        lambda result: {"role": "user", "content": [{"type": "tool_result", **result}]},
    ),
    "Gemini": (
        {"name": "depth", "response": {"said": TEXT}},
        lambda result: {"role": "user", "parts": [{"functionResponse": result}]},
    ),
    "Bedrock": (
        {"toolUseId": "c1", "content": [{"text": TEXT}]},
        lambda result: {"role": "user", "content": [{"toolResult": result}]},
    ),
    "Vercel": (
        {"toolCallId": "c1", "toolName": "depth", "output": {"type": "text", "value": TEXT}},
        lambda result: {"role": "tool", "content": [{"type": "tool-result", **result}]},
    ),
    "OpenTelemetry": (
        {"id": "c1", "response": TEXT},
        lambda result: {"role": "tool", "parts": [{"type": "tool_call_response", **result}]},
    ),
    "Haystack": (
        {"result": TEXT, "origin": {"id": "c1", "tool_name": "depth"}},
        lambda result: {"role": "tool", "content": [{"tool_call_result": result}]},
    ),
    "OpenAI": ({"tool_call_id": "c1", "content": TEXT}, lambda result: {"role": "tool", **result}),
}
#: Names of turns, parts and results beside those of a call.
KNOWN = frozenset({"state", "step", "output", "result", "error", *TURN.key_of})
SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "function", "function": {"name": "depth", "description": TEXT, "parameters": {"type": "object"}}},
    {"type": "function", "name": "depth", "description": TEXT, "parameters": {"type": "object"}},
    {"name": "depth", "description": TEXT, "inputSchema": {"type": "object"}},
    {"name": "depth", "description": TEXT, "input_schema": {"type": "object"}},
    {"name": "depth", "description": TEXT, "args_schema": {"type": "object"}},
    {"functionDeclarations": [{"name": "depth", "description": TEXT, "parameters": {"type": "object"}}]},
    {"tools": [{"toolSpec": {"name": "depth", "description": TEXT, "inputSchema": {"json": {"type": "object"}}}}]},
)


def _with_key(item: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """Yield an object with each of its keys in turn, at its own level and in its function, under another name."""
    for key in item:
        yield {name if other == key else other: value for other, value in item.items()}
        if key == "function":
            yield from ({**item, key: function} for function in _with_key(item[key], name))
        elif key == "functionDeclarations":
            yield from ({key: [schema]} for schema in _with_key(item[key][0], name))
        elif key == "tools":
            yield from ({key: [{"toolSpec": schema}]} for schema in _with_key(item[key][0]["toolSpec"], name))


def _named(row: ReadRow) -> set[str]:
    fields = {name for message in row.columns["messages"] for name in message}  # judged by `unread_turn_fields`
    return fields | {path.rpartition(".")[2] for path in (*row.unread, *row.other_keys)}


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
    for call, turn_of in CALLS_OF_APIS.values():
        for changed in _with_key(call, name):
            is_known = bool(CALL.key(name)) or name in CALL.others or name in KNOWN
            _check(turn_of(changed), [], name, is_known=is_known)
            num_checked += 1
    for result, turn_of in RESULTS_OF_APIS.values():
        for changed in _with_key(result, name):
            is_known = bool(RESULT.key(name)) or name in RESULT.others or name in KNOWN
            _check(turn_of(changed), [], name, is_known=is_known)
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
