"""Masks of whole batches of conversations by one scan, for conversations where the result is certain.

Megatron-Bridge looks for each assistant turn between two renders of the conversation's first turns, and scans for
markers only if it does not find a turn that way. For markers whose starts are joined it scans first. Otherwise, two
kinds of conversations need no such renders, provided that no turn's text has a marker and the scan finds every turn:

- The only answer is the last turn. The rest of the text lies between the renders and has the answer's marker and one
  end marker once: the result is either the span that the scan finds, or none, and then the scan counts.
- The render of the turns up to the first answer differs from the whole from where that answer begins. The answer then
  does not lie between the renders, and the scan counts. This is so if a template shows only the last answer's thoughts.
"""

from collections.abc import Sequence

import numpy as np

from bridgepack.data.sequences.markers import ASSISTANT, TurnMarkers
from bridgepack.data.sequences.masks import ChatMasks, RenderedChat
from bridgepack.data.sequences.scan import BoolArray, scan_turns
from bridgepack.data.tokenizers.engines import FlatIds
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import MaskArray


class QuickMasks:
    """Scans batches of conversations and tells for which of them the result is certain."""

    def __init__(self, tokenizer: ChatTokenizer, masks: ChatMasks, markers: TurnMarkers) -> None:
        self._tokenizer = tokenizer
        self._masks = masks
        self._markers = markers
        marker = markers.starts[ASSISTANT]
        self._start_text = tokenizer.decode(marker)
        is_kept = tokenizer.keeps_bytes and tuple(tokenizer.encode(self._start_text)) == marker
        self._knows_places = is_kept and not markers.more_starts

    def masks(self, chats: Sequence[RenderedChat], flat: FlatIds) -> tuple[MaskArray, BoolArray, BoolArray]:
        """Return (mask over all tokens; per conversation: all turns were found; the result is certain)."""
        roles = [[message["role"] for message in chat.conversation.messages] for chat in chats]
        counts = np.fromiter((self._markers.num_turns(turns) for turns in roles), dtype=np.int64, count=len(roles))
        scanned = scan_turns(flat, self._markers, counts)
        is_decided = np.zeros(len(roles), dtype=np.bool_)
        for index in np.flatnonzero(scanned.is_found).tolist():
            is_only = counts[index] == 1 and roles[index][-1] == ASSISTANT
            is_settled = self._markers.joins_starts or (is_only and scanned.ends_with_only_answer[index])
            is_decided[index] = (
                not chats[index].conversation.untrained
                and (is_settled or self._loses_first_answer(chats[index], roles[index]))
                and not self._masks.has_markers_in_text(chats[index].conversation)
            )
        return scanned.mask, scanned.is_found, is_decided

    def _loses_first_answer(self, chat: RenderedChat, roles: Sequence[str]) -> bool:
        """Return whether the first answer certainly does not lie between the renders around it."""
        turn = roles.index(ASSISTANT)
        if not self._knows_places or turn + 1 == len(roles):
            return False
        whole = chat.conversation
        try:
            prefix = self._tokenizer.render_text(whole.messages[: turn + 1], whole.tools, whole.template_kwargs)
        except RowError:
            return True
        place = chat.text.find(self._start_text) + len(self._start_text)
        here, there = prefix[place : place + 2], chat.text[place : place + 2]
        return (
            here[:1] != there[:1]
            and here.isascii()
            and there.isascii()
            and chat.text.startswith(prefix[:place])
            and len(prefix) > place
        )
