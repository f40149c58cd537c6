"""Applies the recipe's sizes and splits to a range's uncut sequences: keeps, cuts, sets aside or drops them."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bridgepack.data.packing.order import seeded_hash
from bridgepack.data.sequences.over_long import REASONS, HistoryCut, Piece, SequencePolicy
from bridgepack.data.stages.notes import Notes, write_notes
from bridgepack.data.stages.rows import DroppedSequence, RowFates, of_duplicates, row_fates
from bridgepack.data.store.token_file import Int32Array, TokenIndex, read_token_index, token_arrays, write_token_file
from bridgepack.errors import DataError, RowError
from bridgepack.geometry import IntArray
from bridgepack.records import VALIDATION, Drop, DropReason, LostContent, LostKind
from bridgepack.records.sequences import RowNote, TokenBatch, UnreadCount

#: In the hashed number, lower bits for the row's number; the bits above are for its file.
FILE_BITS = 44
#: Dtype of one sequence to pack.
SEQUENCE = np.dtype(
    [
        ("store_file", np.int32),  # index of its token file in the split; 0 in a range
        ("index", np.int32),  # index in its token file
        ("stored_length", np.int32),  # stored tokens, without alignment padding
        ("row_offset", np.int32),  # input row, relative to the range's first row
        ("first_token", np.int32),  # start in its row, see `PlanEntry`; 0 unless the row became several sequences
        ("num_pieces", np.int32),  # packed and dropped pieces of its row; 0 if the row is one sequence
        ("num_trained", np.int32),  # ones of the label-aligned mask
        ("is_added", np.bool_),  # of an earlier sequence of its row: without splitting conversations, only the last is
        ("is_cut", np.bool_),  # truncated, or split because it is over-long, so stored in the file of cut sequences
        ("is_truncated", np.bool_),  # it was cut and lost tokens
        ("num_left_out", np.int32),  # untrained pieces of its row, left out; 0 at all but the row's first
    ]
)
type Sequences = npt.NDArray[np.void]  # shape [num_sequences], SEQUENCE
_OVER_LONG_ADVICE = (
    "Raise packing.max_sequence_length and packed_sequence_size, or set preprocessing.over_long to drop, truncate or "
    "split."
)
_LOSS_ADVICE = "Or set preprocessing.on_lost_content to keep or drop."
_BAD_ROW_ADVICE = "Correct the row, or set data.on_bad_row to drop."


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishSettings:
    """Settings that apply to a split's sequences after tokenising."""

    policy: SequencePolicy  #: for over-long sequences and labels after an EOS
    split: str  #: name of the files' split
    validation_fraction: float  #: fraction of the rows (0-1) set aside for validation; 0 if none are
    seed: int  #: seed of the build
    stops_at_bad_rows: bool  #: stop the build at a row that gives no sequence
    hashes_rows: bool  #: hash rows, to find duplicates
    stops_at_losses: bool  #: stop the build at a row of which the chat template loses content
    folder: Path  #: working folder, for cut sequences and parts of the ledger
    others: Mapping[str, SequencePolicy] = field(default_factory=dict)  #: another kind of rows -> its policy
    splits_conversations: bool = False  #: a conversation may become several sequences

    @property
    def splits_rows(self) -> bool:
        """Whether rows may become several sequences: conversations, or over-long rows of any kind."""
        return self.splits_conversations or any(policy.splits for policy in (self.policy, *self.others.values()))

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that rows can go to."""
        return (self.split, VALIDATION) if self.validation_fraction > 0 else (self.split,)

    def policy_of(self, kind: str) -> SequencePolicy:
        """Return the policy for rows of a kind."""
        return self.others.get(kind, self.policy)


@dataclass(frozen=True, kw_only=True, slots=True)
class RangePlace:
    """The origin of a range's rows, and its token file."""

    file_index: int  #: position of its file in the split's list of inputs
    label: str  #: name of the file in the ledger
    first_row: int  #: 1-based number of its first row
    token_file: Path  #: file of its tokens; may not exist yet
    kind: str = ""  #: kind of its rows; empty for the recipe's own


@dataclass(frozen=True, kw_only=True, slots=True)
class RangePart:
    """The rows of a range that go to one split."""

    sequences: Sequences  #: in row order
    #: shape [num_sequences, 2], uint64, of the whole sequences that they are or were cut from; None if not needed
    hashes: npt.NDArray[np.uint64] | None
    sources: IntArray | None  #: shape [num_sequences], int64, index of these in the token file; None if not needed
    num_rows: int  #: rows read, drops included
    drops: Notes[Drop]
    dropped_pieces: Notes[Drop]  #: drops of pieces whose rows are packed in part
    losses: Notes[LostContent]  #: losses of sequences whose text lacks content of the row
    cut: HistoryCut  #: exchanges and turns that were left out of its rows


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeResult:
    """Result of a range: its sequences per split, drops and losses."""

    place: RangePlace  #: origin of its rows, and its tokens
    #: split -> its rows
    parts: Mapping[str, RangePart] = field(default_factory=dict)
    cut_file: Path | None = None  #: file of cut sequences; None if there are none
    num_rows: int = 0  #: rows read, drops included
    num_blank_lines: int = 0  #: blank lines
    unread: tuple[UnreadCount, ...] = ()  #: what nobody reads in its rows, dropped ones included
    num_read: tuple[int, ...] = ()  #: rows that each layout of the source has read
    was_tokenized: bool = False  #: tokenised now; False if the tokens were in the store
    num_bytes: int = 0  #: its share of the input file's size; 0 if unknown
    longest: int = 0  #: stored tokens of its longest sequence before sizes apply
    num_rows_copied: int = 0  #: rows whose tokens were copied from those for another maximum length


def finish_range(
    settings: FinishSettings, place: RangePlace, duplicates: Mapping[int, str] = MappingProxyType({})
) -> RangeResult:
    """Return the result of a range whose tokens are in the store.

    `duplicates` are sequences to drop as duplicates, by their index in the token file -> detail for the ledger.

    Raises:
        DataError: a row is bad and the recipe says `on_bad_row: error`, is over-long with `over_long: error`, or loses
            content with `on_lost_content: error`.
        StoreError: the token file is incomplete.
    """
    index, policy = read_token_index(place.token_file), settings.policy_of(place.kind)
    judgement = policy.judge(index.stored_lengths, index.num_learned)
    is_first = np.ones(len(index.row_offsets), dtype=np.bool_)
    is_first[list(duplicates)] = False
    is_whole = (judgement.codes == 0) & ~judgement.needs_cut & is_first
    cut, dropped_sequences = _cut(policy, place.token_file, index, np.flatnonzero(judgement.needs_cut & is_first))
    dropped_sequences += of_duplicates(duplicates)
    for position in np.flatnonzero(judgement.codes).tolist():
        code, length = int(judgement.codes[position]), int(index.stored_lengths[position])
        dropped_sequences.append(DroppedSequence(position, str(REASONS[code]), policy.detail(code, length)))
    counts = is_whole.astype(np.int64)
    for position, pieces in cut.items():
        counts[position] = len(pieces)
    is_split = judgement.needs_cut & is_first & policy.splits
    num_parts = np.where(is_split, policy.num_pieces(index.stored_lengths), 0).astype(np.int64)
    fates = row_fates(index, counts, num_parts, dropped_sequences)
    drops = [*_stored_notes(index, index.drop_rows, index.drop_kinds), *(RowNote(*drop) for drop in fates.row_drops)]
    drops.sort(key=lambda drop: drop.row_offset)
    _refuse_bad_rows(settings, place, [*drops, *(RowNote(*drop[:3]) for drop in fates.piece_drops)])
    cut_file = settings.folder / f"{settings.split}-{place.file_index:06d}-{place.first_row}.cut" if cut else None
    selection = _keep_sequences(policy, index, is_whole, cut, cut_file, counts, fates)
    if settings.hashes_rows:
        selection = selection._replace(hashes=_hashes(policy, place.token_file, selection.sources, cut))
    of_kept = np.isin(index.loss_rows, selection.sequences["row_offset"])
    losses = _stored_notes(index, index.loss_rows[of_kept], index.loss_kinds[of_kept])
    parts = {name: _part(settings, place, name, selection, fates, drops, losses) for name in settings.splits}
    return RangeResult(
        place=place,
        parts=parts,
        cut_file=cut_file,
        num_rows=index.num_rows,
        num_blank_lines=index.num_blank_lines,
        unread=index.unread,
        num_read=index.num_read,
        longest=int(index.stored_lengths.max(initial=0)),
    )


class _Kept(NamedTuple):
    """The kept sequences of a range, in row order; arrays have shape [num_sequences]."""

    sequences: Sequences
    sources: IntArray  #: int64, index in the token file of the sequence that each was made from
    hashes: npt.NDArray[np.uint64] | None = None


def _keep_sequences(
    policy: SequencePolicy,
    index: TokenIndex,
    is_whole: npt.NDArray[np.bool_],
    cut: Mapping[int, Sequence[Piece]],
    cut_file: Path | None,
    counts: IntArray,
    fates: RowFates,
) -> _Kept:
    """Return the kept sequences of a token file: uncut ones, and cut ones, which are written to another file."""
    sources = np.repeat(np.arange(len(counts)), counts)
    lengths, is_cut = index.stored_lengths[sources], ~is_whole[sources]
    sequences = np.zeros(len(sources), dtype=SEQUENCE)
    sequences["index"], sequences["is_cut"], sequences["stored_length"] = sources, is_cut, lengths
    sequences["row_offset"], sequences["num_trained"] = index.row_offsets[sources], _num_trained(policy, index)[sources]
    sequences["first_token"], sequences["num_pieces"] = fates.first_tokens[sources], fates.num_pieces[sources]
    sequences["is_added"] = fates.is_earlier[sources] & (policy.action != "split_exchanges")
    if cut_file is not None:
        pieces = [piece for members in cut.values() for piece in members]
        shorter = _written_cut(cut_file, pieces, policy.eos_token_id)
        sequences["index"][is_cut] = np.arange(len(pieces))
        sequences["stored_length"][is_cut] = shorter.stored_lengths
        sequences["num_trained"][is_cut] = _num_trained(policy, shorter)
        sequences["first_token"][is_cut] += np.array([piece.first_token for piece in pieces], dtype=np.int32)
        sequences["is_truncated"] = is_cut & (not policy.splits)
    is_first = np.diff(sequences["row_offset"], prepend=-1) != 0
    sequences["num_left_out"][is_first] = fates.num_left_out[sources[is_first]]
    return _Kept(sequences, sources)


def _num_trained(policy: SequencePolicy, index: TokenIndex) -> Int32Array:
    """Return the ones of each sequence's mask in a row; shape [num_sequences], int32."""
    return index.num_learned if policy.masks_after_eos else index.num_trained


def _hashes(
    policy: SequencePolicy, token_file: Path, sources: IntArray, cut: Mapping[int, Sequence[Piece]]
) -> npt.NDArray[np.uint64]:
    """Return a 128-bit hash per sequence, of ids and label-aligned mask; of the whole one if it was split."""
    rows, counts = np.unique(sources, return_counts=True)
    arrays, digests = token_arrays(token_file), bytearray()
    for row in rows.tolist():
        ids, mask = cut[row][0][:2] if row in cut and not policy.splits else arrays.sequence(row)
        digest = hashlib.blake2b(np.ascontiguousarray(ids), digest_size=16)
        digest.update(np.ascontiguousarray(policy.mask_of_row(ids, mask)[1:]))
        digests += digest.digest()
    return np.repeat(np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2), counts, axis=0)


def _part(
    settings: FinishSettings,
    place: RangePlace,
    name: str,
    selection: _Kept,
    fates: RowFates,
    drops: Sequence[RowNote],
    losses: Sequence[RowNote],
) -> RangePart:
    def is_of_part(row_offsets: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        offsets = np.asarray(row_offsets, dtype=np.int64)
        is_aside = _is_set_aside(settings, place, offsets)
        return ~is_aside if name == settings.split else is_aside

    is_in_part = is_of_part(selection.sequences["row_offset"])
    file, first = place.file_index, place.first_row
    part_drops = [
        Drop(file_index=file, row=first + row, reason=DropReason(reason), detail=detail)
        for row, reason, detail in compress(drops, is_of_part([drop.row_offset for drop in drops]))
    ]
    pieces = [
        Drop(file_index=file, row=first + row, reason=DropReason(reason), detail=detail, first_token=first_token)
        for row, reason, detail, first_token in compress(
            fates.piece_drops, is_of_part([drop.row_offset for drop in fates.piece_drops])
        )
    ]
    part_losses = [
        LostContent(file_index=file, row=first + row, kind=LostKind(kind), detail=detail)
        for row, kind, detail in compress(losses, is_of_part([loss.row_offset for loss in losses]))
    ]
    sequences = selection.sequences[is_in_part]

    def notes[Item: (Drop, LostContent)](items: Sequence[Item], of_what: str, field: str) -> Notes[Item]:
        ledger = settings.folder / f"{settings.split}-{file:06d}-{first}-{name}-{of_what}.jsonl"
        return write_notes(ledger, items, split=name, file=place.label, field=field)

    return RangePart(
        sequences=sequences,
        hashes=selection.hashes[is_in_part] if selection.hashes is not None else None,
        sources=selection.sources[is_in_part] if selection.hashes is not None else None,
        num_rows=int((np.diff(sequences["row_offset"], prepend=-1) != 0).sum()) + len(part_drops),
        drops=notes(part_drops, "reason", "reason"),
        dropped_pieces=notes(pieces, "piece", "reason"),
        losses=notes(part_losses, "kind", "kind"),
        cut=HistoryCut.total(
            HistoryCut.of_detail(content.detail) for content in part_losses if content.kind == LostKind.CUT_HISTORY
        ),
    )


def _is_set_aside(settings: FinishSettings, place: RangePlace, row_offsets: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if settings.validation_fraction <= 0:
        return np.zeros(len(row_offsets), dtype=np.bool_)
    keys = row_offsets.astype(np.uint64) + np.uint64(place.first_row + (place.file_index << FILE_BITS))
    bound = np.uint64(int(settings.validation_fraction * 2**64))
    is_aside: npt.NDArray[np.bool_] = seeded_hash(keys, settings.seed) < bound
    return is_aside


def _cut(
    policy: SequencePolicy, token_file: Path, index: TokenIndex, positions: npt.NDArray[np.intp]
) -> tuple[dict[int, list[Piece]], list[DroppedSequence]]:
    """Return (index -> pieces of cut sequences, drops of those without a trainable piece)."""
    cut, dropped_sequences, arrays = {}, [], token_arrays(token_file)
    for position in positions.tolist():
        result = policy.cut(*arrays.sequence(position), int(index.num_context[position]))
        if isinstance(result, RowError):
            dropped_sequences.append(DroppedSequence(position, str(result.reason), result.detail))
        else:
            cut[position] = result
    return cut, dropped_sequences


def _written_cut(path: Path, pieces: Sequence[Piece], eos_token_id: int) -> TokenIndex:
    ids, masks = [piece.input_ids for piece in pieces], [piece.loss_mask for piece in pieces]
    nowhere = np.full(len(pieces), -1)
    batch = TokenBatch(
        input_ids=np.concatenate(ids),
        loss_mask=np.concatenate(masks),
        offsets=np.cumsum([0, *map(len, ids)]),
        row_offsets=nowhere,
        num_context=nowhere,
    )
    with write_token_file(path) as writer:
        writer.add(batch, eos_token_id)
    return read_token_index(path)


def _stored_notes(index: TokenIndex, rows: Int32Array, kinds: Int32Array) -> list[RowNote]:
    return [RowNote(row, *index.kinds[kind]) for row, kind in zip(rows.tolist(), kinds.tolist(), strict=True)]


def _refuse_bad_rows(settings: FinishSettings, place: RangePlace, drops: Sequence[RowNote]) -> None:
    """Raise DataError with the first drop that the recipe does not allow."""
    advices: dict[str, str] = {}
    if settings.policy_of(place.kind).action == "error":
        advices[DropReason.OVER_LONG] = _OVER_LONG_ADVICE
    if settings.stops_at_losses:
        advices[DropReason.LOST_CONTENT] = _LOSS_ADVICE
    for drop in drops:
        if drop.kind in advices or (settings.stops_at_bad_rows and drop.kind != DropReason.DUPLICATE):
            where = f"{place.label} row {place.first_row + drop.row_offset}"
            advice = advices.get(drop.kind, _BAD_ROW_ADVICE)
            raise DataError(f"{where}: {drop.kind}: {drop.detail}. {advice}")
