"""Regions of the assistant's turns in a rendered text, from where the texts of all turns stand in it.

A render that is the plain one without its marks proves where the texts are, not whose turn they are in: a template may
quote an answer elsewhere, or lose a call and name it in the result's header. So a text counts as its turn's only where
the header of an answer stands before it, with no end of an answer and no other turn's text between them. Markers
inside the texts of turns do no harm, as their places are known.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import NamedTuple

from bridgepack.data.answers.marking import Range, Spot, Text
from bridgepack.data.templates.markers import TurnTexts
from bridgepack.data.tokenizers.texts import common_prefix
from bridgepack.records import ASSISTANT

_TOOL = "tool"


class Region(NamedTuple):
    """What one message of the assistant's says, in characters: from the end of its header to that of its end."""

    message: int
    header: int  #: where its header begins
    start: int
    end: int  #: where its end marker begins; without one, the next turn or the text's end
    stop: int


class UnplaceableError(Exception):
    """It is unknown where an answer is; the message says why."""


class RegionFinder:
    """Finds the regions of one conversation."""

    def __init__(
        self,
        render: str,
        roles: Sequence[str],
        texts: Sequence[Text],
        spots: Sequence[Spot],
        around: TurnTexts,
        end_of_turns: Callable[[int], int] = lambda _: -1,
        render_of_turns: Callable[[int], str | None] = lambda _: None,
    ) -> None:
        """Take the render, the role of each message, and the texts of turns with their places, ascending.

        `render_of_turns` returns the render of the first turns, None if the template rejects them; `end_of_turns` where
        it ends in that of all, -1 if it does not begin it.
        """
        self._render, self._roles, self._texts, self._spots, self._around = render, roles, texts, spots, around
        self._end_of_turns, self._render_of_turns = end_of_turns, render_of_turns
        self._continuations: dict[int, int] = {}
        self._messages = [texts[spot.text].message for spot in spots]
        self._shields = _union_of([*((spot.start, spot.stop) for spot in spots), *_verbatim(render, texts, spots)])
        self._ends = self._places(around.ends)
        self._headers = self._places(around.headers)
        self._header_stops = [stop for _, stop in self._headers]
        #: where a turn begins
        self._bounds = sorted({start for start, _ in (*self._headers, *self._places(around.openers))})

    def find(self) -> list[Region]:
        """Return the region of each of the assistant's messages, ascending.

        Raises:
            UnplaceableError: one has none.
        """
        first_headers: dict[int, Range] = {}
        last_stops: dict[int, int] = {}
        pieces: dict[tuple[int, int], Range] = {}
        elsewhere: list[tuple[int, Spot, int]] = []
        for message, spot, other_start in self._own_spots():
            header = self._header_before(spot.start, other_start) or self._continuation(
                message, spot.start, other_start
            )
            if header is None:
                elsewhere.append((message, spot, other_start))
                continue
            if pieces.get(spot[2:]) == header and self._has_bound(last_stops[message], spot.start):
                continue  # quoted in the header of its result
            # a template may write the name of a call twice in its turn
            if pieces.setdefault(spot[2:], header) != header:
                raise UnplaceableError(f"turn {message + 1} is written twice")
            first_headers.setdefault(message, header)
            last_stops[message] = spot.stop
        for message, spot, other_start in elsewhere:
            if spot[2:] not in pieces and (header := self._header_of_more(message, spot, other_start)) is not None:
                first_headers.setdefault(message, header)
                last_stops[message] = max(spot.stop, last_stops.get(message, 0))
        regions = {index: self._region(index, header, last_stops[index]) for index, header in first_headers.items()}
        regions |= self._silent(regions)
        headers = {region.header for region in regions.values()}
        channels = (self._with_channels(region, headers) for region in regions.values())
        ascending = sorted(channels, key=lambda region: region.start)
        if any(before.stop > after.start for before, after in pairwise(ascending)):
            raise UnplaceableError("two answers overlap")
        return ascending

    def joined_messages(self) -> list[int]:
        """Return the assistant's messages that the next of its messages goes on with, ascending.

        The template writes nothing between them but white space, as Apertus's does of two answers in a row.
        """
        pairs = pairwise(zip(self._spots, self._messages, strict=True))
        return [
            message
            for (spot, message), (behind, after) in pairs
            if after == message + 1
            and self._roles[message : after + 1] == [ASSISTANT, ASSISTANT]
            and not self._render[spot.stop : behind.start].strip()
        ]

    def _own_spots(self) -> Iterator[tuple[int, Spot, int]]:
        """Yield the assistant's messages with each place of their texts, and where the last text of another begins."""
        other_start = -1
        for number, (spot, message) in enumerate(zip(self._spots, self._messages, strict=True)):
            if number and self._messages[number - 1] != message:
                other_start = self._spots[number - 1].start
            if message < len(self._roles) and self._roles[message] == ASSISTANT:
                yield message, spot, other_start

    def _places(self, texts: Iterable[str]) -> list[Range]:
        """Return (start, stop) of texts outside the texts of turns; of those at one place, the first."""
        alternatives = [text for text in texts if text]
        if not alternatives:
            return []
        matches = re.finditer("|".join(map(re.escape, alternatives)), self._render)
        return [match.span() for match in matches if not self._is_in_turn(*match.span())]

    def _is_in_turn(self, start: int, stop: int) -> bool:
        index = bisect_right(self._shields, (start, len(self._render))) - 1
        if index >= 0 and self._shields[index][1] > start:
            return True
        return index + 1 < len(self._shields) and self._shields[index + 1][0] < stop

    def _header_before(self, place: int, other_start: int) -> Range | None:
        """Return the header of the turn that a text begins in; None if it stands elsewhere."""
        index = bisect_right(self._header_stops, place) - 1
        header = self._headers[index] if index >= 0 else None
        return header if header and other_start < header[1] and not self._has_end(header[1], place) else None

    def _header_of_more(self, message: int, spot: Spot, other_start: int) -> Range | None:
        """Return the header of a turn that goes on behind an end, as GigaChat3's with a call; None if it does not.

        The render of the turns up to it shows that. A result that names its call is another turn's.

        Raises:
            UnplaceableError: that render is no part of the text, so it is unknown whose text it is.
        """
        index = bisect_right(self._header_stops, spot.start) - 1
        header = self._headers[index] if index >= 0 else None
        if header is None or header[1] <= other_start:
            return None
        if self._has_bound(header[1], spot.start):
            return None
        end = self._end_of_turns(message + 1)
        if end < 0:
            raise UnplaceableError(f"turn {message + 1} has a text behind its end")
        return header if spot.stop <= end else None

    def _continuation(self, message: int, place: int, other_start: int) -> Range | None:
        """Return the place where an answer to a tool's result begins that has no header; None if there is none.

        Some templates write results into the assistant's turn and go on behind them, as Mistral's and DeepSeek-V3's.
        The answer then begins where the render of the turns before it ends.
        Source: megatron-bridge 0.7, data/conversation_processing.py (_assistant_mask_from_conversation_turns).
        """
        start = self._behind_result(message)
        if not other_start < start <= place:
            start = self._continuations[message] = self._behind_result_words(message, place)
        return (start, start) if other_start < start <= place and not self._has_end(start, place) else None

    def _behind_result_words(self, message: int, place: int) -> int:
        """Return where that ends which the turns before an answer have behind their last words; -1 if unknown.

        A template may write these turns otherwise where more follow: DeepSeek-V3's with other white space, Mistral's
        with the tools' schemas elsewhere.
        """
        number = bisect_left(self._spots, (place, 0, 0, 0)) - 1
        is_result = self._roles[max(message - 1, 0)] == _TOOL
        if number < 0 or not is_result or self._messages[number] >= message:
            return -1
        start, stop = self._spots[number][:2]
        words, before = self._render[start:stop], self._render_of_turns(message)
        if before is None or words not in before:
            return -1
        behind = before.rpartition(words)[2]
        for letter in "".join(behind.split()):
            while stop < place and self._render[stop].isspace():
                stop += 1
            if stop == place or self._render[stop] != letter:
                return -1
            stop += 1
        blanks = behind[len(behind.rstrip()) :]
        if self._render.startswith(blanks, stop, place):
            return stop + len(blanks)
        return stop + common_prefix(blanks, self._render[stop : place - len(self._blanks_before(number + 1))])

    def _blanks_before(self, number: int) -> str:
        """Return the white space before a piece that its own text begins with, if the render has it."""
        start, _, text, piece = self._spots[number]
        blanks = self._texts[text].text[: self._texts[text].pieces[0][0]] if piece == 0 else ""
        return blanks if self._render.endswith(blanks, 0, start) else ""

    def _behind_result(self, message: int) -> int:
        """Return where the render of the turns before an answer to a tool's result ends; -1 if it is none."""
        if message not in self._continuations:
            is_answer_to_tool = self._roles[max(message - 1, 0)] == _TOOL
            self._continuations[message] = self._end_of_turns(message) if is_answer_to_tool else -1
        return self._continuations[message]

    def _has_bound(self, start: int, stop: int) -> bool:
        """Return whether a turn begins between two places."""
        return bisect_left(self._bounds, start) < bisect_left(self._bounds, stop)

    def _has_end(self, start: int, stop: int) -> bool:
        """Return whether an answer ends between two places."""
        index = bisect_left(self._ends, (start, 0))
        return index < len(self._ends) and self._ends[index][1] <= stop

    def _region(self, message: int, header: Range, last: int) -> Region:
        first, stop = (bisect_left(self._spots, (place, 0, 0, 0)) for place in (header[1], last))
        if any(index != message for index in self._messages[first:stop]):
            raise UnplaceableError(f"turn {message + 1} has another turn's text in it")
        return Region(message, *header, *self._end_behind(last, message))

    def _end_behind(self, place: int, message: int) -> Range:
        """Return where the end of a turn begins and stops, whose texts end at a place."""
        index, size = bisect_left(self._spots, (place, 0, 0, 0)), len(self._render)
        next_text = self._spots[index].start if index < len(self._spots) else size
        index = bisect_left(self._bounds, place)
        bound = min(next_text, self._bounds[index] if index < len(self._bounds) else size)
        index = bisect_left(self._ends, (place, 0))
        if index < len(self._ends) and self._ends[index][0] <= bound:
            return self._ends[index]
        if self._around.ends and not (bound == size and not any(self._roles[message + 1 :])):
            stop = self._end_of_turns(message + 1)
            if bound < stop <= next_text and self._has_headers_alone(bound, stop):
                return max((end for end in self._ends if bound < end[0] and end[1] <= stop), default=(stop, stop))
            if not place <= stop <= bound:
                stop = self._end_behind_words(message, place)
            if not place <= stop <= bound:
                raise UnplaceableError(f"turn {message + 1} has no end before the next one")
            return stop, stop
        return bound, bound

    def _end_behind_words(self, message: int, place: int) -> int:
        """Return where that ends which a turn has behind its last words while it is the last; -1 if unknown.

        For calls that no end marker ends, where the turns before them look otherwise once more follow, as Solar Open's.
        """
        number = bisect_left(self._spots, (place, 0, 0, 0)) - 1
        alone = self._render_of_turns(message + 1)
        if number < 0 or self._spots[number].stop != place or alone is None:
            return -1
        words = self._render[self._spots[number].start : place]
        tails = (alone[match.end() :] for match in re.finditer(re.escape(words), alone))
        matches = (tail for tail in tails if self._render.startswith(tail, place))  # the longest first
        return next((place + len(tail) for tail in matches), -1)

    def _has_headers_alone(self, start: int, stop: int) -> bool:
        """Return whether the only turns that begin between two places are answers, as of channels without a text."""
        first, last = (bisect_left(self._bounds, place) for place in (start, stop))
        return {header for header, _ in self._headers}.issuperset(self._bounds[first:last])

    def _with_channels(self, region: Region, answer_headers: Collection[int]) -> Region:
        """Return a region with those right behind it that say nothing, each with a header that no other region has."""
        headers = [header for header in self._headers if header[0] not in answer_headers]
        while (header := next((place for place in headers if place[0] == region.stop), None)) is not None:
            index = bisect_left(self._spots, (header[1], 0, 0, 0))
            try:
                end, stop = self._end_behind(header[1], region.message)
            except UnplaceableError:  # another turn's text stands behind it
                break
            if end == stop or (index < len(self._spots) and self._spots[index].start < end):
                break
            region = region._replace(end=end, stop=stop)
        return region

    def _silent(self, regions: Mapping[int, Region]) -> dict[int, Region]:
        """Return the regions of messages that say nothing: each is a header with its end, between those that do."""
        places = {index: (region.header, region.stop) for index, region in regions.items()}
        for spot, message in zip(self._spots, self._messages, strict=True):
            if message < len(self._roles) and self._roles[message] != ASSISTANT:
                start, stop = places.get(message, (spot.start, spot.stop))
                places[message] = min(start, spot.start), max(stop, spot.stop)
        silent: dict[int, Region] = {}
        group: list[int] = []
        for message in range(len(self._roles) + 1):
            if message < len(self._roles) and message not in places:
                group += [message] if self._roles[message] == ASSISTANT else []
                continue
            if group:
                low = max((stop for index, (_, stop) in places.items() if index < group[0]), default=0)
                starts = (start for index, (start, _) in places.items() if index > group[-1])
                headers = self._headers_between(group, low, min(starts, default=len(self._render)))
                for index, header in zip(group, headers, strict=True):
                    silent[index] = Region(index, *header, *self._end_behind(header[1], index))
            group = []
        return silent

    def _headers_between(self, group: Sequence[int], low: int, high: int) -> list[Range]:
        """Return the header of each message of a group that says nothing, which lie between two places."""
        headers = [header for header in self._headers if low <= header[0] and header[1] <= high]
        if len(headers) < len(group):
            starts = [self._behind_result(message) for message in group]
            headers = sorted([*headers, *((start, start) for start in starts if low <= start <= high)])
        if len(headers) > len(group):  # one begins the text behind them, whoever's it is
            headers = [header for header in headers if self._has_end(header[1], high)]
        if len(headers) != len(group):
            raise UnplaceableError(
                f"turn {group[0] + 1} has no text behind a header, and {len(headers)} places may be its own"
            )
        return headers


def _union_of(ranges: Iterable[Range]) -> list[Range]:
    """Return ranges without overlaps, ascending: [(1, 4), (3, 6)] -> [(1, 6)]."""
    ascending: list[Range] = []
    for start, stop in sorted(ranges):
        if ascending and start <= ascending[-1][1]:
            ascending[-1] = ascending[-1][0], max(stop, ascending[-1][1])
        else:
            ascending.append((start, stop))
    return ascending


def _verbatim(render: str, texts: Sequence[Text], spots: Sequence[Spot]) -> Iterator[Range]:
    """Yield what stands beside a text's pieces as the text itself has it: the cuts that the template wrote, too."""
    for spot, behind in zip_longest(spots, spots[1:]):
        source, pieces, _ = texts[spot.text][2:]
        after = pieces[spot.piece + 1][0] if spot.piece + 1 < len(pieces) else len(source)
        gap = source[pieces[spot.piece][1] : after]
        if behind is not None and behind[2:] == (spot.text, spot.piece + 1):
            if render[spot.stop : behind.start] == gap:
                yield spot.stop, behind.start
        elif after == len(source) and gap.strip() and render.startswith(gap.rstrip(), spot.stop):
            yield spot.stop, spot.stop + len(gap.rstrip())
        head = source[: pieces[0][0]].lstrip() if spot.piece == 0 else ""
        if head and render.endswith(head, 0, spot.start):
            yield spot.start - len(head), spot.start
