"""The folder of a run: its recipe, its artifact, what it ran with, and a file for each thing worth keeping.

```
RUN_FOLDER/
  recipe.yaml          the recipe, with every override applied
  launch.json          what the launch knows: git commit, cluster, overrides
  artifact.json        the artifact that the build task made or found: path, fingerprint
  run.json             what the last start of the training ran with
  records/NAME-001.json, ...   reports of checks, what the guard saw; counted, never overwritten
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
    """Where an artifact is, and which."""

    path: str  #: of its folder, as every task sees it
    fingerprint: str  #: of its manifest


class RunFolder:
    """A run's folder; it need not exist yet. Files are whole or not there.

    Every method raises a ConfigError where the folder cannot be written, or a file in it says something else.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def write_recipe(self, recipe: SFTRecipe) -> Path:
        """Write the recipe and return its file."""
        return self._write(RECIPE_FILE, recipe_to_yaml(recipe))

    def write_artifact(self, place: ArtifactPlace) -> Path:
        """Write where the artifact is and return its file."""
        return self.write(ARTIFACT_FILE, asdict(place))

    def read_artifact(self) -> ArtifactPlace | None:
        """Return where the artifact is; None where no task has written it."""
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
        """Write one thing worth keeping under the next free number, and return its file. One process at a time."""
        number = max((int(path.stem.rpartition("-")[2]) for path in self.records(name)), default=0) + 1
        return self.write(f"{RECORDS_FOLDER}/{name}-{number:03d}.json", content)

    def records(self, name: str) -> list[Path]:
        """Return the files of one kind of record, oldest first."""
        return sorted(
            path
            for path in (self.path / RECORDS_FOLDER).glob(f"{name}-*.json")
            if path.stem.removeprefix(f"{name}-").isdecimal()
        )

    def write(self, name: str, content: Mapping[str, Any]) -> Path:
        """Write plain values into a file and return it."""
        return self._write(name, json.dumps(dict(content), indent=2, ensure_ascii=False, default=str) + "\n")

    def _write(self, name: str, text: str) -> Path:
        path = self.path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, text)
        except OSError as error:
            raise ConfigError(
                f"the run folder is {str(self.path)!r}; {name} cannot be written there: {error}. "
                "Give a folder that can be written."
            ) from None
        return path

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the plain values of a file; None where it is not there."""
        path = self.path / name
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} cannot be read: {error}. Remove it, or launch the run again.") from None
        if not isinstance(content, dict):
            raise ConfigError(f"{path} holds no named values. Remove it, or launch the run again.")
        return content
