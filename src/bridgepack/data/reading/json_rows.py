"""Lines of JSON -> rows, with orjson if it is installed and agrees with `json`, else with `json`."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from bridgepack.errors import RowError
from bridgepack.records import DropReason

#: Columns of an input row.
Row = Mapping[str, Any]

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SPACE = b" \t\r\n\xef\xbb\xbf"
#: Turns every digit into a zero, so that one search finds any number that orjson would round.
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_NUMBER = b"0" * 19

_LOADS: Callable[[bytes], Any] | None
try:
    import orjson

    _LOADS = orjson.loads
except ImportError:
    _LOADS = None


class BrokenJson(RowError):
    """A text that is not JSON; in an array, all later elements are then in doubt."""


def read_line(line: bytes) -> Row | RowError | None:
    """Return a line's row or its error; None for a blank line."""
    value: Any = None
    if _LOADS is not None and _LONG_NUMBER not in line.translate(_DIGITS):
        try:
            value = _LOADS(line)
        except ValueError:  # `json` accepts more (NaN), and words the errors
            value = None
    if type(value) is dict:
        return value
    if not line.strip(_SPACE):
        return None
    return _slowly(line)


def names_of(columns: Row) -> str:
    """Return the names of a row's columns, for messages."""
    return ", ".join(sorted(map(str, columns)))[:200] or "no fields"


def row_of(value: Any) -> Row | RowError:
    """Return a parsed value as a row, or the error why it is not one."""
    if not isinstance(value, Mapping):
        return RowError(DropReason.NOT_AN_OBJECT, f"the row is a {type(value).__name__}; it must be an object")
    return value


def _slowly(line: bytes) -> Row | RowError:
    try:
        text = line.decode("utf-8-sig")
        value = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        return BrokenJson(DropReason.INVALID_JSON, f"not UTF-8: {error}")
    except UnicodeEncodeError:
        return RowError(DropReason.INVALID_JSON, "a \\u escape is half of a surrogate pair, which is not a character")
    except (ValueError, RecursionError) as error:
        start = line[:60].rstrip(b"\r\n").decode(errors="replace")
        kind = BrokenJson if isinstance(error, (json.JSONDecodeError, RecursionError)) else RowError
        return kind(DropReason.INVALID_JSON, f"{error}; the line begins {start!r}")
    return row_of(value)
