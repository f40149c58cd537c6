"""A range's whole sequences in the light of the recipe's sizes and splits: what is kept, cut, set aside and dropped."""

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
from bridgepack.data.sequences.over_long import REASONS, OverLongPolicy, Piece
from bridgepack.data.stages.notes import Notes, noted
from bridgepack.data.store.token_file import Int32Array, TokenIndex, read_token_index, token_arrays, write_token_file
from bridgepack.errors import DataError, RowError
from bridgepack.geometry import IntArray
from bridgepack.records import VALIDATION, Drop, DropReason, LostContent, LostKind
from bridgepack.records.token_batches import RowDrop, RowLoss, TokenBatch

#: Bits of a row's number in what is hashed; those above are its file's.
FILE_BITS = 44
#: One sequence that is packed.
SEQUENCE = np.dtype(
    [
        ("store_file", np.int32),  # position of its file: of a range 0; of a split among all that it has
        ("index", np.int32),  # position in its file
        ("stored_length", np.int32),  # stored tokens, before alignment
        ("row_offset", np.int32),  # row of the input, counted from the range's first row
        ("first_token", np.int32),  # where it begins in its row, stored; 0 where the row was not split
        ("num_trained", np.int32),  # ones of the label-aligned mask
        ("is_cut", np.bool_),  # truncated or a piece of its row, so that it lies in the file of cut sequences
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
    """What acts on a split's sequences after they were tokenised."""

    policy: OverLongPolicy  #: for sequences that are too long
    split: str  #: name of the split that the files are of
    validation_fraction: float  #: of the rows (0-1), set aside for validation; 0 where the split is not parted
    seed: int  #: of the build
    stops_at_bad_rows: bool  #: a row that gives no sequence stops the build
    hashes_rows: bool  #: so that duplicates can be found
    stops_at_losses: bool  #: a row of which the chat template loses something stops the build
    folder: Path  #: of the build, for sequences that were cut and for parts of the ledger

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that the rows go to."""
        return (self.split, VALIDATION) if self.validation_fraction > 0 else (self.split,)


@dataclass(frozen=True, kw_only=True, slots=True)
class RangePlace:
    """Where a range's rows come from, and where its tokens are."""

    file_index: int  #: position of its file in the split's list of inputs
    label: str  #: what the ledger calls the file
    first_row: int  #: 1-based number of its first row
    token_file: Path  #: its tokens; there, or to be made


@dataclass(frozen=True, kw_only=True, slots=True)
class RangePart:
    """The rows of a range that go to one split."""

    sequences: Sequences  #: in row order
    hashes: npt.NDArray[np.uint64] | None  #: shape [num_sequences, 2], uint64, of its row; None where none is asked for
    num_split: int  #: rows that were split
    num_untrained_pieces: int  #: of these rows, left out
    num_rows: int  #: rows read, drops included
    drops: Notes[Drop]
    losses: Notes[LostContent]  #: of sequences whose text lacks something of the row


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeResult:
    """What became of a range."""

    place: RangePlace  #: where its rows come from, and its tokens
    #: split -> its rows
    parts: Mapping[str, RangePart] = field(default_factory=dict)
    cut_file: Path | None = None  #: sequences that were cut; None where there is none
    num_rows: int = 0  #: rows read, drops included
    num_blank_lines: int = 0  #: lines without anything on them
    was_tokenized: bool = False  #: now; otherwise the tokens were in the store
    num_bytes: int = 0  #: its share of the input file's size; 0 where that is not known


def finish_range(
    settings: FinishSettings, place: RangePlace, duplicates: Mapping[int, str] = MappingProxyType({})
) -> RangeResult:
    """Return what becomes of the rows of a range whose tokens are in the store.

    Args:
        settings: of the split.
        place: of the range.
        duplicates: 0-based row within the range that is dropped as a duplicate -> detail for the ledger.

    Raises:
        DataError: for a bad row, when the recipe says `on_bad_row: error`, an over-long one with `over_long: error`, or
            one that the template garbles with `on_lost_content: error`.
        StoreError: when the token file is not whole.
    """
    index = read_token_index(place.token_file)
    judgement = settings.policy.judge(index.stored_lengths, index.num_learned)
    is_first = np.isin(index.row_offsets, list(duplicates), invert=True)
    is_whole = (judgement.codes == 0) & ~judgement.needs_cut & is_first
    cut, drops = _cut(settings.policy, place.token_file, index, np.flatnonzero(judgement.needs_cut & is_first))
    drops += _stored_drops(settings.policy, index, judgement.codes)
    drops += [RowDrop(row, DropReason.DUPLICATE, detail) for row, detail in duplicates.items()]
    drops.sort(key=lambda drop: drop.row_offset)
    _refuse_bad_rows(settings, place, drops)
    cut_file = settings.folder / f"{settings.split}-{place.file_index:06d}-{place.first_row}.cut" if cut else None
    kept = _kept(settings.policy, index, is_whole, cut, cut_file)
    if settings.hashes_rows:
        kept = kept._replace(hashes=_hashes(settings.policy, place.token_file, kept.sources, cut))
    losses = _stored_losses(index, kept.sequences["row_offset"])
    parts = {name: _part(settings, place, name, kept, drops, losses) for name in settings.splits}
    return RangeResult(
        place=place, parts=parts, cut_file=cut_file, num_rows=index.num_rows, num_blank_lines=index.num_blank_lines
    )


class _Kept(NamedTuple):
    """The sequences of a range that stay, in row order; arrays have shape [num_sequences]."""

    sequences: Sequences
    sources: IntArray  #: int64, position in the token file of what they were made of
    num_pieces: IntArray  #: int64, pieces of its row, those left out among them; 0 where it was not split
    hashes: npt.NDArray[np.uint64] | None = None


def _kept(
    policy: OverLongPolicy,
    index: TokenIndex,
    is_whole: npt.NDArray[np.bool_],
    cut: Mapping[int, Sequence[Piece]],
    cut_file: Path | None,
) -> _Kept:
    """Return what stays of a token file: what is whole, and what was cut, which goes to a file of its own."""
    counts = is_whole.astype(np.int64)
    for position, pieces in cut.items():
        counts[position] = len(pieces)
    sources = np.repeat(np.arange(len(counts)), counts)
    whole, is_cut = index.stored_lengths[sources], ~is_whole[sources]
    found = np.zeros(len(sources), dtype=SEQUENCE)
    found["index"], found["is_cut"], found["stored_length"] = sources, is_cut, whole
    found["row_offset"], found["num_trained"] = index.row_offsets[sources], index.num_trained[sources]
    if cut_file is not None:
        pieces = [piece for members in cut.values() for piece in members]
        shorter = _written_cut(cut_file, pieces, policy.eos_token_id)
        found["index"][is_cut] = np.arange(len(pieces))
        found["stored_length"][is_cut], found["num_trained"][is_cut] = shorter.stored_lengths, shorter.num_trained
        found["first_token"][is_cut] = [piece.first_token for piece in pieces]
    return _Kept(found, sources, np.where(is_cut & policy.splits, policy.num_pieces(whole), 0))


def _hashes(
    policy: OverLongPolicy, token_file: Path, sources: IntArray, cut: Mapping[int, Sequence[Piece]]
) -> npt.NDArray[np.uint64]:
    """Return 128 bits for each sequence, of ids and label mask; the whole row's where it was split."""
    rows, counts = np.unique(sources, return_counts=True)
    arrays, digests = token_arrays(token_file), bytearray()
    for row in rows.tolist():
        ids, mask = cut[row][0][:2] if row in cut and not policy.splits else arrays.sequence(row)
        digest = hashlib.blake2b(np.ascontiguousarray(ids), digest_size=16)
        digest.update(np.ascontiguousarray(mask[1:]))
        digests += digest.digest()
    return np.repeat(np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2), counts, axis=0)


def _part(
    settings: FinishSettings,
    place: RangePlace,
    name: str,
    kept: _Kept,
    drops: Sequence[RowDrop],
    losses: Sequence[RowLoss],
) -> RangePart:
    """Return what goes to the split `name`."""

    def is_of_part(row_offsets: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        offsets = np.asarray(row_offsets, dtype=np.int64)
        is_aside = _is_set_aside(settings, place, offsets)
        return ~is_aside if name == settings.split else is_aside

    chosen = is_of_part(kept.sequences["row_offset"])
    file, first = place.file_index, place.first_row
    dropped = [
        Drop(file_index=file, row=first + row, reason=DropReason(reason), detail=detail)
        for row, reason, detail in compress(drops, is_of_part([drop.row_offset for drop in drops]))
    ]
    lost = [
        LostContent(file_index=file, row=first + row, kind=LostKind(kind), detail=detail)
        for row, kind, detail in compress(losses, is_of_part([loss.row_offset for loss in losses]))
    ]
    ledger = f"{settings.split}-{file:06d}-{first}-{name}"
    is_piece = chosen & (kept.num_pieces > 0)
    split_rows, firsts = np.unique(kept.sequences["row_offset"][is_piece], return_index=True)
    return RangePart(
        sequences=kept.sequences[chosen],
        hashes=kept.hashes[chosen] if kept.hashes is not None else None,
        num_split=len(split_rows),
        num_untrained_pieces=int(kept.num_pieces[is_piece][firsts].sum()) - int(is_piece.sum()),
        num_rows=int((chosen & ~is_piece).sum()) + len(split_rows) + len(dropped),
        drops=noted(settings.folder / f"{ledger}-reason.jsonl", dropped, split=name, file=place.label, field="reason"),
        losses=noted(settings.folder / f"{ledger}-kind.jsonl", lost, split=name, file=place.label, field="kind"),
    )


def _is_set_aside(settings: FinishSettings, place: RangePlace, row_offsets: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which rows go to validation, by a hash of where they come from: the same on every machine."""
    if settings.validation_fraction <= 0:
        return np.zeros(len(row_offsets), dtype=np.bool_)
    keys = row_offsets.astype(np.uint64) + np.uint64(place.first_row + (place.file_index << FILE_BITS))
    bound = np.uint64(int(settings.validation_fraction * 2**64))
    is_aside: npt.NDArray[np.bool_] = seeded_hash(keys, settings.seed) < bound
    return is_aside


def _cut(
    policy: OverLongPolicy, token_file: Path, index: TokenIndex, positions: npt.NDArray[np.intp]
) -> tuple[dict[int, list[Piece]], list[RowDrop]]:
    """Return position -> what sequences became by cutting, and those of which nothing can be trained on."""
    cut, drops, arrays = {}, [], token_arrays(token_file)
    for position in positions.tolist():
        result = policy.cut(*arrays.sequence(position), int(index.num_context[position]))
        if isinstance(result, RowError):
            drops.append(RowDrop(int(index.row_offsets[position]), str(result.reason), result.detail))
        else:
            cut[position] = result
    return cut, drops


def _written_cut(path: Path, pieces: Sequence[Piece], eos_token_id: int) -> TokenIndex:
    ids, masks = [piece.input_ids for piece in pieces], [piece.loss_mask for piece in pieces]
    nowhere = np.full(len(pieces), -1)
    batch = TokenBatch(
        input_ids=np.concatenate(ids),
        loss_mask=np.concatenate(masks),
        offsets=np.cumsum([0, *map(len, ids)]),
        row_offsets=nowhere,
        num_context=nowhere,
        drops=(),
        losses=(),
        num_rows=0,
        num_blank_lines=0,
    )
    with write_token_file(path) as writer:
        writer.add(batch, eos_token_id)
    return read_token_index(path)


def _stored_drops(policy: OverLongPolicy, index: TokenIndex, codes: npt.NDArray[Any]) -> list[RowDrop]:
    """Return the drops of a token file, and those that follow from the recipe's sizes."""
    pairs = zip(index.drop_rows.tolist(), index.drop_kinds.tolist(), strict=True)
    drops = [RowDrop(row, *index.kinds[kind]) for row, kind in pairs]
    for position in np.flatnonzero(codes).tolist():
        code, length = int(codes[position]), int(index.stored_lengths[position])
        drops.append(RowDrop(int(index.row_offsets[position]), str(REASONS[code]), policy.detail(code, length)))
    return drops


def _stored_losses(index: TokenIndex, row_offsets: Int32Array) -> list[RowLoss]:
    """Return the losses of a token file's rows that stay."""
    is_of_kept = np.isin(index.loss_rows, row_offsets)
    pairs = zip(index.loss_rows[is_of_kept].tolist(), index.loss_kinds[is_of_kept].tolist(), strict=True)
    return [RowLoss(row, *index.kinds[kind]) for row, kind in pairs]


def _refuse_bad_rows(settings: FinishSettings, place: RangePlace, drops: Sequence[RowDrop]) -> None:
    """Stop at the first drop that the recipe does not allow.

    Raises:
        DataError: naming it.
    """
    advices: dict[str, str] = {}
    if settings.policy.action == "error":
        advices[DropReason.OVER_LONG] = _OVER_LONG_ADVICE
    if settings.stops_at_losses:
        advices[DropReason.LOST_CONTENT] = _LOSS_ADVICE
    for drop in drops:
        if drop.reason in advices or (settings.stops_at_bad_rows and drop.reason != DropReason.DUPLICATE):
            where = f"{place.label} row {place.first_row + drop.row_offset}"
            advice = advices.get(drop.reason, _BAD_ROW_ADVICE)
            raise DataError(f"{where}: {drop.reason}: {drop.detail}. {advice}")
