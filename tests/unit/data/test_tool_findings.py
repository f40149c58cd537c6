"""Calls whose schemas are nowhere, and schemas that are no JSON Schema, are found; others are not."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.conversation import ConversationReader, RenderedChat
from bridgepack.data.sequences.findings.case import ChatCase
from bridgepack.data.sequences.findings.json_schemas import why_no_schema
from bridgepack.data.sequences.findings.tools import ToolFindings
from tests.support.messages import mentions
from tests.support.read_rows import read_row
from tests.support.small_builds import build, small_recipe, write_json_lines

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
SEARCH = {"name": "search", "description": "Search.", "parameters": {}}
CALL = {"type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
USER, ANSWER = {"role": "user", "content": "Weather in Bern?"}, {"role": "assistant", "content": "Sunny."}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "sunny"}
CALLED = [USER, CALLING, RESULT, ANSWER]
OLD = [USER, {"role": "assistant", "content": "", "function_call": {"name": "weather", "arguments": "{}"}}, ANSWER]
IN_TEXT = {"role": "assistant", "content": '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'}
SHAREGPT = [
    {"from": "human", "value": "Weather?"},
    {"from": "function_call", "value": '{"name": "weather", "arguments": {}}'},
    {"from": "observation", "value": "sunny"},
]


def _system(text: Any, role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": text}


def _found(columns: dict[str, Any], variables: dict[str, Any] | None = None, **settings: Any) -> dict[str, str]:
    layout = {"chat_template_kwargs": "kwargs"} if "kwargs" in columns else {}
    chosen = ChatPreprocessing(**settings)
    row = read_row(columns, chosen, **layout)
    case = ChatCase(row, RenderedChat(ConversationReader(chosen).read(row), "", None))
    return {str(loss.kind): loss.detail for loss in ToolFindings(variables or {}).find(case)}


#: (columns, what is said of schemas that are missing; empty if nothing)
CASES: list[tuple[dict[str, Any], str]] = [
    ({"messages": CALLED}, "turn 2 (assistant) calls 'weather', of which there is no schema"),
    ({"messages": CALLED, "tools": []}, "turn 2 (assistant) calls 'weather', of which there is no schema"),
    ({"messages": CALLED, "tools": "[]"}, "turn 2 (assistant) calls 'weather'"),
    ({"messages": CALLED, "tools": "", "system": "Be brief."}, "turn 3 (assistant) calls 'weather'"),
    ({"messages": OLD}, "turn 2 (assistant) calls 'weather'"),
    ({"conversations": SHAREGPT}, "turn 2 (assistant) calls 'weather'"),
    ({"messages": [USER, CALLING]}, "turn 2 (assistant) calls 'weather'"),
    ({"messages": [USER, IN_TEXT, RESULT, ANSWER]}, "turn 2 (assistant) calls 'weather'"),
    ({"messages": [USER, RESULT, ANSWER]}, "turn 2 (tool) is the result of a call, of which there is no schema"),
    ({"messages": [USER, RESULT | {"name": "weather"}, ANSWER]}, "turn 2 (tool) is the result of a call 'weather'"),
    ({"messages": [_system("Be brief."), *CALLED]}, "turn 3 (assistant) calls 'weather'"),
    (
        {"messages": CALLED, "tools": [SEARCH]},
        "turn 2 (assistant) calls 'weather', of which there is no schema; there are schemas of 'search'",
    ),
    ({"messages": CALLED, "tools": [SEARCH, WEATHER]}, ""),
    ({"messages": CALLED, "tools": json.dumps([WEATHER])}, ""),
    ({"messages": CALLED, "tools": WEATHER["function"]}, ""),
    ({"messages": CALLED, "tools": [{"type": "web_search"}]}, ""),
    ({"messages": [USER, RESULT, ANSWER], "tools": [SEARCH]}, ""),
    ({"messages": [_system('<tools> [{"type": "function"}] </tools>'), *CALLED]}, ""),
    ({"messages": [_system("You may call weather(city)."), *CALLED]}, ""),
    ({"messages": [_system("You may call weather(city).", "developer"), *CALLED]}, ""),
    ({"messages": CALLED, "system": "You may call weather(city)."}, ""),
    ({"messages": [_system([{"type": "text", "text": "weather(city)"}]), *CALLED]}, ""),
    ({"messages": [_system("Functions: weather."), USER, IN_TEXT, RESULT, ANSWER]}, ""),
    ({"messages": [_system('[{"name": "x", "parameters": {}}]'), USER, RESULT, ANSWER]}, ""),
    ({"messages": [_system('Use these: [{"name": "x", "parameters": {}}]', "user"), *CALLED[1:]]}, ""),
    ({"messages": [USER, ANSWER]}, ""),
    ({"messages": [USER, ANSWER], "tools": [WEATHER]}, ""),
    ({"messages": [USER, ANSWER | {"name": None, "tool_calls": None}]}, ""),
    ({"messages": [USER, ANSWER | {"content": 'Write {"name": "weather"}.'}]}, ""),
    ({"messages": [USER, ANSWER | {"content": None, "tool_calls": []}]}, ""),
]


@pytest.mark.parametrize(("columns", "detail"), CASES)
def test_calls_without_schemas(columns: dict[str, Any], detail: str) -> None:
    found = _found(columns)

    assert found.keys() == ({"no_schemas"} if detail else set())
    assert found.get("no_schemas", "").startswith(detail)


def test_schemas_of_the_recipe_and_in_variables_of_the_template_count() -> None:
    columns = {"messages": CALLED}

    assert _found(columns, tool_schemas=(WEATHER,)) == {}
    assert _found({**columns, "kwargs": {"xml_tools": [WEATHER]}}) == {}
    assert _found(columns, {"python_tools": [WEATHER]}) == {}
    assert _found(columns, {"tools_in_user_message": True}).keys() == {"no_schemas"}


#: (parameters, why they are no JSON Schema; empty if they are)
PARAMETERS_OF: list[tuple[Any, str]] = [
    (None, ""),
    ({}, ""),
    ([], ""),
    (PARAMETERS, ""),
    ({"type": "object"}, ""),
    ({"type": "object", "properties": {}, "required": []}, ""),
    ({"type": "object", "properties": None, "required": None}, ""),
    ({"properties": {"a": {"type": ["string", "null"]}, "b": None, "c": True}}, ""),
    ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"x": {"enum": [1, "str"]}}}}}, ""),
    ({"anyOf": [PARAMETERS, {"type": "null"}]}, ""),
    ({"type": "object", "properties": {"a": {"description": "Any.", "minimum": 3, "x-order": 1}}}, ""),
    ({"type": "object", "properties": {"type": {"type": "string"}, "properties": {"type": "object"}}}, ""),
    ({"type": "object", "properties": {"a": {"default": {"type": "str"}}}, "additionalProperties": False}, ""),
    ({"type": "object", "properties": {"a": {"type": "array", "items": {"anyOf": [{"type": "integer"}]}}}}, ""),
    ({"description": "None.", "required": []}, ""),
    (
        {"city": {"type": "str", "description": "City."}, "days": {"type": "int, optional"}},
        "parameters has city, days, but neither type nor properties",
    ),
    ({"city": {"type": "string"}, "required": ["city"]}, "parameters has city, but neither type nor properties"),
    ({"city": "string"}, "parameters has city, but neither"),
    ({"title": {"type": "string"}}, "parameters has title, but neither"),
    ({"type": {"type": "string"}, "q": {"type": "string"}}, "parameters has type, q, but neither"),
    ({"items": {"type": "List[str]"}}, "the type of parameters.items is 'List[str]'"),
    ({"type": "dict", "properties": {"a": {"type": "string"}}}, "the type of parameters is 'dict'; JSON Schema knows"),
    ({"type": "OBJECT"}, "the type of parameters is 'OBJECT'"),
    ({"type": "object", "properties": {"a": {"type": "float"}}}, "the type of parameters.a is 'float'"),
    ({"type": "object", "properties": {"a": {"type": ["string", "None"]}}}, "the type of parameters.a is 'None'"),
    ({"type": "object", "properties": {"a": {"type": {"b": 1}}}}, "parameters.a has type, but neither"),
    ({"type": "object", "properties": {"a": {"items": {"type": "str"}}}}, "the type of parameters.a.items is 'str'"),
    ({"type": "object", "properties": {"a": {"street": {"type": "string"}}}}, "parameters.a has street, but neither"),
    ({"anyOf": [PARAMETERS, {"type": "int"}]}, "the type of parameters.anyOf is 'int'"),
    ({"$defs": {"A": {"type": "any"}}, "$ref": "#/$defs/A"}, "the type of parameters.A is 'any'"),
    ({"type": "object", "properties": [{"name": "city"}]}, "parameters.properties is a list; it must be an object"),
    ({"type": "object", "properties": {"a": "string"}}, "parameters.a is a str; it must be a schema, an object"),
    ([{"name": "city", "type": "string"}], "parameters is a list; it must be a schema, an object"),
    ('{"type": "object"}', "parameters is a str; it must be a schema, an object"),
]


@pytest.mark.parametrize(("parameters", "why"), PARAMETERS_OF)
@pytest.mark.parametrize("is_wrapped", [True, False])
def test_schemas(parameters: Any, why: str, is_wrapped: bool) -> None:
    tool = {"name": "lookup", "parameters": parameters}
    columns = {"messages": [USER, ANSWER], "tools": [WEATHER, {"function": tool} if is_wrapped else tool]}

    found = _found(columns)

    assert found.keys() == ({"tool_schema"} if why else set())
    assert found.get("tool_schema", "").startswith(f"the tool 'lookup': {why}" if why else "")
    assert found == _found(columns | {"tools": json.dumps(columns["tools"])})


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from("ab<"), max_size=3) | st.just("string"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "properties", "items", "anyOf", "$defs", "a"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(_values)
def test_any_parameters_get_an_answer(parameters: Any) -> None:
    assert why_no_schema(parameters) == why_no_schema(json.loads(json.dumps(parameters)))


def test_what_is_nested_too_deeply_is_not_inspected() -> None:
    nested: dict[str, Any] = {"type": "object"}
    for _ in range(100_000):
        nested = {"items": nested}

    assert why_no_schema(nested) == ""


def test_a_build_counts_both_and_check_warns(tmp_path: Path, chatml_tokenizer: Path) -> None:
    tools = [{"name": "weather", "parameters": {"city": {"type": "str"}}}]
    rows = [{"messages": CALLED, "tools": [WEATHER]}, {"messages": CALLED}, {"messages": CALLED, "tools": tools}]
    recipe = small_recipe(
        write_json_lines(tmp_path / "a.jsonl", rows),
        chatml_tokenizer,
        preprocessing={"kind": "chat", "on_lost_content": "drop", "tool_arguments": "object"},
        packing={"packed_sequence_size": 512},
    )

    (split,) = build(recipe, tmp_path / "out").manifest.splits

    assert split.lost_content == {"no_schemas": 1, "tool_schema": 1}
    found = {finding.code: str(finding) for finding in check_target(str(tmp_path / "out"), CheckOptions()).findings}
    assert mentions(found["BP553"], "turn 2 (assistant) calls 'weather'", "no schema")
    assert mentions(found["BP554"], "the tool 'weather': ", "parameters has city", "neither type nor properties")
