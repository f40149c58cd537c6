"""Builds an artifact anew beside it and compares every file, byte for byte."""

from __future__ import annotations

import filecmp
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from bridgepack.data.artifact.artifact import DROPPED_ROWS_FILE, PLAN_FOLDER, Artifact
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.data.artifact.plan import entries_of_packs
from bridgepack.data.tasks import Progress
from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.proof.diff.diff import diff_artifacts
from bridgepack.proof.packs import sequence_bounds
from bridgepack.proof.verify.derive import DerivedPacks, difference_at, first_difference, value_at
from bridgepack.proof.verify.origins import Origin
from bridgepack.proof.verify.records import Check, RowDifference
from bridgepack.records import INPUT_IDS, LOSS_MASK, SEQ_START_ID, PackedRow

_DIFFERENCES_KEPT = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuilt:
    """What an artifact that was built anew says of the one that is verified.

    Attributes:
        checks: of every file.
        found: packs that differ, and the first few of them.
        changed_packs: split -> the first few packs with a sequence that the sources do not give.
        notes: what became of sequences.
    """

    checks: list[Check] = field(default_factory=list)
    found: DerivedPacks = field(default_factory=DerivedPacks)
    changed_packs: dict[str, list[int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def compare_rebuilt(
    artifact: Artifact, origin: Origin, *, scratch: Path | None, num_workers: int, progress: Progress
) -> Rebuilt:
    """Return what differs between an artifact and one that is built anew of the same recipe.

    Raises:
        ConfigError: there is too little space for it, or no such folder.
        BridgepackError: it cannot be built.
    """
    _check_space(artifact, scratch, origin.space_factor)
    with tempfile.TemporaryDirectory(prefix="bridgepack-verify-", dir=scratch) as folder:
        rebuilt = Artifact(origin.whole(Path(folder) / "artifact", num_workers, progress))
        result = Rebuilt()
        for split in artifact.manifest.splits:
            result.checks.append(_compare_split(artifact, rebuilt, split.name, result.found, origin.gives))
        result.checks.append(_compare_others(artifact, rebuilt, origin.gives))
        if result.found.num_packs_different:
            _explain(artifact, rebuilt, result, origin.gives)
        return result


def _explain(artifact: Artifact, rebuilt: Artifact, result: Rebuilt, gives: str) -> None:
    """Say what became of sequences, where the artifact's rows still fit its plan."""
    try:
        report = diff_artifacts(artifact.folder, rebuilt.folder, limit=_DIFFERENCES_KEPT)
    except ArtifactError:
        return
    for split in report.splits:
        result.notes.append(
            f"{split.name} sequences: {split.num_unchanged} as {gives} them, {split.num_repacked} of these in "
            f"another place; {split.num_moved} of another row, {split.num_retokenized} with other tokens, "
            f"{split.num_masks_moved} with another mask, {split.num_lost} only in the artifact, "
            f"{split.num_gained} only in what {gives}"
        )
        packs = {item.first.pack for item in split.differences if item.first is not None}
        if packs:
            result.changed_packs[split.name] = sorted(packs)


def _compare_split(artifact: Artifact, rebuilt: Artifact, split: str, found: DerivedPacks, gives: str) -> Check:
    record, other = artifact.manifest.split(split), rebuilt.manifest.split(split)
    assert record is not None
    name = f"{split} shards"
    if other is None:
        return Check(name=name, outcome="differs", detail=f"{gives} no {split} split")
    found.num_packs += record.statistics.num_packs
    found.num_sequences += record.statistics.num_sequences
    names = [shard.path for shard in record.shards]
    if names == [shard.path for shard in other.shards] and all(
        _are_equal(artifact.folder / path, rebuilt.folder / path) for path in names
    ):
        return Check(name=name, outcome="same", detail=f"{len(names)} are, byte for byte, what {gives}")
    num_different = 0
    for pack, ours, theirs in _differing(artifact, rebuilt, split):
        num_different += 1
        if num_different <= _DIFFERENCES_KEPT:
            found.differences.append(_difference(artifact, split, pack, ours, theirs))
    found.num_packs_different += num_different
    if num_different:
        return Check(name=name, outcome="differs", detail=f"{num_different} packs are not what {gives}")
    if artifact.manifest.versions != rebuilt.manifest.versions:
        return Check(name=name, outcome="same", detail=f"every row is what {gives}; other libraries wrote them")
    return Check(name=name, outcome="differs", detail="the bytes of the files differ; their rows are the same")


#: A pack; why it cannot be read; None where there is none.
_Row = PackedRow | str | None


def _differing(artifact: Artifact, rebuilt: Artifact, split: str) -> Iterator[tuple[int, _Row, _Row]]:
    """Yield every pack that differs, in order; what cannot be read ends them."""
    for pack, (ours, theirs) in enumerate(zip_longest(_rows(artifact, split), _rows(rebuilt, split))):
        if not isinstance(ours, PackedRow) or not isinstance(theirs, PackedRow):
            yield pack, ours, theirs
            return
        if _first_of_row(ours, theirs) is not None:
            yield pack, ours, theirs


def _rows(artifact: Artifact, split: str) -> Iterator[PackedRow | str]:
    """Yield a split's packs in order; where one cannot be read, why, and nothing more."""
    try:
        for batch in artifact.iter_batches(split):
            yield from map(batch.row, range(batch.num_rows))
    except ArtifactError as error:
        yield str(error)


def _first_of_row(ours: PackedRow, theirs: PackedRow) -> tuple[str, int, Any, Any] | None:
    """Return column, place and both numbers where two packs first differ."""
    for column in (INPUT_IDS, LOSS_MASK, SEQ_START_ID):
        stored, wanted = getattr(ours, column), getattr(theirs, column)
        place = first_difference(stored, wanted)
        if place is not None:
            return column, place, value_at(stored, place), value_at(wanted, place)
    return None


def _difference(artifact: Artifact, split: str, pack: int, ours: _Row, theirs: _Row) -> RowDifference:
    """Return where a pack that differs first does."""
    if not isinstance(ours, PackedRow) or not isinstance(theirs, PackedRow):
        stored = ours if isinstance(ours, str) else "no such pack" if ours is None else "a pack"
        wanted = "no such pack" if theirs is None else "a pack"
        return difference_at(artifact, split, pack, None, column="", token=None, in_artifact=stored, from_source=wanted)
    problem = _first_of_row(ours, theirs)
    assert problem is not None
    column, place, stored, wanted = problem
    bounds = sequence_bounds(ours)
    is_token = column != SEQ_START_ID
    sequence = max(int((bounds[:-1] <= place).sum()) - 1, 0) if is_token else place
    entries = {entry.position: entry for entry in entries_of_packs(artifact, split, [pack]).get(pack, ())}
    return difference_at(
        artifact,
        split,
        pack,
        entries.get(sequence),
        sequence=sequence,
        column=column,
        token=place - int(bounds[sequence]) if is_token else None,
        in_artifact=stored,
        from_source=wanted,
    )


def _compare_others(artifact: Artifact, rebuilt: Artifact, gives: str) -> Check:
    """Compare plan, ledger and metadata; the bytes of a plan are those of pyarrow's version."""
    plans = [f"{PLAN_FOLDER}/{split.name}.parquet" for split in rebuilt.manifest.splits]
    names = [BRIDGE_METADATA_FILE, f"{PLAN_FOLDER}/{DROPPED_ROWS_FILE}"]
    if artifact.manifest.versions == rebuilt.manifest.versions:
        names += plans
    others = [name for name in names if not _are_equal(artifact.folder / name, rebuilt.folder / name)]
    if others:
        return Check(name="other files", outcome="differs", detail=f"{', '.join(others)}: not what {gives}")
    return Check(name="other files", outcome="same", detail=f"{', '.join(names)}: what {gives}")


def _are_equal(one: Path, other: Path) -> bool:
    return one.is_file() and other.is_file() and filecmp.cmp(one, other, shallow=False)


def _check_space(artifact: Artifact, scratch: Path | None, factor: int) -> None:
    """Accept a folder with room for a build.

    Raises:
        ConfigError: it has too little, or is none.
    """
    folder = scratch or Path(tempfile.gettempdir())
    if not folder.is_dir():
        raise ConfigError(f"--scratch is {str(folder)!r}; there is no such folder. Make it, or choose another.")
    needed = factor * sum(shard.num_bytes for split in artifact.manifest.splits for shard in split.shards)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ConfigError(
            f"{str(folder)!r} has {free / 1e9:.1f} GB free; building the artifact anew takes about {needed / 1e9:.1f} "
            "GB. Choose another --scratch, or compare a --sample, which needs no space."
        )
