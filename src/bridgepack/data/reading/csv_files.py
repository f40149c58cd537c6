"""Turns CSV and TSV files into JSON lines: one a row, every cell a text under its column's name.

`name,answer` and `a,"b, c"` -> `{"name": "a", "answer": "b, c"}`. A row that cannot be read becomes a line that says
why, so that it keeps its number. No value is guessed: an empty cell is an empty text, and a file with another
delimiter is refused. The reader is Python's, in strict mode: pyarrow.csv joins rows in silence where a quote is open.
"""

import csv
import json
from collections.abc import Iterator
from typing import IO

from bridgepack.data.reading.lines import refuse_utf_16, too_large
from bridgepack.errors import DataError, RowError
from bridgepack.records import DropReason

#: Kind of file -> its delimiter.
DELIMITERS = {"csv": ",", "tsv": "\t"}
_NAMES = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars"}
_BYTE_ORDER_MARK = "\ufeff"
#: A row of more bytes is taken for one whose quote is never closed, unless the recipe allows larger rows.
_ROW_BYTES, _MAX_ROW_BYTES = 1 << 25, 1 << 40
_BLOCK_BYTES = 1 << 20
#: Begins the line of a row that cannot be read, and of one with too many bytes, which follow; no JSON begins so.
_BROKEN, _TOO_LARGE = "!", "#"
_ADVICE = (
    "A cell with quotes must be quoted as a whole, with each quote inside doubled. Write the file with a CSV library."
)


def broken_row(line: bytes) -> RowError | None:
    """Return why a row cannot be read, by its line; None for a line of JSON."""
    if line.startswith(_TOO_LARGE.encode()):
        return too_large(int(line[1:]))
    if not line.startswith(_BROKEN.encode()):
        return None
    return RowError(DropReason.INVALID_FIELD, line[1:].decode().rstrip("\n"))


class CsvLines:
    """The rows of a stream as JSON lines.

    Attributes:
        num_bytes: bytes of the stream that have been read.
    """

    def __init__(self, stream: IO[bytes], kind: str, label: str, *, max_row_bytes: int) -> None:
        self.num_bytes = self._row_begin = self._line_end_bytes = 0
        self._max_row_bytes = max_row_bytes or _MAX_ROW_BYTES
        self._label, self._delimiter, self._header = label, DELIMITERS[kind], ""
        self._row_bytes = min(max(max_row_bytes, _ROW_BYTES), _MAX_ROW_BYTES)
        if csv.field_size_limit() < self._row_bytes:  # of the whole process, so it is only raised
            csv.field_size_limit(self._row_bytes)
        self._reader = csv.reader(self._texts(stream), delimiter=self._delimiter, strict=True)

    def blocks(self) -> Iterator[bytes]:
        """Yield whole lines, in blocks.

        Raises:
            DataError: the header cannot be used, or a quote is not closed.
        """
        lines, size = list[str](), 0
        for line in self._lines(self._names()):
            lines.append(line)
            size += len(line)
            if size >= _BLOCK_BYTES:
                yield _encode(lines)
                lines, size = [], 0
        yield _encode(lines)

    def _texts(self, stream: IO[bytes]) -> Iterator[str]:
        """Yield the stream's lines; bytes that are not UTF-8 become surrogates."""
        while line := stream.readline(self._row_bytes + 1):
            if not self.num_bytes:
                refuse_utf_16(line, self._label)
            text = line.decode(errors="surrogateescape")
            if not self.num_bytes:
                text = text.removeprefix(_BYTE_ORDER_MARK)
            self._header = self._header or text.strip("\r\n").partition("\r")[0]
            self.num_bytes += len(line)
            self._line_end_bytes = len(line) - len(line.rstrip(b"\r\n"))
            if self.num_bytes - self._row_begin > self._row_bytes:
                raise DataError(
                    f"{self._label}: the row that begins at byte {self._row_begin:,} has more than "
                    f"{self._row_bytes:,} bytes; probably a quote is not closed. {_ADVICE} If such rows are intended, "
                    "raise data.max_row_bytes."
                )
            yield text

    def _names(self) -> list[str]:
        """Return the names of the columns; none for a file without a header."""
        try:
            names = next(filter(None, self._reader), [])
        except csv.Error as error:
            self._refuse_other_delimiters()
            raise DataError(f"{self._label}: its header cannot be read: {error}. {_ADVICE}") from None
        if self._header.lower().startswith("sep="):
            raise self._unusable(f"begins with {self._header!r}, which is for spreadsheets only", "Remove that line.")
        if len(names) == 1:
            self._refuse_other_delimiters()
        if twice := sorted({name for name in names if names.count(name) > 1}):
            fault = f"has several columns named {', '.join(map(repr, twice))}"
            raise self._unusable(fault, "Give each column a name of its own.")
        if any(map(_has_surrogates, names)):
            raise self._unusable("has a header that is not UTF-8", "Save it as UTF-8.")
        self._row_begin = self.num_bytes
        return names

    def _refuse_other_delimiters(self) -> None:
        for delimiter, its_name in _NAMES.items():
            if delimiter != self._delimiter and len(next(csv.reader([self._header], delimiter=delimiter), [])) > 1:
                kind = next(
                    (
                        f"rename it to .{kind}"
                        for kind, its_delimiter in DELIMITERS.items()
                        if its_delimiter == delimiter
                    ),
                    "",
                )
                cure = f"Write it with {_NAMES[self._delimiter]}{f', or {kind}' if kind else ''}"
                fault = f"has one column, {self._header[:200]!r}; its cells seem to be separated by {its_name}"
                raise self._unusable(fault, f"{cure}; if that is one name, put it in quotes.")

    def _unusable(self, fault: str, cure: str) -> DataError:
        return DataError(
            f"{self._label} {fault}; allowed: a first line with the columns' names, each once, separated by "
            f"{_NAMES[self._delimiter]}. {cure}"
        )

    def _lines(self, names: list[str]) -> Iterator[str]:
        encode = json.JSONEncoder(ensure_ascii=False).encode
        for cells in self._records():
            if isinstance(cells, str):
                yield cells
            elif len(cells) == len(names):
                yield encode(dict(zip(names, cells, strict=True)))
            else:
                have = f"{len(cells)} cell{'s' * (len(cells) != 1)}"
                yield f"{_BROKEN}the row has {have}, and the header {len(names)}: {', '.join(names)[:200]!r}"

    def _records(self) -> Iterator[list[str] | str]:
        """Yield the cells of each row, or a line that says why it cannot be read."""
        row, line = 1, self._reader.line_num
        while True:
            try:
                cells: list[str] | str = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                if self._reader.line_num > line + 1 or "unexpected end" in str(error):
                    raise DataError(
                        f"{self._label}: row {row}, which begins in line {line + 1}, has a quote that is not closed "
                        f"correctly ({error}, in line {self._reader.line_num}), so the ends of rows are unknown. "
                        f"{_ADVICE}"
                    ) from None
                cells = f"{_BROKEN}line {line + 1}: {error}; a quote inside a cell must be doubled"
            row_bytes = self.num_bytes - self._row_begin - self._line_end_bytes
            if cells and row_bytes > self._max_row_bytes:
                cells = f"{_TOO_LARGE}{row_bytes}"
            line, self._row_begin = self._reader.line_num, self.num_bytes
            if cells:  # a blank line is no row
                row += 1
                yield cells


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _encode(lines: list[str]) -> bytes:
    try:
        return "\n".join([*lines, ""]).encode()
    except UnicodeEncodeError:
        lines_of_utf_8 = [
            f"{_BROKEN}not UTF-8. Save the file as UTF-8." if _has_surrogates(line) else line for line in lines
        ]
        return "\n".join([*lines_of_utf_8, ""]).encode()
