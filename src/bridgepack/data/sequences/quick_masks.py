"""Masks of whole batches of conversations by one scan, where it is certain that nothing else would come out.

Megatron-Bridge looks for each assistant turn between two renders of the conversation's beginning, and scans for markers
only where it loses a turn that way. Two kinds of conversations need no such renders, provided that no turn's text holds
a marker and the scan finds every turn. Markers whose starts are joined are looked for by scanning first. Else:

- Its only answer is its last turn. Between the renders lies the rest of the text, in which the answer's marker and one
  end marker stand once: either the very span that the scan finds comes out, or none, and then the scan counts.
- The render of the turns up to the first answer begins to differ from the whole where that answer begins. The answer
  then has no place between the renders, and the scan counts. Templates that show only the last answer's thoughts do so.
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
    """Scans batches of conversations and says for which of them that settles it."""

    def __init__(self, tokenizer: ChatTokenizer, masks: ChatMasks, markers: TurnMarkers) -> None:
        self._tokenizer = tokenizer
        self._masks = masks
        self._markers = markers
        marker = markers.starts[ASSISTANT]
        self._start_text = tokenizer.decode(marker)
        is_kept = tokenizer.keeps_bytes and tuple(tokenizer.encode(self._start_text)) == marker
        self._knows_places = is_kept and not markers.more_starts

    def masks(self, chats: Sequence[RenderedChat], flat: FlatIds) -> tuple[MaskArray, BoolArray, BoolArray]:
        """Return a mask over all tokens; for each conversation, whether it was found, and is certain."""
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
        """Say whether the first answer certainly has no place between the renders around it."""
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
