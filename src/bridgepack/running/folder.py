"""The folder of a run: its recipe, artifact, start facts, and numbered records.

```
RUN_FOLDER/
  recipe.yaml          the recipe, with every override applied
  launch.json          facts of the launch: git commit, cluster, overrides
  artifact.json        the artifact that the build task built or found: path, fingerprint
  run.json             facts of the last start of the training: packs, versions, settings
  records/NAME-001.json, ...   reports of checks and of the guard; numbered, never overwritten
```
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import recipe_to_yaml
from bridgepack.data.files import write_text
from bridgepack.errors import ConfigError

RECIPE_FILE = "recipe.yaml"
LAUNCH_FILE = "launch.json"
ARTIFACT_FILE = "artifact.json"
RUN_FILE = "run.json"
RECORDS_FOLDER = "records"


@dataclass(frozen=True, kw_only=True, slots=True)
class ArtifactPlace:
    """Path and fingerprint of an artifact."""

    path: str  #: its folder, as every task sees it
    fingerprint: str  #: the manifest's fingerprint


class RunFolder:
    """A run's folder; it need not exist yet. Files are written atomically.

    Every method raises a ConfigError if the folder cannot be written or a file in it has the wrong content.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def write_recipe(self, recipe: SFTRecipe) -> Path:
        """Write the recipe and return its file."""
        return self._write(RECIPE_FILE, recipe_to_yaml(recipe))

    def write_artifact(self, place: ArtifactPlace) -> Path:
        """Write the artifact's path and fingerprint; return the file."""
        return self.write(ARTIFACT_FILE, asdict(place))

    def read_artifact(self) -> ArtifactPlace | None:
        """Return the artifact's path and fingerprint; None if no task has written them."""
        content = self.read(ARTIFACT_FILE)
        if content is None:
            return None
        path, fingerprint = content.get("path"), content.get("fingerprint")
        if not isinstance(path, str) or not isinstance(fingerprint, str):
            raise ConfigError(
                f"{self.path / ARTIFACT_FILE} has no path and fingerprint. Run the build task again, or give "
                "--artifact."
            )
        return ArtifactPlace(path=path, fingerprint=fingerprint)

    def add_record(self, name: str, content: Mapping[str, Any]) -> Path:
        """Write a record under the next free number and return its file. Not safe for concurrent calls."""
        number = max((int(path.stem.rpartition("-")[2]) for path in self.records(name)), default=0) + 1
        return self.write(f"{RECORDS_FOLDER}/{name}-{number:03d}.json", content)

    def records(self, name: str) -> list[Path]:
        """Return the files of the records of one name, oldest first."""
        return sorted(
            path
            for path in (self.path / RECORDS_FOLDER).glob(f"{name}-*.json")
            if path.stem.removeprefix(f"{name}-").isdecimal()
        )

    def write(self, name: str, content: Mapping[str, Any]) -> Path:
        """Write plain values to a file and return its path."""
        return self._write(name, json.dumps(dict(content), indent=2, ensure_ascii=False, default=str) + "\n")

    def _write(self, name: str, text: str) -> Path:
        path = self.path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, text)
        except OSError as error:
            raise ConfigError(
                f"the run folder is {str(self.path)!r}; {name} cannot be written there: {error}. Set a writable folder."
            ) from None
        return path

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the plain values of a file; None if it does not exist."""
        path = self.path / name
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} cannot be read: {error}. Remove it, or launch the run again.") from None
        if not isinstance(content, dict):
            raise ConfigError(f"{path} is not a JSON object. Remove it, or launch the run again.")
        return content
