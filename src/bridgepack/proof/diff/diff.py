"""Compares two artifacts: sequences, masks, statistics, settings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.tasks import Progress, SilentProgress
from bridgepack.proof.diff.records import DiffReport, SplitDiff, ValueDifference
from bridgepack.proof.diff.sequences import DifferenceReader
from bridgepack.proof.diff.tables import SequenceTable, match_sequences, read_sequence_table
from bridgepack.proof.packs import opened_artifact
from bridgepack.records import InputRecord
from bridgepack.records.manifests import SplitRecord
from bridgepack.records.results import leaves

DEFAULT_LIMIT = 5
_SECTIONS = ("format_version", "packed_sequence_size", "pad_seq_to_mult", "tokenizer", "recipe", "resolved", "versions")


def diff_artifacts(
    first: Path, second: Path, *, limit: int = DEFAULT_LIMIT, progress: Progress | None = None
) -> DiffReport:
    """Return the differences between two artifacts.

    Reads every shard once; keeps 48 bytes per sequence.

    Args:
        first: folder of the first artifact.
        second: folder of the second artifact.
        limit: maximum sequences to show for each kind of difference.
        progress: is told about progress.

    Raises:
        ArtifactError: a folder is not an artifact, was changed, or cannot be read.
    """
    return diff_opened(opened_artifact(first), opened_artifact(second), limit=limit, progress=progress)


def diff_opened(
    ours: Artifact, theirs: Artifact, *, limit: int = DEFAULT_LIMIT, progress: Progress | None = None
) -> DiffReport:
    """Return the differences between two open artifacts.

    Raises:
        ArtifactError: an artifact cannot be read.
    """
    shown = progress or SilentProgress()
    names = dict.fromkeys(split.name for artifact in (ours, theirs) for split in artifact.manifest.splits)
    return DiffReport(
        first=str(ours.folder),
        second=str(theirs.folder),
        settings=tuple(item for item in _values(_settings(ours), _settings(theirs)) if item.first != item.second),
        inputs=tuple(_inputs(ours, theirs, names)),
        splits=tuple(_split(ours, theirs, name, limit, shown) for name in names),
    )


def _split(ours: Artifact, theirs: Artifact, name: str, limit: int, progress: Progress) -> SplitDiff:
    records = ours.manifest.split(name), theirs.manifest.split(name)
    tables = _table(ours, name, progress), _table(theirs, name, progress)
    file_ids = matched_files(_inputs_of(ours, name), _inputs_of(theirs, name))
    matched = match_sequences(*tables, file_ids)
    (first, second), (one, other) = tables, matched.unchanged
    is_elsewhere = (first.packs[one] != second.packs[other]) | (first.positions[one] != second.positions[other])
    reader = DifferenceReader((ours, theirs), name, tables)
    return SplitDiff(
        name=name,
        num_unchanged=len(matched.unchanged[0]),
        num_moved=len(matched.moved[0]),
        num_masks_moved=len(matched.masks[0]),
        num_retokenized=len(matched.retokenized[0]),
        num_lost=len(matched.lost),
        num_gained=len(matched.gained),
        num_repacked=int(is_elsewhere.sum()),
        statistics=tuple(_values(*map(_numbers, records))),
        differences=tuple(reader.differences(matched, limit)),
    )


def _table(artifact: Artifact, split: str, progress: Progress) -> SequenceTable:
    if artifact.manifest.split(split) is not None:
        return read_sequence_table(artifact, split, progress)
    wide, narrow = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
    hashes = np.empty(0, dtype=np.uint64)
    return SequenceTable(
        packs=wide,
        positions=narrow,
        files=narrow,
        rows=wide,
        lengths=narrow,
        token_hashes=hashes,
        content_hashes=hashes,
    )


def matched_files(
    first: Sequence[InputRecord], second: Sequence[InputRecord]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return a number for each file of two lists of inputs; equal numbers are the same file.

    Files are the same if they have the same path, the same bytes, the same name, or are the only ones left.
    """
    partners: dict[int, int] = {}
    left = [dict(enumerate(first)), dict(enumerate(second))]
    for same in (lambda item: item.path, lambda item: item.sha256, lambda item: PurePath(item.path).name):
        for index, record in list(left[1].items()):
            at = next((at for at, other in left[0].items() if same(other) == same(record)), None)
            if at is not None:
                partners[index] = at
                del left[0][at], left[1][index]
    if len(left[0]) == len(left[1]) == 1:
        partners[next(iter(left[1]))] = next(iter(left[0]))
    fresh = iter(range(len(first), len(first) + len(second)))
    theirs = [partners[index] if index in partners else next(fresh) for index in range(len(second))]
    return np.arange(len(first), dtype=np.int32), np.array(theirs, dtype=np.int32)


def _values(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[ValueDifference]:
    for name in dict.fromkeys([*first, *second]):
        yield ValueDifference(name=name, first=first.get(name), second=second.get(name))


def _numbers(record: SplitRecord | None) -> dict[str, Any]:
    if record is None:
        return {}
    numbers = asdict(record.statistics)
    numbers.pop("length_histogram")
    dropped = {f"dropped_{reason}": count for reason, count in record.drops.items()}
    return {**numbers, **dropped, **{f"lost_{kind}": count for kind, count in record.lost_content.items()}}


def _settings(artifact: Artifact) -> dict[str, Any]:
    return dict(leaves({name: getattr(artifact.manifest, name) for name in _SECTIONS}))


def _inputs(ours: Artifact, theirs: Artifact, names: Iterable[str]) -> Iterator[ValueDifference]:
    """Yield input files whose bytes differ, or that only one artifact was made from."""
    for name in names:
        records = _inputs_of(ours, name), _inputs_of(theirs, name)
        first, second = (
            dict(zip(numbers.tolist(), members, strict=True))
            for numbers, members in zip(matched_files(*records), records, strict=True)
        )
        for number, named in {**first, **second, **first}.items():
            digests = [side[number].sha256 if number in side else None for side in (first, second)]
            if digests[0] != digests[1]:
                yield ValueDifference(name=f"{name}: {named.path}", first=digests[0], second=digests[1])


def _inputs_of(artifact: Artifact, split: str) -> Sequence[InputRecord]:
    record = artifact.manifest.split(split)
    return () if record is None else record.inputs
