"""Fits entries to columns: a candidate is an entry whose slots are columns of the data, and its concrete layout."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from pydantic import TypeAdapter

from bridgepack.config.layouts.contents import plain_name
from bridgepack.config.layouts.entry import ANY_COLUMN, PublicLayout, Slot
from bridgepack.config.layouts.forms import Form, Profile
from bridgepack.config.recipe.layout import AnyLayout, Column, Layout, TextLayout, parts_of

#: What a row is to a candidate: read by it; all its text is read, but a column is empty that should not be; or neither.
type Fit = Literal["fits", "lacks", "other"]
#: Forms of conversations with an answer; one that has none yet is no other shape.
_WHOLE = frozenset({Form.OPENAI, Form.SHAREGPT})
_ADAPTER: TypeAdapter[AnyLayout] = TypeAdapter(Layout, config={"defer_build": True})
_SWITCHES: tuple[Mapping[str, bool], ...] = ({"on": True, "off": False}, {"true": True, "false": False})


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """An entry and the columns that it would read."""

    entry: PublicLayout
    columns: Mapping[str, tuple[str, ...]]  #: slot -> its columns, in order; of most slots only one
    reading: Mapping[str, Any] | None  #: fields of its layout without `ignore`; None if its rows are refused

    @property
    def read(self) -> frozenset[str]:
        """Columns that it reads, or that it knows to repeat what it reads."""
        return frozenset(name for names in self.columns.values() for name in names)

    @property
    def is_chat(self) -> bool:
        """Whether its rows are conversations."""
        return self.reading is not None and self.reading["kind"] == "chat"

    @property
    def known_columns(self) -> frozenset[str]:
        """Columns that it reads or ignores."""
        return self.read | {*self.entry.ignores}

    @property
    def ignored_columns(self) -> tuple[str, ...]:
        """Columns that it knows to repeat what it reads."""
        return tuple(
            name for slot, names in self.columns.items() if self.entry.all_slots[slot].is_ignored for name in names
        )

    def fit(self, profile: Profile, covered_columns: frozenset[str]) -> Fit:
        """Return what a row is to it; `covered_columns` need not be read, beside its own."""
        forms, slots = dict(profile.forms), self.entry.all_slots
        without_answer = set()
        for slot, names in self.columns.items():
            misfits = [name for name in names if name in forms and not forms[name] & slots[slot].forms]
            if any(not (slots[slot].forms & _WHOLE and Form.OPEN_TURNS in forms[name]) for name in misfits):
                return "other"
            without_answer |= {*misfits}
        unknown_columns = profile.content_columns - self.known_columns
        if self.entry.is_alone and unknown_columns:
            return "other"
        unread = unknown_columns - covered_columns
        full = forms.keys() - without_answer
        if all(full & {*names} for slot, names in self.columns.items() if slots[slot].needs == "always"):
            return "fits"
        return "other" if unread else "lacks"

    def layout(self, ignore: Sequence[str]) -> AnyLayout:
        """Return its layout."""
        assert self.reading is not None
        return _ADAPTER.validate_python({**self.reading, **({"ignore": tuple(ignore)} if ignore else {})})


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """The columns of some rows."""

    forms: Mapping[str, frozenset[Form]]  #: column -> forms that any of its values has; none if all are empty
    together: frozenset[tuple[str, str]]  #: pairs of columns that are both full in some row
    switches: Mapping[str, frozenset[str]]  #: column -> its values that are on or off as text


def candidates_of(entry: PublicLayout, columns: Columns) -> Iterator[Candidate]:
    """Yield an entry with every choice of columns for its slots."""
    plain = {name: plain_name(name) for name in columns.forms}
    if not {*entry.marks} <= {*plain.values()}:
        return
    entry = replace(entry, ignores=entry.ignored_in(plain.values()))
    slots = entry.all_slots
    for columns_of_slots in product(*(_choices(name, slot, columns, plain) for name, slot in slots.items())):
        slot_columns = {name: names for name, names in zip(slots, columns_of_slots, strict=True) if names}
        if "variables" in slot_columns:
            slot_columns.pop("switch", None)  # a conversation has one column of variables, or names the columns of each
        flat = [name for names in slot_columns.values() for name in names]
        if len({*flat}) == len(flat):
            yield candidate_with(entry, slot_columns, columns)


def candidate_with(entry: PublicLayout, slot_columns: Mapping[str, tuple[str, ...]], columns: Columns) -> Candidate:
    """Return an entry with a choice of columns."""
    reading = None if entry.layout is None else _reading(entry, slot_columns, columns)
    return Candidate(entry=entry, columns=slot_columns, reading=reading)


def _choices(name: str, slot: Slot, columns: Columns, plain: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the columns that a slot can stand for; () for none."""
    candidates = [
        column for slot_name in slot.names for column, plain_column in plain.items() if plain_column == slot_name
    ]
    if ANY_COLUMN in slot.names:
        candidates += [column for column in plain if column not in candidates]
    candidates = [column for column in candidates if column.strip() == column and not {"{", "}"} & {*column}]
    having = [column for column in candidates if columns.forms[column] & slot.forms]
    if name == "tools" and len(having) > 1 and not any(pair in columns.together for pair in product(having, having)):
        return [tuple(having)]
    if having or slot.needs != "optional":
        return [(column,) for column in having]
    is_read = slot.forms & {Form.TEXT, Form.SCHEMAS}  # an empty column is read, as other rows may fill it
    return [next(((column,) for column in candidates if is_read and not columns.forms[column]), ())]


def _reading(entry: PublicLayout, slot_columns: Mapping[str, tuple[str, ...]], columns: Columns) -> dict[str, Any]:
    assert entry.layout is not None
    fields = dict(entry.layout)
    if fields["kind"] != "chat":
        if fields["kind"] == "text":
            text = _text(fields["text"], slot_columns)
            return {"kind": "text", **({} if text == TextLayout.model_fields["text"].default else {"text": text})}
        field_columns = {name: slot_columns[value][0] for name, value in fields.items() if value in slot_columns}
        return {"kind": fields["kind"], **_without_second_mask(field_columns)}
    turns = [made_turn for turn in fields["messages"] if (made_turn := _turn(turn, slot_columns))]
    if "system" in slot_columns:
        turns.insert(0, {"role": "system", "content": "{" + slot_columns["system"][0] + "}"})
    fields["messages"] = turns
    if "tools" in slot_columns and not entry.all_slots["tools"].is_ignored:
        fields["tools"] = slot_columns["tools"][0] if len(slot_columns["tools"]) == 1 else slot_columns["tools"]
    elif "tools" in fields:
        fields["tools"] = _path(fields["tools"], slot_columns)
    if "switch" in slot_columns:
        fields["chat_template_kwargs"] = {"enable_thinking": _switch(slot_columns["switch"][0], columns)}
    if "variables" in slot_columns:
        fields["chat_template_kwargs"] = slot_columns["variables"][0]
    return fields


def _without_second_mask(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a tokenised layout with one mask at most; `loss_mask` and `labels` say the same."""
    return {name: value for name, value in fields.items() if name != "labels" or "loss_mask" not in fields}


def _turn(turn: Mapping[str, Any], slot_columns: Mapping[str, tuple[str, ...]]) -> dict[str, Any] | None:
    """Return a turn with columns in place of slots; None if none of its columns is there."""
    turn_fields = {}
    for field, value in turn.items():
        if field == "role":
            turn_fields[field] = value
        elif field in {"from_column", "tool_calls"}:
            if path := _path(value, slot_columns):
                turn_fields[field] = path
        else:
            pieces = [value] if isinstance(value, str) else value
            texts = [text for piece in pieces if (text := _text(piece, slot_columns)) is not None]
            if texts:
                turn_fields[field] = texts[0] if len(texts) == 1 else tuple(texts)
    return turn_fields if turn_fields.keys() - {"role"} else None


def _path(value: str, slot_columns: Mapping[str, tuple[str, ...]]) -> str:
    """Return a slot, or a path inside it, with its column; empty if it has none: `request.tools` -> `input.tools`."""
    slot, dot, inside = value.partition(".")
    return f"{slot_columns[slot][0]}{dot}{inside}" if slot in slot_columns else ""


def _text(piece: str, slot_columns: Mapping[str, tuple[str, ...]]) -> str | None:
    text = ""
    for part in parts_of(piece):
        if isinstance(part, Column):
            if part.name not in slot_columns:
                return None
            text += "{" + slot_columns[part.name][0] + part.path.removeprefix(part.name) + "}"
        else:
            text += part.replace("{", "{{").replace("}", "}}")
    return text


def _switch(column: str, columns: Columns) -> dict[str, Any]:
    texts = columns.switches.get(column, frozenset())
    values = {text: flag for pair in _SWITCHES for text, flag in _spelt(pair, texts).items()}
    return {"column": column, **({"values": values} if values else {})}


def _spelt(pair: Mapping[str, bool], texts: frozenset[str]) -> dict[str, bool]:
    """Return the pair of a switch as the data spells it, if it has one of the two."""
    spelt = {text_value.lower(): text_value for text_value in sorted(texts) if text_value.lower() in pair}
    return {spelt.get(text, text): flag for text, flag in pair.items()} if spelt else {}
