"""Tokenises a range for another maximum length: only the rows that are cut at either length, the others are copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.reading.ranges import InputRange
from bridgepack.data.reading.rows import read_range
from bridgepack.data.store.store import check_stored_tokens, token_origin
from bridgepack.data.store.token_file import TokenArrays, TokenFileWriter, TokenIndex, read_token_index, token_arrays
from bridgepack.data.tasks import Beat
from bridgepack.errors import StoreError
from bridgepack.geometry import IntArray
from bridgepack.records import LostKind, MaskArray, TokenArray
from bridgepack.records.sequences import RowNote, TokenBatch

if TYPE_CHECKING:
    from bridgepack.data.sequences.loading import LoadedStage

#: Sequences that are copied together.
_COPIED = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierTokens:
    """A range's tokens for another maximum sequence length, otherwise made in the same way."""

    token_file: Path
    tokenization: str | None  #: name of that tokenisation in the store; None for tokens that this process just made
    shorter: int  #: the smaller one of both maximum lengths, in runtime tokens
    splits: bool  #: a conversation that is too long became several sequences


class Source(NamedTuple):
    """Where the rows of a range are read."""

    file: InputFile
    part: InputRange


def tokenized_from(
    earlier: EarlierTokens,
    source: Source,
    stage: LoadedStage,
    writer: TokenFileWriter,
    *,
    max_text_bytes: int,
    beat: Beat,
) -> int | None:
    """Return how many rows were copied from a range's earlier tokens, after writing all of the range's rows.

    Tokenised again are the rows that were dropped, cut or split, or that the shorter length may cut: their result may
    depend on the length, that of no other row does.

    Returns:
        None if the earlier tokens cannot be used; nothing was written then.
    """
    try:
        if earlier.tokenization is not None:
            made_of = token_origin(earlier.tokenization, source.part, source.file.view)
            if check_stored_tokens(earlier.token_file) != made_of:
                return None
        index, arrays = read_token_index(earlier.token_file), token_arrays(earlier.token_file)
    except StoreError:
        return None
    again = _rows_to_tokenize(index, earlier)
    first = source.part.first_row
    rows = (item for item in read_range(*source) if item[0] - first in again) if again else ()
    batches = []
    for batch in stage.batches(rows, first_row=first, max_text_bytes=max_text_bytes):
        batches.append(batch)
        beat(sum(part.num_rows for part in batches))
    new_tokens = _join_batches(batches)
    if (index.unread or new_tokens.unread) and _drops(index) != list(new_tokens.drops):
        return None  # other rows count what nobody reads, which a file has only in total
    eos_token_id = stage.tokenizer.eos_token_id
    for batch in _merge(index, arrays, again, new_tokens):
        writer.add(batch, eos_token_id)
    return index.num_rows - len(again)


def _rows_to_tokenize(index: TokenIndex, earlier: EarlierTokens) -> frozenset[int]:
    """Return the rows of a range, 0-based, whose result may be another at the other length."""
    rows, counts = np.unique(index.row_offsets, return_counts=True)
    is_cut = np.array([kind == LostKind.CUT_HISTORY for kind, _ in index.kinds], dtype=np.bool_)
    row_groups = (
        index.drop_rows,
        index.loss_rows[is_cut[index.loss_kinds]],
        rows[(counts > 1) & earlier.splits],
        # an end may be added to a sequence that fits, so one of exactly this length may have been cut
        index.row_offsets[index.stored_lengths > earlier.shorter],
    )
    return frozenset(np.concatenate(row_groups).tolist())


def _drops(index: TokenIndex) -> list[RowNote]:
    pairs = zip(index.drop_rows.tolist(), index.drop_kinds.tolist(), strict=True)
    return [RowNote(row, *index.kinds[kind]) for row, kind in pairs]


def _losses(index: TokenIndex) -> list[RowNote]:
    pairs = zip(index.loss_rows.tolist(), index.loss_kinds.tolist(), strict=True)
    return [RowNote(row, *index.kinds[kind]) for row, kind in pairs]


def _join_batches(batches: Sequence[TokenBatch]) -> TokenBatch:
    """Return batches of consecutive rows as one."""
    lengths = [np.empty(0, np.int64), *(np.diff(batch.offsets) for batch in batches)]
    return TokenBatch(
        input_ids=np.concatenate([np.empty(0, np.int32), *(batch.input_ids for batch in batches)]),
        loss_mask=np.concatenate([np.empty(0, np.int8), *(batch.loss_mask for batch in batches)]),
        offsets=np.concatenate(([0], np.cumsum(np.concatenate(lengths)))),
        row_offsets=np.concatenate([np.empty(0, np.int64), *(batch.row_offsets for batch in batches)]),
        num_context=np.concatenate([np.empty(0, np.int32), *(batch.num_context for batch in batches)]),
        drops=tuple(drop for batch in batches for drop in batch.drops),
        losses=tuple(loss for batch in batches for loss in batch.losses),
        unread=tuple(count for batch in batches for count in batch.unread),
    )


def _merge(
    index: TokenIndex, arrays: TokenArrays, again: frozenset[int], new_tokens: TokenBatch
) -> Iterator[TokenBatch]:
    """Yield the sequences of a range in row order, those of rows in `again` as they are in `new_tokens`."""
    kept_places = np.flatnonzero(~np.isin(index.row_offsets, list(again)))
    old, new = (
        (arrays.input_ids, arrays.loss_mask, arrays.offsets),
        (new_tokens.input_ids, new_tokens.loss_mask, new_tokens.offsets),
    )
    places = [(old, place) for place in kept_places.tolist()] + [
        (new, place) for place in range(len(new_tokens.row_offsets))
    ]
    row_offsets = np.concatenate((index.row_offsets[kept_places], new_tokens.row_offsets)).astype(np.int64)
    num_context = np.concatenate((index.num_context[kept_places], new_tokens.num_context)).astype(np.int64)
    order = np.argsort(row_offsets, kind="stable")
    for first in range(0, len(order), _COPIED):
        chunk = order[first : first + _COPIED]
        ids, masks = zip(*(_sequence(*places[item]) for item in chunk.tolist()), strict=True)
        yield TokenBatch(
            input_ids=np.concatenate(ids),
            loss_mask=np.concatenate(masks),
            offsets=np.concatenate(([0], np.cumsum([len(sequence_ids) for sequence_ids in ids]))),
            row_offsets=row_offsets[chunk],
            num_context=num_context[chunk],
        )
    losses = [loss for loss in _losses(index) if loss.row_offset not in again]
    yield replace(
        _join_batches(()),
        drops=new_tokens.drops,
        losses=tuple(sorted([*losses, *new_tokens.losses], key=lambda loss: loss.row_offset)),
        unread=index.unread or new_tokens.unread,
        num_read=index.num_read,  # the rows are the same
        num_rows=index.num_rows,
        num_blank_lines=index.num_blank_lines,
    )


type _Flat = tuple[TokenArray, MaskArray, IntArray]


def _sequence(flat: _Flat, place: int) -> tuple[TokenArray, MaskArray]:
    ids, mask, offsets = flat
    span = slice(int(offsets[place]), int(offsets[place + 1]))
    return ids[span], mask[span]
