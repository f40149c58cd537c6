"""nemo-run's packagers, which copy code to the nodes."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bridgepack.config.cluster.values import MaybeEmpty, Switch, Text
from bridgepack.config.section import Section


class PackagerSection(Section):
    """Fields that every packager of nemo-run has."""

    debug: Switch = False
    """Set PyTorch's debugging flags: CUDA_LAUNCH_BLOCKING, TORCH_DISTRIBUTED_DEBUG and others. Slow. Only with the
    launchers torchrun and fault_tolerance."""
    symlink_from_remote_dir: Text | None = None
    """Folder on the cluster that already has the code; it is symlinked instead of packaging. Only on Slurm, and not
    with `none`."""


class NoPackager(PackagerSection):
    """No code is copied; the image or environment on the nodes already has it."""

    kind: Literal["none"]


class GitArchivePackager(PackagerSection):
    """The committed files of the git repository in the current folder; uncommitted changes are not included."""

    kind: Literal["git_archive"]
    basepath: MaybeEmpty = ""
    """Path of the repository; by default that of the current folder."""
    subpath: MaybeEmpty = ""
    """Subfolder of the repository to package; it becomes the task's working folder."""
    ref: Text = "HEAD"
    """Branch, tag or commit."""
    include_submodules: Switch = True
    """Also package submodules."""
    include_pattern: MaybeEmpty | tuple[MaybeEmpty, ...] = ""
    """Further files to package: arguments of `find`, or a list of these."""
    include_pattern_relative_path: MaybeEmpty | tuple[MaybeEmpty, ...] = ""
    """Folder that the paths of `include_pattern` are relative to; one per pattern."""
    check_uncommitted_changes: Switch = False
    """Refuse if the repository has uncommitted changes."""
    check_untracked_files: Switch = False
    """Refuse if the repository has untracked files."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        names = ("include_pattern", "include_pattern_relative_path")
        _check_same_length(names, self.include_pattern, self.include_pattern_relative_path)
        return self


class PatternPackager(PackagerSection):
    """Files that match patterns."""

    kind: Literal["pattern"]
    include_pattern: Text | Annotated[tuple[Text, ...], Field(min_length=1)]
    """Arguments of `find`, best an absolute path; or a list of these."""
    relative_path: Text | Annotated[tuple[Text, ...], Field(min_length=1)]
    """Folder that the paths in the package are relative to; one per pattern."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        _check_same_length(("include_pattern", "relative_path"), self.include_pattern, self.relative_path)
        return self


class HybridPackager(PackagerSection):
    """Several packagers in one package."""

    kind: Literal["hybrid"]
    sub_packagers: Annotated[dict[Text, SubPackager], Field(min_length=1)]
    """Folder in the package -> the packager that fills it."""
    extract_at_root: Switch = False
    """Extract the files of every packager at the package root instead of its folder."""


SubPackager = Annotated[GitArchivePackager | PatternPackager | HybridPackager, Field(discriminator="kind")]
Packager = Annotated[NoPackager | GitArchivePackager | PatternPackager | HybridPackager, Field(discriminator="kind")]
HybridPackager.model_rebuild()


def _check_same_length(names: tuple[str, str], *values: str | tuple[str, ...]) -> None:
    numbers = [1 if isinstance(value, str) else len(value) for value in values]
    if numbers[0] != numbers[1]:
        raise ValueError(
            f"{names[0]} has {numbers[0]} and {names[1]} has {numbers[1]}; allowed: equal numbers. "
            f"Give one folder per pattern."
        )
