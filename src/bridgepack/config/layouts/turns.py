"""The turns that a layout reads: their roles, and the fields beside those that are always read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridgepack.config.layouts.candidates import Candidate
from bridgepack.config.layouts.contents import FLAGS, Contents, flag_of, holds, is_mask_claim, plain_name
from bridgepack.config.layouts.forms import Form, forms_of, list_in

#: Fields that are read, or that chat templates read.
_READ = frozenset(
    {
        *("role", "content", "from", "value", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning"),
        *("thinking", "function_call", "tool_plan", "channel", "recipient", "refusal", "audio"),
    }
)
_TURNS = frozenset({Form.OPENAI, Form.SHAREGPT, Form.OPEN_TURNS, Form.ANSWER_TURNS})


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
            roles.setdefault(str(turn["role"]) if turn.get("role") else str(turn.get("from")).lower(), position)
            for name, value in turn.items():
                if name not in _READ and (kind := holds(str(name), value)) is not None:
                    values_of_fields.setdefault(str(name), []).append((kind, value))
                    names_in_row.add(str(name))
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


def _turns_of(candidate: Candidate, row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    turns = []
    for name in candidate.read:
        value = row.get(name)
        if isinstance(value, str | list | tuple) and value and forms_of(value) & _TURNS:
            turns += [turn for turn in list_in(value) if isinstance(turn, Mapping)]
    return turns


def is_obeyed(name: str, values: Sequence[Any]) -> bool:
    """Return whether `preprocessing.message_weights: mask` takes the values of a flag: 0 and 1, true and false."""
    flags = [flag_of(value) for value in values]
    return all(flag is None or (isinstance(flag, int | float) and flag in (0, 1)) for flag in flags) and not any(
        is_mask_claim(name, value) for value in values
    )
