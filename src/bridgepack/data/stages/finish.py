"""A range's whole sequences in the light of the recipe's sizes and splits: what is kept, cut, set aside and dropped."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.data.packing.order import seeded_hash
from bridgepack.data.sequences.over_long import REASONS, OverLongPolicy
from bridgepack.data.store.token_file import Int32Array, TokenIndex, read_token_index, token_arrays, write_token_file
from bridgepack.errors import DataError, RowError
from bridgepack.records import VALIDATION, Drop, DropReason, LostContent, LostKind, MaskArray, TokenArray
from bridgepack.records.token_batches import RowDrop, RowLoss, TokenBatch

#: Drops of each reason, and losses of each kind, that the manifest shows.
_EXAMPLES_PER_REASON = 5
#: Bits of a row's number in what is hashed; those above are its file's.
FILE_BITS = 44
_OVER_LONG_ADVICE = (
    "Raise packing.max_sequence_length and packed_sequence_size, or set preprocessing.over_long to drop or truncate."
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
    """The rows of a range that go to one split; arrays are in row order, shape [num_sequences]."""

    is_cut: npt.NDArray[np.bool_]  #: bool, the sequence was cut, and lies in the file of cut sequences
    indices: Int32Array  #: int32, position in its file
    stored_lengths: Int32Array  #: int32, stored
    row_offsets: Int32Array  #: int32, 0-based row within the range
    num_rows: int  #: rows read, drops included
    num_trained: Int32Array  #: int32, ones of the label-aligned masks
    drops: Mapping[str, int]  #: reason -> drops, in the order in which the reasons first occur
    examples: tuple[Drop, ...]  #: the first few drops of each reason
    ledger: Path | None  #: file with a line for every drop; None where there is none
    losses: Mapping[str, int]  #: kind -> sequences whose text lacks something of the row, in the order of rows
    loss_examples: tuple[LostContent, ...]  #: the first few losses of each kind
    loss_ledger: Path | None  #: file with a line for every loss; None where there is none


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeResult:
    """What became of a range."""

    place: RangePlace  #: where its rows come from, and its tokens
    #: split -> its rows; empty where the tokens are not there and cannot be made from the task
    parts: Mapping[str, RangePart] = field(default_factory=dict)
    cut_file: Path | None = None  #: sequences that were cut; None where there is none
    num_rows: int = 0  #: rows read, drops included
    num_blank_lines: int = 0  #: lines without anything on them
    was_tokenized: bool = False  #: now; otherwise the tokens were in the store
    num_bytes: int = 0  #: its share of the input file's size; 0 where that is not known


def finish_range(settings: FinishSettings, place: RangePlace) -> RangeResult:
    """Return what becomes of the rows of a range whose tokens are in the store.

    Raises:
        DataError: for a bad row, when the recipe says `on_bad_row: error`, an over-long one with `over_long: error`, or
            one that the template garbles with `on_lost_content: error`.
        StoreError: when the token file is not whole.
    """
    index = read_token_index(place.token_file)
    judgement = settings.policy.judge(index.stored_lengths, index.num_learned)
    cut, drops = _cut(settings.policy, place.token_file, index, np.flatnonzero(judgement.needs_cut))
    drops += _stored_drops(settings.policy, index, judgement.codes)
    drops.sort(key=lambda drop: drop.row_offset)
    _refuse_bad_rows(settings, place, drops)
    is_cut = np.zeros(len(index.stored_lengths), dtype=np.bool_)
    is_cut[list(cut)] = True
    is_kept = (judgement.codes == 0) & (is_cut == judgement.needs_cut)
    indices = np.arange(len(is_cut), dtype=np.int32)
    cut_file = None
    if cut:
        cut_file = settings.folder / f"{settings.split}-{place.file_index:06d}-{place.first_row}.cut"
        shorter = _written_cut(cut_file, list(cut.values()), settings.policy.eos_token_id)
        indices[is_cut] = np.arange(len(cut))
        index.stored_lengths[is_cut], index.num_trained[is_cut] = shorter.stored_lengths, shorter.num_trained
    is_aside = _is_set_aside(settings, place, index.row_offsets)
    drop_is_aside = _is_set_aside(settings, place, np.array([drop.row_offset for drop in drops], dtype=np.int64))
    losses = _stored_losses(index, is_kept)
    loss_is_aside = _is_set_aside(settings, place, np.array([loss.row_offset for loss in losses], dtype=np.int64))
    parts = {}
    for name in settings.splits:
        chosen = is_kept & (is_aside == (name != settings.split))
        dropped = [drops[at] for at in np.flatnonzero(drop_is_aside == (name != settings.split)).tolist()]
        lost = [losses[at] for at in np.flatnonzero(loss_is_aside == (name != settings.split)).tolist()]
        parts[name] = RangePart(
            is_cut=is_cut[chosen],
            indices=indices[chosen],
            stored_lengths=index.stored_lengths[chosen],
            row_offsets=index.row_offsets[chosen],
            num_rows=int(chosen.sum()) + len(dropped),
            num_trained=index.num_trained[chosen],
            drops=dict(Counter(drop.reason for drop in dropped)),
            examples=first_of_each((_as_drop(place, drop) for drop in dropped), "reason"),
            ledger=_written_ledger(settings, place, name, dropped, "reason"),
            losses=dict(Counter(loss.kind for loss in lost)),
            loss_examples=first_of_each((_as_lost(place, loss) for loss in lost), "kind"),
            loss_ledger=_written_ledger(settings, place, name, lost, "kind"),
        )
    return RangeResult(
        place=place, parts=parts, cut_file=cut_file, num_rows=index.num_rows, num_blank_lines=index.num_blank_lines
    )


def first_of_each[Item: (Drop, LostContent)](items: Iterable[Item], field: str) -> tuple[Item, ...]:
    """Return the first few items of each value of a field, in their order."""
    seen: Counter[str] = Counter()
    examples = []
    for item in items:
        value = getattr(item, field)
        seen[value] += 1
        if seen[value] <= _EXAMPLES_PER_REASON:
            examples.append(item)
    return tuple(examples)


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
) -> tuple[dict[int, tuple[TokenArray, MaskArray]], list[RowDrop]]:
    """Return position -> ids and mask of sequences after cutting, and those of which nothing can be trained on."""
    cut, drops, arrays = {}, [], token_arrays(token_file)
    for position in positions.tolist():
        result = policy.cut(*arrays.sequence(position), int(index.num_context[position]))
        if isinstance(result, RowError):
            drops.append(RowDrop(int(index.row_offsets[position]), str(result.reason), result.detail))
        else:
            cut[position] = result
    return cut, drops


def _written_cut(path: Path, sequences: Sequence[tuple[TokenArray, MaskArray]], eos_token_id: int) -> TokenIndex:
    ids, masks = zip(*sequences, strict=True)
    nowhere = np.full(len(sequences), -1)
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


def _stored_losses(index: TokenIndex, is_kept: npt.NDArray[np.bool_]) -> list[RowLoss]:
    """Return the losses of a token file's rows that stay."""
    is_of_kept = np.isin(index.loss_rows, index.row_offsets[is_kept])
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
        if drop.reason in advices or settings.stops_at_bad_rows:
            where = f"{place.label} row {place.first_row + drop.row_offset}"
            advice = advices.get(drop.reason, _BAD_ROW_ADVICE)
            raise DataError(f"{where}: {drop.reason}: {drop.detail}. {advice}")


def _as_drop(place: RangePlace, drop: RowDrop) -> Drop:
    row, reason = place.first_row + drop.row_offset, DropReason(drop.reason)
    return Drop(file_index=place.file_index, row=row, reason=reason, detail=drop.detail)


def _as_lost(place: RangePlace, loss: RowLoss) -> LostContent:
    row, kind = place.first_row + loss.row_offset, LostKind(loss.kind)
    return LostContent(file_index=place.file_index, row=row, kind=kind, detail=loss.detail)


def _written_ledger(
    settings: FinishSettings, place: RangePlace, split: str, notes: Sequence[RowDrop | RowLoss], field: str
) -> Path | None:
    """Write a line for each drop or loss, whose reason or kind is in `field`, and return the file."""
    if not notes:
        return None
    path = settings.folder / f"{settings.split}-{place.file_index:06d}-{place.first_row}-{split}-{field}.jsonl"
    with path.open("w", encoding="utf-8") as stream:
        for offset, kind, detail in notes:
            row = place.first_row + offset
            line = {"split": split, "file": place.label, "row": row, field: kind, "detail": detail}
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    return path
