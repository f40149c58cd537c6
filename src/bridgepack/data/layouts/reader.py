"""Rows as the data has them -> rows with the columns that encoders read, and what nobody reads."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bridgepack.config.layouts.hints import layout_hint
from bridgepack.config.recipe.data import Source
from bridgepack.config.recipe.layout import Column
from bridgepack.config.recipe.readings import Reading, reading_of
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.layouts.makers import ChatMaker, Maker, ReadRow, maker_of
from bridgepack.data.layouts.values import is_empty
from bridgepack.data.reading.inputs import names_of
from bridgepack.errors import RowError
from bridgepack.records import DropReason

#: Sets of column names whose unread ones are kept; more do not pay.
_MAX_KEPT = 1 << 12


class RowReader:
    """Reads the rows of one source by its layouts."""

    def __init__(self, reading: Reading) -> None:
        """Take how the source's rows are read."""
        self._reading = reading
        self._makers = [maker_of(layout, reading) for layout in reading.layouts]
        self._alike = [[one for one in self._makers if one.columns == maker.columns] for maker in self._makers]
        self._inside = [_inside_of(maker.read) for maker in self._makers]
        self._known = frozenset(name for layout in reading.layouts for name in layout.ignore).union(reading.ignored)
        #: (names of columns, position of the maker) -> columns that nobody reads
        self._unread: dict[tuple[tuple[str, ...], int], tuple[str, ...]] = {}
        #: names of columns -> the only one, whose turns are read; empty if others are read or unread
        self._plain: dict[tuple[str, ...], str] = {}

    @property
    def key(self) -> list[Any]:
        """What a row's tokens, drops and unread columns depend on, beside its bytes: how its source is read."""
        one = self._reading
        layouts = [layout.model_dump(mode="json") for layout in one.layouts]
        return [layouts, one.needed, one.refused, one.ignored, one.is_written, one.strips_spaces]

    @property
    def kind(self) -> str:
        """Kind of the rows, which chooses their settings."""
        return self._reading.kind

    def read(self, row: Mapping[str, Any]) -> ReadRow:
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
        index = self._choose(row)
        maker = self._makers[index]
        made = maker.make(row)
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
        if self._inside[index]:
            made.unread = {**made.unread, **dict(self._unread_inside(row, self._inside[index]))}
        return made

    def _plain_column(self, keys: tuple[str, ...]) -> str:
        if len(self._plain) > _MAX_KEPT:
            self._plain.clear()
        is_read = (
            any(isinstance(maker, ChatMaker) and maker.plain == keys[0] for maker in self._makers) if keys else False
        )
        has_rules = self._reading.needed or self._reading.refused or self._known
        self._plain[keys] = keys[0] if is_read and len(keys) == 1 and not has_rules else ""
        return self._plain[keys]

    def _choose(self, row: Mapping[str, Any]) -> int:
        if self._reading.needed and not any(column in row for column in self._reading.needed):
            wanted = ", ".join(self._reading.needed)
            detail = f"the row has none of {wanted}, as columns of its source names them; it has: {names_of(row)}"
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
        hint = layout_hint(row, self.kind)
        if not names[1:]:
            missing = self._makers[0].missing(row)
            return RowError(DropReason.MISSING_FIELD, f"{missing} is missing; it has: {names_of(row)}{hint}")
        lists, pairs = [one for one in names if " with " not in one], [one for one in names if " with " in one]
        wanted = ", ".join(lists) + (", nor " if lists and pairs else "") + ", nor ".join(pairs)
        return RowError(DropReason.MISSING_FIELD, f"none of {wanted}; it has: {names_of(row)}{hint}")

    def _names_unread(self, row: Mapping[str, Any], maker: Maker) -> tuple[str, ...]:
        read = {column.path if column.path in row else column.name for column in maker.read}
        return tuple(name for name in row if name not in read and name not in self._known)

    def _unread_inside(self, row: Mapping[str, Any], inside: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, Any]]:
        """Yield `column.field` and its value for objects of which a layout reads other fields."""
        for column, fields in inside.items():
            value = row.get(column)
            if column in self._known or not isinstance(value, Mapping):
                continue
            for name, item in value.items():
                path = f"{column}.{name}"
                if name not in fields and path not in self._known and not is_empty(item):
                    yield path, item


def _inside_of(columns: Sequence[Column]) -> dict[str, frozenset[str]]:
    """Return column -> its fields that are read, for columns that are not read whole: `answer.text.0` -> text."""
    whole = {column.path for column in columns}
    paths = [column for column in columns if column.path != column.name and column.name not in whole]
    return {
        name: frozenset(column.path.split(".")[1] for column in paths if column.name == name)
        for name in dict.fromkeys(column.name for column in paths)
    }


def readers_of(recipe: SFTRecipe) -> Callable[[Source], RowReader]:
    """Return a function that returns the reader of one of a recipe's sources."""
    return lambda source: RowReader(reading_of(recipe.preprocessing, recipe.data, source))
