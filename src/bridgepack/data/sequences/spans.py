"""Which tokens of a rendered conversation the assistant wrote: by prefix renders, or by scanning for markers.

Pure functions on lists of ids. They give what megatron-bridge 0.6.2 gives (data/conversation_processing.py), which
the contract tests compare row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bridgepack.data.sequences.markers import ASSISTANT, TurnMarkers

#: (index of the first turn left out) -> number of leading tokens that rendering only the turns before it shares
#: with the whole conversation; None where the template refuses that prefix.
PrefixLength = Callable[[int], int | None]


def find_span(input_ids: Sequence[int], pattern: Sequence[int], start: int = 0, stop: int | None = None) -> int:
    """Return where `pattern` first occurs inside `input_ids[start:stop]`, or -1.

    Example: [5, 1, 2, 1, 2], pattern [1, 2], start 2 -> 3.
    """
    ids = input_ids if isinstance(input_ids, list) else list(input_ids)
    wanted = list(pattern)
    last = (len(ids) if stop is None else min(stop, len(ids))) - len(wanted)
    position = start
    while wanted and position <= last:
        try:
            position = ids.index(wanted[0], position, last + 1)
        except ValueError:
            return -1
        if ids[position : position + len(wanted)] == wanted:
            return position
        position += 1
    return -1


def contains(input_ids: Sequence[int], patterns: Sequence[Sequence[int]]) -> bool:
    """Return whether any of the token sequences occurs."""
    return any(find_span(input_ids, pattern) >= 0 for pattern in patterns)


def mask_from_prefixes(
    input_ids: list[int],
    roles: Sequence[str],
    markers: TurnMarkers,
    prefix_length: PrefixLength,
    *,
    includes_content: bool = True,
) -> list[int] | None:
    """Return the assistant mask by finding each assistant turn between two prefix renders; None where one is lost.

    A turn's end is the last end marker before the next turn begins, so that markers inside its text do no harm.

    Args:
        input_ids: the whole conversation, shape [stored_length].
        roles: of its turns.
        markers: texts around turns.
        prefix_length: how far renders of the first turns agree with the whole.
        includes_content: False marks only the end markers, for templates that mark the content themselves.
    """
    turns = [index for index, role in enumerate(roles) if role == ASSISTANT]
    if not turns:
        return None
    mask = [0] * len(input_ids)
    for turn in turns:
        search_from = prefix_length(turn) if turn else 0
        limit = len(input_ids) if turn + 1 == len(roles) else prefix_length(turn + 1)
        if search_from is None or limit is None or search_from >= limit:
            return None
        start = find_span(input_ids, markers.starts[ASSISTANT], search_from)
        content = start + len(markers.starts[ASSISTANT])
        if start < 0 or content > limit:
            return None
        ends = _ends_between(input_ids, markers, content, limit)
        if not ends:
            return None
        end, _, after = max(ends, key=lambda found: (found[0], -found[1]))
        first = content if includes_content else end
        mask[first:after] = [1] * (after - first)
    return mask


def mask_from_scan(
    input_ids: list[int], roles: Sequence[str], markers: TurnMarkers, *, includes_content: bool = True
) -> list[int] | None:
    """Return the assistant mask by scanning for start and end markers; None where they do not match the roles.

    Safe only when no turn's text contains a marker; the caller makes sure of that.
    """
    starts = _turn_starts(input_ids, markers)
    num_assistant = sum(role == ASSISTANT for role in roles)
    if not starts or sum(role == ASSISTANT for _, role, _ in starts) != num_assistant:
        return None
    mask = [0] * len(input_ids)
    has_turn = False
    for index, (_, role, content) in enumerate(starts):
        if role != ASSISTANT:
            continue
        limit = starts[index + 1][0] if index + 1 < len(starts) else len(input_ids)
        ends = _ends_between(input_ids, markers, content, limit)
        if not ends:
            continue
        if len({end for end, _, _ in ends}) != 1:
            return None
        end, _, after = min(ends)
        has_turn = True
        first = content if includes_content else end
        mask[first:after] = [1] * (after - first)
    return mask if has_turn else None


def last_span_start(mask: Sequence[int]) -> int | None:
    """Return where the last run of ones begins, or None: [0, 1, 1, 0, 1] -> 4."""
    starts = [index for index, bit in enumerate(mask) if bit and (index == 0 or not mask[index - 1])]
    return starts[-1] if starts else None


def common_prefix_length(left: Sequence[int], right: Sequence[int]) -> int:
    """Return how many leading tokens two sequences share: [1, 2, 3], [1, 2, 4] -> 2."""
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))


def _turn_starts(input_ids: list[int], markers: TurnMarkers) -> list[tuple[int, str, int]]:
    """Return (position, role, position after the marker) of every turn; the longest marker wins at a position."""
    found: list[tuple[int, str, int]] = []
    for role, marker in markers.starts.items():
        position = find_span(input_ids, marker)
        while position >= 0:
            found.append((position, role, position + len(marker)))
            position = find_span(input_ids, marker, position + len(marker))
    found.sort(key=lambda start: (start[0], -start[2]))
    return [start for index, start in enumerate(found) if index == 0 or start[0] != found[index - 1][0]]


def _ends_between(input_ids: list[int], markers: TurnMarkers, content: int, limit: int) -> list[tuple[int, int, int]]:
    """Return (position, priority, position after) of every end marker that lies in `[content, limit)`."""
    ends = []
    for priority, marker in enumerate(markers.ends):
        position = find_span(input_ids, marker, content, limit)
        while position >= 0:
            ends.append((position, priority, position + len(marker)))
            position = find_span(input_ids, marker, position + 1, limit)
    return ends
