"""Finds the turns of many rendered conversations at once by their markers, with array operations."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bridgepack.data.sequences.markers import ASSISTANT, TurnMarkers
from bridgepack.data.tokenizers.engines import FlatIds
from bridgepack.geometry import IntArray
from bridgepack.records import MaskArray, TokenArray

BoolArray = npt.NDArray[np.bool_]


class ScannedTurns(NamedTuple):
    """Result of scanning several conversations."""

    mask: MaskArray  #: shape [num_tokens], int8, 1 at the assistant's tokens; all 0 in texts where `is_found` is false
    is_found: BoolArray  #: shape [num_texts], the markers match the roles
    #: shape [num_texts], there is exactly one assistant marker, and no turn begins after it
    ends_with_only_answer: BoolArray


@dataclass(frozen=True, kw_only=True, slots=True)
class _Starts:
    """Turn markers by position; arrays of shape [num_starts]."""

    position: IntArray
    content: IntArray
    text: IntArray
    is_assistant: BoolArray

    def only(self, is_kept: BoolArray) -> Self:
        """Return those that are kept."""
        return replace(self, **{item.name: getattr(self, item.name)[is_kept] for item in fields(self)})


def scan_turns(
    flat: FlatIds, markers: TurnMarkers, num_assistant_turns: IntArray, *, includes_content: bool = True
) -> ScannedTurns:
    """Return the assistant's turns, as Megatron-Bridge's scan finds them; the turns' own texts must have no marker.

    Args:
        flat: tokens of the conversations.
        markers: texts around turns.
        num_assistant_turns: shape [num_texts], assistant messages per conversation.
        includes_content: False sets only end markers to 1, for templates that mark the content themselves.
    """
    ids, offsets = flat
    num_texts = len(offsets) - 1
    starts = _find_starts(ids, offsets, markers)
    if markers.more_starts:
        starts = _without_empty(starts, offsets)
    if markers.joins_starts:
        starts = _joined_starts(starts)
    turn = np.flatnonzero(starts.is_assistant)
    text = starts.text[turn]
    count = np.bincount(text, minlength=num_texts)
    first, after, num_ends = _ends(ids, markers, starts.content[turn], _limits(starts, offsets)[turn])
    is_ambiguous = np.bincount(text[num_ends > 1], minlength=num_texts) > 0
    has_turn = np.bincount(text[num_ends == 1], minlength=num_texts) > 0
    is_found = (count == num_assistant_turns) & (count > 0) & ~is_ambiguous & has_turn
    kept = (num_ends == 1) & is_found[text]
    last_of_text = np.full(num_texts, -1, dtype=np.int64)
    last_of_text[starts.text] = np.arange(len(starts.text))
    is_last = np.zeros(num_texts, dtype=np.bool_)
    is_last[text] = last_of_text[text] == turn
    begin = starts.content[turn] if includes_content else first
    return ScannedTurns(_spans_to_mask(begin[kept], after[kept], len(ids)), is_found, is_last & (count == 1))


def find_all(ids: TokenArray, pattern: Sequence[int]) -> IntArray:
    """Return every position of a pattern, ascending: [1, 2, 1, 2], pattern [1, 2] -> [0, 2]."""
    if not 0 < len(pattern) <= len(ids):
        return np.empty(0, dtype=np.int64)
    found = np.flatnonzero(ids[: len(ids) - len(pattern) + 1] == pattern[0])
    for index, token in enumerate(pattern[1:], 1):
        found = found[ids[found + index] == token]
    return found


def _find_starts(ids: TokenArray, offsets: IntArray, markers: TurnMarkers) -> _Starts:
    positions, lengths, ranks, assistant = [], [], [], []
    for rank, (role, marker) in enumerate(markers.all_starts):
        found = find_all(ids, marker)
        is_within = found + len(marker) <= offsets[np.searchsorted(offsets, found, side="right")]
        found = _not_overlapping(found[is_within], marker)
        positions.append(found)
        lengths.append(np.full(len(found), len(marker)))
        ranks.append(np.full(len(found), rank))
        assistant.append(np.full(len(found), role == ASSISTANT))
    position, length = np.concatenate(positions), np.concatenate(lengths)
    order = np.lexsort((np.concatenate(ranks), -length, position))
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = position[order][1:] != position[order][:-1]
    order = order[is_first]
    return _Starts(
        position=position[order],
        content=(position + length)[order],
        text=np.searchsorted(offsets, position[order], side="right") - 1,
        is_assistant=np.concatenate(assistant)[order].astype(np.bool_),
    )


def _joined_starts(starts: _Starts) -> _Starts:
    """Return starts without assistant starts that directly follow another assistant start."""
    is_again = np.zeros(len(starts.position), dtype=np.bool_)
    is_again[1:] = starts.is_assistant[1:] & starts.is_assistant[:-1] & (starts.text[1:] == starts.text[:-1])
    return starts.only(~is_again)


def _without_empty(starts: _Starts, offsets: IntArray) -> _Starts:
    """Return starts without assistant starts that are directly followed by another start or the text's end."""
    return starts.only(~starts.is_assistant | (starts.content < _limits(starts, offsets)))


def _not_overlapping(positions: IntArray, marker: Sequence[int]) -> IntArray:
    """Return positions without those inside an earlier marker: [0, 2] -> [0] for [1, 2, 1] in 1 2 1 2 1."""
    if not any(marker[:size] == marker[-size:] for size in range(1, len(marker))):
        return positions
    kept: list[int] = []
    for position in positions.tolist():
        if not kept or position >= kept[-1] + len(marker):
            kept.append(position)
    return np.array(kept, dtype=np.int64)


def _limits(starts: _Starts, offsets: IntArray) -> IntArray:
    """Return the upper limit of each turn's end: the next turn's start, or the text's end."""
    limit: IntArray = offsets[starts.text + 1].copy()
    is_inner = starts.text[1:] == starts.text[:-1]
    limit[:-1][is_inner] = starts.position[1:][is_inner]
    return limit


def _ends(
    ids: TokenArray, markers: TurnMarkers, content: IntArray, limit: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return for each turn its end marker's start, its stop, and the number of end markers (2 means two or more).

    If starts are joined, the last end marker counts, as 1; 2 if there is none.
    """
    end = np.full(len(content), -1, dtype=np.int64)
    after = np.full(len(content), -1, dtype=np.int64)
    num_ends = np.zeros(len(content), dtype=np.int64)
    for marker in markers.ends:
        found = np.concatenate(([-1], find_all(ids, marker)))
        stop = np.searchsorted(found, limit - len(marker), side="right")
        num, place = stop - np.searchsorted(found, content, side="left"), found[stop - 1]
        num_ends += np.where((num == 1) & (place == end), 0, np.maximum(num, 0))
        is_new = (num > 0) & (place > end if markers.joins_starts else end < 0)
        end[is_new], after[is_new] = place[is_new], place[is_new] + len(marker)
    return end, after, np.where(end >= 0, 1, 2) if markers.joins_starts else np.minimum(num_ends, 2)


def _spans_to_mask(starts: IntArray, stops: IntArray, num_tokens: int) -> MaskArray:
    """Return a mask with ones in spans, which must not overlap: [(1, 3)] of 4 -> [0, 1, 1, 0]."""
    steps = np.zeros(num_tokens + 1, dtype=np.int8)
    np.add.at(steps, starts, 1)
    np.add.at(steps, stops, -1)
    mask: MaskArray = np.cumsum(steps[:-1], dtype=np.int8)
    return mask
