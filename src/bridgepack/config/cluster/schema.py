"""The JSON Schema of a cluster file, for editors and for other programs."""

from __future__ import annotations

from typing import Any

from bridgepack.config.cluster.cluster import ClusterConfig
from bridgepack.config.schema import published_schema

#: Where the documentation publishes the schema.
CLUSTER_SCHEMA_URL = "https://bridgepack.readthedocs.io/cluster.schema.json"


def cluster_schema() -> dict[str, Any]:
    """Return the JSON Schema (Draft 2020-12) of a cluster file: every field with its meaning, type, bounds, default.

    It refuses unknown fields, wrong types and values out of bounds; what depends on two fields, and how a mount or a
    time is written, is left to `ClusterConfig`.
    """
    return published_schema(ClusterConfig, url=CLUSTER_SCHEMA_URL, title="bridgepack cluster")
