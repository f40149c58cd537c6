"""Rows as the data has them -> rows with the columns that encoders read, and what nobody reads."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bridgepack.config.layouts.hints import layout_hint
from bridgepack.config.recipe.data import Source
from bridgepack.config.recipe.layout import Column
from bridgepack.config.recipe.readings import Reading, written_reading
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.layouts.detection import detect_reading
from bridgepack.data.layouts.makers import ChatMaker, Maker, ReadRow, maker_of
from bridgepack.data.layouts.values import is_empty
from bridgepack.data.reading.inputs import InputFile, names_of
from bridgepack.errors import RowError
from bridgepack.records import DropReason

#: Sets of column names whose unread ones are kept; more do not pay.
_MAX_KEPT = 1 << 12


class RowReader:
    """Reads the rows of one source by its layouts."""

    def __init__(self, reading: Reading) -> None:
        """Take how the source's rows are read."""
        self.reading = reading
        self._makers = [maker_of(layout, reading) for layout in reading.layouts]
        self._inside = [_inside_of(maker.read) for maker in self._makers]
        self._ignored_names = frozenset(name for layout in reading.layouts for name in layout.ignore)
        #: (names of columns, position of the maker) -> columns that nobody reads
        self._unread: dict[tuple[tuple[str, ...], int], tuple[str, ...]] = {}
        #: names of columns -> the only one, whose turns are read, and its layout; none if others are read or unread
        self._plain: dict[tuple[str, ...], tuple[str, int]] = {}

    @property
    def key(self) -> list[Any]:
        """What a row's tokens, drops and unread columns depend on, beside its bytes: how its source is read."""
        how = self.reading
        return [how.to_dict(), how.is_written, how.strips_spaces]

    @property
    def kind(self) -> str:
        """Kind of the rows, which chooses their settings."""
        return self.reading.kind

    def read(self, row: Mapping[str, Any]) -> ReadRow:
        """Return a row's columns as encoders read them.

        Raises:
            RowError: no layout fits the row, or a column holds something else than the layout says.
        """
        keys = tuple(row)
        plain, index = self._plain.get(keys) or self._plain_column(keys)
        if plain and type(turns := row[plain]) is list and turns:  # fast path: most rows are turns and nothing else
            row_read = ReadRow(messages=turns)
            if index:
                row_read.layout = index
            return row_read
        index = self._choose(row)
        maker = self._makers[index]
        row_read = maker.make(row)
        row_read.layout = index
        key = (keys, index)
        names = self._unread.get(key)
        if names is None:
            if len(self._unread) > _MAX_KEPT:
                self._unread.clear()
            names = self._unread[key] = self._names_unread(row, maker)
        if self._ignored_names:
            row_read.ignored_names = self._ignored_names
        if names:
            row_read.unread = {name: row[name] for name in names if not is_empty(row[name])}
        if self._inside[index]:
            row_read.unread = {**row_read.unread, **dict(self._unread_inside(row, self._inside[index]))}
        return row_read

    def _plain_column(self, keys: tuple[str, ...]) -> tuple[str, int]:
        if len(self._plain) > _MAX_KEPT:
            self._plain.clear()
        self._plain[keys] = ("", 0)
        if len(keys) == 1 and not self._ignored_names:
            makers = enumerate(self._makers)
            readers = [index for index, maker in makers if isinstance(maker, ChatMaker) and maker.plain == keys[0]]
            if readers:
                self._plain[keys] = (keys[0], readers[0])
        return self._plain[keys]

    def _choose(self, row: Mapping[str, Any]) -> int:
        """Return the first layout that fits a row; of those of which it has the columns alone, the first."""
        indices = [index for index, maker in enumerate(self._makers) if maker.is_there(row)]
        if not indices:
            raise self._nothing_fits(row)
        if len(indices) == 1:
            return indices[0]
        return next((index for index in indices if self._makers[index].fits(row)), indices[0])

    def _nothing_fits(self, row: Mapping[str, Any]) -> RowError:
        names = list(dict.fromkeys(maker.needs for maker in self._makers))
        hint = layout_hint(row, self.kind)
        if not self.reading.is_written:
            hint = f"; its source is read as {' or '.join(self.reading.names)}, as its first rows are{hint}"
        if not names[1:]:
            missing = self._makers[0].missing(row)
            return RowError(DropReason.MISSING_FIELD, f"{missing} is missing; it has: {names_of(row)}{hint}")
        lists = [columns[0] for columns in names if len(columns) == 1]
        pairs = [" with ".join(columns) for columns in names if len(columns) > 1]
        columns_named = ", ".join(lists) + (", nor " if lists and pairs else "") + ", nor ".join(pairs)
        return RowError(DropReason.MISSING_FIELD, f"none of {columns_named}; it has: {names_of(row)}{hint}")

    def _names_unread(self, row: Mapping[str, Any], maker: Maker) -> tuple[str, ...]:
        read = {column.path if column.path in row else column.name for column in maker.read}
        return tuple(name for name in row if name not in read and name not in self._ignored_names)

    def _unread_inside(self, row: Mapping[str, Any], inside: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, Any]]:
        """Yield `column.field` and its value for objects of which a layout reads other fields."""
        for column, fields in inside.items():
            value = row.get(column)
            if column in self._ignored_names or not isinstance(value, Mapping):
                continue
            for name, item in value.items():
                path = f"{column}.{name}"
                if name not in fields and path not in self._ignored_names and not is_empty(item):
                    yield path, item


def _inside_of(columns: Sequence[Column]) -> dict[str, frozenset[str]]:
    """Return column -> its fields that are read, for columns that are not read whole: `answer.text.0` -> text."""
    whole_columns = {column.path for column in columns}
    paths = [column for column in columns if column.path != column.name and column.name not in whole_columns]
    return {
        name: frozenset(column.path.split(".")[1] for column in paths if column.name == name)
        for name in dict.fromkeys(column.name for column in paths)
    }


def readers_of(recipe: SFTRecipe) -> Callable[[Source, Sequence[InputFile], str], RowReader]:
    """Return a function that returns the reader of one of a recipe's sources, by its files and the recipe's field.

    Without a layout in the recipe, it looks at the rows; raises ConfigError as `detect_reading`.
    """

    def reader_of(source: Source, files: Sequence[InputFile], field: str) -> RowReader:
        reading = written_reading(recipe.preprocessing, recipe.data, source)
        return RowReader(reading or detect_reading(recipe, files, field))

    return reader_of
