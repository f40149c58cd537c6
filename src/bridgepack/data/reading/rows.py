"""Reads the rows of a range of an input file: lines of JSON, by jiter if it agrees with `json`, and rows of tables."""

import hashlib
import io
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import accumulate, chain, islice, zip_longest
from typing import Any

from bridgepack.config.json_text import RepeatedKey, parse_json
from bridgepack.data.reading.csv_files import DELIMITERS, broken_row
from bridgepack.data.reading.inputs import JSON_ARRAY, PARQUET, InputFile, file_stamp
from bridgepack.data.reading.json_columns import json_decoder
from bridgepack.data.reading.lines import broken_array, open_stream, too_large
from bridgepack.data.reading.ranges import InputRange, arrow_batches, is_table, iter_ranges, one_line, parquet_file
from bridgepack.errors import DataError, RowError
from bridgepack.records import DropReason
from bridgepack.records.rows import ReadRow
from bridgepack.records.words import kind_of

#: Columns of an input row.
Row = Mapping[str, Any]

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SPACE = b" \t\r\n\xef\xbb\xbf"

#: Parses a line, and raises ValueError where a key is repeated.
_LOADS: Callable[[bytes], Any] | None
try:
    import jiter

    _LOADS = partial(jiter.from_json, allow_inf_nan=False, cache_mode="keys", catch_duplicate_keys=True)
except ImportError:
    _LOADS = None


class BrokenJson(RowError):
    """A text that is not JSON; in an array, all later elements are then in doubt."""


def read_line(line: bytes) -> Row | RowError | None:
    """Return a line's row or its error; None for a blank line."""
    value: Any = None
    if _LOADS is not None:
        try:
            value = _LOADS(line)
        except ValueError:  # `json` accepts more (NaN), and words the errors
            value = None
    if type(value) is dict:
        return value
    if not line.strip(_SPACE):
        return None
    return _slowly(line)


def row_of(value: Any) -> Row | RowError:
    """Return a parsed value as a row, or the error why it is not one."""
    if not isinstance(value, Mapping):
        cure = ', such as {"messages": [..]} around a list of turns' if isinstance(value, list) else ""
        return RowError(DropReason.NOT_AN_OBJECT, f"the row is {kind_of(value)}; it must be an object{cure}")
    return value


def _slowly(line: bytes) -> Row | RowError:
    try:
        text = line.decode("utf-8-sig")
        value = parse_json(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        return BrokenJson(DropReason.INVALID_JSON, f"not UTF-8: {error}")
    except UnicodeEncodeError:
        return RowError(DropReason.INVALID_JSON, "a \\u escape is half of a surrogate pair, which is not a character")
    except RepeatedKey as error:
        return RowError(DropReason.INVALID_JSON, str(error))
    except (ValueError, RecursionError) as error:
        start = line[:60].rstrip(b"\r\n").decode(errors="replace")
        kind = BrokenJson if isinstance(error, (json.JSONDecodeError, RecursionError)) else RowError
        return kind(DropReason.INVALID_JSON, f"{error}; the line begins {start!r}")
    return row_of(value)


#: Maximum rows of a table decoded together, and minimum batches per range, because a range of few rows has large
#: rows.
_BATCH_ROWS, _BATCHES = 256, 16
#: Files that a sample of rows is taken from, and maximum rows per file.
_SAMPLED_FILES, _SAMPLED_ROWS = 8, 500
#: Row, list of turns, turn; and a turn's fields with its text.
_TURN_DEPTH, _CONTENT = 2, ("content", "value")

#: (1-based row number, the row, as its view reads it, or its error); None for a blank line, which is counted but is no
#: row.
RowRead = tuple[int, Row | ReadRow | RowError | None]


def read_range(file: InputFile, part: InputRange) -> Iterator[RowRead]:
    """Yield the rows of a range, in order.

    Raises:
        DataError: the file cannot be read, or has changed since the ranges were made.
    """
    if part.is_oversized:
        yield part.first_row, too_large(part.stop - part.start)
    elif is_table(file):
        together = 1 << min(max(part.num_rows // _BATCHES, 1), _BATCH_ROWS).bit_length() - 1
        yield from _columnar_rows(file, part, together)
    else:
        yield from _parse(io.BytesIO(lines_of(file, part)), file, part)


def rows_apart(file: InputFile, part: InputRange) -> Iterator[Iterable[RowRead]]:
    """Yield each row of a range separately, as an iterable that parses the row only when it is read.

    Raises:
        DataError: the file cannot be read, or has changed since the ranges were made.
    """
    if part.is_oversized:
        yield read_range(file, part)
    elif is_table(file):
        yield from ([item] for item in _columnar_rows(file, part, 1))
    else:
        for offset, line in enumerate(io.BytesIO(lines_of(file, part))):
            yield _parse([line], file, replace(part, first_row=part.first_row + offset))


def has_row(file: InputFile, max_row_bytes: int) -> bool:
    """Return whether a file has a row, valid or not; reads up to the first.

    Raises:
        DataError: the file cannot be read.
    """
    parts = iter_ranges(file, sha256="", max_row_bytes=max_row_bytes)
    return any(item is not None for part in parts for _, item in read_range(file, part))


def sampled_rows(files: Sequence[InputFile], max_row_bytes: int) -> Iterator[RowRead]:
    """Yield rows from the beginning of some files, in turn; skips files that cannot be read."""
    in_turn = zip_longest(*(_first_rows(file, max_row_bytes) for file in pick_evenly(files, _SAMPLED_FILES)))
    yield from (row for group in in_turn for row in group if row is not None)


def pick_evenly[Item](items: Sequence[Item], maximum: int) -> list[Item]:
    """Return at most so many items, evenly spaced: 0 to 9 and 4 -> [0, 2, 5, 7]."""
    return (
        [items[place] for place in sorted({len(items) * step // maximum for step in range(maximum)})] if items else []
    )


def _first_rows(file: InputFile, max_row_bytes: int) -> Iterator[RowRead]:
    try:
        for part in islice(iter_ranges(file, sha256="", max_row_bytes=max_row_bytes), 1):
            if not part.is_oversized:
                yield from islice(read_range(file, part), _SAMPLED_ROWS)
    except DataError:  # the build reports the error when it reads the file
        return


def lines_of(file: InputFile, part: InputRange) -> bytes:
    """Return the lines of a range, after checking them against the range's sha256.

    Raises:
        DataError: the file cannot be read, or has changed since the ranges were made.
    """
    content = part.payload
    if content is None:
        with open_stream(file.path, None) as stream:
            stream.seek(part.start)
            content = stream.read(part.stop - part.start)
    if hashlib.sha256(content).hexdigest() != part.sha256:
        raise DataError(f"{file.label} changed while it was read. Build again when no process writes to it.")
    return content


def _parse(lines: Iterable[bytes], file: InputFile, part: InputRange) -> Iterator[RowRead]:
    read = _csv_row if file.kind in DELIMITERS else read_line
    for row, line in enumerate(lines, part.first_row):
        row_or_error = read(line)
        if file.kind == JSON_ARRAY and (row_or_error is None or isinstance(row_or_error, BrokenJson)):
            raise broken_array(
                file.label, f"element {row}: {'it is missing' if row_or_error is None else row_or_error.detail}"
            )
        yield row, _apply_view(row_or_error, file)


def _csv_row(line: bytes) -> Row | RowError | None:
    return broken_row(line) or read_line(line)


def _columnar_rows(file: InputFile, part: InputRange, max_rows: int) -> Iterator[RowRead]:
    if file.kind == PARQUET:
        batches = parquet_cursor().batches(file, part.start, part.stop, max_rows=max_rows)
    else:
        batches = arrow_batches(file, part.start, part.stop, max_rows=max_rows)
    for row, row_or_error in enumerate(_table_rows(batches, part.max_row_bytes), part.first_row):
        yield row, _apply_view(row_or_error, file)


def _table_rows(batches: Iterator[Any], max_row_bytes: int) -> Iterator[Row | RowError]:
    first = next(batches, None)
    decode = None if first is None else json_decoder(first.schema)
    for batch in chain(() if first is None else (first,), batches):
        for value in _bounded_rows(batch, max_row_bytes):
            row_or_error = value if isinstance(value, RowError) else row_of(without_nulls(value))
            yield row_or_error if decode is None or isinstance(row_or_error, RowError) else decode(row_or_error)


def _apply_view(row_or_error: Row | RowError | None, file: InputFile) -> Row | ReadRow | RowError | None:
    """Return a row as its view reads it, or its error."""
    if file.view is None or row_or_error is None or isinstance(row_or_error, RowError):
        return row_or_error
    try:
        return file.view.read(row_or_error)
    except RowError as error:
        return error


def _bounded_rows(batch: Any, max_row_bytes: int) -> Iterator[Any]:
    """Yield a record batch's rows; for a row that is too large or unreadable, its error."""
    if max_row_bytes and batch.nbytes > max_row_bytes:
        error = too_large(batch.nbytes)
    else:
        try:
            rows = batch.to_pylist(maps_as_pydicts="strict")
        except UnicodeDecodeError as undecodable:  # Arrow does not check that text is UTF-8
            error = RowError(DropReason.INVALID_FIELD, f"not UTF-8: {undecodable}")
        except (ValueError, OverflowError) as unreadable:  # e.g. a date after the year 9999, or duplicate field names
            detail = f"a column holds a value that Python cannot represent ({unreadable}); leave it out of the file"
            error = RowError(DropReason.INVALID_FIELD, detail)
        except KeyError as repeated:
            error = RowError(DropReason.INVALID_FIELD, f"a map has a key twice: {repeated.args[0]}")
        else:
            yield from rows
            return
    if batch.num_rows == 1:
        yield error
    else:
        half = batch.num_rows // 2
        yield from _bounded_rows(batch.slice(0, half), max_row_bytes)
        yield from _bounded_rows(batch.slice(half), max_row_bytes)


def without_nulls(value: Any, depth: int = 0) -> Any:
    """Return a row without the null fields that columnar files add because other rows have a value there.

    Keeps a turn's `content` or `value`, because null content differs from missing content.
    """
    if isinstance(value, dict):
        is_turn = depth == _TURN_DEPTH
        items_with_value = {
            key: item for key, item in value.items() if item is not None or (is_turn and key in _CONTENT)
        }
        return {key: without_nulls(item, depth + 1) for key, item in items_with_value.items()}
    if isinstance(value, list) and isinstance(next((item for item in value if item is not None), None), (dict, list)):
        return [without_nulls(item, depth + 1) for item in value]
    return value


class ParquetCursor:
    """Reads rows of Parquet files; reading on in the same file does not decode a row group twice."""

    def __init__(self) -> None:
        self._key: Any = None
        self._rest: Any = None
        self._position = self._max_rows = 0

    def batches(self, file: InputFile, start: int, stop: int, *, max_rows: int) -> Iterator[Any]:
        """Yield record batches of rows `start` (0-based) to `stop - 1`, in order, at most `max_rows` each.

        Raises:
            DataError: a row group cannot be read.
        """
        key = (str(file.path), file_stamp(file.path))
        if key != self._key or start < self._position or max_rows < self._max_rows:
            metadata = (parquet := parquet_file(file)).metadata
            groups = range(metadata.num_row_groups)
            self._starts = [*accumulate((metadata.row_group(group).num_rows for group in groups), initial=0)]
            first_group = self._group_of(start)
            self._position, self._rest = self._starts[first_group], None
            self._batches = parquet.iter_batches(batch_size=max_rows, row_groups=groups[first_group:])
            self._key, self._max_rows = key, max_rows
        while self._position < stop:
            batch = self._rest if self._rest is not None else self._next(file)
            first, last = max(start - self._position, 0), min(stop - self._position, batch.num_rows)
            self._rest = batch.slice(last) if last < batch.num_rows else None
            self._position += last
            if first < last:
                yield batch.slice(first, last - first)

    def _group_of(self, row: int) -> int:
        return max(bisect_right(self._starts, row) - 1, 0)

    def _next(self, file: InputFile) -> Any:
        import pyarrow as pa

        key, self._key = self._key, None  # after an error the file is opened again
        try:
            batch = next(self._batches)
        except (pa.ArrowException, OSError, StopIteration) as error:
            group, reason = self._group_of(self._position), one_line(error) or "it ends early"
            raise DataError(f"{file.label}: row group {group} cannot be read: {reason}. Write it again.") from None
        self._key = key
        return batch


@lru_cache(maxsize=1)
def parquet_cursor() -> ParquetCursor:
    """Return the cursor of this process."""
    return ParquetCursor()
