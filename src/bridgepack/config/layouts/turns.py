"""The turns that a layout reads: their roles, and the fields beside those that are always read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridgepack.config.layouts.candidates import Candidate
from bridgepack.config.layouts.contents import FLAGS, Contents, flag_of, holds, is_mask_claim, plain_name
from bridgepack.config.layouts.forms import Form, forms_of, function_of, list_in, role_of
from bridgepack.config.layouts.keys import CALL, PAIR, RESULT, TURN, listed_turns
from bridgepack.config.layouts.roles import FUNCTION_CALL, ROLE_NAMES
from bridgepack.config.layouts.turn_items import as_turns

#: Fields that are read, or that chat templates read.
_READ = frozenset(
    {
        *("role", "content", "from", "value", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning"),
        *("thinking", "function_call", "tool_plan", "channel", "recipient", "refusal", "audio"),
    }
)
_TURNS = frozenset({Form.OPENAI, Form.SHAREGPT, Form.OPEN_TURNS, Form.ANSWER_TURNS, Form.PAIRS})


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnFields:
    """Fields of turns that are not always read."""

    contents: Mapping[
        str, Contents
    ]  #: field -> what it holds: text in any turn, else a flag in any, else an identifier
    num_rows: Mapping[str, int]  #: field -> rows that have it
    examples: Mapping[str, Any]  #: field -> its first value
    flags: Mapping[str, Sequence[Any]]  #: field about the loss -> its values
    roles: Mapping[str, int]  #: name of a role -> position of the first row with it


def turn_fields(candidate: Candidate, rows: Sequence[Mapping[str, Any]]) -> TurnFields:
    """Return the fields and roles of the turns that a candidate reads."""
    values_of_fields: dict[str, list[tuple[Contents, Any]]] = {}
    num_rows: dict[str, int] = {}
    roles: dict[str, int] = {}
    for position, row in enumerate(rows):
        names_in_row = set()
        for turn in _turns_of(candidate, row):
            if role := role_of(turn):
                roles.setdefault(str(turn["role"]) if turn.get("role") else role, position)
            for name, value in _fields_of(turn):
                if (kind := holds(name, value)) is not None:
                    values_of_fields.setdefault(name, []).append((kind, value))
                    names_in_row.add(name)
        num_rows |= {name: num_rows.get(name, 0) + 1 for name in names_in_row}
    flags = {
        name: [value for _, value in values] for name, values in values_of_fields.items() if plain_name(name) in FLAGS
    }
    contents: dict[str, Contents] = {}
    examples = {}
    for name, values in values_of_fields.items():
        kinds = [kind for kind, _ in values]
        contents[name] = next(kind for kind in ("text", "flag", "identifier") if kind in kinds)
        examples[name] = next(value for kind, value in values if kind == contents[name])
    return TurnFields(contents=contents, num_rows=num_rows, examples=examples, flags=flags, roles=roles)


def _fields_of(turn: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a turn that are not always read, and the keys that its calls and parts should not have."""
    names_read = _names_read(turn)
    for name, value in turn.items():
        if name not in names_read and not _is_of_call(turn, str(name)):
            yield str(name), value
    for call in list_in(turn.get("tool_calls")):
        if isinstance(call, Mapping):
            function = function_of(call)
            inside = ".function" if function is not call else ""
            around = CALL.unknown_names(call) if inside else ()
            yield from ((f"tool_calls.{name}", call[name]) for name in around)
            yield from ((f"tool_calls{inside}.{name}", function[name]) for name in CALL.unknown_names(function))
    if ROLE_NAMES.get(role_of(turn)) == FUNCTION_CALL:
        for call in list_in(turn.get("content") or turn.get("value")):
            if isinstance(call, Mapping):
                function = function_of(call)
                yield from ((f"{FUNCTION_CALL}.{name}", function[name]) for name in CALL.unknown_names(function))


def _names_read(turn: Mapping[str, Any]) -> frozenset[str]:
    """Return the fields of a turn that are read: of several with its text, the one that its reader takes."""
    if not role_of(turn):
        return _READ | {str(name) for name in turn if PAIR.key(name)}
    contents = TURN.names_in(turn).get("content", [])
    is_of_sharegpt = "from" in turn and "value" in turn and not ("role" in turn and "content" in turn)
    usual_name = "value" if is_of_sharegpt else "content"
    content_names = {usual_name} if usual_name in contents else {*contents[:1]}
    if "content" in contents and isinstance(turn.get("parts"), list):  # Vercel's, of which one is a copy
        content_names = {"content", "parts", "toolInvocations"}
    roles = {str(name) for name in turn if TURN.key(name) == "role"}
    is_result = ROLE_NAMES.get(role_of(turn)) == "tool"
    ids = {str(name) for name in turn if RESULT.key(name) in ("name", "tool_call_id")} if is_result else set()
    return (_READ - {"content", "value"}) | content_names | roles | ids


def _is_of_call(turn: Mapping[str, Any], name: str) -> bool:
    """Return whether a field is the call of a turn that is nothing but a call."""
    return ROLE_NAMES.get(role_of(turn)) == FUNCTION_CALL and bool(CALL.key(name))


def _turns_of(candidate: Candidate, row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    turns: list[Any] = []
    for name in candidate.read:
        value = row.get(name)
        if isinstance(value, str | list | tuple | Mapping) and value and forms_of(value) & _TURNS:
            items = as_turns(list_in(value))
            turns += listed_turns(value) if isinstance(value, Mapping) else items
    return [turn for turn in turns if isinstance(turn, Mapping)]


def is_obeyed(name: str, values: Sequence[Any]) -> bool:
    """Return whether `preprocessing.message_weights: mask` takes the values of a flag: 0 and 1, true and false."""
    items = [item for value in values for item in (value if isinstance(value, list | tuple) else [value])]
    flags = [flag_of(value) for value in items]
    return all(flag is None or (isinstance(flag, int | float) and flag in (0, 1)) for flag in flags) and not any(
        is_mask_claim(name, value) for value in values
    )
