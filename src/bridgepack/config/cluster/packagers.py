"""How code reaches the nodes: nemo-run's packagers."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bridgepack.config.cluster.values import MaybeEmpty, Switch, Text
from bridgepack.config.section import Section


class PackagerSection(Section):
    """Fields that every packager of nemo-run has."""

    debug: Switch = False
    """Start the task with PyTorch's flags for debugging: CUDA_LAUNCH_BLOCKING, TORCH_DISTRIBUTED_DEBUG and others. Only
    with the launchers torchrun and fault_tolerance. Slow."""
    symlink_from_remote_dir: Text | None = None
    """Folder on the cluster that already has the code; it is linked instead of packaging anything. Only on Slurm; not
    with `none`."""


class NoPackager(PackagerSection):
    """Nothing is sent; the image or the environment on the nodes has the code."""

    kind: Literal["none"]


class GitArchivePackager(PackagerSection):
    """What is committed in the git repository of the current folder; changes that are not committed stay behind."""

    kind: Literal["git_archive"]
    basepath: MaybeEmpty = ""
    """Repository to package; by default that of the current folder."""
    subpath: MaybeEmpty = ""
    """Folder of the repository to package; it becomes the working folder of the task."""
    ref: Text = "HEAD"
    """Branch, tag or commit."""
    include_submodules: Switch = True
    """Package submodules too."""
    include_pattern: MaybeEmpty | tuple[MaybeEmpty, ...] = ""
    """Files to package besides the committed ones: what `find` is given, or a list of these."""
    include_pattern_relative_path: MaybeEmpty | tuple[MaybeEmpty, ...] = ""
    """Folder that the paths of `include_pattern` are relative to; as many as there are patterns."""
    check_uncommitted_changes: Switch = False
    """Refuse when the repository has changes that are not committed."""
    check_untracked_files: Switch = False
    """Refuse when the repository has files that git does not know."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        names = ("include_pattern", "include_pattern_relative_path")
        _check_same_length(names, self.include_pattern, self.include_pattern_relative_path)
        return self


class PatternPackager(PackagerSection):
    """Files that match patterns."""

    kind: Literal["pattern"]
    include_pattern: Text | Annotated[tuple[Text, ...], Field(min_length=1)]
    """What `find` is given: best an absolute path; or a list of these."""
    relative_path: Text | Annotated[tuple[Text, ...], Field(min_length=1)]
    """Folder that the paths in the package are relative to; as many as there are patterns."""

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
    """Put the files of every packager at the root of the package, not into its folder."""


SubPackager = Annotated[GitArchivePackager | PatternPackager | HybridPackager, Field(discriminator="kind")]
Packager = Annotated[NoPackager | GitArchivePackager | PatternPackager | HybridPackager, Field(discriminator="kind")]
HybridPackager.model_rebuild()


def _check_same_length(names: tuple[str, str], *values: str | tuple[str, ...]) -> None:
    numbers = [1 if isinstance(value, str) else len(value) for value in values]
    if numbers[0] != numbers[1]:
        raise ValueError(
            f"{names[0]} has {numbers[0]} and {names[1]} has {numbers[1]}; allowed: as many of one as of the other. "
            f"Give each pattern its folder."
        )
