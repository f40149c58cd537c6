"""Writes a recipe as YAML or TOML: the values its author set, in field order; and the JSON Schemas of the files."""

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel

from bridgepack.config.cluster.cluster import ClusterConfig
from bridgepack.config.document import stated_values
from bridgepack.config.editing.yaml_text import block_lines
from bridgepack.config.errors import quote
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError

#: Where the documentation publishes the schemas.
SCHEMA_URL = "https://bridgepack.readthedocs.io/recipe.schema.json"
CLUSTER_SCHEMA_URL = "https://bridgepack.readthedocs.io/cluster.schema.json"


def recipe_schema() -> dict[str, Any]:
    """Return the JSON Schema of a recipe file: every field with its meaning, type, bounds, default.

    It refuses unknown fields, wrong types and values out of bounds. Only `SFTRecipe` checks conditions on several
    fields.
    """
    return _public_schema(SFTRecipe, url=SCHEMA_URL, title="bridgepack recipe")


def cluster_schema() -> dict[str, Any]:
    """Return the JSON Schema of a cluster file, like `recipe_schema`.

    Only `ClusterConfig` checks conditions on several fields and the formats of mounts and times.
    """
    return _public_schema(ClusterConfig, url=CLUSTER_SCHEMA_URL, title="bridgepack cluster")


def schema_text(schema: dict[str, Any] | None = None) -> str:
    """Return the file text of a schema; by default of the recipe schema."""
    return json.dumps(recipe_schema() if schema is None else schema, indent=2, ensure_ascii=False) + "\n"


def _public_schema(model: type[BaseModel], *, url: str, title: str) -> dict[str, Any]:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": url, "title": title}
    return head | {name: value for name, value in model.model_json_schema().items() if name != "title"}


#: First line that tells editors (YAML language server; Taplo for TOML) the schema.
YAML_HEADER = f"# yaml-language-server: $schema={SCHEMA_URL}"
TOML_HEADER = f"#:schema {SCHEMA_URL}"


def recipe_to_yaml(recipe: SFTRecipe) -> str:
    """Return the YAML file text of a recipe, with the line that tells editors its schema.

    Raises:
        ConfigError: `bridge_overrides` or a tool schema holds a value that is not plain.
    """
    values = written_values(recipe)
    lines = [line for name, value in values.items() for line in block_lines(name, value, "  ")]
    return "\n".join([YAML_HEADER, *lines]) + "\n"


def recipe_to_toml(recipe: SFTRecipe) -> str:
    """Return the TOML file text of a recipe, with the line that tells editors its schema.

    Raises:
        ConfigError: TOML cannot hold a value: null, or one that is not plain.
    """
    import tomlkit

    values = _plain(stated_values(recipe, keeps_null=False), "", takes_null=False)
    return f"{TOML_HEADER}\n{''.join(map(_toml_character, tomlkit.dumps(values)))}"


def _toml_character(character: str) -> str:
    """Return a character of a TOML file as a terminal shows it: C1 controls and marks of direction are escaped."""
    if character.isprintable() or character == "\n":
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"


def written_values(recipe: SFTRecipe, *, keeps_null: bool = True) -> dict[str, Any]:
    """Return the values that the author set, as plain values that a file can hold, in schema order.

    `keeps_null` keeps fields set to null where null is the default.

    Raises:
        ConfigError: a value is not plain.
    """
    values: dict[str, Any] = _plain(stated_values(recipe, keeps_null=keeps_null), "")
    return values


def _plain(value: Any, path: str, *, takes_null: bool = True) -> Any:
    if isinstance(value, Mapping):
        prefix = f"{path}." if path else ""
        return {_key(key, path): _plain(item, f"{prefix}{key}", takes_null=takes_null) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, f"{path}.{index}", takes_null=takes_null) for index, item in enumerate(value)]
    if isinstance(value, PurePath):
        return str(value)
    if value is None and not takes_null:
        raise ConfigError(f"{path} is null; TOML has no null. Write the recipe as YAML.")
    if value is None or type(value) in {bool, int, float, str}:
        return value
    raise ConfigError(
        f"{path} is {quote(value)}; a file holds texts, numbers, true, false, null, lists and sections. "
        "Set it in Python, or write one of these."
    )


def _key(key: Any, path: str) -> str:
    if isinstance(key, str):
        return key
    raise ConfigError(f"{path} has the key {quote(key)}; field names in a file must be text. Use a text.")
