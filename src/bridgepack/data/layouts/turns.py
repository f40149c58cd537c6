"""One turn from the columns that a layout names."""

from collections.abc import Mapping, Sequence
from typing import Any

from bridgepack.config.layouts.contents import is_empty
from bridgepack.config.recipe.layout import Column, TurnFromColumns, TurnsFromColumn
from bridgepack.data.layouts.calls import as_function
from bridgepack.data.layouts.values import TextMaker, objects_in, value_of
from bridgepack.data.reading.inputs import names_of
from bridgepack.errors import RowError
from bridgepack.records import DropReason


class TurnMaker:
    """Makes one turn from columns."""

    def __init__(self, turn: TurnFromColumns) -> None:
        """Take a turn; the assistant's must have a text or calls."""
        self._role = turn.role
        self._needs_text = turn.role == "assistant"
        self.is_question = turn.role == "user"
        self._content = None if turn.content is None else TextMaker(turn.content)
        self._reasoning = None if turn.reasoning_content is None else TextMaker(turn.reasoning_content)
        self._calls = None if turn.tool_calls is None else Column(turn.tool_calls)
        self._is_optional = turn.role in {"system", "developer"}
        self.required_columns = self._content.columns if self._content and not self._is_optional else ()

    def is_there(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row has the columns of the turn's text, or of its calls."""
        if self._is_optional or self._content is None:
            return self._is_optional or (self._calls is not None and self._calls.name in row)
        return self._content.has_columns(row) or (self._calls is not None and self._calls.name in row)

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Return whether the columns of the turn's text hold texts, or calls stand beside it."""
        has_calls = self._calls is not None and not is_empty(value_of(row, self._calls))
        return self._is_optional or has_calls or (self._content is not None and self._content.has_texts(row))

    def turn(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the turn, or None for a system turn without text.

        Raises:
            RowError: a column is missing or holds something else.
        """
        calls = [] if self._calls is None else objects_in(value_of(row, self._calls), self._calls.path)
        if self._content is None:
            content = None
        elif self._content.is_empty(row) and (self._is_optional or calls):
            content = "" if calls else None
        else:
            content = self._content.text(row)
            if self._needs_text and not content.strip():  # else the model would be trained to say nothing
                names = ", ".join(column.path for column in self._content.columns)
                raise RowError(DropReason.MISSING_FIELD, f"{names} is empty, so there is no answer to train")
        if content is None and not calls:
            if self._is_optional:
                return None
            assert self._calls is not None
            raise RowError(DropReason.MISSING_FIELD, f"{self._calls.path} is empty or missing; it has: {names_of(row)}")
        turn: dict[str, Any] = {"role": self._role, "content": content}
        if self._reasoning is not None and not self._reasoning.is_empty(row):
            turn["reasoning_content"] = self._reasoning.text(row)
        if calls:
            turn["tool_calls"] = [as_function(call) for call in calls]
        return turn


def is_there(part: "TurnsFromColumn | TurnMaker", row: Mapping[str, Any]) -> bool:
    """Return whether a row has the columns of a part of a conversation."""
    return Column(part.from_column).is_in(row) if isinstance(part, TurnsFromColumn) else part.is_there(row)


def names_of_part(part: "TurnsFromColumn | TurnMaker") -> Sequence[str]:
    """Return the columns that a part of a conversation needs."""
    return (
        [part.from_column] if isinstance(part, TurnsFromColumn) else [column.path for column in part.required_columns]
    )
