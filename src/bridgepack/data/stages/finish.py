"""A range's whole sequences in the light of the recipe's sizes and splits: what is kept, cut, set aside and dropped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.data.sequences.over_long import REASONS, OverLongPolicy
from bridgepack.data.stages.validation_split import is_set_aside
from bridgepack.data.store.token_file import Int32Array, TokenFiles, TokenIndex, read_token_index, write_token_file
from bridgepack.errors import DataError, RowError
from bridgepack.records import VALIDATION, Drop, DropReason
from bridgepack.records.token_batches import token_counts

#: Drops of each reason that the manifest shows.
EXAMPLES_PER_REASON = 5
_OVER_LONG_ADVICE = (
    "Raise packing.max_sequence_length and packed_sequence_size, or set preprocessing.over_long to drop or truncate."
)
_BAD_ROW_ADVICE = "Correct the row, or set data.on_bad_row to drop."


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishSettings:
    """What acts on a split's sequences after they were tokenised.

    Attributes:
        policy: for sequences that are too long.
        split: name of the split that the files are of.
        validation_fraction: of the rows (0-1), set aside for validation; 0 where the split is not parted.
        seed: of the build.
        stops_at_bad_rows: a row that gives no sequence stops the build.
        folder: of the build, for sequences that were cut and for parts of the ledger.
    """

    policy: OverLongPolicy
    split: str
    validation_fraction: float
    seed: int
    stops_at_bad_rows: bool
    folder: Path

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that the rows go to."""
        return (self.split, VALIDATION) if self.validation_fraction > 0 else (self.split,)


@dataclass(frozen=True, kw_only=True, slots=True)
class RangePlace:
    """Where a range's rows come from.

    Attributes:
        position: of the range among all ranges of the split's files.
        file_index: of its file.
        label: what the ledger calls the file.
        first_row: 1-based number of its first row.
    """

    position: int
    file_index: int
    label: str
    first_row: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RangePart:
    """The rows of a range that go to one split; arrays are in row order, shape [num_sequences].

    Attributes:
        is_cut: bool, the sequence was cut, and lies in the file of cut sequences.
        indices: int32, position in its file.
        stored_lengths: int32, stored.
        row_offsets: int32, 0-based row within the range.
        num_rows: rows read, drops included.
        num_trained: ones of the label-aligned masks.
        drops: reason -> drops, in the order in which the reasons first occur.
        examples: the first few drops of each reason.
        ledger: file with a line for every drop; None where there is none.
    """

    is_cut: npt.NDArray[np.bool_]
    indices: Int32Array
    stored_lengths: Int32Array
    row_offsets: Int32Array
    num_rows: int
    num_trained: int
    drops: Mapping[str, int]
    examples: tuple[Drop, ...]
    ledger: Path | None


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedRange:
    """What became of a range's rows.

    Attributes:
        parts: split -> its rows.
        cut_file: sequences that were cut; None where there is none.
        num_rows: rows read, drops included.
        num_blank_lines: lines without anything on them.
    """

    parts: Mapping[str, RangePart]
    cut_file: Path | None
    num_rows: int
    num_blank_lines: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cuts:
    """Sequences that were cut; arrays have shape [num_cut].

    Attributes:
        path: file with their tokens; None where there is none.
        sequences: positions in the range's file.
        stored_lengths: after cutting.
        num_trained: after cutting.
        drops: (position in the range's file, error) of those of which nothing can be trained on.
    """

    path: Path | None
    sequences: npt.NDArray[np.intp]
    stored_lengths: npt.NDArray[Any]
    num_trained: npt.NDArray[Any]
    drops: Sequence[tuple[int, RowError]]


def finish_range(settings: FinishSettings, place: RangePlace, token_file: Path) -> FinishedRange:
    """Return what becomes of a range's rows.

    Raises:
        DataError: for a bad row, when the recipe says `on_bad_row: error`, or an over-long one with `over_long: error`.
        StoreError: when the token file is not whole.
    """
    index = read_token_index(token_file)
    judgement = settings.policy.judge(index.stored_lengths, index.num_learned)
    cuts = _cut(settings, place, token_file, index, np.flatnonzero(judgement.needs_cut))
    drops = _Drops(settings, place, index, judgement.codes, cuts)
    drops.refuse_bad_rows()
    is_kept = (judgement.codes == 0) & ~judgement.needs_cut
    is_kept[cuts.sequences] = True
    kept = np.flatnonzero(is_kept)
    is_cut = np.isin(kept, cuts.sequences, assume_unique=True)
    indices, lengths, trained = kept.copy(), index.stored_lengths[kept], index.num_trained[kept]
    indices[is_cut] = np.arange(len(cuts.sequences))
    lengths[is_cut], trained[is_cut] = cuts.stored_lengths, cuts.num_trained
    row_offsets = index.row_offsets[kept]
    parts = {}
    for name in settings.splits:
        chosen = _belongs(settings, place, row_offsets, name)
        dropped = drops.of_split(name)
        parts[name] = RangePart(
            is_cut=is_cut[chosen],
            indices=indices[chosen].astype(np.int32),
            stored_lengths=lengths[chosen],
            row_offsets=row_offsets[chosen],
            num_rows=int(chosen.sum()) + len(dropped),
            num_trained=int(trained[chosen].sum()),
            drops=drops.counts(dropped),
            examples=drops.examples(dropped),
            ledger=drops.write(name, dropped),
        )
    return FinishedRange(
        parts=parts, cut_file=cuts.path, num_rows=index.num_rows, num_blank_lines=index.num_blank_lines
    )


def _belongs(
    settings: FinishSettings, place: RangePlace, row_offsets: npt.NDArray[Any], split: str
) -> npt.NDArray[np.bool_]:
    """Return which rows of a range go to a split."""
    rows = row_offsets.astype(np.int64) + place.first_row
    is_aside = is_set_aside(place.file_index, rows, fraction=settings.validation_fraction, seed=settings.seed)
    return is_aside if settings.validation_fraction > 0 and split == VALIDATION else ~is_aside


def _cut(
    settings: FinishSettings, place: RangePlace, token_file: Path, index: TokenIndex, wanted: npt.NDArray[np.intp]
) -> _Cuts:
    """Cut sequences that are too long, into a file of their own."""
    ids, masks, sequences, drops = [], [], [], []
    files = TokenFiles([token_file])
    for position in wanted.tolist():
        tokens, mask = files.tokens(0, position)
        result = settings.policy.cut(tokens, mask, int(index.num_context[position]))
        if isinstance(result, RowError):
            drops.append((position, result))
        else:
            sequences.append(position)
            ids.append(result[0])
            masks.append(result[1])
    lengths = np.array([len(item) for item in ids], dtype=np.int64)
    counts = np.empty(0, dtype=np.int64)
    path = None
    if sequences:
        path = settings.folder / f"{settings.split}-{place.position:06d}.cut"
        counts = _write_cut(path, np.concatenate(ids), np.concatenate(masks), lengths, settings.policy.eos_token_id)
    return _Cuts(
        path=path,
        sequences=np.array(sequences, dtype=np.intp),
        stored_lengths=lengths,
        num_trained=counts,
        drops=drops,
    )


def _write_cut(path: Path, ids: Any, mask: Any, lengths: Any, eos_token_id: int) -> Any:
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    trained, learned = token_counts(ids, mask, offsets, eos_token_id)
    nowhere = np.full(len(lengths), -1)
    with write_token_file(path) as writer:
        writer.add_sequences(
            ids,
            mask,
            stored_lengths=lengths,
            row_offsets=nowhere,
            num_trained=trained,
            num_learned=learned,
            num_context=nowhere,
        )
    return trained


class _Drops:
    """All drops of a range in row order: those of the token file, and those that follow from the recipe's sizes."""

    def __init__(
        self, settings: FinishSettings, place: RangePlace, index: TokenIndex, codes: npt.NDArray[Any], cuts: _Cuts
    ) -> None:
        self._settings = settings
        self._place = place
        self._index = index
        self._kinds: list[tuple[str, str]] = list(index.kinds)
        by_size = np.flatnonzero(codes)
        kinds = [self._kind_of(int(codes[item]), int(index.stored_lengths[item])) for item in by_size.tolist()]
        after_cut = [self._kind(error.reason, error.detail) for _, error in cuts.drops]
        rows = [
            index.drop_rows,
            index.row_offsets[by_size],
            index.row_offsets[[item for item, _ in cuts.drops]],
        ]
        unsorted_rows = np.concatenate(rows)
        order = np.argsort(unsorted_rows, kind="stable")
        self._rows = unsorted_rows[order]
        self._kind_numbers = np.concatenate([index.drop_kinds, np.array([*kinds, *after_cut], dtype=np.int32)])[order]

    def refuse_bad_rows(self) -> None:
        """Stop at the first drop that the recipe does not allow.

        Raises:
            DataError: naming it.
        """
        stops_at_over_long = self._settings.policy.action == "error"
        if not (self._settings.stops_at_bad_rows or stops_at_over_long):
            return
        for row, number in zip(self._rows.tolist(), self._kind_numbers.tolist(), strict=True):
            reason, detail = self._kinds[number]
            is_over_long = reason == DropReason.OVER_LONG and stops_at_over_long
            if is_over_long or self._settings.stops_at_bad_rows:
                advice = _OVER_LONG_ADVICE if is_over_long else _BAD_ROW_ADVICE
                raise DataError(f"{self._place.label} row {self._place.first_row + row}: {reason}: {detail}. {advice}")

    def of_split(self, split: str) -> npt.NDArray[np.intp]:
        """Return which drops belong to a split."""
        return np.flatnonzero(_belongs(self._settings, self._place, self._rows, split))

    def counts(self, chosen: npt.NDArray[np.intp]) -> dict[str, int]:
        """Return reason -> drops, in the order in which the reasons first occur."""
        numbers, first, totals = np.unique(self._kind_numbers[chosen], return_index=True, return_counts=True)
        counts: Counter[str] = Counter()
        for item in np.argsort(first):
            counts[self._kinds[int(numbers[item])][0]] += int(totals[item])
        return dict(counts)

    def examples(self, chosen: npt.NDArray[np.intp]) -> tuple[Drop, ...]:
        """Return the first few drops of each reason, in row order."""
        reasons = sorted({reason for reason, _ in self._kinds})
        of_kind = np.array([reasons.index(reason) for reason, _ in self._kinds], dtype=np.int64)
        found = of_kind[self._kind_numbers[chosen]]
        first = [np.flatnonzero(found == number)[:EXAMPLES_PER_REASON] for number in np.unique(found)]
        return tuple(self._drop(int(chosen[item])) for item in np.sort(np.concatenate([*first, []])).astype(np.intp))

    def write(self, split: str, chosen: npt.NDArray[np.intp]) -> Path | None:
        """Write a line for each drop and return the file."""
        if not len(chosen):
            return None
        path = self._settings.folder / f"{self._settings.split}-{self._place.position:06d}-{split}.jsonl"
        with path.open("w", encoding="utf-8") as stream:
            stream.writelines(self._lines(split, chosen))
        return path

    def _lines(self, split: str, chosen: npt.NDArray[np.intp]) -> Iterator[str]:
        head = _json({"split": split, "file": self._place.label})[:-1]
        tails = [_json({"reason": reason, "detail": detail})[1:] for reason, detail in self._kinds]
        for row, number in zip(self._rows[chosen].tolist(), self._kind_numbers[chosen].tolist(), strict=True):
            yield f'{head}, "row": {self._place.first_row + row}, {tails[number]}\n'

    def _drop(self, position: int) -> Drop:
        reason, detail = self._kinds[int(self._kind_numbers[position])]
        return Drop(
            file_index=self._place.file_index,
            row=self._place.first_row + int(self._rows[position]),
            reason=DropReason(reason),
            detail=detail,
        )

    def _kind_of(self, code: int, stored_length: int) -> int:
        return self._kind(REASONS[code], self._settings.policy.detail(code, stored_length))

    def _kind(self, reason: str, detail: str) -> int:
        self._kinds.append((str(reason), detail))
        return len(self._kinds) - 1


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
