"""bridgepack from Python: build, check, inspect and load_recipe, one function for each command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.config.loading import load_recipe
from bridgepack.config.recipe import SFTRecipe
from bridgepack.data.artifact import Artifact, ArtifactOnDisk
from bridgepack.data.build import BuildResult, build_artifact
from bridgepack.data.execution import Progress
from bridgepack.data.inspection import PackView, view_pack
from bridgepack.records import TRAIN
from bridgepack.rules.engine import check_artifact
from bridgepack.rules.report import CheckReport

__all__ = ["build", "check", "inspect", "load_recipe"]


def build(
    recipe: SFTRecipe | str | Path,
    *,
    output: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    num_workers: int = 1,
    progress: Progress | None = None,
) -> BuildResult:
    """Build a packed artifact, or find that it is there already.

    Example: `bridgepack.build("recipes/mine.yaml", output="packed", overrides={"packing.seed": 7})`.

    Args:
        recipe: an SFTRecipe, or where one is: `FILE.yaml`, `FILE.toml`, `FILE.py:FUNCTION`, `package.module:FUNCTION`.
        output: folder of the artifact; by default `artifacts/NAME-FINGERPRINT`.
        overrides: dotted path -> value.
        num_workers: most processes; the bytes are the same for any number. With more than 1 the calling script must
            be importable without side effects (`if __name__ == "__main__":`), as Python's multiprocessing asks.
        progress: told how far it is.

    Raises:
        BridgepackError: ConfigError, TokenizerError, DataError or ArtifactError, each saying what to do.
    """
    return build_artifact(
        load_recipe(recipe, overrides),
        output=None if output is None else Path(output),
        num_workers=num_workers,
        progress=progress,
    )


def check(artifact: str | Path) -> CheckReport:
    """Return what the rules say about an artifact: ours, or a folder of packed Parquet files that another tool wrote.

    Raises:
        ArtifactError: the folder is no artifact.
        RuleCrashError: a rule raised.
    """
    return check_artifact(ArtifactOnDisk(Path(artifact)))


def inspect(artifact: str | Path, *, row: int, split: str = TRAIN) -> PackView:
    """Return one pack of an artifact, decoded.

    Args:
        artifact: its folder.
        row: 0-based position of the pack in the split.
        split: `training` or `validation`.

    Raises:
        ArtifactError: when the folder is no artifact, or the split or the row does not exist.
    """
    return view_pack(Artifact(Path(artifact)), split, row)
