"""What a column of a row holds: texts, lists of turns, tool calls and schemas, variables; or their JSON text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bridgepack.config.layouts.contents import is_empty, is_nan
from bridgepack.config.layouts.keys import TURN, listed_turns
from bridgepack.config.recipe.layout import OWN_TEMPLATE_VARIABLES, Column, VariableColumn, parts_of
from bridgepack.data.reading.inputs import names_of
from bridgepack.data.reading.json_texts import value_of_json
from bridgepack.data.tokenizers.texts import check_is_unicode
from bridgepack.errors import RowError
from bridgepack.records import DropReason
from bridgepack.records.words import index_in, kind_of

#: Between the pieces of a text.
_BETWEEN = "\n\n"


def value_of(row: Mapping[str, Any], column: Column) -> Any:
    """Return a row's value in a column, or at a path inside it; None if there is none."""
    if column.path in row:
        return row[column.path]
    value = row.get(column.name)
    for part in column.path.split(".")[1:]:
        value = as_inside(value, column.name)
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            index = index_in(len(value), part)
            value = None if index is None else value[index]
        else:
            return None
    return value


def as_inside(value: Any, name: str) -> Any:
    """Return what is inside a value of which a path reads a part: of a text, the object or list that it is in JSON.

    Raises:
        RowError: it begins like JSON, and is none.
    """
    return value_of_json(value, name) if isinstance(value, str) and value.lstrip()[:1] in ("[", "{") else value


def text_at(row: Mapping[str, Any], column: Column, *, takes_numbers: bool = False) -> str:
    """Return a row's text in a column; with `takes_numbers` a number is the text that JSON writes, as an answer can be.

    Raises:
        RowError: it is missing, null or not text, or half a character.
    """
    value = value_of(row, column)
    if value is None or is_nan(value):
        how = "null" if column.path in row else f"missing; it has: {names_of(row)}"
        raise RowError(DropReason.MISSING_FIELD, f"{column.path} is {how}")
    if takes_numbers and _is_number(value):
        return json.dumps(value)
    if not isinstance(value, str):
        detail = f"{column.path} is {kind_of(value)}; it must be text"
        raise RowError(DropReason.INVALID_FIELD, detail)
    check_is_unicode(value)
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class TextMaker:
    """A text with columns, or its pieces, ready to be filled from rows."""

    def __init__(
        self, texts: str | tuple[str, ...], *, strips_spaces: bool = False, takes_numbers: bool = True
    ) -> None:
        """Take a text, or pieces of which the empty ones are left out; `strips_spaces` around each column."""
        self._takes_numbers = takes_numbers
        self._parts_of_text = parts_of(texts) if isinstance(texts, str) else None
        self._pieces = [parts_of(piece) for piece in texts] if isinstance(texts, tuple) else []
        self._strips_spaces = strips_spaces
        parts = [*(self._parts_of_text or ()), *(part for piece in self._pieces for part in piece)]
        self.columns = tuple(part for part in parts if isinstance(part, Column))

    def has_columns(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row has the columns: all of a text, one of pieces."""
        quantifier = all if self._parts_of_text is not None else any
        return not self.columns or quantifier(part.is_in(row) for part in self.columns)

    def is_empty(self, row: Mapping[str, Any]) -> bool:
        """Return whether the columns hold nothing in a row."""
        return bool(self.columns) and all(is_empty(value_of(row, column)) for column in self.columns)

    def are_texts(self, row: Mapping[str, Any]) -> bool:
        """Return whether the columns hold texts, numbers or nulls."""
        values = [value_of(row, column) for column in self.columns]
        return all(
            value is None or isinstance(value, str) or (self._takes_numbers and _is_number(value)) for value in values
        )

    def has_texts(self, row: Mapping[str, Any]) -> bool:
        """Return whether the columns hold texts or nulls, and not all of them nothing."""
        return self.are_texts(row) and not self.is_empty(row)

    def says_something(self, row: Mapping[str, Any]) -> bool:
        """Return whether the text is constant, or a column is neither null nor empty; white space says something."""
        return not self.columns or any(value_of(row, column) for column in self.columns)

    def parts(self, row: Mapping[str, Any]) -> list[Any] | None:
        """Return a list of content parts that the only column of the text holds, or None."""
        value = (
            value_of(row, self._parts_of_text[0])
            if self._parts_of_text and isinstance(self._parts_of_text[0], Column)
            else None
        )
        return (
            value
            if isinstance(value, list) and self._parts_of_text is not None and len(self._parts_of_text) == 1
            else None
        )

    def text(self, row: Mapping[str, Any]) -> str:
        """Return the text of a row.

        Raises:
            RowError: a column is missing, null or not text; of pieces, all are empty.
        """
        if self._parts_of_text is not None:
            return self._fill(self._parts_of_text, row)
        pieces = [piece for piece in self._pieces if not self._is_left_out(piece, row)]
        if not pieces:
            names = ", ".join(column.path for column in self.columns)
            raise RowError(DropReason.MISSING_FIELD, f"{names} are empty or missing; it has: {names_of(row)}")
        return _BETWEEN.join(self._fill(piece, row) for piece in pieces)

    @staticmethod
    def _is_left_out(piece: Sequence[str | Column], row: Mapping[str, Any]) -> bool:
        columns = [part for part in piece if isinstance(part, Column)]
        return bool(columns) and all(is_empty(value_of(row, column)) for column in columns)

    def _fill(self, parts: Sequence[str | Column], row: Mapping[str, Any]) -> str:
        texts = (
            text_at(row, part, takes_numbers=self._takes_numbers) if isinstance(part, Column) else part
            for part in parts
        )
        if not self._strips_spaces:
            return "".join(texts)
        return "".join(
            text.strip(" ") if isinstance(part, Column) else text for part, text in zip(parts, texts, strict=True)
        )


def holds_turns(value: Any) -> bool:
    """Return whether a value is a list of turns, one turn, an object of lists, or text that may be the JSON of one."""
    if isinstance(value, str):
        return value.lstrip()[:1] in ("[", "{")
    if isinstance(value, Mapping):
        return bool(TURN.names_in(value))
    return isinstance(value, (list, tuple)) and all(map(_may_be_turn, value))


def _may_be_turn(item: Any) -> bool:
    return _is_json_object(item) or isinstance(item, (Mapping, list, tuple))


def _is_json_object(item: Any) -> bool:
    return isinstance(item, str) and item.lstrip()[:1] == "{"


def turns_at(row: Mapping[str, Any], column: Column) -> Sequence[Any]:
    """Return the turns in a column, none if it is null; one turn alone, and an object of lists, as a list of turns.

    {"role": ["user", "assistant"], "content": ["2 + 2?", "4"]} -> two turns

    Raises:
        RowError: it is no list of turns, nor its JSON text.
    """
    value = value_of(row, column)
    if value is None:
        return ()
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        value = value_of_json(value, column.path)
    if isinstance(value, Mapping) and TURN.names_in(value):
        return listed_turns(value) or (value,)
    if isinstance(value, (str, Mapping)) or not isinstance(value, Sequence):
        detail = f"{column.path} is {kind_of(value)}; it must be a list of turns"
        raise RowError(DropReason.INVALID_FIELD, detail)
    return value


def parsed_turn(text: str) -> Any:
    """Return the turn that a text is in JSON; raises RowError if it is none."""
    return value_of_json(text, "a turn")


def objects_in(value: Any, name: str) -> list[Mapping[str, Any]]:
    """Return the tool schemas or calls in a value: a list of objects or of their texts, one object, or JSON text of it.

    Raises:
        RowError: it is something else.
    """
    if isinstance(value, str):
        value = value_of_json(value, name) if value.strip() else None
    if isinstance(value, Mapping):
        value = [value] if value else None
    if value is None:
        return []
    if isinstance(value, (list, tuple)):
        value = [value_of_json(item, name) if _is_json_object(item) else item for item in value]
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, Mapping) for item in value):
        raise RowError(DropReason.INVALID_FIELD, f"{name} must be a list of objects, or JSON text of one")
    return list(value)


def variables_in(value: Any, name: str) -> dict[str, Any]:
    """Return the variables for the chat template in a value, an object or its JSON text; null means none of them.

    Raises:
        RowError: it is no object, or sets a reserved variable.
    """
    if isinstance(value, str):
        value = value_of_json(value, name) if value.strip() else None
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RowError(DropReason.INVALID_FIELD, f"{name} is {kind_of(value)}; it must be an object")
    if own_names := sorted(OWN_TEMPLATE_VARIABLES.intersection(value)):
        raise RowError(DropReason.INVALID_FIELD, f"{name} sets {', '.join(own_names)}, which is reserved")
    return dict(value)


def variable_at(row: Mapping[str, Any], variable: VariableColumn) -> Any:
    """Return the value of a variable for the chat template; None leaves it unset.

    Raises:
        RowError: the layout gives no value for what the column holds.
    """
    value = value_of(row, Column(variable.column))
    if value is None or variable.values is None:
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    if text not in variable.values:
        values_of_layout = ", ".join(variable.values)
        raise RowError(
            DropReason.INVALID_FIELD, f"{variable.column} is {text!r}; the layout has values for: {values_of_layout}"
        )
    return variable.values[text]
