"""Calls, schemas and turns under the names that data sets give them: what the normaliser makes of each."""

import json
from typing import Any

import pytest

from bridgepack.data.layouts.calls import schemas_of
from bridgepack.errors import RowError
from tests.support.messages import mentions
from tests.support.read_turns import read_turns, refusal_of

ASKED = {"role": "user", "content": "How deep?"}
URI = {"lake": "Uri"}
CALLED = {"type": "function", "function": {"name": "depth", "arguments": URI}}
SCHEMA = {"type": "object", "properties": {"input": {"type": "string"}, "args": {"type": "string"}}}


@pytest.mark.parametrize("name", ["arguments", "parameters", "args", "input", "params", "action_input"])
def test_arguments_have_many_names(name: str) -> None:
    call = {"name": "depth", name: URI}
    text = json.dumps(call)
    for turn in (
        {"from": "function_call", "value": text},
        {"from": "tool_call", "value": text},
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": call}]},
    ):
        assert read_turns(ASKED, turn).messages[1]["tool_calls"] == [CALLED]


def test_a_call_of_langchain_is_one_of_openai() -> None:
    call = {"name": "depth", "args": URI, "id": "c1", "type": "tool_call"}
    (message,) = read_turns({"role": "assistant", "content": "", "tool_calls": [call]}).messages

    assert message["tool_calls"] == [{"id": "c1", **CALLED}]


def test_calls_with_the_names_of_openai_stay_as_they_are() -> None:
    for call in (CALLED, {"name": "depth", "arguments": "{}"}, {**CALLED, "id": "c1", "index": 0}):
        turns = [ASKED, {"role": "assistant", "content": "", "tool_calls": [call]}]
        read = read_turns(*turns)
        assert read.messages == turns
        assert read.messages[1]["tool_calls"][0] is call
        assert not read.other_keys


def test_arguments_and_properties_are_never_renamed() -> None:
    arguments = {"input": "a", "args": "b", "parameters": {"args": 1}}
    turn = {"from": "function_call", "value": {"name": "f", "parameters": arguments}}
    assert read_turns(turn).messages[0]["tool_calls"][0]["function"]["arguments"] == arguments
    assert schemas_of([{"name": "f", "inputSchema": SCHEMA}], "tools", {})[0]["function"]["parameters"] == SCHEMA


def test_two_names_for_one_key_are_refused() -> None:
    both = {"name": "f", "args": {}, "parameters": {}}
    said = refusal_of({"from": "function_call", "value": both})
    assert mentions(said, "invalid_field: turn 1: ", "args and parameters", "its arguments")
    with pytest.raises(RowError, match="both inputSchema and parameters"):
        schemas_of([{"name": "f", "inputSchema": {}, "parameters": {}}], "tools", {})
    null_filled = {"name": "f", "args": None, "parameters": {}}
    assert read_turns({"from": "function_call", "value": null_filled}).messages[0]["tool_calls"]


@pytest.mark.parametrize(
    "schema",
    [
        {"name": "depth", "description": "Says it.", "inputSchema": SCHEMA},
        {"name": "depth", "description": "Says it.", "input_schema": SCHEMA},
        {"name": "depth", "description": "Says it.", "parameters": SCHEMA},
        {"type": "function", "name": "depth", "description": "Says it.", "parameters": SCHEMA},
        {"type": "function", "function": {"name": "depth", "description": "Says it.", "inputSchema": SCHEMA}},
        {"functionDeclarations": [{"name": "depth", "description": "Says it.", "parameters": SCHEMA}]},
        {"tools": [{"name": "depth", "description": "Says it.", "inputSchema": SCHEMA}]},
    ],
)
def test_schemas_are_what_a_server_sends(schema: dict[str, Any]) -> None:
    sent = {"name": "depth", "description": "Says it.", "parameters": SCHEMA}
    assert schemas_of([schema], "tools", {}) == [{"type": "function", "function": sent}]


def test_other_keys_are_named_by_their_paths() -> None:
    called = read_turns({"from": "function_call", "value": {"name": "f", "arguments": {}, "thought": "I look it up."}})
    assert called.unread == {"messages.function_call.thought": "I look it up."}
    inside = {"type": "function", "why": 1, "function": {"name": "f", "arguments": {}, "thought": "So."}}
    listed = read_turns({"role": "assistant", "content": "", "tool_calls": [inside]})
    assert listed.other_keys == {"messages.tool_calls.why": 1, "messages.tool_calls.function.thought": "So."}
    others: dict[str, Any] = {}
    schemas_of([{"name": "f", "parameters": {}, "annotations": {"title": "F"}}], "apis", others)
    assert others == {"apis.annotations": {"title": "F"}}
    part = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}
    assert read_turns({"role": "user", "content": [part]}).other_keys == {
        "messages.content.cache_control": {"type": "ephemeral"}
    }


@pytest.mark.parametrize(
    "turns",
    [
        [["2 + 2?", "4"], ["Sure?", "Yes."]],
        [{"input": "2 + 2?", "output": "4"}, {"input": "Sure?", "output": "Yes."}],
        [{"human": "2 + 2?", "assistant": "4"}, {"human": "Sure?", "assistant": "Yes."}],
        [{"human": "2 + 2?"}, {"assistant": "4"}, {"human": "Sure?"}, {"assistant": "Yes."}],
        [
            {"role": "user", "parts": [{"text": "2 + 2?"}]},
            {"role": "model", "parts": [{"text": "4"}]},
            ["Sure?", "Yes."],
        ],
    ],
)
def test_turns_have_many_shapes(turns: list[Any]) -> None:
    texts = [
        one["content"] if isinstance(one["content"], str) else one["content"][0]["text"]
        for one in read_turns(*turns).messages
    ]
    assert texts == ["2 + 2?", "4", "Sure?", "Yes."]
    assert [one["role"] for one in read_turns(*turns).messages] == ["user", "assistant"] * 2


def test_a_pair_has_a_system_text_before_it_and_fields_of_its_answer() -> None:
    read = read_turns(
        {"system": "Be brief.", "input": "2 + 2?", "output": "4", "weight": 0}, {"input": "", "output": "Yes."}
    )
    assert read.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "4", "weight": 0},
        {"role": "assistant", "content": "Yes."},
    ]


def test_a_turn_of_calls_may_be_the_call() -> None:
    for call in ({"name": "depth", "arguments": URI}, CALLED):
        assert read_turns({"role": "tool_call", **call}).messages == [
            {"role": "assistant", "content": "", "tool_calls": [CALLED]}
        ]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"m": 0}, '{"m": 0}'),
        ([{"m": 0}, {"m": 1}], '[{"m": 0}, {"m": 1}]'),
        (200, "200"),
        (0.5, "0.5"),
        ("200", "200"),
    ],
)
def test_what_a_tool_returns_is_text(content: Any, text: str) -> None:
    assert read_turns({"role": "tool", "content": content}).messages[0]["content"] == text


NAMELESS: dict[str, Any] = {
    "openai": {"id": "c1", "type": "function", "function": {"arguments": URI}},
    "null": {"type": "function", "function": {"name": None, "arguments": URI}},
    "empty": {"type": "function", "function": {"name": "", "arguments": URI}},
    "blank": {"type": "function", "function": {"name": " ", "arguments": URI}},
    "unknown place": {"type": "function", "function": {"fn": "depth", "arguments": URI}},
    "beside the function": {"type": "function", "name": "depth", "function": {"arguments": URI}},
    "number": {"name": 7, "arguments": URI},
    "bare": {"arguments": URI},
    "custom": {"type": "custom", "custom": {"name": "depth", "input": "Uri"}},
    "text": "depth",
    "nothing": {},
    "null call": None,
}


@pytest.mark.parametrize("name", NAMELESS)
def test_calls_without_a_name_drop_the_row_in_every_form(name: str) -> None:
    """Templates would write a call of nothing: `{"name": "", ..}`."""
    call = NAMELESS[name]
    turns = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "assistant", "content": "", "tool_calls": [CALLED, call]},
        {"role": "assistant", "content": "", "tool_calls": json.dumps([call])},
        {"from": "function_call", "value": json.dumps(call)},
        {"from": "gpt", "value": "", "tool_calls": [call]},
        {"role": "tool_call", "content": json.dumps([call])},
    ]
    if call:  # else there is no call
        turns.append({"role": "assistant", "content": "", "tool_calls": call})
    if isinstance(call, dict) and call:
        turns += [
            {"role": "assistant", "content": "", "function_call": call},
            {"role": "tool_call", "input": URI, **call} if name == "custom" else {"role": "tool_call", **call},
            {"role": "assistant", "content": [{**call, "type": "tool_use"}]},
            {"role": "model", "parts": [{"functionCall": call}]},
        ]
    for turn in turns:
        assert mentions(refusal_of(ASKED, turn), "turn 2", "call"), turn


def test_a_call_alone_is_a_list_of_one_and_what_arrow_fills_in_is_none() -> None:
    read = read_turns({"role": "assistant", "content": "", "tool_calls": CALLED})
    assert read.messages[0]["tool_calls"] == [CALLED]
    null_filled = {"role": "assistant", "content": "Hi", "function_call": {"name": None, "arguments": None}}
    assert read_turns(null_filled).messages == [{"role": "assistant", "content": "Hi"}]


def test_parts_written_as_json_are_parts() -> None:
    parts = [{"type": "text", "text": "Hi"}]
    assert read_turns({"role": "user", "content": json.dumps(parts)}).messages[0]["content"] == parts
    seen = [{"type": "image_url", "image_url": {"url": "a"}}, *parts]
    assert read_turns({"role": "user", "content": json.dumps(seen)}).messages[0]["content"] == seen
    assert mentions(refusal_of({"role": "user", "content": str(parts)}), "invalid_field: turn 1", "Python's notation")
    text = '[{"type": "text"}] is JSON.'
    assert read_turns({"role": "user", "content": text}).messages[0]["content"] == text


def test_parts_of_apis_are_calls_results_and_thoughts() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "depth", "input": URI}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "200 m"}
    thought = {"type": "thinking", "thinking": "I look.", "signature": "x"}
    read = read_turns(
        {"role": "assistant", "content": [thought, {"type": "text", "text": "So."}, call]},
        {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
    )
    assert read.messages == [
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "So."}],
            "tool_calls": [{"id": "c1", **CALLED}],
            "reasoning_content": "I look.",
        },
        {"role": "tool", "content": "200 m", "tool_call_id": "c1"},
        {"role": "user", "content": [{"type": "text", "text": "And?"}]},
    ]
    assert read.unread == {"messages.content.signature": "x"}
    gemini = read_turns(
        {"role": "model", "parts": [{"functionCall": {"name": "depth", "args": URI}}]},
        {"role": "function", "parts": [{"functionResponse": {"name": "depth", "response": {"m": 200}}}]},
    )
    assert gemini.messages == [
        {"role": "assistant", "content": "", "tool_calls": [CALLED]},
        {"role": "tool", "content": '{"m": 200}', "name": "depth"},
    ]


def test_parts_of_bedrock_and_of_vercel_are_read_as_others() -> None:
    (called,) = read_turns(
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "depth", "input": URI}}]}
    ).messages
    assert called["tool_calls"] == [{"id": "c1", **CALLED}]
    for content, text in (
        ([{"json": {"m": 200}}], '{"m": 200}'),
        ([{"text": "200 m"}], [{"text": "200 m"}]),
        ([{"text": "200 m"}, {"json": {"m": 200}}], '[{"text": "200 m"}, {"json": {"m": 200}}]'),
    ):
        result = {"toolResult": {"toolUseId": "c1", "content": content, "status": "success"}}
        assert read_turns({"role": "user", "content": [result]}).messages == [
            {"role": "tool", "content": text, "tool_call_id": "c1"}
        ]
    thoughts = [
        {"reasoningContent": {"reasoningText": {"text": "I look.", "signature": "x"}}},
        {"type": "reasoning", "text": "I look."},
        {"text": "I look.", "thought": True},
    ]
    for thought in thoughts:
        read = read_turns({"role": "assistant", "content": [thought, {"type": "text", "text": "So."}]})
        assert (read.messages[0]["reasoning_content"], read.messages[0]["content"][0]["text"]) == ("I look.", "So.")
        assert not read.unread
    vercel = {"toolCallId": "c1", "toolName": "depth"}
    called, result = read_turns(
        {"role": "assistant", "content": [{"type": "tool-call", **vercel, "args": URI}]},
        {
            "role": "tool",
            "content": [{"type": "tool-result", **vercel, "output": {"type": "json", "value": {"m": 200}}}],
        },
    ).messages
    assert called["tool_calls"] == [{"id": "c1", **CALLED}]
    assert result == {"role": "tool", "content": '{"m": 200}', "tool_call_id": "c1", "name": "depth"}
    both = {"type": "tool_result", "tool_use_id": "c1", "content": "200", "output": "300"}
    assert mentions(refusal_of({"role": "user", "content": [both]}), "content and output")


def test_schemas_of_bedrock_are_those_of_openai() -> None:
    tool = {"toolSpec": {"name": "depth", "description": "Says it.", "inputSchema": {"json": SCHEMA}}}
    sent = {"name": "depth", "description": "Says it.", "parameters": SCHEMA}
    assert schemas_of([{"tools": [tool]}], "toolConfig", {}) == [{"type": "function", "function": sent}]
    assert schemas_of([tool], "tools", {}) == [{"type": "function", "function": sent}]


def test_items_of_responses_are_turns() -> None:
    read = read_turns(
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "How deep?"}]},
        {
            "type": "function_call",
            "id": "fc",
            "call_id": "c1",
            "name": "depth",
            "arguments": URI,
            "status": "completed",
        },
        {"type": "function_call_output", "call_id": "c1", "output": "200"},
    )
    assert read.messages[1:] == [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", **CALLED}]},
        {"role": "tool", "content": "200", "tool_call_id": "c1"},
    ]


@pytest.mark.parametrize("channel", ["analysis", "commentary"])
def test_thoughts_in_a_channel_of_their_own_are_not_trained_as_an_answer(channel: str) -> None:
    thought = {"role": "assistant", "channel": channel, "content": "I look."}
    assert mentions(refusal_of(ASKED, thought), "turn 2", channel, "reasoning_content")
    assert read_turns(ASKED, {**thought, "channel": "final"}).messages[1]["content"] == "I look."


def test_thoughts_beside_a_call_are_thoughts() -> None:
    turn = {"role": "tool_call", "name": "depth", "arguments": URI, "reasoning_content": "I look."}
    read = read_turns(ASKED, turn)
    assert (read.messages[1]["reasoning_content"], read.unread) == ("I look.", {})
