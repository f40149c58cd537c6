"""Fits entries to columns: a candidate is an entry whose slots are columns of the data, and its concrete layout."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
_WHOLE = frozenset({Form.OPENAI, Form.SHAREGPT, Form.FUNCTION_TURNS})
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
    def known(self) -> frozenset[str]:
        """Columns that it reads or ignores."""
        return self.read | {*self.entry.ignores}

    @property
    def ignored(self) -> tuple[str, ...]:
        """Columns that it knows to repeat what it reads."""
        return tuple(
            name for slot, names in self.columns.items() if self.entry.all_slots[slot].is_ignored for name in names
        )

    def fit(self, profile: Profile, covered: frozenset[str]) -> Fit:
        """Return what a row is to it; `covered` are columns that need not be read, beside its own."""
        forms, slots = dict(profile.forms), self.entry.all_slots
        without_answer = set()
        for slot, names in self.columns.items():
            wrong = [name for name in names if name in forms and not forms[name] & slots[slot].forms]
            if any(not (slots[slot].forms & _WHOLE and Form.OPEN_TURNS in forms[name]) for name in wrong):
                return "other"
            without_answer |= {*wrong}
        unknown = profile.content_columns - self.known
        if self.entry.is_alone and unknown:
            return "other"
        rest = unknown - covered
        full = forms.keys() - without_answer
        if all(full & {*names} for slot, names in self.columns.items() if slots[slot].needs == "always"):
            return "fits"
        return "other" if rest else "lacks"

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
    slots = entry.all_slots
    for chosen in product(*(_choices(name, one, columns, plain) for name, one in slots.items())):
        found = {name: names for name, names in zip(slots, chosen, strict=True) if names}
        if "variables" in found:
            found.pop("switch", None)  # a conversation has one column of variables, or names the columns of each
        flat = [name for names in found.values() for name in names]
        if len({*flat}) == len(flat):
            yield candidate_with(entry, found, columns)


def candidate_with(entry: PublicLayout, found: Mapping[str, tuple[str, ...]], columns: Columns) -> Candidate:
    """Return an entry with a choice of columns."""
    reading = None if entry.layout is None else _reading(entry, found, columns)
    return Candidate(entry=entry, columns=found, reading=reading)


def _choices(name: str, slot: Slot, columns: Columns, plain: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the columns that a slot can stand for; () for none."""
    named = [column for wanted in slot.names for column, found in plain.items() if found == wanted]
    if ANY_COLUMN in slot.names:
        named += [column for column in plain if column not in named]
    named = [column for column in named if column.strip() == column and not {"{", "}"} & {*column}]
    having = [column for column in named if columns.forms[column] & slot.forms]
    if name == "tools" and len(having) > 1 and not any(pair in columns.together for pair in product(having, having)):
        return [tuple(having)]
    if having or slot.needs != "optional":
        return [(column,) for column in having]
    is_read = slot.forms & {Form.TEXT, Form.SCHEMAS}  # an empty column is read, as other rows may fill it
    return [next(((column,) for column in named if is_read and not columns.forms[column]), ())]


def _reading(entry: PublicLayout, found: Mapping[str, tuple[str, ...]], columns: Columns) -> dict[str, Any]:
    assert entry.layout is not None
    fields = dict(entry.layout)
    if fields["kind"] != "chat":
        if fields["kind"] == "text":
            text = _text(fields["text"], found)
            return {"kind": "text", **({} if text == TextLayout.model_fields["text"].default else {"text": text})}
        named = {name: found[value][0] for name, value in fields.items() if value in found}
        return {"kind": fields["kind"], **_without_second_mask(named)}
    turns = [made for turn in fields["messages"] if (made := _turn(turn, found))]
    if "system" in found:
        turns.insert(0, {"role": "system", "content": "{" + found["system"][0] + "}"})
    fields["messages"] = turns
    if "tools" in found and not entry.all_slots["tools"].is_ignored:
        fields["tools"] = found["tools"][0] if len(found["tools"]) == 1 else found["tools"]
    if "switch" in found:
        fields["chat_template_kwargs"] = {"enable_thinking": _switch(found["switch"][0], columns)}
    if "variables" in found:
        fields["chat_template_kwargs"] = found["variables"][0]
    return fields


def _without_second_mask(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a tokenised layout with one mask at most; `loss_mask` and `labels` say the same."""
    return {name: value for name, value in fields.items() if name != "labels" or "loss_mask" not in fields}


def _turn(turn: Mapping[str, Any], found: Mapping[str, tuple[str, ...]]) -> dict[str, Any] | None:
    """Return a turn with columns in place of slots; None if none of its columns is there."""
    made = {}
    for field, value in turn.items():
        if field == "role":
            made[field] = value
        elif field in {"from_column", "tool_calls"}:
            if value in found:
                made[field] = found[value][0]
        else:
            pieces = [value] if isinstance(value, str) else value
            texts = [text for piece in pieces if (text := _text(piece, found)) is not None]
            if texts:
                made[field] = texts[0] if len(texts) == 1 else tuple(texts)
    return made if made.keys() - {"role"} else None


def _text(piece: str, found: Mapping[str, tuple[str, ...]]) -> str | None:
    text = ""
    for part in parts_of(piece):
        if isinstance(part, Column):
            if part.name not in found:
                return None
            text += "{" + found[part.name][0] + part.path.removeprefix(part.name) + "}"
        else:
            text += part.replace("{", "{{").replace("}", "}}")
    return text


def _switch(column: str, columns: Columns) -> dict[str, Any]:
    seen = columns.switches.get(column, frozenset())
    values = {text: flag for known in _SWITCHES for text, flag in _spelt(known, seen).items()}
    return {"column": column, **({"values": values} if values else {})}


def _spelt(known: Mapping[str, bool], seen: frozenset[str]) -> dict[str, bool]:
    """Return the pair of a switch as the data spells it, if it has one of the two."""
    spelt = {one.lower(): one for one in sorted(seen) if one.lower() in known}
    return {spelt.get(text, text): flag for text, flag in known.items()} if spelt else {}
