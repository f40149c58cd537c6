"""Values of texts in rows that hold JSON."""

from typing import Any

from bridgepack.config.json_text import RepeatedKey, parse_json
from bridgepack.errors import RowError
from bridgepack.records import DropReason


def value_of_json(text: str, where: str) -> Any:
    """Return the value of a JSON text; raises RowError if it is not JSON."""
    try:
        return parse_json(text)
    except RepeatedKey as error:
        raise RowError(DropReason.INVALID_FIELD, f"{where}: {error}") from None
    except ValueError as error:
        raise RowError(DropReason.INVALID_FIELD, f"{where} is not JSON: {error}") from None
    except RecursionError:
        raise RowError(DropReason.INVALID_FIELD, f"{where} is nested too deeply") from None
