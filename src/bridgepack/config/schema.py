"""The JSON Schemas of files, for editors and for other programs."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from bridgepack.config.cluster.cluster import ClusterConfig
from bridgepack.config.recipe.recipe import SFTRecipe

#: Where the documentation publishes the schemas.
SCHEMA_URL = "https://bridgepack.readthedocs.io/recipe.schema.json"
CLUSTER_SCHEMA_URL = "https://bridgepack.readthedocs.io/cluster.schema.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE_PREFIX = "#/$defs/"


def recipe_schema() -> dict[str, Any]:
    """Return the JSON Schema (Draft 2020-12) of a recipe file: every field with its meaning, type, bounds, default.

    It refuses what `SFTRecipe` refuses by itself: unknown fields, wrong types, values out of bounds. What depends on
    two fields at once is left to `SFTRecipe`.
    """
    return _published_schema(SFTRecipe, url=SCHEMA_URL, title="bridgepack recipe")


def cluster_schema() -> dict[str, Any]:
    """Return the JSON Schema of a cluster file, as `recipe_schema`.

    What depends on two fields, and how a mount or a time is written, is left to `ClusterConfig`.
    """
    return _published_schema(ClusterConfig, url=CLUSTER_SCHEMA_URL, title="bridgepack cluster")


def _published_schema(model: type[BaseModel], *, url: str, title: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file, with what editors show.

    Args:
        model: what the file holds.
        url: where the documentation publishes the schema.
        title: what the file is.
    """
    schema = _with_prose_on_lines(model.model_json_schema())
    for definition, tag in _tagged(schema):
        required = schema["$defs"][definition].setdefault("required", [])
        if tag not in required:
            required.append(tag)
    for section in (schema, *schema["$defs"].values()):
        for field in section["properties"].values():
            if "description" not in field:
                field["description"] = schema["$defs"][field["$ref"].removeprefix(_REFERENCE_PREFIX)]["description"]
    head = {"$schema": _DIALECT, "$id": url, "title": title}
    return {**head, **{name: value for name, value in schema.items() if name not in head}}


def schema_text(schema: dict[str, Any] | None = None) -> str:
    """Return a schema as the text of a file; by default that of a recipe."""
    return json.dumps(recipe_schema() if schema is None else schema, indent=2, ensure_ascii=False) + "\n"


def _with_prose_on_lines(schema: Any) -> Any:
    """Return a schema whose descriptions have one line for each paragraph; editors show them as they are."""
    if isinstance(schema, list):
        return [_with_prose_on_lines(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _on_lines(value) if name == "description" and isinstance(value, str) else _with_prose_on_lines(value)
        for name, value in schema.items()
    }


def _on_lines(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _tagged(schema: Any) -> list[tuple[str, str]]:
    """Return (definition, field) of the sections that are told apart by a field; a recipe has to write it."""
    if isinstance(schema, list):
        return [found for item in schema for found in _tagged(item)]
    if not isinstance(schema, dict):
        return []
    inner = [found for item in schema.values() for found in _tagged(item)]
    mark = schema.get("discriminator")
    if not isinstance(mark, dict) or not isinstance(mark.get("mapping"), dict):
        return inner
    names = [reference.removeprefix(_REFERENCE_PREFIX) for reference in mark["mapping"].values()]
    return inner + [(name, mark["propertyName"]) for name in names]
