"""The JSON Schemas (Draft 2020-12) of recipe and cluster files, for editors and other programs."""

import json
from typing import Any

from pydantic import BaseModel

from bridgepack.config.cluster.cluster import ClusterConfig
from bridgepack.config.recipe.recipe import SFTRecipe

#: Where the documentation publishes the schemas.
SCHEMA_URL = "https://bridgepack.readthedocs.io/recipe.schema.json"
CLUSTER_SCHEMA_URL = "https://bridgepack.readthedocs.io/cluster.schema.json"


def recipe_schema() -> dict[str, Any]:
    """Return the JSON Schema of a recipe file: every field with its meaning, type, bounds, default.

    It refuses unknown fields, wrong types and values out of bounds. Only `SFTRecipe` checks conditions on several
    fields.
    """
    return _published(SFTRecipe, url=SCHEMA_URL, title="bridgepack recipe")


def cluster_schema() -> dict[str, Any]:
    """Return the JSON Schema of a cluster file, like `recipe_schema`.

    Only `ClusterConfig` checks conditions on several fields and the formats of mounts and times.
    """
    return _published(ClusterConfig, url=CLUSTER_SCHEMA_URL, title="bridgepack cluster")


def schema_text(schema: dict[str, Any] | None = None) -> str:
    """Return the file text of a schema; by default of the recipe schema."""
    return json.dumps(recipe_schema() if schema is None else schema, indent=2, ensure_ascii=False) + "\n"


def _published(model: type[BaseModel], *, url: str, title: str) -> dict[str, Any]:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": url, "title": title}
    return head | {name: value for name, value in model.model_json_schema().items() if name != "title"}
