"""Rows as the data has them -> rows with the columns that encoders read, and what nobody reads."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from bridgepack.config.layouts.contents import is_empty
from bridgepack.config.layouts.hints import layout_hint
from bridgepack.config.layouts.sayings import as_flow
from bridgepack.config.recipe.data import Source
from bridgepack.config.recipe.layout import Column
from bridgepack.config.recipe.readings import Reading, written_reading
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.layouts.detection import detect_reading
from bridgepack.data.layouts.makers import ChatMaker, MadeRow, Maker, maker_of
from bridgepack.data.layouts.messages import MessageReader
from bridgepack.data.layouts.values import as_inside
from bridgepack.data.reading.inputs import InputFile, names_of
from bridgepack.errors import RowError
from bridgepack.records import DropReason
from bridgepack.records.rows import ReadRow

#: Name of a field, or position in a list -> what is read inside it; empty if all of it is.
type Inside = dict[str, Inside]
#: Sets of column names whose unread ones are kept; more do not pay.
_MAX_KEPT = 1 << 12


class RowReader:
    """Reads the rows of one source by its layouts."""

    def __init__(self, reading: Reading, role_aliases: Mapping[str, str] = MappingProxyType({})) -> None:
        """Take how the source's rows are read, and the recipe's names of roles."""
        self.reading = reading
        self._makers = [maker_of(layout, reading, role_aliases) for layout in reading.layouts]
        self._messages = MessageReader(role_aliases)
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

    @cached_property
    def _detection_texts(self) -> list[str]:
        return [] if self.reading.is_written else [as_flow(layout) for layout in self.reading.layouts]

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
            if self._messages.are_plain(turns):
                return ReadRow({"messages": turns}, "chat", index, True)
            messages = self._messages.read(turns)
            return self._read_row(MadeRow({"messages": messages.messages}, messages), "chat", index, {})
        index = self._choose(row)
        maker = self._makers[index]
        made_row = maker.make(row)
        key = (keys, index)
        names = self._unread.get(key)
        if names is None:
            if len(self._unread) > _MAX_KEPT:
                self._unread.clear()
            names = self._unread[key] = self._names_unread(row, maker)
        unread = {name: row[name] for name in names if not is_empty(row[name])} if names else {}
        if self._inside[index]:
            unread |= self._unread_inside(row, self._inside[index])
        return self._read_row(made_row, maker.kind, index, unread)

    def _read_row(self, made_row: MadeRow, kind: str, index: int, unread: Mapping[str, Any]) -> ReadRow:
        if made_row.messages is None:
            return ReadRow(made_row.columns, kind, index, unread=unread, ignored_names=self._ignored_names)
        messages = made_row.messages
        return ReadRow(
            columns=made_row.columns,
            kind=kind,
            layout=index,
            is_plain=messages.is_plain,
            unread={**unread, **messages.unread},
            other_keys={**messages.other_keys, **made_row.other_keys},
            ignored_names=self._ignored_names,
            system_name=made_row.system_name,
            renamed=messages.renamed,
        )

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
        hint = layout_hint(row, self.kind, self._detection_texts)
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

    def _unread_inside(self, row: Mapping[str, Any], inside: Mapping[str, Inside]) -> dict[str, Any]:
        """Return path -> value of what a layout does not read inside the columns of which it reads a part."""
        unread: dict[str, Any] = {}
        for column, parts in inside.items():
            if column not in self._ignored_names:
                for path, value in unread_parts(row.get(column), column, parts):
                    if path not in self._ignored_names and not is_empty(value):
                        unread.setdefault(path, value)
        return unread


def unread_parts(value: Any, path: str, parts: Inside) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of the fields of an object, and of the items of a list as `PATH.*`, that no path reads.

    [["a"], ["b"]] at `history`, of which `history.0` is read -> (`history.*`, ["b"])
    """
    value = as_inside(value, path)
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name not in parts:
                yield f"{path}.{name}", item
            elif parts[name]:
                yield from unread_parts(item, f"{path}.{name}", parts[name])
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            if str(index) not in parts:
                yield f"{path}.*", item
            elif parts[str(index)]:
                yield from unread_parts(item, f"{path}.{index}", parts[str(index)])


def _inside_of(columns: Sequence[Column]) -> dict[str, Inside]:
    """Return column -> what is read inside it, for columns of which a part is: `answer.text.0` -> {text: {0: {}}}."""
    whole_columns = {column.path for column in columns}
    inside: dict[str, Inside] = {}
    for column in columns:
        if column.path != column.name and column.name not in whole_columns:
            parts = inside.setdefault(column.name, {})
            for name in column.path.split(".")[1:]:
                parts = parts.setdefault(name, {})
    return inside


def readers_of(recipe: SFTRecipe) -> Callable[[Source, Sequence[InputFile], str], RowReader]:
    """Return a function that returns the reader of one of a recipe's sources, by its files and the recipe's field.

    Without a layout in the recipe, it looks at the rows; raises ConfigError as `detect_reading`.
    """

    def reader_of(source: Source, files: Sequence[InputFile], field: str) -> RowReader:
        reading = written_reading(recipe.preprocessing, recipe.data, source)
        return RowReader(reading or detect_reading(recipe, files, field), recipe.data.role_aliases)

    return reader_of
