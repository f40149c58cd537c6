"""Rows as the data has them -> rows with the columns that encoders read, and what nobody reads.

chat               messages, system, tools, chat_template_kwargs
prompt_completion  prompt, completion
tokenized          input_ids, loss_mask or labels, and columns about padding and packed samples
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from bridgepack.config.layouts.hints import layout_hint
from bridgepack.config.recipe.data import Source
from bridgepack.config.recipe.layout import (
    AnyLayout,
    ChatLayout,
    Column,
    PromptCompletionLayout,
    TokenizedLayout,
    TurnFromColumns,
    TurnsFromColumn,
    columns_of,
)
from bridgepack.config.recipe.readings import Reading, reading_of
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.layouts.turns import TurnMaker, is_there, names_of_part
from bridgepack.data.layouts.values import (
    TextMaker,
    as_function,
    holds_turns,
    is_empty,
    objects_in,
    turns_at,
    variable_at,
    variables_in,
)
from bridgepack.data.reading.inputs import names_of
from bridgepack.data.sequences.one_sample import LAYOUT_COLUMNS
from bridgepack.errors import RowError
from bridgepack.records import DropReason

#: Sets of column names whose unread ones are kept; more do not pay.
_MAX_KEPT = 1 << 12


class ReadRow(dict[str, Any]):
    """A row with the columns that encoders read."""

    #: column that nobody reads -> its value; without empty ones
    unread: Mapping[str, Any] = MappingProxyType({})
    #: columns and fields of turns, `messages.NAME`, that the layout ignores
    ignored: frozenset[str] = frozenset()
    #: column with the row's system text
    system_name: str = "system"


class RowReader:
    """Reads the rows of one source by its layouts."""

    def __init__(self, reading: Reading) -> None:
        """Take how the source's rows are read."""
        self._reading = reading
        self._makers = [_maker_of(layout, reading) for layout in reading.layouts]
        self._alike = [[one for one in self._makers if one.columns == maker.columns] for maker in self._makers]
        self._known = frozenset(name for layout in reading.layouts for name in layout.ignore).union(reading.ignored)
        #: (names of columns, position of the maker) -> columns that nobody reads
        self._unread: dict[tuple[tuple[str, ...], int], tuple[str, ...]] = {}
        #: names of columns -> the only one, whose turns are read; empty if others are read or unread
        self._plain: dict[tuple[str, ...], str] = {}

    @property
    def key(self) -> list[Any]:
        """What the tokens of a row depend on, beside its bytes: the layouts."""
        return [*(layout.model_dump(mode="json") for layout in self._reading.layouts), list(self._reading.needed)]

    def seen(self, row: Mapping[str, Any]) -> ReadRow:
        """Return a row's columns as encoders read them.

        Raises:
            RowError: no layout fits the row, or a column holds something else than the layout says.
        """
        keys = tuple(row)
        plain = self._plain.get(keys)
        if plain is None:
            plain = self._plain_column(keys)
        if plain and type(turns := row[plain]) is list and turns:  # fast path: most rows are turns and nothing else
            return ReadRow(messages=turns)
        index = self._chosen(row)
        maker = self._makers[index]
        made = maker.made(row)
        key = (keys, index)
        names = self._unread.get(key)
        if names is None:
            if len(self._unread) > _MAX_KEPT:
                self._unread.clear()
            names = self._unread[key] = self._names_unread(row, maker)
        if self._known:
            made.ignored = self._known
        if names:
            made.unread = {name: row[name] for name in names if not is_empty(row[name])}
        return made

    def _plain_column(self, keys: tuple[str, ...]) -> str:
        if len(self._plain) > _MAX_KEPT:
            self._plain.clear()
        is_read = (
            any(isinstance(maker, _ChatMaker) and maker.only == keys[0] for maker in self._makers) if keys else False
        )
        has_rules = self._reading.needed or self._reading.refused or self._known
        self._plain[keys] = keys[0] if is_read and len(keys) == 1 and not has_rules else ""
        return self._plain[keys]

    def _chosen(self, row: Mapping[str, Any]) -> int:
        if self._reading.needed and not any(column in row for column in self._reading.needed):
            wanted = ", ".join(self._reading.needed)
            detail = f"the row has none of {wanted}, which its source's columns names; it has: {names_of(row)}"
            raise RowError(DropReason.MISSING_FIELD, detail)
        for name in self._reading.refused:
            if row.get(name) is not None:
                detail = f"column {name} holds a conversation; set preprocessing.kind to chat"
                raise RowError(DropReason.INVALID_FIELD, detail)
        first = next((index for index, maker in enumerate(self._makers) if maker.is_there(row)), None)
        if first is None:
            raise self._nothing_fits(row)
        alike = self._alike[first]
        fitting = next((maker for maker in alike if maker.fits(row)), None) if alike[1:] else None
        return first if fitting is None else self._makers.index(fitting)

    def _nothing_fits(self, row: Mapping[str, Any]) -> RowError:
        names = list(dict.fromkeys(maker.needs for maker in self._makers))
        hint = layout_hint(row, self._reading.layouts[0].kind)
        if not names[1:]:
            missing = self._makers[0].missing(row)
            return RowError(DropReason.MISSING_FIELD, f"{missing} is missing; it has: {names_of(row)}{hint}")
        lists, pairs = [one for one in names if " with " not in one], [one for one in names if " with " in one]
        wanted = ", ".join(lists) + (", nor " if lists and pairs else "") + ", nor ".join(pairs)
        return RowError(DropReason.MISSING_FIELD, f"none of {wanted}; it has: {names_of(row)}{hint}")

    def _hint(self, row: Mapping[str, Any]) -> str:
        return layout_hint(row, self._reading.layouts[0].kind)

    def _names_unread(self, row: Mapping[str, Any], maker: "_Maker") -> tuple[str, ...]:
        read = {name for column in maker.read for name in (column.path, column.name)}
        return tuple(name for name in row if name not in read and name not in self._known)


def readers_of(recipe: SFTRecipe) -> Callable[[Source], RowReader]:
    """Return a function that returns the reader of one of a recipe's sources."""
    return lambda source: RowReader(reading_of(recipe.preprocessing, recipe.data, source))


class _Maker(Protocol):
    """Makes the row of one layout."""

    columns: frozenset[str]  #: columns that must be there
    read: tuple[Column, ...]  #: columns that are read
    needs: str  #: the columns that must be there, in words

    def is_there(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row has the columns that must be there."""
        ...

    def fits(self, row: Mapping[str, Any], /) -> bool:
        """Return whether these columns hold what the layout says."""
        ...

    def missing(self, row: Mapping[str, Any]) -> str:
        """Return the first columns that must be there, and that a row lacks."""
        ...

    def made(self, row: Mapping[str, Any]) -> ReadRow:
        """Return the row; raises RowError if a column holds something else."""
        ...


def _maker_of(layout: AnyLayout, reading: Reading) -> _Maker:
    if isinstance(layout, ChatLayout):
        return _ChatMaker(layout, wraps_tools=reading.is_written)
    if isinstance(layout, PromptCompletionLayout):
        return _PairMaker(layout, strips_spaces=reading.strips_spaces)
    return _TokensMaker(layout)


class _ChatMaker:
    def __init__(self, layout: ChatLayout, *, wraps_tools: bool) -> None:
        self.read, self._wraps_tools = columns_of(layout), wraps_tools
        parts = layout.messages
        has_column = any(isinstance(part, TurnsFromColumn) for part in parts)
        first = parts[0]
        #: text of a system turn that turns of a column may replace
        self._system = None
        if has_column and isinstance(first, TurnFromColumns) and first.role == "system" and first.content is not None:
            self._system, parts = TextMaker(first.content), parts[1:]
        self._parts = [
            part if isinstance(part, TurnsFromColumn) else TurnMaker(part, is_written=wraps_tools) for part in parts
        ]
        self._tools = (layout.tools,) if isinstance(layout.tools, str) else layout.tools or ()
        self._variables = layout.chat_template_kwargs
        only = self._parts[0]
        #: the only column with turns, for the fast path
        self.only = only.from_column if len(self._parts) == 1 and isinstance(only, TurnsFromColumn) else None
        turns = [Column(part.from_column).name for part in self._parts if isinstance(part, TurnsFromColumn)]
        texts = [column.name for part in self._parts if isinstance(part, TurnMaker) for column in part.required]
        self.columns = frozenset((*turns, *texts))
        self.needs = " with ".join(dict.fromkeys(name for part in self._parts for name in names_of_part(part)))

    def is_there(self, row: Mapping[str, Any]) -> bool:
        if self.only is not None:
            return row.get(self.only) is not None
        return all(is_there(part, row) for part in self._parts)

    def fits(self, row: Mapping[str, Any]) -> bool:
        return all(
            holds_turns(row.get(part.from_column)) if isinstance(part, TurnsFromColumn) else part.fits(row)
            for part in self._parts
        )

    def missing(self, row: Mapping[str, Any]) -> str:
        lacking = (part for part in self._parts if not is_there(part, row))
        return next((", ".join(names_of_part(part)) for part in lacking), self.needs)

    def made(self, row: Mapping[str, Any]) -> ReadRow:
        made = ReadRow()
        if self.only is not None:
            made["messages"] = turns = turns_at(row, Column(self.only))
        else:
            made["messages"] = turns = self._turns(row)
        if not turns:
            name = self.only or self.needs
            raise RowError(DropReason.EMPTY_CONVERSATION, f"{name} has no turns")
        if self._system is not None and self._system.has_columns(row) and not self._system.is_empty(row):
            made["system"] = self._system.parts(row) or self._system.text(row)
            made.system_name = ", ".join(column.path for column in self._system.columns) or "system"
        for name in self._tools:
            if not is_empty(row.get(name)) and (schemas := objects_in(row[name], name)):
                made["tools"] = [dict(as_function(schema) if self._wraps_tools else schema) for schema in schemas]
                break
        if self._variables is not None:
            self._add_variables(row, self._variables, made)
        return made

    def _turns(self, row: Mapping[str, Any]) -> list[Any]:
        turns: list[Any] = []
        for part in self._parts:
            if isinstance(part, TurnsFromColumn):
                turns += turns_at(row, Column(part.from_column))
            elif (turn := part.turn(row)) is not None:
                turns.append(turn)
        return turns

    @staticmethod
    def _add_variables(row: Mapping[str, Any], variables: Any, made: ReadRow) -> None:
        if isinstance(variables, str):
            found = variables_in(row.get(variables), variables)
        else:
            found = {name: variable_at(row, one) for name, one in variables.items()}
        given = {name: value for name, value in found.items() if value is not None}
        if given:
            made["chat_template_kwargs"] = given


def _first_missing(needs: str, row: Mapping[str, Any]) -> str:
    return next((name for name in needs.split(" with ") if row.get(name) is None), needs)


class _PairMaker:
    def __init__(self, layout: PromptCompletionLayout, *, strips_spaces: bool) -> None:
        self.read = columns_of(layout)
        self._prompt = TextMaker(layout.prompt, strips_spaces=strips_spaces)
        self._completion = TextMaker(layout.completion, strips_spaces=strips_spaces)
        self.columns = frozenset(column.name for column in self.read)
        self.needs = " with ".join(column.path for column in self.read)

    def is_there(self, row: Mapping[str, Any]) -> bool:
        return self._prompt.has_columns(row) and self._completion.has_columns(row)

    def missing(self, row: Mapping[str, Any]) -> str:
        return _first_missing(self.needs, row)

    def fits(self, _: Mapping[str, Any], /) -> bool:
        return True

    def made(self, row: Mapping[str, Any]) -> ReadRow:
        return ReadRow(prompt=self._prompt.text(row), completion=self._completion.text(row))


class _TokensMaker:
    def __init__(self, layout: TokenizedLayout) -> None:
        self._layout = layout
        self.columns = frozenset({layout.input_ids})
        self.needs = layout.input_ids
        masks = [name for name in (layout.loss_mask, layout.labels) if name] or ["loss_mask", "labels"]
        self._masks = masks
        self._others = tuple(sorted(LAYOUT_COLUMNS - {layout.input_ids, *masks}))
        self.read = tuple(map(Column, (layout.input_ids, *masks, *self._others)))

    def is_there(self, row: Mapping[str, Any]) -> bool:
        return row.get(self._layout.input_ids) is not None

    def missing(self, _: Mapping[str, Any], /) -> str:
        return self.needs

    def fits(self, _: Mapping[str, Any], /) -> bool:
        return True

    def made(self, row: Mapping[str, Any]) -> ReadRow:
        made = ReadRow({name: row[name] for name in self._others if row.get(name) is not None})
        for name, column in (("input_ids", self._layout.input_ids), *self._mask(row)):
            if row.get(column) is not None:
                made[name] = row[column]
        return made

    def _mask(self, row: Mapping[str, Any]) -> list[tuple[str, str]]:
        if self._layout.labels is not None:
            return [("labels", self._layout.labels)]
        if self._layout.loss_mask is not None:
            return [("loss_mask", self._layout.loss_mask)]
        return [("labels", "labels") if row.get("loss_mask") is None else ("loss_mask", "loss_mask")]
