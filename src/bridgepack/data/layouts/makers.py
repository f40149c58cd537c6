"""Makers: the row of one layout, with the columns that encoders read.

chat               messages, system, tools, chat_template_kwargs
prompt_completion  prompt, completion
text               text
tokenized          input_ids, loss_mask or labels, and columns about padding and packed samples
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from bridgepack.config.layouts.contents import is_empty
from bridgepack.config.layouts.forms import list_in, role_of
from bridgepack.config.layouts.roles import CONTEXT_ROLES
from bridgepack.config.layouts.turn_items import as_turns
from bridgepack.config.recipe.layout import (
    AnyLayout,
    ChatLayout,
    Column,
    PromptCompletionLayout,
    TextLayout,
    TokenizedLayout,
    TurnFromColumns,
    TurnsFromColumn,
    columns_of,
    pieces_of,
)
from bridgepack.config.recipe.readings import Reading
from bridgepack.config.recipe.sample_columns import SAMPLE_COLUMNS
from bridgepack.data.layouts.calls import OtherKeys, schemas_of
from bridgepack.data.layouts.messages import MessageReader, Messages
from bridgepack.data.layouts.turns import TurnMaker, is_there, names_of_part
from bridgepack.data.layouts.values import (
    TextMaker,
    holds_turns,
    objects_in,
    parsed_turn,
    turns_at,
    value_of,
    variable_at,
    variables_in,
)
from bridgepack.errors import RowError
from bridgepack.records import DropReason


@dataclass(slots=True)
class MadeRow:
    """What a maker makes of a row; the reader adds the row's layout and what nobody reads."""

    columns: dict[str, Any]  #: those that encoders read
    messages: Messages | None = None  #: of a conversation
    system_name: str = "system"  #: column with the row's system text
    other_keys: Mapping[str, Any] = MappingProxyType({})  #: path of a key that no schema has -> its value


class Maker(Protocol):
    """Makes the row of one layout."""

    columns: frozenset[str]  #: columns that must be there
    read: tuple[Column, ...]  #: columns that are read
    needs: tuple[str, ...]  #: the columns that must be there, as the layout names them, each once
    kind: str  #: of its rows

    def is_there(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row has the columns that must be there."""
        ...

    def fits(self, row: Mapping[str, Any], /) -> bool:
        """Return whether these columns hold what the layout says."""
        ...

    def missing(self, row: Mapping[str, Any], /) -> str:
        """Return the first columns that must be there, and that a row lacks."""
        ...

    def make(self, row: Mapping[str, Any]) -> MadeRow:
        """Return the row; raises RowError if a column holds something else."""
        ...


def maker_of(layout: AnyLayout, reading: Reading, role_aliases: Mapping[str, str] = MappingProxyType({})) -> Maker:
    """Return the maker of a layout; `role_aliases` are the recipe's names of roles."""
    if isinstance(layout, ChatLayout):
        return ChatMaker(layout, role_aliases)
    if isinstance(layout, PromptCompletionLayout):
        return _PairMaker(layout, strips_spaces=reading.strips_spaces)
    if isinstance(layout, TextLayout):
        return _TextMaker(layout)
    return _TokensMaker(layout)


class ChatMaker:
    """Makes conversations."""

    kind = "chat"

    def __init__(self, layout: ChatLayout, role_aliases: Mapping[str, str] = MappingProxyType({})) -> None:
        """Take the layout, and the recipe's names of roles."""
        self.read = columns_of(layout)
        self.read_messages = MessageReader(role_aliases).read
        parts = layout.messages
        has_column = any(isinstance(part, TurnsFromColumn) for part in parts)
        first = parts[0]
        #: text of a system turn that turns of a column may replace
        self._system = None
        if has_column and isinstance(first, TurnFromColumns) and first.role == "system" and first.content is not None:
            self._system, parts = TextMaker(first.content), parts[1:]
        self._parts = [part if isinstance(part, TurnsFromColumn) else TurnMaker(part) for part in parts]
        #: the column of earlier turns before a question made from columns may be missing
        questions = [i for i, part in enumerate(self._parts) if isinstance(part, TurnMaker) and part.is_question]
        first_needed = max(questions, default=0)
        self._needed = [part for i, part in enumerate(self._parts) if i >= first_needed or isinstance(part, TurnMaker)]
        #: the column of turns that a text of the answer follows, so that they end with a question
        self._open = None
        if len(parts) > 1 and isinstance(parts[-2], TurnsFromColumn) and not isinstance(parts[-1], TurnsFromColumn):
            self._open = Column(parts[-2].from_column) if parts[-1].role == "assistant" else None
        self._tools = tuple(map(Column, pieces_of(layout.tools or ())))
        self._variables = layout.chat_template_kwargs
        only = self._parts[0]
        #: the only column with turns
        self.only = only.from_column if len(self._parts) == 1 and isinstance(only, TurnsFromColumn) else None
        self._only = None if self.only is None else Column(self.only)
        #: that column, if a row without other columns is its turns and nothing else
        self.plain = self.only if self._system is None or self._system.columns else None
        turns = [Column(part.from_column).name for part in self._needed if isinstance(part, TurnsFromColumn)]
        texts = [column.name for part in self._parts if isinstance(part, TurnMaker) for column in part.required_columns]
        self.columns = frozenset((*turns, *texts))
        self.needs = tuple(dict.fromkeys(name for part in self._needed for name in names_of_part(part)))

    def is_there(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row has the columns that must be there."""
        if self._only is not None:
            return value_of(row, self._only) is not None
        return all(is_there(part, row) for part in self._needed)

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Return whether these columns hold what the layout says."""
        return all(
            _has_turns(value_of(row, Column(part.from_column))) if isinstance(part, TurnsFromColumn) else part.fits(row)
            for part in self._needed
        ) and not (self._open is not None and _ends_with_answer(value_of(row, self._open)))

    def missing(self, row: Mapping[str, Any], /) -> str:
        """Return the columns of the first part that a row lacks."""
        lacking = (part for part in self._needed if not is_there(part, row))
        return ", ".join(next(map(names_of_part, lacking), self.needs))

    def make(self, row: Mapping[str, Any]) -> MadeRow:
        """Return the conversation and what belongs to it.

        Raises:
            RowError: a column holds something else than the layout says.
        """
        turns = self._turns(row) if self._only is None else turns_at(row, self._only)
        if not turns:
            raise RowError(DropReason.EMPTY_CONVERSATION, f"{' with '.join(self.needs)} has no turns")
        messages = self.read_messages(turns)
        made_row = MadeRow({"messages": messages.messages}, messages)
        if self._system is not None and self._system.has_columns(row) and self._system.says_something(row):
            made_row.columns["system"] = self._system.parts(row) or self._system.text(row)
            made_row.system_name = ", ".join(column.path for column in self._system.columns) or "system"
        for column in self._tools:
            value = value_of(row, column)
            if not is_empty(value) and (schemas := objects_in(value, column.path)):
                other_keys: OtherKeys = {}
                made_row.columns["tools"] = schemas_of(schemas, column.path, other_keys)
                made_row.other_keys = other_keys
                break
        if self._variables is not None:
            self._add_variables(row, self._variables, made_row.columns)
        return made_row

    def _turns(self, row: Mapping[str, Any]) -> list[Any]:
        turns: list[Any] = []
        for part in self._parts:
            if isinstance(part, TurnsFromColumn):  # the turns of a column say together of which form they are
                turns += as_turns(turns_at(row, Column(part.from_column)), parsed_turn)
            elif (turn := part.turn(row)) is not None:
                turns.append(turn)
        return turns

    @staticmethod
    def _add_variables(row: Mapping[str, Any], variables: Any, columns: dict[str, Any]) -> None:
        if isinstance(variables, str):
            values = variables_in(value_of(row, Column(variables)), variables)
        else:
            values = {name: variable_at(row, variable) for name, variable in variables.items()}
        variables_set = {name: value for name, value in values.items() if value is not None}
        if variables_set:
            columns["chat_template_kwargs"] = variables_set


def _ends_with_answer(value: Any) -> bool:
    """Return whether turns end with an answer, as those of a whole conversation do."""
    turns = as_turns(list_in(value))
    return bool(turns) and isinstance(turns[-1], Mapping) and role_of(turns[-1]) not in CONTEXT_ROLES


def _has_turns(value: Any) -> bool:
    return holds_turns(value) and not is_empty(value)


def _first_missing(needs: Sequence[str], row: Mapping[str, Any]) -> str:
    return next((name for name in needs if value_of(row, Column(name)) is None), ", ".join(needs))


class _PairMaker:
    kind = "prompt_completion"

    def __init__(self, layout: PromptCompletionLayout, *, strips_spaces: bool) -> None:
        self.read = columns_of(layout)
        self._prompt = TextMaker(layout.prompt, strips_spaces=strips_spaces)
        self._completion = TextMaker(layout.completion, strips_spaces=strips_spaces)
        self.columns = frozenset(column.name for column in self.read)
        self.needs = tuple(column.path for column in self.read)

    def is_there(self, row: Mapping[str, Any]) -> bool:
        return self._prompt.has_columns(row) and self._completion.has_columns(row)

    def missing(self, row: Mapping[str, Any], /) -> str:
        return _first_missing(self.needs, row)

    def fits(self, row: Mapping[str, Any], /) -> bool:
        is_empty_pair = self._prompt.is_empty(row) and self._completion.is_empty(row)
        return self._prompt.are_texts(row) and self._completion.are_texts(row) and not is_empty_pair

    def make(self, row: Mapping[str, Any]) -> MadeRow:
        return MadeRow({"prompt": self._prompt.text(row), "completion": self._completion.text(row)})


class _TextMaker:
    kind = "text"

    def __init__(self, layout: TextLayout) -> None:
        self.read = columns_of(layout)
        self._text = TextMaker(layout.text, takes_numbers=False)
        self.columns = frozenset(column.name for column in self.read)
        self.needs = tuple(column.path for column in self.read)

    def is_there(self, row: Mapping[str, Any]) -> bool:
        return self._text.has_columns(row)

    def missing(self, row: Mapping[str, Any], /) -> str:
        return _first_missing(self.needs, row)

    def fits(self, row: Mapping[str, Any], /) -> bool:
        return self._text.has_texts(row)

    def make(self, row: Mapping[str, Any]) -> MadeRow:
        return MadeRow({"text": self._text.text(row)})


class _TokensMaker:
    kind = "tokenized"

    def __init__(self, layout: TokenizedLayout) -> None:
        self._layout = layout
        self.columns = frozenset({layout.input_ids})
        self.needs: tuple[str, ...] = (layout.input_ids,)
        mask_names = [name for name in (layout.loss_mask, layout.labels) if name]
        self._masks = masks = mask_names or [name for name in ("loss_mask", "labels") if name not in layout.ignore]
        self._sample_columns = tuple(sorted(SAMPLE_COLUMNS - {layout.input_ids, *masks}))
        self.read = tuple(map(Column, (layout.input_ids, *masks, *self._sample_columns)))

    def is_there(self, row: Mapping[str, Any]) -> bool:
        return row.get(self._layout.input_ids) is not None

    def missing(self, _: Mapping[str, Any], /) -> str:
        return self._layout.input_ids

    def fits(self, row: Mapping[str, Any], /) -> bool:
        return any(row.get(name) is not None for name in self._masks)

    def make(self, row: Mapping[str, Any]) -> MadeRow:
        columns = {name: row[name] for name in self._sample_columns if row.get(name) is not None}
        for name, column in (("input_ids", self._layout.input_ids), *self._mask(row)):
            if row.get(column) is not None:
                columns[name] = row[column]
        return MadeRow(columns)

    def _mask(self, row: Mapping[str, Any]) -> list[tuple[str, str]]:
        if self._layout.labels is not None:
            return [("labels", self._layout.labels)]
        if self._layout.loss_mask is not None:
            return [("loss_mask", self._layout.loss_mask)]
        return [(name, name) for name in self._masks if row.get(name) is not None][:1]
