"""Encodes rows of several kinds, each with the encoder of its kind: chats beside documents."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bridgepack.data.answers.segments import Segments
from bridgepack.data.sequences.encoding import Encoder, FlatBatch, Prepared
from bridgepack.errors import RowError
from bridgepack.records.rows import ReadRow


class OfKind(NamedTuple):
    """A prepared row and its kind."""

    kind: str  #: of the layout that read it
    value: Any  #: the `value` of its encoder's `Prepared`


class EncoderOfKinds:
    """Encodes each row with the encoder of its kind, which the layout of its source says."""

    def __init__(self, encoders: Mapping[str, Encoder]) -> None:
        """Take kind -> encoder."""
        self._encoders = encoders

    def prepare(self, row: ReadRow) -> Prepared:
        """Return a row, ready to be encoded; raises RowError if it cannot become a sequence."""
        kind = row.kind
        prepared_row = self._encoders[kind].prepare(row)
        more = tuple(OfKind(kind, value) for value in prepared_row.more)
        return prepared_row._replace(value=OfKind(kind, prepared_row.value), more=more)

    def encode(self, rows: Sequence[OfKind]) -> FlatBatch:
        """Return the tokens and masks of rows, in their order."""
        kinds = dict.fromkeys(row.kind for row in rows)
        if len(kinds) == 1:  # the usual case, as a file has rows of one kind
            (kind,) = kinds
            return self._encoders[kind].encode([row.value for row in rows])
        places = {kind: [index for index, row in enumerate(rows) if row.kind == kind] for kind in kinds}
        batches = {kind: self._encoders[kind].encode([rows[index].value for index in places[kind]]) for kind in kinds}
        return _in_order(len(rows), [(places[kind], batches[kind]) for kind in kinds])


def _in_order(num_rows: int, parts: Sequence[tuple[Sequence[int], FlatBatch]]) -> FlatBatch:
    """Return batches as one; each is given with the positions of its rows in it."""
    lengths, num_context = np.zeros(num_rows, dtype=np.int64), np.full(num_rows, -1, dtype=np.int32)
    for places, batch in parts:
        lengths[places], num_context[places] = np.diff(batch.offsets), batch.num_context
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    input_ids, loss_mask = np.empty(offsets[-1], dtype=np.int32), np.empty(offsets[-1], dtype=np.int8)
    errors: dict[int, RowError] = {}
    segments: list[Segments] = []
    for places, batch in parts:
        segments.append(batch.segments.move(places, offsets[places] - batch.offsets[:-1]))
        errors |= {places[index]: error for index, error in batch.errors.items()}
        for place, positions in zip(places, _slices(batch), strict=True):
            input_ids[offsets[place] : offsets[place + 1]] = batch.input_ids[positions]
            loss_mask[offsets[place] : offsets[place + 1]] = batch.loss_mask[positions]
    return FlatBatch(input_ids, loss_mask, offsets, num_context, errors, Segments.concatenate(segments))


def _slices(batch: FlatBatch) -> Iterator[slice]:
    bounds = batch.offsets.tolist()
    yield from map(slice, bounds[:-1], bounds[1:])
