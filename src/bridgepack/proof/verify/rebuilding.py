"""Rebuilds an artifact in another folder and compares every file, byte for byte."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.data.artifact.contents import DROPPED_ROWS_FILE, LOST_CONTENT_FILE, PLAN_FOLDER, changed_files
from bridgepack.data.reading.inputs import hash_file
from bridgepack.data.tasks import Progress
from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.proof.diff.diff import diff_opened
from bridgepack.proof.packs import split_record
from bridgepack.proof.verify.origins import Origin
from bridgepack.proof.verify.records import Check
from bridgepack.records import ROW_COLUMNS, PackedRow


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuilt:
    """Result of comparing an artifact with its rebuild."""

    checks: list[Check] = field(default_factory=list)
    #: split -> packs that differ, are unreadable, or exist in only one of both
    packs: dict[str, list[int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def compare_rebuilt(
    artifact: Artifact, origin: Origin, *, scratch: Path | None, num_workers: int, progress: Progress
) -> Rebuilt:
    """Return the differences between an artifact and a rebuild of the same recipe.

    Raises:
        ConfigError: there is too little space, or the folder does not exist.
        BridgepackError: the artifact cannot be built.
    """
    _check_space(artifact, scratch, origin.space_factor)
    with tempfile.TemporaryDirectory(prefix="bridgepack-verify-", dir=scratch) as folder:
        rebuilt = Artifact(origin.whole(Path(folder) / "artifact", num_workers, progress))
        result = Rebuilt()
        for split in artifact.manifest.splits:
            result.checks.append(_compare_split(artifact, rebuilt, split.name, result, origin.gives))
        result.checks.append(_compare_others(artifact, rebuilt, origin.gives))
        if any(result.packs.values()):
            result.notes.extend(_fates(artifact, rebuilt, origin.gives))
        return result


def _fates(artifact: Artifact, rebuilt: Artifact, gives: str) -> Iterator[str]:
    """Yield the differences of sequences, if the artifact's rows still match its plan."""
    if any(path.startswith(PLAN_FOLDER) for path in changed_files(artifact.folder, artifact.manifest)):
        return
    try:
        report = diff_opened(artifact, rebuilt, limit=0)
    except ArtifactError:
        return
    for split in report.splits:
        yield (
            f"{split.name} sequences: {split.num_unchanged} as {gives} them, {split.num_repacked} of these in "
            f"another place; {split.num_moved} of another row, {split.num_retokenized} with other tokens, "
            f"{split.num_masks_moved} with another mask, {split.num_lost} only in the artifact, "
            f"{split.num_gained} only in what {gives}"
        )


def _compare_split(artifact: Artifact, rebuilt: Artifact, split: str, result: Rebuilt, gives: str) -> Check:
    name, other = f"{split} shards", rebuilt.manifest.split(split)
    if other is None:
        return Check(name=name, outcome="differs", detail=f"{gives} no {split} split")
    names = [shard.path for shard in split_record(artifact, split).shards]
    if names == [shard.path for shard in other.shards] and all(_are_equal(artifact, rebuilt, path) for path in names):
        return Check(name=name, outcome="same", detail=f"{len(names)} are byte for byte what {gives}")
    found = result.packs[split] = list(_differing_packs(artifact, rebuilt, split))
    if found:
        return Check(name=name, outcome="differs", detail=f"{len(found)} packs are not what {gives}")
    if artifact.manifest.versions != rebuilt.manifest.versions:
        return Check(name=name, outcome="same", detail=f"every row is what {gives}; other libraries wrote them")
    return Check(name=name, outcome="differs", detail="the bytes of the files differ; their rows are the same")


def _differing_packs(artifact: Artifact, rebuilt: Artifact, split: str) -> Iterator[int]:
    for pack, (ours, theirs) in enumerate(zip_longest(_rows(artifact, split), _rows(rebuilt, split))):
        is_in_both = ours is not None and theirs is not None
        if not (is_in_both and all(np.array_equal(getattr(ours, name), getattr(theirs, name)) for name in ROW_COLUMNS)):
            yield pack


def _rows(artifact: Artifact, split: str) -> Iterator[PackedRow]:
    """Yield a split's readable packs in order."""
    try:
        for batch in artifact.iter_batches(split):
            yield from map(batch.row, range(batch.num_rows))
    except ArtifactError:
        return


def _compare_others(artifact: Artifact, rebuilt: Artifact, gives: str) -> Check:
    """Return the comparison of plan, ledgers and metadata; a plan's bytes depend on pyarrow's version."""
    names = [BRIDGE_METADATA_FILE, *(f"{PLAN_FOLDER}/{name}" for name in (DROPPED_ROWS_FILE, LOST_CONTENT_FILE))]
    if artifact.manifest.versions == rebuilt.manifest.versions:
        names += [f"{PLAN_FOLDER}/{split.name}.parquet" for split in rebuilt.manifest.splits]
    others = [name for name in names if not _are_equal(artifact, rebuilt, name)]
    if others:
        return Check(name="other files", outcome="differs", detail=f"{', '.join(others)}: not what {gives}")
    return Check(name="other files", outcome="same", detail=f"{', '.join(names)}: what {gives}")


def _are_equal(artifact: Artifact, rebuilt: Artifact, name: str) -> bool:
    one, other = artifact.folder / name, rebuilt.folder / name
    return one.is_file() and other.is_file() and hash_file(one) == hash_file(other)


def _check_space(artifact: Artifact, scratch: Path | None, factor: int) -> None:
    folder = scratch or Path(tempfile.gettempdir())
    if not folder.is_dir():
        raise ConfigError(f"--scratch is {str(folder)!r}; there is no such folder. Make it, or choose another.")
    needed = factor * sum(shard.num_bytes for split in artifact.manifest.splits for shard in split.shards)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ConfigError(
            f"{str(folder)!r} has {free / 1e9:.1f} GB free; rebuilding the artifact takes about {needed / 1e9:.1f} "
            "GB. Choose another --scratch, or compare a --sample, which needs no space."
        )
