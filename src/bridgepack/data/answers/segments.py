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


class Segment(NamedTuple):
    """Consecutive tokens of one answer."""

    row: int
    message: int  #: position of the answer in its conversation
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
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Return several tables as one, ascending."""
        columns = {item.name: np.concatenate([getattr(part, item.name) for part in parts]) for item in fields(cls)}
        order = np.argsort(columns["start"], kind="stable")
        return cls(**{name: column[order] for name, column in columns.items()}).check()

    @property
    def columns(self) -> list[list[int]]:
        """Each column as a list."""
        return [getattr(self, item.name).tolist() for item in fields(self)]

    def only(self, is_kept: npt.NDArray[np.bool_]) -> Self:
        """Return the segments that are kept."""
        return replace(self, **{item.name: getattr(self, item.name)[is_kept] for item in fields(self)})

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
