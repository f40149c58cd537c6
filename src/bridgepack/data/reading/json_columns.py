"""Decodes columns of type JSON in tables: `Json()` of `datasets`, Arrow's `arrow.json` and Parquet's JSON.

Such a value is stored as the text of its JSON: `{"city": "Bern", "unit": null}`. Columns, fields of structs and items
of lists may have the type. A text column that merely holds JSON has another type, and is not decoded.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from bridgepack.config.json_text import RepeatedKey, parse_json
from bridgepack.errors import RowError
from bridgepack.records import DropReason

type Decode = Callable[[Any], Any]
#: Row of a table -> the row with its JSON decoded, or why it cannot be.
type RowDecoder = Callable[[Mapping[str, Any]], Mapping[str, Any] | RowError]

_EXTENSION = "arrow.json"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
#: Fields that hold a text, or a list of parts or turns. `datasets` writes a text that happens to be JSON without
#: quotes, e.g. an answer `42`, so that only the field tells that it was no number.
_TEXT_FIELDS = frozenset({"content", "value", "text", "reasoning_content", "prompt", "completion"})
_FIELDS_OF_ITEMS = frozenset({"type", "role", "from"})


def json_decoder(schema: Any) -> RowDecoder | None:
    """Return what decodes the rows of a table with an Arrow schema; None if no column has the type."""
    features = _features(schema)
    columns = {field.name: decode for field in schema if (decode := _decoder(field, features.get(field.name)))}
    if not columns:
        return None

    def decode_columns(row: Mapping[str, Any]) -> Mapping[str, Any] | RowError:
        values = dict(row)
        for name, decode in columns.items():
            if name in row:
                try:
                    values[name] = decode(row[name])
                except RepeatedKey as error:
                    return RowError(DropReason.INVALID_JSON, f"column {name} is of type JSON: {error}")
                except (ValueError, RecursionError) as error:
                    detail = f"column {name} is of type JSON, and holds a text that is not JSON: {error}"
                    return RowError(DropReason.INVALID_JSON, detail)
        return values

    return decode_columns


def _features(schema: Any) -> dict[str, Any]:
    """Return the features that `datasets` notes in a schema; columns that other writers changed may lack the type."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def _decoder(field: Any, feature: Any) -> Decode | None:
    """Return what decodes a field's values; None if nothing in it has the type."""
    import pyarrow as pa

    kind, extension = field.type, (field.metadata or {}).get(b"ARROW:extension:name", b"").decode()
    is_of_datasets = isinstance(feature, dict) and feature.get("_type") == "Json"
    if is_of_datasets or _EXTENSION in (extension, getattr(kind, "extension_name", None)):
        return _text_decoder(is_of_datasets=is_of_datasets) if field.name in _TEXT_FIELDS else _value
    if pa.types.is_struct(kind):
        inside = feature if isinstance(feature, dict) else {}
        return _struct_decoder(
            {member.name: decode for member in kind if (decode := _decoder(member, inside.get(member.name)))}
        )
    if pa.types.is_map(kind):
        return _map_decoder(_decoder(kind.item_field.with_name(""), None))
    if hasattr(kind, "value_field"):
        of_item = feature.get("feature") if isinstance(feature, dict) else next(iter(feature or ()), None)
        return _list_decoder(_decoder(kind.value_field.with_name(""), of_item))
    return None


def _value(text: Any) -> Any:
    """Return the value of a JSON text; what is no text is no JSON to decode."""
    if not isinstance(text, str):
        return text
    value = parse_json(text)
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode()  # raises for half a surrogate pair
    return value


def _text_decoder(*, is_of_datasets: bool) -> Decode:
    def decode(text: Any) -> Any:
        try:
            value = _value(text)
        except RepeatedKey:
            if _is_items(json.loads(text)):
                raise
            return text
        except (ValueError, RecursionError):
            return text
        is_null = value is None and not is_of_datasets  # which stores null apart
        return value if is_null or isinstance(value, str) or _is_items(value) else text

    return decode


def _is_items(value: Any) -> bool:
    """Return whether a value is a list of parts or turns."""
    items = value if isinstance(value, list) else []
    return bool(items) and all(isinstance(item, dict) and not _FIELDS_OF_ITEMS.isdisjoint(item) for item in items)


def _struct_decoder(fields: Mapping[str, Decode]) -> Decode | None:
    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: fields[name](item) if name in fields else item for name, item in value.items()}

    return decode if fields else None


def _map_decoder(inside: Decode | None) -> Decode | None:
    def decode(value: Any) -> Any:
        return {name: inside(item) for name, item in value.items()} if isinstance(value, dict) and inside else value

    return decode if inside else None


def _list_decoder(inside: Decode | None) -> Decode | None:
    def decode(value: Any) -> Any:
        return [inside(item) for item in value] if isinstance(value, list) and inside else value

    return decode if inside else None
