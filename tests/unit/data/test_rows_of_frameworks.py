"""Turns as frameworks and their user interfaces keep them: the messages that the normaliser makes of each."""

import json
import math
from typing import Any

import pytest

from bridgepack.data.layouts.messages import MessageReader
from tests.support.messages import mentions
from tests.support.read_turns import read_turns, refusal_of

ASKED = {"role": "user", "content": "How deep?"}
SAID = {"role": "assistant", "content": "200 m."}
URI = {"lake": "Uri"}
CALLED = {"id": "c1", "type": "function", "function": {"name": "depth", "arguments": URI}}
TEXT_CALL = {**CALLED, "function": {"name": "depth", "arguments": json.dumps(URI)}}
TEXT = {"type": "text", "text": "200 m."}
SO = {"type": "text", "content": "So."}
IDS = {"toolCallId": "c1", "state": "output-available"}


def _assistant(content: Any, *calls: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields, **({"tool_calls": list(calls)} if calls else {})}


def _result(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": "c1", **fields}


INVOKED = {"state": "result", "step": 0, "toolCallId": "c1", "toolName": "depth", "args": URI, "result": {"m": 200}}


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"type": "tool-depth", **IDS, "input": URI, "output": {"m": 200}}, '{"m": 200}'),
        ({"type": "tool-depth", **IDS, "state": "output-error", "input": URI, "errorText": "No lake"}, "No lake"),
        ({"type": "dynamic-tool", "toolName": "depth", **IDS, "input": URI, "output": "200"}, "200"),
        ({"type": "tool-invocation", "toolInvocation": INVOKED}, '{"m": 200}'),
    ],
    ids=["tool-NAME", "an error", "dynamic-tool", "tool-invocation"],
)
def test_a_part_of_a_user_interface_is_a_call_and_its_result(part: dict[str, Any], text: str) -> None:
    """Vercel's AI SDK sends what stands behind a result as a message of its own."""
    parts = [{"type": "step-start"}, {"type": "text", "text": "I look."}, part, {"type": "step-start"}, TEXT]
    call, result = _assistant([parts[1]], CALLED), _result(text, name="depth")
    for turn in ({"role": "assistant", "parts": parts}, {"role": "assistant", "content": parts}):
        read = read_turns({"role": "user", "parts": [{"type": "text", "text": "How deep?"}]}, turn)
        assert read.messages[1:] == [call, result, _assistant([TEXT])]
        assert not read.unread


def test_calls_of_a_step_are_those_of_one_turn_and_fields_stay_with_each() -> None:
    first, second = ({"type": "tool-depth", **IDS, "toolCallId": name, "input": URI, "output": 1} for name in "ab")
    read = read_turns(ASKED, {"role": "assistant", "weight": 0, "reasoning": "Hm.", "parts": [first, second, TEXT]})

    call, *results, answer = read.messages[1:]
    assert [one["id"] for one in call["tool_calls"]] == ["a", "b"]
    assert [(one["tool_call_id"], one["content"]) for one in results] == [("a", "1"), ("b", "1")]
    assert (call["weight"], call["reasoning"], answer) == (0, "Hm.", _assistant([TEXT], weight=0))


def test_a_call_without_its_result_stays_and_one_that_is_being_written_is_refused() -> None:
    part = {"type": "tool-depth", "toolCallId": "c1", "state": "input-available", "input": URI}
    read = read_turns(ASKED, {"role": "assistant", "parts": [part, {"type": "step-start"}, TEXT]})
    assert read.messages[1:] == [_assistant("", CALLED), _assistant([TEXT])]

    said = refusal_of(
        ASKED, {"role": "assistant", "parts": [{**part, "state": "input-streaming", "input": {"la": ""}}]}
    )
    assert mentions(said, "invalid_field: turn 2: ", "depth", "input-streaming", "remove the turn")


def test_what_no_model_is_sent_is_named() -> None:
    source = {"type": "source-document", "title": "The atlas of all the lakes"}
    part = {"type": "tool-depth", **IDS, "input": URI, "output": 1, "title": "Atlas look-up"}
    read = read_turns({"role": "assistant", "parts": [source, {"type": "redacted_thinking", "data": "x"}, part, TEXT]})

    assert read.unread == {
        "messages.content.source-document": source,
        "messages.content.redacted_thinking": {"type": "redacted_thinking", "data": "x"},
        "messages.content.title": "Atlas look-up",
    }
    assert read_turns({"role": "assistant", "parts": [source]}).messages == [_assistant("")]


def test_parts_beside_their_text_are_read_once() -> None:
    parts = [{"type": "tool-invocation", "toolInvocation": INVOKED}, TEXT]
    turn = {"role": "assistant", "content": "200 m.", "parts": parts, "toolInvocations": [INVOKED]}
    read = read_turns(ASKED, turn)
    assert read.messages[1:] == [_assistant("", CALLED), _result('{"m": 200}', name="depth"), _assistant([TEXT])]

    others = [{**INVOKED, "toolCallId": "c2"}]
    assert read_turns(ASKED, {**turn, "toolInvocations": others}).messages[-1] == _assistant(
        [TEXT], toolInvocations=others
    )
    assert mentions(refusal_of({**turn, "content": "300 m."}), "content and parts", "remove one")
    assert read_turns({**SAID, "parts": ["a", "b"]}).messages == [{**SAID, "parts": ["a", "b"]}]


def test_turns_of_llama_index_are_blocks_and_more_fields() -> None:
    blocks = [{"block_type": "thinking", "content": "I look."}, {"block_type": "text", "text": "200 m."}]
    call = {"block_type": "tool_call", "tool_call_id": "c1", "tool_name": "depth", "tool_kwargs": URI}
    read = read_turns(
        {"role": "user", "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": "How deep?"}]},
        {"role": "assistant", "additional_kwargs": {}, "blocks": [call]},
        {"role": "tool", "additional_kwargs": {"tool_call_id": "c1"}, "content": "200"},
        {"role": "assistant", "blocks": blocks},
    )
    assert read.messages == [
        {"role": "user", "content": [{"type": "text", "text": "How deep?"}]},
        _assistant("", CALLED),
        _result("200"),
        _assistant([TEXT], reasoning_content="I look."),
    ]


def test_more_fields_are_those_of_the_turn_unless_they_differ() -> None:
    more = {"tool_calls": [TEXT_CALL], "reasoning_content": "I look.", "refusal": None}
    bare = {"name": "depth", "args": URI, "id": "c1", "type": "tool_call"}
    for turn in (
        {"role": "assistant", "content": "", "additional_kwargs": more},
        {"type": "ai", "content": "", "additional_kwargs": more, "tool_calls": []},
        {"type": "ai", "data": {"content": "", "additional_kwargs": more}},
    ):
        assert read_turns(ASKED, turn).messages[1] == _assistant("", TEXT_CALL, reasoning_content="I look.")
    turn = {"type": "ai", "content": "", "additional_kwargs": more, "tool_calls": [bare]}
    assert read_turns(ASKED, turn).messages[1] == _assistant("", CALLED, reasoning_content="I look.")

    other = {**TEXT_CALL, "function": {"name": "length", "arguments": "{}"}}
    differing = read_turns(ASKED, {**turn, "additional_kwargs": {"tool_calls": [other]}}).messages[1]
    assert differing["additional_kwargs"] == {"tool_calls": [other]}


def test_parts_of_haystack_and_of_traces_are_calls_and_results() -> None:
    call = {"tool_name": "depth", "arguments": URI, "id": "c1"}
    haystack = read_turns(
        {"role": "assistant", "content": [{"tool_call": call}]},
        {"role": "tool", "content": [{"tool_call_result": {"result": "200", "error": False, "origin": call}}]},
    )
    assert haystack.messages == [_assistant("", CALLED), _result("200", name="depth")]
    traced = read_turns(
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "depth", "arguments": URI}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "200"}]},
        {"role": "assistant", "parts": [{"type": "reasoning", "content": "I look."}, SO]},
    )
    assert traced.messages == [
        _assistant("", CALLED),
        _result("200"),
        _assistant([SO], reasoning_content="I look."),
    ]


def test_a_document_of_a_result_is_its_text() -> None:
    document = {"type": "document", "document": {"id": "0", "data": {"m": 200}}}
    assert read_turns(_result([document])).messages == [_result([{"type": "text", "text": '{"m": 200}'}])]
    titled = {"type": "document", "document": {"data": "200", "title": "Uri"}}
    assert read_turns(_result([titled])).messages == [_result([titled])]


def test_images_of_a_result_stay_parts() -> None:
    image = {"type": "image", "source": {"data": "x"}}
    for content in ([image], [{"type": "text", "text": "200"}, image], [{"image": {"format": "png"}}]):
        turn = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": content}]}
        assert read_turns(turn).messages == [_result(content)]
    turn["content"][0]["content"] = [{"type": "lake", "depth": 200}]
    assert read_turns(turn).messages == [_result('[{"type": "lake", "depth": 200}]')]


def test_items_of_one_response_are_one_turn() -> None:
    items = [{"type": "function_call", "call_id": name, "name": "depth", "arguments": "{}"} for name in "ab"]
    results = [{"type": "function_call_output", "call_id": name, "output": "200"} for name in "ab"]
    thought = {"type": "reasoning", "id": "r", "content": [{"type": "reasoning_text", "text": "I look."}]}
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "It looks it up."}]}
    message = {"type": "message", "role": "assistant", "content": "I look it up."}
    read = read_turns(ASKED, thought, message, *items, *results, summary, items[0], results[0], SAID)

    answers = [one for one in read.messages if one["role"] == "assistant"]
    assert [[call["id"] for call in one.get("tool_calls", ())] for one in answers] == [["a", "b"], ["a"], []]
    assert [one["content"] for one in answers] == ["I look it up.", "", "200 m."]
    assert [one.get("reasoning_content") for one in answers] == ["I look.", None, None]
    assert answers[1]["summary"] == "It looks it up."
    assert [one["role"] for one in read.messages] == [
        *("user", "assistant", "tool", "tool", "assistant", "tool", "assistant")
    ]
    empty = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    assert read_turns(ASKED, empty, SAID).messages == [ASKED, SAID]


@pytest.mark.parametrize(
    ("thoughts", "text"),
    [
        (["I look."], "I look."),
        ([{"type": "text", "text": "I "}, {"type": "text", "text": "look."}], "I look."),
        ({"content": "I look."}, None),
        (["I look.", "I see."], None),
        (True, None),
    ],
)
def test_thoughts_that_are_no_text_are_read_or_named(thoughts: Any, text: str | None) -> None:
    for name in ("reasoning_content", "reasoning", "thinking"):
        read = read_turns(ASKED, {**SAID, name: thoughts})
        assert read.messages[1] == (SAID if text is None else {**SAID, name: text})
        assert read.unread == ({f"messages.{name}": thoughts} if text is None else {})
    read = read_turns(ASKED, {"role": "assistant", "content": [{"type": "thinking", "thinking": thoughts}, TEXT]})
    assert read.messages[1].get("reasoning_content") == text


def test_thoughts_in_a_field_and_in_parts_are_both_read_or_named() -> None:
    parts = [{"type": "thinking", "thinking": "I look."}, TEXT]
    same = read_turns({"role": "assistant", "content": parts, "reasoning": "I look."})
    assert (same.messages, same.unread) == ([_assistant([TEXT], reasoning="I look.")], {})
    other = read_turns({"role": "assistant", "content": parts, "reasoning": "Hm."})
    assert other.unread == {"messages.content.thinking": "I look."}


def test_a_turn_with_two_roles_is_refused_and_its_other_text_is_named() -> None:
    said = refusal_of({"from": "gpt", "role": "user", "value": "How deep?"})
    assert mentions(said, "invalid_field: turn 1 ", "'gpt' in from", "'user' in role", "remove one")
    both = {"from": "human", "role": "user", "value": "How deep?"}
    assert read_turns(both, {"speaker": "Anna", **SAID}).messages == [ASKED, {"speaker": "Anna", **SAID}]

    read = read_turns({"from": "human", "value": "How deep?", "content": "How long?"})
    assert (read.messages, read.unread) == ([ASKED], {"messages.content": "How long?"})


def test_a_role_can_be_a_number_that_an_alias_names() -> None:
    turns = [{"speaker": 0, "utterance": "How deep?"}, {"speaker": 1, "utterance": "200 m."}]
    assert mentions(refusal_of(*turns), "unknown_role: turn 1: role '0'", "data.role_aliases")
    assert MessageReader({"0": "user", "1": "assistant"}).read(turns).messages == [ASKED, SAID]


@pytest.mark.parametrize(
    "turn",
    [
        {"author": "user", "content": "How deep?"},
        {"source": "user", "content": "How deep?", "type": "TextMessage"},
        {"role": "user", "content": "How deep?", "source": "assistant"},
    ],
    ids=["PaLM", "AutoGen", "another source"],
)
def test_who_speaks_has_many_names(turn: dict[str, Any]) -> None:
    (message,) = read_turns(turn).messages
    assert (message["role"], message["content"]) == ("user", "How deep?")


def test_a_tool_s_turn_has_many_names_for_its_call() -> None:
    for turn in (
        {"role": "tool", "call_id": "c1", "tool_name": "depth", "content": "200"},
        {"role": "tool", "tool_use_id": "c1", "name": "depth", "content": "200"},
    ):
        assert read_turns(ASKED, turn).messages[1] == _result("200", name="depth")
    turn = {"role": "tool", "id": "m3", "content": "200"}
    assert read_turns(ASKED, turn).messages[1] == turn


@pytest.mark.parametrize(
    "turns",
    [
        [["How deep?", None], ["Sure?", "Yes."]],
        [["How deep?", ""], ["Sure?", "Yes."]],
        [{"input": "How deep?", "output": None}, {"input": "Sure?", "output": "Yes."}],
        [{"input": "How deep?", "output": ""}, {"input": "Sure?", "output": "Yes."}],
    ],
    ids=str,
)
def test_a_question_of_pairs_without_its_answer_has_an_empty_one(turns: list[Any]) -> None:
    """Two questions in a row would hide that an answer is missing; an empty one is a finding."""
    assert [one["content"] for one in read_turns(*turns).messages] == ["How deep?", "", "Sure?", "Yes."]
    alternating = [{"human": "How deep?", "gpt": None}, {"human": None, "gpt": "200 m."}]
    assert read_turns(*alternating).messages == [ASKED, SAID]


def test_what_tables_have_for_no_number_is_null() -> None:
    for turn in ({"role": "assistant", "content": math.nan}, {"from": "gpt", "value": math.nan}):
        assert read_turns(ASKED, turn).messages[1] == {"role": "assistant", "content": None}
    assert read_turns({**ASKED, "weight": math.nan}).messages == [ASKED]


def test_an_older_call_needs_no_content() -> None:
    turn = {"role": "assistant", "function_call": {"name": "depth", "arguments": "{}"}}
    assert read_turns(ASKED, turn).messages[1] == {**turn, "content": None}
