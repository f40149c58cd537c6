"""Calls and tool schemas as data has them -> OpenAI's form, as servers send it; names every key that is unknown.

Only an object's own keys are read by other names: the parameters of a tool and the arguments of a call may have any.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bridgepack.config.layouts.keys import BEDROCK_TOOL, CALL, SCHEMA, Keys, declared_schemas, schemas_by_name
from bridgepack.data.reading.json_texts import value_of_json
from bridgepack.errors import RowError
from bridgepack.records import DropReason
from bridgepack.records.words import kind_of

#: Keys of an object around a function, beside which other_keys are unknown.
_AROUND_CALL, _AROUND_SCHEMA = frozenset({"id", "type", "index", "function"}), frozenset({"type", "function"})
#: Keys that may stand twice, as in OpenAI's Responses API, where `call_id` is the call's.
_DOUBLED = frozenset({"id"})
_CALL_ID = "call_id"

type OtherKeys = dict[str, Any]


def call_of(call: Any, path: str, where: str, other_keys: OtherKeys) -> Any:
    """Return a call in OpenAI's form; one whose keys have OpenAI's names, and what is no object, unchanged.

    {"name": "f", "args": {}} -> {"type": "function", "function": {"name": "f", "arguments": {}}}

    Adds the keys that no call has to `other_keys`, by their paths below `path`.

    Raises:
        RowError: two keys of the call mean the same.
    """
    if not isinstance(call, Mapping):
        return call
    function = call.get("function")
    if isinstance(function, Mapping):
        _note(call, [name for name in call if name not in _AROUND_CALL], path, other_keys)
        inner = _with_usual_names(function, CALL, f"{path}.function", where, other_keys)
        return call if inner is function else {**call, "function": dict(inner)}
    names_of_keys = CALL.names_in(call)
    is_name = isinstance(function, str) and "arguments" in names_of_keys and "name" not in names_of_keys
    if is_name:
        call = {"name": function, **{name: value for name, value in call.items() if name != "function"}}
    inner = _with_usual_names(call, CALL, path, where, other_keys)
    return wrapped_call(inner) if is_name or inner is not call else call


def wrapped_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a bare call with OpenAI's object around its function: `id` and `index` stand there."""
    around = {name: call[name] for name in ("id", "index") if call.get(name) is not None}
    return {
        **around,
        "type": "function",
        "function": {name: call[name] for name in ("name", "arguments") if name in call},
    }


def as_function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a bare call of a column in OpenAI's form, under its own keys; other_keys unchanged."""
    if "name" not in CALL.names_in(call) or "function" in call:
        return call
    around = {name: call[name] for name in ("id",) if call.get(name) is not None}
    return {**around, "type": "function", "function": {n: v for n, v in call.items() if n not in {"type", *around}}}


def calls_of_turn(value: Any, path: str, where: str, unread: OtherKeys) -> list[dict[str, Any]]:
    """Return the calls of a turn that holds nothing else: an object, a list, or the JSON text of either.

    Adds the keys that no call has to `unread`, because nobody reads them.

    Raises:
        RowError: it holds something else.
    """
    calls = value_of_json(value, f"{where}: function_call") if isinstance(value, str) else value
    calls = calls if isinstance(calls, list) else [calls]
    if not calls:
        raise RowError(DropReason.INVALID_FIELD, f"{where}: function_call is an empty list")
    tool_calls = []
    for number, call in enumerate(calls, 1):
        new_call = call_of(call, path, where, unread)
        reject_nameless(new_call, f"{where}: call {number} of function_call")
        function = new_call.get("function", new_call)
        around = {name: new_call[name] for name in ("id",) if new_call.get(name) is not None}
        function = {"name": function["name"], "arguments": function.get("arguments", {})}
        tool_calls.append({**around, "type": "function", "function": function})
    return tool_calls


def reject_nameless(call: Any, where: str) -> None:
    """Reject a call without a name, of which templates write a call of nothing: `{"name": "", "arguments": {}}`.

    Raises:
        RowError: the call is no object, or its name is missing, empty or no text.
    """
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise RowError(DropReason.INVALID_FIELD, f"{where} is {kind_of(call)}; it must be an object with a name")
    name = function.get("name")
    if not isinstance(name, str) or not name.strip():
        fault = "no name" if name is None or name == "" else f"the name {name!r}"
        detail = f"{where} has {fault}, so a call of nothing would be trained; write the name of the tool as its name"
        raise RowError(DropReason.INVALID_FIELD, detail)


def schemas_of(schemas: Sequence[Mapping[str, Any]], path: str, other_keys: OtherKeys) -> list[dict[str, Any]]:
    """Return tool schemas in OpenAI's form; objects without a name unchanged.

    {"name": "f", "inputSchema": {}} -> {"type": "function", "function": {"name": "f", "parameters": {}}}

    Adds the keys that no schema has to `other_keys`, by their paths below `path`.

    Raises:
        RowError: two keys of a schema mean the same.
    """
    return [
        _schema_of(schema, path, other_keys)
        for item in schemas
        for schema in declared_schemas(item) or schemas_by_name(item) or (item,)
    ]


def _schema_of(schema: Mapping[str, Any], path: str, other_keys: OtherKeys) -> dict[str, Any]:
    function = schema.get("function")
    if isinstance(function, Mapping):
        _note(schema, [name for name in schema if name not in _AROUND_SCHEMA], path, other_keys)
        inner = _with_usual_names(function, SCHEMA, f"{path}.function", path, other_keys)
        return dict(schema) if inner is function else {**schema, "function": dict(inner)}
    if isinstance(inside := schema.get(BEDROCK_TOOL), Mapping):
        parameters = inside.get("inputSchema")
        if isinstance(parameters, Mapping) and {*parameters} == {"json"}:
            inside = {**inside, "inputSchema": parameters["json"]}
        schema = inside
    bare = _with_usual_names(schema, SCHEMA, path, path, other_keys)
    if not isinstance(bare.get("name"), str):
        return dict(bare)
    return {"type": "function", "function": {name: value for name, value in bare.items() if name != "type"}}


def _with_usual_names(
    item: Mapping[str, Any], keys: Keys, path: str, where: str, other_keys: OtherKeys
) -> Mapping[str, Any]:
    """Return an object with the names of the table, in its order; itself if it has no other names."""
    names_of_keys = keys.names_in(item)
    if why := keys.why_twice({key: names for key, names in names_of_keys.items() if key not in _DOUBLED}):
        raise RowError(DropReason.INVALID_FIELD, f"{where}: {why}")
    _note(item, keys.unknown_names(item), path, other_keys)
    new_names = {_preferred_name(names): key for key, names in names_of_keys.items()}
    if all(name == key for name, key in new_names.items()):
        return item
    left_out = {name for names in names_of_keys.values() for name in names if name not in new_names}
    keys_present = {*new_names.values()}
    return {
        new_names.get(name, name): value
        for name, value in item.items()
        if name not in left_out and (name in new_names or name not in keys_present)
    }


def _preferred_name(names: Sequence[str]) -> str:
    return _CALL_ID if _CALL_ID in names else names[0]


def _note(item: Mapping[str, Any], names: Iterable[str], path: str, other_keys: OtherKeys) -> None:
    """Add the keys with these names to `other_keys`, but those whose value is null."""
    for name in names:
        if item[name] is not None:
            other_keys.setdefault(f"{path}.{name}", item[name])
