"""Takes turns out of a mask: those that the row excludes from training, or that another sequence of it trains."""

from collections.abc import Iterable

import numpy as np

from bridgepack.data.sequences.conversation import Conversation
from bridgepack.data.sequences.markers import ASSISTANT
from bridgepack.data.sequences.places import Span, cut_spans
from bridgepack.data.sequences.prefixes import Prefixes
from bridgepack.errors import RowError
from bridgepack.records import DropReason, MaskArray


def take_off_untrained(mask: MaskArray, conversation: Conversation) -> bool:
    """Set a conversation's mask, shape [num_tokens], to 0 at untrained turns, in place, if each turn is one span of it.

    Returns:
        Whether that is so; otherwise the mask is unchanged.
    """
    turns, edges = _answers(conversation), _spans(mask.tolist())
    if len(turns) != len(edges):
        return False
    for turn, (start, stop) in zip(turns, edges, strict=True):
        if turn in conversation.untrained:
            mask[start:stop] = 0
    return True


def without_untrained(
    mask: list[int], conversation: Conversation, prefixes: Prefixes, *, has_markers: bool, cuts: Iterable[int]
) -> list[int]:
    """Return a mask without the untrained turns; one span of ones is one turn, and `cuts` are tokens where two touch.

    A turn found by markers is one span, its end included. A template's own blocks may differ, so each must lie in
    its turn; of a piece, those of the trained turns.

    Raises:
        RowError: spans and turns do not match.
    """
    turns, edges = _answers(conversation), cut_spans(_spans(mask), cuts)
    is_told = len(turns) == len(edges)
    if is_told and not has_markers:
        judged = conversation.trained if conversation.is_piece else turns
        stops = {turn: stop for turn, (_, stop) in zip(turns, edges, strict=True)}
        ends = {turn: prefixes.shared_length(turn + 1) for turn in judged}
        is_told = all(end is not None and stops[turn] <= end for turn, end in ends.items())
    if not is_told:
        detail = f"{len(turns)} assistant turns but {len(edges)} trained spans, so untrained turns cannot be found"
        raise RowError(DropReason.NO_ASSISTANT_MASK, detail)
    kept = list(mask)
    for turn, (start, stop) in zip(turns, edges, strict=True):
        if turn in conversation.untrained:
            kept[start:stop] = [0] * (stop - start)
    return kept


def _answers(conversation: Conversation) -> list[int]:
    return [index for index, message in enumerate(conversation.messages) if message["role"] == ASSISTANT]


def _spans(mask: list[int]) -> list[Span]:
    """Return (start, stop) of each span of ones."""
    return [(start, stop) for start, stop in np.flatnonzero(np.diff([0, *mask, 0])).reshape(-1, 2).tolist()]
