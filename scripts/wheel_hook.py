"""Build hook of hatchling: puts the JSON Schemas of recipes and cluster files into the wheel."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SchemasHook(BuildHookInterface[Any]):
    """Writes the schemas of the package that is built; an editable install needs none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the schemas and add them to the wheel."""
        if version == "editable":
            return
        sys.path.insert(0, str(Path(self.root, "src")))
        from bridgepack.config.write import cluster_schema, recipe_schema, schema_text

        self._folder = TemporaryDirectory()
        for name, schema in (("recipe", recipe_schema()), ("cluster", cluster_schema())):
            file = Path(self._folder.name, f"{name}.schema.json")
            file.write_text(schema_text(schema), encoding="utf-8")
            build_data["force_include"][str(file)] = f"bridgepack/schemas/{file.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was written beside the wheel."""
        if version != "editable":
            self._folder.cleanup()
