"""Derives some packs of an artifact anew, of its sources or of stored tokens, and compares them number for number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import PlanEntry, entries_of_packs
from bridgepack.data.sequences.encoding import Loss
from bridgepack.data.tasks import Progress
from bridgepack.errors import ArtifactError, BridgepackError, DataError, RowError, StoreError
from bridgepack.geometry import aligned_runtime_lengths
from bridgepack.proof.packs import read_packs, sequence_bounds, shard_index, split_record
from bridgepack.proof.verify.records import RowDifference
from bridgepack.records import INPUT_IDS, LOSS_MASK, SEQ_START_ID, PackedRow
from bridgepack.records import Sequence as TokenSequence

_PLAN = "plan"
#: Stored tokens of the packs that are held at a time.
_CHUNK_TOKENS = 1 << 24


@dataclass(kw_only=True, slots=True)
class DerivedPacks:
    """What came of it."""

    num_packs: int = 0  #: compared, with all of their sequences
    num_sequences: int = 0
    num_packs_different: int = 0  #: of all packs that were compared
    #: of sequences and packs, in the order of packs; maybe not all
    differences: list[RowDifference] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)  #: inputs that could not be read, as messages
    num_unread_sequences: int = 0
    #: split, file as the ledger calls it, row -> kind and detail of what its text lacks
    losses: dict[tuple[str, str, int], frozenset[Loss]] = field(default_factory=dict)

    def add(self, other: DerivedPacks) -> None:
        """Add what came of other packs."""
        self.num_packs += other.num_packs
        self.num_sequences += other.num_sequences
        self.num_packs_different += other.num_packs_different
        self.differences += other.differences
        self.unread += other.unread
        self.num_unread_sequences += other.num_unread_sequences
        self.losses |= other.losses


#: Position of an input, its row, and where the sequence begins in it.
_Place = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Expected:
    """A sequence as the artifact has it; its tokens as a digest."""

    entry: PlanEntry
    digest: bytes


class RowGiver(Protocol):
    """What gives the rows of a split anew: its sources, or a token store."""

    def rows(self, file_index: int, rows: set[int]) -> Iterator[tuple[int, TokenSequence | RowError, tuple[Loss, ...]]]:
        """Yield some rows of an input, one after the other: number, sequence or why there is none, and what it lacks.

        Raises:
            DataError: the input is gone, or cannot be read.
            StoreError: its tokens are.
            TokenizerError: the tokenizer cannot be loaded.
        """

    def label(self, file_index: int) -> str:
        """Return what the input is called."""


class PackDeriver:
    """Derives packs of one split."""

    def __init__(self, artifact: Artifact, split: str, giver: RowGiver, progress: Progress) -> None:
        """Prepare to compare packs of a split with what a giver of rows gives."""
        self._artifact, self._split, self._giver, self._progress = artifact, split, giver, progress
        record = split_record(artifact, split)
        self._inputs, self._has_repeats = record.inputs, record.statistics.num_repeated > 0
        self._eos_token_id = int(artifact.manifest.tokenizer["eos_token_id"])
        self._found = DerivedPacks()
        self._unread_packs: set[int] = set()

    def compare(self, packs: Iterable[int]) -> DerivedPacks:
        """Return how packs differ from what the sources give.

        Raises:
            TokenizerError: the tokenizer cannot be loaded.
        """
        wanted = sorted(set(packs))
        expected: dict[_Place, _Expected] = {}
        for chunk in self._chunks(wanted):
            self._expect(chunk, expected)
        self._progress.start(f"Deriving {self._split}", len(expected), "sequences")
        by_file = groupby(sorted(expected), key=lambda place: place[0])
        for file_index, places in by_file:
            self._compare_file(file_index, set(places), expected)
        self._progress.finish()
        self._found.num_packs = len(set(wanted) - self._unread_packs)
        self._found.num_packs_different = len({item.pack for item in self._found.differences})
        self._found.differences.sort(key=lambda item: (item.pack, -1 if item.sequence is None else item.sequence))
        return self._found

    def _chunks(self, packs: Sequence[int]) -> Iterator[Sequence[int]]:
        size = max(_CHUNK_TOKENS // self._artifact.manifest.packed_sequence_size, 1)
        for first in range(0, len(packs), size):
            yield packs[first : first + size]

    def _expect(self, packs: Sequence[int], found: dict[_Place, _Expected]) -> None:
        """Add place -> sequence as stored; a pack that is not as its plan says is a difference by itself."""
        entries = entries_of_packs(self._artifact, self._split, packs)
        for pack, row in self._stored(packs).items():
            members = entries.get(pack, ())
            bounds = self._bounds(members)
            problem = _structure_problem(row, bounds)
            if problem is not None:
                column, token, stored, derived = problem
                self._add(pack, None, column, token, stored, derived)
            for entry, (start, stop) in zip(members, pairwise(bounds.tolist()), strict=True):
                key = (entry.file_index, entry.row, entry.first_token)
                digest = _digest(row.input_ids[start:stop], row.loss_mask[start:stop])
                if key in found:
                    if not self._has_repeats or digest != found[key].digest:
                        self._add(pack, entry, _PLAN, None, f"row {entry.row} once more", "one sequence of each row")
                    continue
                found[key] = _Expected(entry=entry, digest=digest)

    def _stored(self, packs: Sequence[int]) -> dict[int, PackedRow]:
        """Return the packs that can be read; each of the others is a difference."""
        try:
            return read_packs(self._artifact, self._split, packs)
        except ArtifactError:
            rows: dict[int, PackedRow] = {}
        for pack in packs:
            try:
                rows |= read_packs(self._artifact, self._split, [pack])
            except ArtifactError as error:
                self._add(pack, None, "", None, str(error), "a row")
        return rows

    def _bounds(self, members: Sequence[PlanEntry]) -> npt.NDArray[np.int64]:
        lengths = np.array([entry.runtime_length for entry in members], dtype=np.int64)
        physical = aligned_runtime_lengths(lengths, self._artifact.manifest.pad_seq_to_mult) + 1
        return np.concatenate(([0], np.cumsum(physical))).astype(np.int64)

    def _compare_file(self, file_index: int, left: set[_Place], expected: dict[_Place, _Expected]) -> None:
        if not 0 <= file_index < len(self._inputs):
            for place in sorted(left):
                entry = expected[place].entry
                self._add(entry.pack, entry, _PLAN, None, f"input {file_index}", f"one of {len(self._inputs)} inputs")
            return
        try:
            for row, derived, losses in self._giver.rows(file_index, {row for _, row, _ in left}):
                place = (file_index, row, 0 if isinstance(derived, RowError) else derived.first_token)
                if place in left:  # its other pieces may lie in packs that are not looked at
                    left.discard(place)
                    self._found.num_sequences += 1
                    self._compare_row(expected[place], derived)
                    self._found.losses[(self._split, self._inputs[file_index].path, row)] = frozenset(losses)
                    self._progress.advance(1)
        except (DataError, StoreError) as error:
            self._found.unread.append(str(error))
            self._found.num_unread_sequences += len(left)
            self._unread_packs |= {expected[place].entry.pack for place in left}
            return
        for place in sorted(left):
            entry = expected[place].entry
            piece = f"sequence from token {entry.first_token} of " if entry.first_token else ""
            nowhere = f"no {piece}row {entry.row} in {self._giver.label(file_index)}"
            self._add(entry.pack, entry, INPUT_IDS, None, "a sequence", nowhere)

    def _compare_row(self, expected: _Expected, derived: TokenSequence | RowError) -> None:
        entry = expected.entry
        if isinstance(derived, RowError):
            self._add(entry.pack, entry, INPUT_IDS, None, "a sequence", f"none: {derived.reason}: {derived.detail}")
            return
        ids, mask = _as_stored(derived, self._artifact.manifest.pad_seq_to_mult, self._eos_token_id)
        if derived.runtime_length == entry.runtime_length and _digest(ids, mask) == expected.digest:
            return
        try:
            row = read_packs(self._artifact, self._split, [entry.pack])[entry.pack]
        except BridgepackError:  # it was read before; whatever happens to the file now, the sequence differs
            self._add(entry.pack, entry, INPUT_IDS, None, "unreadable", "a sequence")
            return
        bounds = self._bounds(entries_of_packs(self._artifact, self._split, [entry.pack])[entry.pack])
        start, stop = bounds[entry.position : entry.position + 2].tolist()
        for column, stored, wanted in (
            (INPUT_IDS, row.input_ids[start:stop], ids),
            (LOSS_MASK, row.loss_mask[start:stop], mask),
        ):
            token = first_difference(stored, wanted)
            if token is not None:
                self._add(entry.pack, entry, column, token, value_at(stored, token), value_at(wanted, token))
                return
        self._add(entry.pack, entry, _PLAN, None, entry.runtime_length, derived.runtime_length)

    def _add(
        self, pack: int, entry: PlanEntry | None, column: str, token: int | None, stored: Any, derived: Any
    ) -> None:
        self._found.differences.append(
            difference_at(
                self._artifact,
                self._split,
                pack,
                entry,
                column=column,
                token=token,
                in_artifact=stored,
                from_source=derived,
            )
        )


def difference_at(artifact: Artifact, split: str, pack: int, entry: PlanEntry | None, **found: Any) -> RowDifference:
    """Return a difference with where its pack lies and where its sequence came from.

    Args:
        artifact: that differs.
        split: of the pack.
        pack: row of the split, from 0; one behind the last counts as the last.
        entry: of the sequence in the plan; None where the pack as a whole differs.
        found: the other fields of a `RowDifference`.
    """
    index, inputs = shard_index(artifact, split), split_record(artifact, split).inputs
    place = index.place_of(min(pack, index.num_packs - 1))
    return RowDifference(
        split=split,
        pack=pack,
        shard=place.shard,
        shard_row=place.row,
        sequence=entry.position if entry else None,
        file=inputs[entry.file_index].path if entry and 0 <= entry.file_index < len(inputs) else None,
        row=entry.row if entry else None,
        **found,
    )


def first_difference(stored: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> int | None:
    """Return the first place at which two rows of numbers differ: [1 2 3] and [1 5] -> 1; None for equal ones."""
    shared = min(len(stored), len(wanted))
    places = np.flatnonzero(stored[:shared] != wanted[:shared])
    if len(places):
        return int(places[0])
    return None if len(stored) == len(wanted) else shared


def value_at(values: npt.NDArray[Any], index: int) -> int | str:
    """Return a number of a row, or that the row ends before it."""
    return int(values[index]) if index < len(values) else "the end"


def _as_stored(
    sequence: TokenSequence, multiple: int, eos_token_id: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8]]:
    """Return ids and mask as they lie in a row: padded to the multiple, the mask moved left by one.

    Example: ids [5 6 7], mask [0 1 1], multiple 4, EOS 2 -> [5 6 7 2 2] and [1 1 0 0 0].
    """
    length = int(aligned_runtime_lengths(np.array([sequence.runtime_length]), multiple)[0]) + 1
    ids = np.full(length, eos_token_id, dtype=np.int32)
    mask = np.zeros(length, dtype=np.int8)
    ids[: sequence.stored_length] = sequence.input_ids
    mask[: sequence.stored_length - 1] = sequence.loss_mask[1:]
    return ids, mask


def _digest(ids: npt.NDArray[Any], mask: npt.NDArray[Any]) -> bytes:
    """Return a digest of a sequence as stored, whatever types the columns have."""
    digest = hashlib.blake2b(np.ascontiguousarray(ids, dtype=np.int64).tobytes(), digest_size=16)
    digest.update(np.ascontiguousarray(mask, dtype=np.int64).tobytes())
    return digest.digest()


def _structure_problem(row: PackedRow, bounds: npt.NDArray[np.int64]) -> tuple[str, int | None, Any, Any] | None:
    """Return (column, place, found, expected) where a row's boundaries or lengths are not those of its plan."""
    starts = row.seq_start_id.astype(np.int64)
    token = first_difference(starts, bounds[:-1])
    if token is not None:
        return SEQ_START_ID, token, value_at(starts, token), value_at(bounds[:-1], token)
    for column, values in ((INPUT_IDS, row.input_ids), (LOSS_MASK, row.loss_mask)):
        if len(values) != bounds[-1]:
            return column, None, f"{len(values)} entries", f"{bounds[-1]} entries"
    assert np.array_equal(sequence_bounds(row), bounds)
    return None
