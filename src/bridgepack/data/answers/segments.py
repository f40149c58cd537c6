"""Answers as a table of segments, in tokens; the loss mask is made of it, last."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bridgepack.geometry import IntArray
from bridgepack.records import MaskArray


class Kind(IntEnum):
    """What a segment is to its answer."""

    HEADER = 0  #: what the template writes before it; not trained
    TEXT = 1  #: what the assistant says: thoughts, text and calls
    END = 2  #: the end that the model learns to write


#: Message of a segment that is no answer's, or where nobody asks.
NO_ANSWER = -1


class Segment(NamedTuple):
    """Consecutive tokens of one answer."""

    row: int
    message: int  #: position of the answer in its conversation; `NO_ANSWER` if unknown
    kind: Kind
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Segments:
    """Segments of several conversations, ascending, none of which overlap; arrays of shape [num_segments]."""

    row: IntArray  #: position of the conversation in its batch
    message: IntArray
    kind: IntArray
    start: IntArray  #: in tokens of the batch
    stop: IntArray

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> Self:
        """Return segments as a table, without those that have no tokens."""
        ascending = sorted((item for item in segments if item.start < item.stop), key=lambda item: item.start)
        columns = np.array(ascending, dtype=np.int64).reshape(-1, len(fields(cls))).T
        return cls(**{item.name: column for item, column in zip(fields(cls), columns, strict=True)}).check()

    @classmethod
    def one_text_each(cls, offsets: IntArray) -> Self:
        """Return each conversation as one text that is no answer's; `offsets` have shape [num_conversations + 1]."""
        rows, start, stop = np.arange(len(offsets) - 1), offsets[:-1], offsets[1:]
        columns = {"message": np.full(len(rows), NO_ANSWER), "kind": np.full(len(rows), Kind.TEXT)}
        return cls(row=rows, start=start, stop=stop, **columns).only(start < stop).check()

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Return several tables as one, ascending."""
        columns = {item.name: np.concatenate([getattr(part, item.name) for part in parts]) for item in fields(cls)}
        order = np.argsort(columns["start"], kind="stable")
        return cls(**{name: column[order] for name, column in columns.items()}).check()

    def only(self, is_kept: npt.NDArray[np.bool_]) -> Self:
        """Return the segments that are kept."""
        return replace(self, **{item.name: getattr(self, item.name)[is_kept] for item in fields(self)})

    def move(self, rows: Sequence[int], shifts: IntArray) -> Self:
        """Return segments with other rows, and with starts that are shifted; both shapes [num_conversations].

        They may be out of order.
        """
        shift = shifts[self.row]
        return replace(self, row=np.array(rows)[self.row], start=self.start + shift, stop=self.stop + shift)

    def answers_of(self, row: int) -> list[Segment]:
        """Return what each answer of a conversation says, with its end."""
        answers: list[Segment] = []
        for item in (item for item in self.of_row(row) if item.kind != Kind.HEADER):
            last = answers[-1] if answers and answers[-1].stop == item.start else None
            if last and (item.kind == Kind.END or item.message == last.message != NO_ANSWER):
                answers[-1] = last._replace(stop=item.stop)
            else:
                answers.append(item)
        return answers

    def of_row(self, row: int) -> list[Segment]:
        """Return the segments of one conversation."""
        first, stop = np.searchsorted(self.row, (row, row + 1))
        columns = (getattr(self, item.name)[first:stop].tolist() for item in fields(self))
        return list(map(Segment._make, zip(*columns, strict=True)))

    def without(self, spans: Iterable[tuple[int, int]]) -> Self:
        """Return segments without some tokens, each (start, stop) in tokens of the batch."""
        starts, stops = np.array([span for span in spans if span[0] < span[1]], dtype=np.int64).reshape(-1, 2).T
        if not len(starts) or not len(self.start):
            return self
        edges = np.concatenate((starts, stops))
        owner = np.searchsorted(self.start, edges, side="right") - 1
        edges = edges[(owner >= 0) & (self.start[owner] < edges) & (edges < self.stop[owner])]
        start = np.unique(np.concatenate((self.start, edges)))
        owner = np.searchsorted(self.start, start, side="right") - 1
        stop = np.minimum(self.stop[owner], np.append(start[1:], self.stop[-1:]))
        pieces = replace(
            self, row=self.row[owner], message=self.message[owner], kind=self.kind[owner], start=start, stop=stop
        )
        num_begun, num_ended = (np.searchsorted(np.sort(edge), start, side="right") for edge in (starts, stops))
        return pieces.only(num_begun == num_ended)

    def mask(self, num_tokens: int) -> MaskArray:
        """Return the token-aligned mask of so many tokens: 1 in texts and ends."""
        steps = np.zeros(num_tokens + 1, dtype=np.int8)
        is_trained = self.kind != Kind.HEADER
        np.add.at(steps, self.start[is_trained], 1)
        np.add.at(steps, self.stop[is_trained], -1)
        return np.cumsum(steps[:-1], dtype=np.int8)

    def check(self) -> Self:
        """Return the table, which must be ascending without overlaps."""
        assert (self.start < self.stop).all()
        assert (self.stop[:-1] <= self.start[1:]).all()
        return self
