"""Rows -> batches of uncut sequences as flat arrays."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bridgepack.data.reading.json_rows import Row
from bridgepack.data.reading.rows import RowRead
from bridgepack.data.sequences.encoding import Encoder
from bridgepack.data.tokenizers.templates import TimeLimit
from bridgepack.errors import DataError, RowError
from bridgepack.records import DropReason
from bridgepack.records.sequences import RowDrop, RowLoss, TokenBatch

#: Maximum rows encoded together; more gain nothing.
_BATCH_ROWS = 1024
#: Rows of one range that may take too long; if there are more, the rows are not the cause.
_MAX_SLOW_ROWS = 10


def iter_token_batches(
    encoder: Encoder,
    rows: Iterable[RowRead],
    *,
    first_row: int,
    max_text_bytes: int = 1 << 22,
) -> Iterator[TokenBatch]:
    """Yield the sequences of consecutive rows in batches; the batch limits do not affect them.

    Args:
        encoder: turns rows into tokens.
        rows: from `read_range`.
        first_row: number of the range's first row.
        max_text_bytes: approximate text per batch; a longer row is encoded alone.

    Raises:
        DataError: many rows take too long.
    """
    batch, num_slow = _Pending(), 0
    with TimeLimit() as limit:
        for row, item in rows:
            if item is None:
                batch.num_blank_lines += 1
                continue
            num_slow += batch.add(encoder, row - first_row, item, limit) == DropReason.TIME_OUT
            if num_slow > _MAX_SLOW_ROWS:
                raise DataError(
                    f"{num_slow} rows up to row {row + 1} took too long ({batch.drops[-1].detail}), so the rows are "
                    "not the cause. Correct the template, or set tokenizer.chat_template to another."
                )
            if batch.num_rows >= _BATCH_ROWS or batch.num_characters >= max_text_bytes:
                yield batch.encoded(encoder)
                batch = _Pending()
        if batch.num_rows or batch.num_blank_lines:
            yield batch.encoded(encoder)


class _Pending:
    """Rows collected for one batch."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.row_offsets: list[int] = []
        self.drops: list[RowDrop] = []
        self.losses: list[RowLoss] = []
        self.num_rows = self.num_blank_lines = self.num_characters = 0

    def add(self, encoder: Encoder, offset: int, item: Row | RowError, limit: TimeLimit) -> str:
        """Add a row and return the reason why it is dropped, or an empty text."""
        self.num_rows += 1
        try:
            if isinstance(item, RowError):
                raise item
            prepared = limit(encoder.prepare, item)
        except RowError as error:
            self.drops.append(RowDrop(offset, error.reason, error.detail))
            return error.reason
        self.rows.append(prepared.value)
        self.row_offsets.append(offset)
        self.losses += [RowLoss(offset, *loss) for loss in prepared.losses]
        self.num_characters += prepared.num_characters
        return ""

    def encoded(self, encoder: Encoder) -> TokenBatch:
        """Return the sequences of the rows; rows without a mask or with fewer than two tokens are drops."""
        flat = encoder.encode(self.rows)
        lengths = np.diff(flat.offsets)
        is_kept = lengths >= 2
        is_kept[list(flat.errors)] = False
        for index in np.flatnonzero(~is_kept).tolist():
            too_short = RowError(DropReason.TOO_SHORT, f"{lengths[index]} tokens; next-token loss needs at least 2")
            error = flat.errors.get(index, too_short)
            self.drops.append(RowDrop(self.row_offsets[index], error.reason, error.detail))
        is_kept_token = slice(None) if is_kept.all() else np.repeat(is_kept, lengths)
        return TokenBatch(
            input_ids=flat.input_ids[is_kept_token],
            loss_mask=flat.loss_mask[is_kept_token],
            offsets=np.concatenate(([0], np.cumsum(lengths[is_kept]))),
            row_offsets=np.array(self.row_offsets, dtype=np.int64)[is_kept],
            num_context=flat.num_context[is_kept],
            drops=tuple(sorted(self.drops)),
            losses=tuple(self.losses),
            num_rows=self.num_rows,
            num_blank_lines=self.num_blank_lines,
        )
