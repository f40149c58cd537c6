"""Tells whether the parameters of a tool are a JSON Schema, as servers and chat templates expect."""

from collections.abc import Iterator
from typing import Any

from bridgepack.records.words import kind_of

#: Length of a place below which no further schemas are inspected.
_MAX_PLACE = 1000
_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
#: Keywords of which any one makes an object a schema.
_STRUCTURE = frozenset(
    {
        *("type", "properties", "patternProperties", "additionalProperties", "propertyNames", "items", "prefixItems"),
        *("$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "not", "if", "enum", "const"),
    }
)
#: Keywords that a schema may have, and that do not make one; and those of them whose value may be an object.
_NOTES = frozenset(
    {
        *("$schema", "$id", "$anchor", "$comment", "required", "strict", "nullable"),
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
    }
)
_OBJECT_NOTES = frozenset({"$defs", "definitions", "default", "dependentSchemas", "dependentRequired"})
#: Keywords whose value is a schema or a list of schemas, and those with an object of schemas.
_INNER = (
    *("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"),
    *("anyOf", "oneOf", "allOf", "prefixItems"),
)
_INNER_OBJECTS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def why_no_schema(parameters: Any) -> str:
    """Return why a tool's parameters are no JSON Schema; empty if they are one, or there are none.

    {"city": {"type": "str"}} -> "parameters has city, but neither type nor properties"
    """
    schemas = [(parameters, "parameters")] if parameters else []
    for schema, place in schemas:
        why = _fault(schema, place, is_inner=place != "parameters")
        if why:
            return why
        if isinstance(schema, dict) and len(place) < _MAX_PLACE:
            schemas += _schemas_within(schema, place)
    return ""


def _fault(schema: Any, place: str, *, is_inner: bool) -> str:
    # `datasets` and pyarrow give every object the fields of all, with null where one lacks a field.
    if schema is None or (is_inner and isinstance(schema, bool)):
        return ""
    if not isinstance(schema, dict):
        return f"{place} is {kind_of(schema)}; it must be a schema, an object"
    stated_items = {key: value for key, value in schema.items() if value is not None}
    if not _is_structured(stated_items):
        parameters = [str(key) for key, value in stated_items.items() if _is_parameter(key, value, is_inner=is_inner)]
        if parameters:
            return f"{place} has {', '.join(parameters)}, but neither type nor properties"
    kinds = stated_items.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if not (isinstance(kind, str) and kind in _TYPES):
            return f"the type of {place} is {kind!r}; JSON Schema knows {', '.join(sorted(_TYPES))}"
    for name in _INNER_OBJECTS:
        if not isinstance(stated_items.get(name, {}), dict):
            return f"{place}.{name} is {kind_of(stated_items[name])}; it must be an object"
    return ""


def _schemas_within(schema: dict[str, Any], place: str) -> Iterator[tuple[Any, str]]:
    for name in _INNER_OBJECTS:
        for key, value in (schema.get(name) or {}).items():
            yield value, f"{place}.{key}"
    for name in _INNER:
        inner = schema.get(name)
        for value in inner if isinstance(inner, list) else [inner]:
            yield value, f"{place}.{name}"


def _is_structured(schema: dict[str, Any]) -> bool:
    """Return whether an object has a keyword that describes a form; a parameter may have a keyword's name."""
    structure_keys = _STRUCTURE.intersection(schema)
    return bool(structure_keys) and not (structure_keys == {"type"} and isinstance(schema["type"], dict))


def _is_parameter(key: Any, value: Any, *, is_inner: bool) -> bool:
    """Return whether an entry of an object without form is a parameter, not a note or a limit."""
    if isinstance(value, dict):
        return key not in _OBJECT_NOTES
    return not is_inner and key not in _NOTES
