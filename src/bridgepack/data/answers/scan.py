"""Scans tokens for the markers of turns, and finds the assistant's where these tell.

A scan stops at every token that opens a turn, whoever's it is. It differs from Megatron-Bridge's where that trains
another role's text, or leaves an answer untrained: there a scan stops only at the roles it knows, and skips an answer
without an end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bridgepack.data.templates.markers import TurnMarkers
from bridgepack.data.tokenizers.engines import FlatIds
from bridgepack.geometry import IntArray
from bridgepack.records import ASSISTANT, TokenArray

BoolArray = npt.NDArray[np.bool_]


class ScannedTurns(NamedTuple):
    """The assistant's turns of the texts whose markers match their roles; arrays of shape [num_turns], ascending."""

    text: IntArray
    header: IntArray  #: first token of the start marker
    content: IntArray
    end: IntArray  #: first token of the end marker; without one, where the next turn or the text ends
    stop: IntArray
    is_found: BoolArray  #: shape [num_texts], the markers match the roles
    is_open: BoolArray  #: shape [num_texts], the last turn is the assistant's and has no end but the text's


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


def scan_turns(flat: FlatIds, markers: TurnMarkers, num_assistant_turns: IntArray) -> ScannedTurns:
    """Return the assistant's turns; the turns' own texts must have no marker.

    `num_assistant_turns` are assistant messages per conversation, shape [num_texts]. A turn without an end is found
    only if the text ends with it, because another turn's text could stand before the next start that is known.
    """
    ids, offsets = flat
    num_texts = len(offsets) - 1
    starts = _find_starts(ids, offsets, markers)
    if markers.more_starts:  # without assistant starts that another start or the text's end directly follows
        starts = starts.only(~starts.is_assistant | (starts.content < _limits(starts, offsets)))
    if markers.joins_starts:  # without assistant starts that directly follow another one
        is_again = np.zeros(len(starts.position), dtype=np.bool_)
        is_again[1:] = starts.is_assistant[1:] & starts.is_assistant[:-1] & (starts.text[1:] == starts.text[:-1])
        starts = starts.only(~is_again)
    turn = np.flatnonzero(starts.is_assistant)
    text = starts.text[turn]
    count = np.bincount(text, minlength=num_texts)
    content, limit, stop = starts.content[turn], _limits(starts, offsets)[turn], offsets[text + 1]
    first, after, num_ends = _ends(ids, markers, content, limit)
    _end_at_next_start(ids, markers, (limit, stop), (first, after, num_ends))
    if not markers.ends:
        first, after, num_ends = limit, limit, (limit > content).astype(np.int64)
    is_open = (num_ends == 0) & (limit == stop) & bool(markers.ends)
    is_unclear = np.bincount(text[(num_ends != 1) & ~is_open], minlength=num_texts) > 0
    is_found = (count == num_assistant_turns) & (count > 0) & ~is_unclear
    has_open = np.bincount(text[is_open], minlength=num_texts) > 0
    is_kept = is_found[text]
    return ScannedTurns(
        text=text[is_kept],
        header=starts.position[turn][is_kept],
        content=content[is_kept],
        end=np.where(is_open, stop, first)[is_kept],
        stop=np.where(is_open, stop, after)[is_kept],
        is_found=is_found,
        is_open=has_open,
    )


def find_all(ids: TokenArray, pattern: Sequence[int], begins: IntArray | None = None) -> IntArray:
    """Return every position of a pattern, ascending: [1, 2, 1, 2], pattern [1, 2] -> [0, 2].

    `begins` are the positions of its first token, if they are known.
    """
    if not 0 < len(pattern) <= len(ids):
        return np.empty(0, dtype=np.int64)
    positions = np.flatnonzero(ids == pattern[0]) if begins is None else begins
    positions = positions[positions <= len(ids) - len(pattern)]
    for index, token in enumerate(pattern[1:], 1):
        positions = positions[ids[positions + index] == token]
    return positions


def _find_starts(ids: TokenArray, offsets: IntArray, markers: TurnMarkers) -> _Starts:
    """Return every start; of those at one position the longest, of equally long ones the first."""
    positions, lengths, assistant = [], [], []
    for first in dict.fromkeys(marker[0] for _, marker in markers.all_starts):
        begins = find_all(ids, (first,))
        length, is_assistant = np.zeros(len(begins), dtype=np.int64), np.zeros(len(begins), dtype=np.bool_)
        for role, marker in markers.all_starts:
            if marker[0] != first:
                continue
            matches = find_all(ids, marker, begins)
            if len(marker) > 1:
                is_within = matches + len(marker) <= offsets[np.searchsorted(offsets, matches, side="right")]
                matches = _not_overlapping(matches[is_within], marker)
            place = np.searchsorted(begins, matches)
            place = place[length[place] < len(marker)]
            length[place], is_assistant[place] = len(marker), role == ASSISTANT
        positions.append(begins[length > 0])
        lengths.append(length[length > 0])
        assistant.append(is_assistant[length > 0])
    position = np.concatenate(positions)
    order = np.argsort(position)
    return _Starts(
        position=position[order],
        content=(position + np.concatenate(lengths))[order],
        text=np.searchsorted(offsets, position[order], side="right") - 1,
        is_assistant=np.concatenate(assistant)[order],
    )


def _not_overlapping(positions: IntArray, marker: Sequence[int]) -> IntArray:
    """Return positions without those inside an earlier marker: [0, 2] -> [0] for [1, 2, 1] in 1 2 1 2 1."""
    if not any(marker[:size] == marker[-size:] for size in range(1, len(marker))):
        return positions
    starts: list[int] = []
    for position in positions.tolist():
        if not starts or position >= starts[-1] + len(marker):
            starts.append(position)
    return np.array(starts, dtype=np.int64)


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

    If starts are joined, the last end marker counts, as 1.
    """
    end = np.full(len(content), -1, dtype=np.int64)
    after = np.full(len(content), -1, dtype=np.int64)
    num_ends = np.zeros(len(content), dtype=np.int64)
    for marker in markers.ends:
        positions = np.concatenate(([-1], find_all(ids, marker)))
        stop = np.searchsorted(positions, limit - len(marker), side="right")
        num, place = stop - np.searchsorted(positions, content, side="left"), positions[stop - 1]
        num_ends += np.where((num == 1) & (place == end), 0, np.maximum(num, 0))
        is_new = (num > 0) & (place > end if markers.joins_starts else end < 0)
        end[is_new], after[is_new] = place[is_new], place[is_new] + len(marker)
    return end, after, np.where(end >= 0, 1, 0) if markers.joins_starts else np.minimum(num_ends, 2)


def _end_at_next_start(
    ids: TokenArray,
    markers: TurnMarkers,
    bounds: tuple[IntArray, IntArray],
    ends: tuple[IntArray, IntArray, IntArray],
) -> None:
    """Give turns without an end, in place, that of an end marker which also starts the next turn, like GLM's user turn.

    `bounds` are each turn's limit and its text's end; `ends` are what `_ends` returns.
    """
    (limit, stop), (end, after, num_ends) = bounds, ends
    turns = np.flatnonzero(num_ends == 0)
    for marker in markers.ends if len(turns) else ():
        turns = turns[num_ends[turns] == 0]
        matches = turns[limit[turns] + len(marker) <= stop[turns]]
        for index, token in enumerate(marker):
            matches = matches[ids[limit[matches] + index] == token]
        end[matches], after[matches], num_ends[matches] = limit[matches], limit[matches] + len(marker), 1
