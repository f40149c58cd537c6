"""Compares two artifacts: sequences, masks, statistics, settings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.inspection import text_of, tokenizer_of
from bridgepack.data.tasks import Progress, SilentProgress
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.geometry import IntArray, first_difference
from bridgepack.proof.diff.records import (
    DiffReport,
    Fate,
    MovedTokens,
    SequenceDifference,
    SequencePlace,
    SplitDiff,
    ValueDifference,
)
from bridgepack.proof.diff.tables import Matched, SequenceTable, match_sequences, read_sequence_table
from bridgepack.proof.packs import opened_artifact, read_packs
from bridgepack.records import InputRecord
from bridgepack.records.manifests import SplitRecord
from bridgepack.records.results import leaves

#: Number of tokens to show of a sequence.
_TOKENS_SHOWN = 24
_TOKENS_BEFORE = 8
_RANGES_KEPT = 20


class DifferenceReader:
    """Reads differing sequences from their packs."""

    def __init__(
        self, artifacts: tuple[Artifact, Artifact], split: str, tables: tuple[SequenceTable, SequenceTable]
    ) -> None:
        self._artifacts, self._split, self._tables = artifacts, split, tables
        self._tokenizers: dict[int, ChatTokenizer | None] = {}
        self._inputs = [_inputs_of(artifact, split) for artifact in artifacts]

    def differences(self, matches: Matched, limit: int) -> Iterator[SequenceDifference]:
        """Yield the first few differences of each kind, in the order of input rows.

        Raises:
            ArtifactError: a shard cannot be read.
        """
        sides_of_fate: tuple[tuple[Fate, tuple[IntArray | None, IntArray | None]], ...] = (
            ("lost", (matches.lost, None)),
            ("gained", (None, matches.gained)),
            ("retokenized", matches.retokenized),
            ("mask_moved", matches.masks),
            ("moved", matches.moved),
        )
        for fate, sides in sides_of_fate:
            side, indices = next((side, indices) for side, indices in enumerate(sides) if indices is not None)
            table = self._tables[side]
            for at in np.lexsort((table.rows[indices], table.files[indices]))[:limit].tolist():
                ours, theirs = (None if indices is None else int(indices[at]) for indices in sides)
                if ours is None or theirs is None:
                    yield self._alone(fate, side, int(indices[at]))
                else:
                    yield self._pair(fate, ours, theirs)

    def _alone(self, fate: Fate, side: int, index: int) -> SequenceDifference:
        place = self._place(side, index)
        digests = {item.sha256 for item in self._inputs[side] if item.path == place.file}
        return SequenceDifference(
            fate=fate,
            first=place if side == 0 else None,
            second=place if side == 1 else None,
            is_same_input=bool(digests & {item.sha256 for item in self._inputs[1 - side]}),
            text=(self._text(side, self._tokens(side, index)[0][:_TOKENS_SHOWN]),),
        )

    def _pair(self, fate: Fate, ours: int, theirs: int) -> SequenceDifference:
        (before, mask), (after, other_mask) = self._tokens(0, ours), self._tokens(1, theirs)
        token = first_difference(before, after)
        start = max((token or 0) - _TOKENS_BEFORE, 0)
        window = slice(start, start + _TOKENS_SHOWN)
        texts = [self._text(0, before[window])]
        if fate == "retokenized":
            texts.append(self._text(1, after[window]))
        labels = np.flatnonzero(mask != other_mask) if fate == "mask_moved" else np.empty(0, dtype=np.int64)
        files = self._tables[0].files[ours], self._tables[1].files[theirs]
        return SequenceDifference(
            fate=fate,
            first=self._place(0, ours),
            second=self._place(1, theirs),
            is_same_input=self._inputs[0][files[0]].sha256 == self._inputs[1][files[1]].sha256,
            token=token,
            text=tuple(texts),
            masks=tuple(self._moved_tokens(after, other_mask, labels)),
            num_mask_tokens=len(labels),
        )

    def _moved_tokens(self, ids: npt.NDArray[Any], mask: npt.NDArray[Any], labels: IntArray) -> Iterator[MovedTokens]:
        """Yield runs of labels whose mask changed in the same direction; label `i` is token `i + 1`."""
        if not len(labels):
            return
        is_trained = mask[labels] != 0
        cuts = np.flatnonzero((np.diff(labels) != 1) | (is_trained[1:] != is_trained[:-1])) + 1
        for first, stop in list(pairwise([0, *cuts.tolist(), len(labels)]))[:_RANGES_KEPT]:
            start, end = int(labels[first]) + 1, int(labels[stop - 1]) + 2
            text = self._text(1, ids[start:end])
            yield MovedTokens(start=start, stop=end, is_trained_now=bool(is_trained[first]), text=text)

    def _tokens(self, side: int, index: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return (ids, label-aligned mask) of one sequence, without alignment padding."""
        table = self._tables[side]
        pack, position, length = int(table.packs[index]), int(table.positions[index]), int(table.lengths[index])
        row = read_packs(self._artifacts[side], self._split, [pack])[pack]
        start = int(row.seq_start_id[position])
        return row.input_ids[start : start + length + 1], row.loss_mask[start : start + length]

    def _place(self, side: int, index: int) -> SequencePlace:
        table = self._tables[side]
        return SequencePlace(
            file=self._inputs[side][table.files[index]].path,
            row=int(table.rows[index]),
            pack=int(table.packs[index]),
            position=int(table.positions[index]),
            runtime_length=int(table.lengths[index]),
        )

    def _text(self, side: int, ids: npt.NDArray[Any]) -> str:
        if side not in self._tokenizers:
            self._tokenizers[side], _ = tokenizer_of(self._artifacts[side])
        return text_of(ids.tolist(), self._tokenizers[side])


DEFAULT_LIMIT = 5
_SECTIONS = ("format_version", "packed_sequence_size", "pad_seq_to_mult", "tokenizer", "recipe", "resolved", "versions")


def diff_artifacts(
    first: Path, second: Path, *, limit: int = DEFAULT_LIMIT, progress: Progress | None = None
) -> DiffReport:
    """Return the differences between two artifacts.

    Reads every shard once; keeps 48 bytes per sequence. `limit` is the most to show per kind of difference.

    Raises:
        ArtifactError: a folder is not an artifact, was changed, or cannot be read.
    """
    return diff_open_artifacts(opened_artifact(first), opened_artifact(second), limit=limit, progress=progress)


def diff_open_artifacts(
    ours: Artifact, theirs: Artifact, *, limit: int = DEFAULT_LIMIT, progress: Progress | None = None
) -> DiffReport:
    """Return the differences between two open artifacts; raises ArtifactError if an artifact cannot be read."""
    bars = progress or SilentProgress()
    names = dict.fromkeys(split.name for artifact in (ours, theirs) for split in artifact.manifest.splits)
    return DiffReport(
        first=str(ours.folder),
        second=str(theirs.folder),
        settings=tuple(item for item in _values(_settings(ours), _settings(theirs)) if item.first != item.second),
        inputs=tuple(_inputs(ours, theirs, names)),
        splits=tuple(_split(ours, theirs, name, limit, bars) for name in names),
    )


def _split(ours: Artifact, theirs: Artifact, name: str, limit: int, progress: Progress) -> SplitDiff:
    records = ours.manifest.split(name), theirs.manifest.split(name)
    tables = _table(ours, name, progress), _table(theirs, name, progress)
    file_ids = matched_files(_inputs_of(ours, name), _inputs_of(theirs, name))
    matches = match_sequences(*tables, file_ids)
    (first, second), (ours_unchanged, theirs_unchanged) = tables, matches.unchanged
    is_elsewhere = (first.packs[ours_unchanged] != second.packs[theirs_unchanged]) | (
        first.positions[ours_unchanged] != second.positions[theirs_unchanged]
    )
    reader = DifferenceReader((ours, theirs), name, tables)
    return SplitDiff(
        name=name,
        num_unchanged=len(matches.unchanged[0]),
        num_moved=len(matches.moved[0]),
        num_masks_moved=len(matches.masks[0]),
        num_retokenized=len(matches.retokenized[0]),
        num_lost=len(matches.lost),
        num_gained=len(matches.gained),
        num_repacked=int(is_elsewhere.sum()),
        statistics=tuple(_values(*map(_numbers, records))),
        differences=tuple(reader.differences(matches, limit)),
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
    rest_of = [dict(enumerate(first)), dict(enumerate(second))]
    for key_of in (lambda item: item.path, lambda item: item.sha256, lambda item: PurePath(item.path).name):
        for index, record in list(rest_of[1].items()):
            at = next((at for at, candidate in rest_of[0].items() if key_of(candidate) == key_of(record)), None)
            if at is not None:
                partners[index] = at
                del rest_of[0][at], rest_of[1][index]
    if len(rest_of[0]) == len(rest_of[1]) == 1:
        partners[next(iter(rest_of[1]))] = next(iter(rest_of[0]))
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
    drops = {f"dropped_{reason}": count for reason, count in record.drops.items()}
    drops |= {f"dropped_pieces_{reason}": count for reason, count in record.dropped_pieces.items()}
    return {**numbers, **drops, **{f"lost_{kind}": count for kind, count in record.lost_content.items()}}


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
        for number, record in {**first, **second, **first}.items():
            digests = [side[number].sha256 if number in side else None for side in (first, second)]
            if digests[0] != digests[1]:
                yield ValueDifference(name=f"{name}: {record.path}", first=digests[0], second=digests[1])


def _inputs_of(artifact: Artifact, split: str) -> Sequence[InputRecord]:
    record = artifact.manifest.split(split)
    return () if record is None else record.inputs
