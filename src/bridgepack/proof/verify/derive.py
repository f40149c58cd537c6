"""Derives packs of an artifact again, from its sources, and compares every number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import batched, groupby, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import PlanEntry, entries_of_packs
from bridgepack.data.sequences.encoding import Loss
from bridgepack.data.tasks import Progress
from bridgepack.errors import ArtifactError, DataError, RowError
from bridgepack.geometry import aligned_runtime_lengths, first_difference
from bridgepack.proof.packs import read_packs, shard_index
from bridgepack.proof.sources import SourceRows
from bridgepack.proof.verify.records import RowDifference
from bridgepack.records import INPUT_IDS, LOSS_MASK, SEQ_START_ID, PackedRow
from bridgepack.records import Sequence as TokenSequence

_PLAN = "plan"
#: Stored tokens of packs in memory at a time, 5 bytes each.
_CHUNK_TOKENS = 1 << 26


@dataclass(kw_only=True, slots=True)
class DerivedPacks:
    """Result of deriving packs."""

    num_packs: int = 0  #: packs compared, with all their sequences
    num_sequences: int = 0
    num_packs_different: int = 0  #: different packs among all that were compared
    #: differences of sequences and packs, in pack order; may be incomplete
    differences: list[RowDifference] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)  #: messages about unreadable inputs
    num_unread_sequences: int = 0
    #: (split, file's name in the ledger, row) -> kind and detail of the content that its text lacks
    losses: dict[tuple[str, str, int], frozenset[Loss]] = field(default_factory=dict)

    def add(self, part: DerivedPacks) -> None:
        """Add the result for other packs."""
        self.num_packs += part.num_packs
        self.num_sequences += part.num_sequences
        self.num_packs_different += part.num_packs_different
        self.differences += part.differences
        self.unread += part.unread
        self.num_unread_sequences += part.num_unread_sequences
        self.losses |= part.losses


#: (index of an input, row, first token of the sequence in that row)
_Place = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Expected:
    entry: PlanEntry
    ids: npt.NDArray[Any]
    mask: npt.NDArray[Any]


class PackDeriver:
    """Derives packs of one split."""

    def __init__(self, artifact: Artifact, split: str, giver: SourceRows, progress: Progress) -> None:
        self._artifact, self._split, self._giver, self._progress = artifact, split, giver, progress
        record = artifact.split(split)
        self._inputs, self._has_repeats = record.inputs, record.statistics.num_repeated > 0
        self._eos_token_id = int(artifact.manifest.tokenizer["eos_token_id"])
        self._found = DerivedPacks()
        self._unread_packs: set[int] = set()
        self._seen: set[_Place] = set()

    def compare(self, packs: Iterable[int]) -> DerivedPacks:
        """Return the differences between packs and their sources.

        Raises:
            TokenizerError: the tokenizer cannot be loaded.
        """
        pack_numbers = sorted(set(packs))
        for chunk in batched(pack_numbers, max(_CHUNK_TOKENS // self._artifact.manifest.packed_sequence_size, 1)):
            stored_sequences = self._expected_sequences(chunk)
            self._progress.start(f"Deriving {self._split}", len(stored_sequences), "sequences")
            for file_index, places in groupby(sorted(stored_sequences), key=lambda place: place[0]):
                self._compare_file(file_index, set(places), stored_sequences)
            self._progress.finish()
        self._found.num_packs = len(set(pack_numbers) - self._unread_packs)
        self._found.num_packs_different = len({item.pack for item in self._found.differences})
        self._found.differences.sort(key=lambda item: (item.pack, -1 if item.sequence is None else item.sequence))
        return self._found

    def _expected_sequences(self, packs: Sequence[int]) -> dict[_Place, _Expected]:
        """Return place -> stored sequence; a pack that does not match its plan is also a difference."""
        entries = entries_of_packs(self._artifact, self._split, packs)
        stored_sequences: dict[_Place, _Expected] = {}
        for pack, row in self._stored_rows(packs).items():
            members = entries.get(pack, ())
            lengths = np.array([entry.runtime_length for entry in members], dtype=np.int64)
            physical = aligned_runtime_lengths(lengths, self._artifact.manifest.pad_seq_to_mult) + 1
            bounds = np.concatenate(([0], np.cumsum(physical))).astype(np.int64)
            self._compare_structure(pack, row, bounds)
            for entry, (start, stop) in zip(members, pairwise(bounds.tolist()), strict=True):
                place = (entry.file_index, entry.row, entry.first_token)
                sequence = _Expected(entry=entry, ids=row.input_ids[start:stop], mask=row.loss_mask[start:stop])
                is_again = place in self._seen if not self._has_repeats else place in stored_sequences
                if is_again and not (self._has_repeats and _are_equal(sequence, stored_sequences[place])):
                    self._add(pack, entry, _PLAN, None, f"row {entry.row} once more", "one sequence of each row")
                elif not is_again:
                    stored_sequences[place] = sequence
                    self._seen.add(place)
        return stored_sequences

    def _compare_structure(self, pack: int, row: PackedRow, bounds: npt.NDArray[np.int64]) -> None:
        """Add a difference if a row's boundaries or lengths do not match its plan."""
        starts = row.seq_start_id.astype(np.int64)
        token = first_difference(starts, bounds[:-1])
        if token is not None:
            self._add(pack, None, SEQ_START_ID, token, value_at(starts, token), value_at(bounds[:-1], token))
            return
        for column in (INPUT_IDS, LOSS_MASK):
            num_entries = len(getattr(row, column))
            if num_entries != bounds[-1]:
                self._add(pack, None, column, None, f"{num_entries} entries", f"{bounds[-1]} entries")
                return

    def _stored_rows(self, packs: Sequence[int]) -> dict[int, PackedRow]:
        """Return the readable packs; each unreadable one is a difference."""
        try:
            return read_packs(self._artifact, self._split, packs)
        except ArtifactError:
            rows: dict[int, PackedRow] = {}
        for pack in packs:
            try:
                rows |= read_packs(self._artifact, self._split, [pack])
            except ArtifactError as error:
                self._add(pack, None, "", None, str(error), "a pack")
        return rows

    def _compare_file(self, file_index: int, places: set[_Place], stored_sequences: dict[_Place, _Expected]) -> None:
        if not 0 <= file_index < len(self._inputs):
            for place in sorted(places):
                entry = stored_sequences[place].entry
                self._add(entry.pack, entry, _PLAN, None, f"input {file_index}", f"one of {len(self._inputs)} inputs")
            return
        try:
            for row, source_sequence, losses in self._giver.rows(file_index, {row for _, row, _ in places}):
                place = (file_index, row, 0 if isinstance(source_sequence, RowError) else source_sequence.first_token)
                if place in places:  # its other pieces may be in packs that are not compared
                    places.discard(place)
                    self._found.num_sequences += 1
                    self._compare_row(stored_sequences[place], source_sequence)
                    self._found.losses[(self._split, self._inputs[file_index].path, row)] = frozenset(losses)
                    self._progress.advance(1)
        except DataError as error:
            self._found.unread.append(str(error))
            self._found.num_unread_sequences += len(places)
            self._unread_packs |= {stored_sequences[place].entry.pack for place in places}
            return
        for place in sorted(places):
            entry = stored_sequences[place].entry
            piece = f"sequence from token {entry.first_token} of " if entry.first_token else ""
            nowhere = f"no {piece}row {entry.row} in {self._giver.label(file_index)}"
            self._add(entry.pack, entry, INPUT_IDS, None, "a sequence", nowhere)

    def _compare_row(self, stored_sequence: _Expected, source_sequence: TokenSequence | RowError) -> None:
        entry = stored_sequence.entry
        if isinstance(source_sequence, RowError):
            self._add(
                entry.pack,
                entry,
                INPUT_IDS,
                None,
                "a sequence",
                f"none: {source_sequence.reason}: {source_sequence.detail}",
            )
            return
        ids, mask = _stored_form(source_sequence, self._artifact.manifest.pad_seq_to_mult, self._eos_token_id)
        for column, stored_values, source_values in (
            (INPUT_IDS, stored_sequence.ids, ids),
            (LOSS_MASK, stored_sequence.mask, mask),
        ):
            token = first_difference(stored_values, source_values)
            if token is not None:
                self._add(
                    entry.pack, entry, column, token, value_at(stored_values, token), value_at(source_values, token)
                )
                return
        if source_sequence.runtime_length != entry.runtime_length:
            self._add(entry.pack, entry, _PLAN, None, entry.runtime_length, source_sequence.runtime_length)

    def _add(self, pack: int, *difference: Any) -> None:
        self._found.differences.append(difference_at(self._artifact, self._split, pack, *difference))


def difference_at(
    artifact: Artifact, split: str, pack: int, entry: PlanEntry | None, column: str, token: int | None, *values: Any
) -> RowDifference:
    """Return a difference with the location of its pack and the origin of its sequence.

    `pack` counts from 0; one past the last counts as the last. `entry` is the sequence's in the plan, None if the pack
    as a whole differs; `values` are (value in the artifact, value from its source).
    """
    index, inputs = shard_index(artifact, split), artifact.split(split).inputs
    place = index.place_of(min(pack, index.num_packs - 1))
    return RowDifference(
        split=split,
        pack=pack,
        shard=place.shard,
        shard_row=place.row,
        sequence=entry.position if entry else None,
        file=inputs[entry.file_index].path if entry and 0 <= entry.file_index < len(inputs) else None,
        row=entry.row if entry else None,
        column=column,
        token=token,
        in_artifact=values[0],
        from_source=values[1],
    )


def value_at(values: npt.NDArray[Any], index: int) -> int | str:
    """Return a number of a row, or a text that the row ends before it."""
    return int(values[index]) if index < len(values) else "the end"


def _stored_form(
    sequence: TokenSequence, multiple: int, eos_token_id: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8]]:
    """Return (ids, mask) as stored in a row: padded to the multiple, the mask shifted left by one.

    Example: ids [5 6 7], mask [0 1 1], multiple 4, EOS 2 -> [5 6 7 2 2] and [1 1 0 0 0].
    """
    length = int(aligned_runtime_lengths(np.array([sequence.runtime_length]), multiple)[0]) + 1
    ids = np.full(length, eos_token_id, dtype=np.int32)
    mask = np.zeros(length, dtype=np.int8)
    ids[: sequence.stored_length] = sequence.input_ids
    mask[: sequence.stored_length - 1] = sequence.loss_mask[1:]
    return ids, mask


def _are_equal(first: _Expected, second: _Expected) -> bool:
    return np.array_equal(first.ids, second.ids) and np.array_equal(first.mask, second.mask)
