"""Builds whose output is a folder, or a place in an object store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.build import build_artifact
from bridgepack.data.reading.remote import scheme_of
from bridgepack.data.results import BuildOptions, BuildResult
from bridgepack.data.tasks import Progress, SilentProgress
from bridgepack.data.upload import upload_artifact, upload_place


def as_place(text: str | Path | None) -> Path | str | None:
    """Return an output as a path, or as the text that it is where it is a URL."""
    return text if text is None or (isinstance(text, str) and scheme_of(text) is not None) else Path(text)


def local_part(output: Path | str | None) -> Path | None:
    """Return the folder that a build with this output writes to; None for the default one, also for a URL."""
    return output if isinstance(output, Path) else None


def build_anywhere(
    recipe: SFTRecipe,
    *,
    output: Path | str | None = None,
    progress: Progress | None = None,
    options: BuildOptions | None = None,
) -> BuildResult:
    """Build an artifact; where the output is a URL, build it in the default folder and write a copy there.

    The arguments are those of `build_artifact`.

    Raises:
        BridgepackError: as `build_artifact` and `upload_artifact`.
    """
    if not isinstance(output, str):
        return build_artifact(recipe, output=output, progress=progress, options=options)
    url = upload_place(output)
    result = build_artifact(recipe, progress=progress, options=options)
    return replace(result, upload=upload_artifact(result.output, url, progress or SilentProgress()))
