"""Masks of rendered conversations: finds the assistant's tokens as Megatron-Bridge does, at first by one scan.

Megatron-Bridge looks for each assistant turn between two renders of the conversation's first turns, and scans for
markers only if it does not find a turn that way. For markers whose starts are joined it scans first. Otherwise, two
kinds of conversations need no such renders, provided that no turn's text has a marker and the scan finds every turn:

- The only answer is the last turn. The rest of the text lies between the renders and has the answer's marker and one
  end marker once: the result is either the span that the scan finds, or none, and then the scan counts.
- The render of the turns up to the first answer differs from the whole from where that answer begins. The answer then
  does not lie between the renders, and the scan counts. This is so if a template shows only the last answer's thoughts.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.conversation import Conversation
from bridgepack.data.sequences.markers import ASSISTANT, BoolArray, TurnMarkers, scan_turns
from bridgepack.data.sequences.prefixes import CuttingTokens, Prefixes, find_span
from bridgepack.data.tokenizers.engines import FlatIds, joined
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer, is_unicode
from bridgepack.errors import RowError
from bridgepack.records import DropReason, MaskArray


class RenderedChat(NamedTuple):
    """A conversation with its rendered text."""

    conversation: Conversation  #: as read from the row
    text: str  #: output of the chat template
    #: (start, stop) in characters of the template's generation blocks; None if it has none
    spans: list[tuple[int, int]] | None


class ChatMasks:
    """Computes masks of conversations: of batches by a scan, and of single ones for which that does not settle it."""

    def __init__(self, tokenizer: ChatTokenizer, settings: ChatPreprocessing, markers: TurnMarkers | None) -> None:
        self._tokenizer, self._settings, self._markers = tokenizer, settings, markers
        self._marker_texts = _texts_in_markers(tokenizer, markers)
        self._cutting = CuttingTokens(tokenizer)

    def scanned(self, chats: Sequence[RenderedChat], flat: FlatIds) -> tuple[MaskArray, BoolArray, BoolArray]:
        """Return (mask over all tokens; per conversation: a scan found all turns; the result is certain)."""
        assert self._markers is not None
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
                and not self.has_markers_in_text(chats[index].conversation)
            )
        return scanned.mask, scanned.is_found, is_decided

    @cached_property
    def _start_text(self) -> str | None:
        """The text of the assistant's only start marker, if its places in a text are those of its tokens."""
        assert self._markers is not None
        marker = self._markers.starts[ASSISTANT]
        text = self._tokenizer.decode(marker)
        is_kept = self._tokenizer.keeps_bytes and tuple(self._tokenizer.encode(text)) == marker
        return text if is_kept and not self._markers.more_starts else None

    def _loses_first_answer(self, chat: RenderedChat, roles: Sequence[str]) -> bool:
        """Return whether the first answer certainly does not lie between the renders around it."""
        turn, start = roles.index(ASSISTANT), self._start_text
        if start is None or turn + 1 == len(roles):
            return False
        whole = chat.conversation
        try:
            prefix = self._tokenizer.render_text(whole.messages[: turn + 1], whole.tools, whole.template_kwargs)
        except RowError:
            return True
        place = chat.text.find(start) + len(start)
        here, there = prefix[place : place + 2], chat.text[place : place + 2]
        is_other = here[:1] != there[:1] and here.isascii() and there.isascii()
        return is_other and chat.text.startswith(prefix[:place]) and len(prefix) > place

    def mask_of(
        self,
        chat: RenderedChat,
        input_ids: list[int],
        own: list[int] | None = None,
        scanned: list[int] | None = None,
        *,
        is_certain: bool = False,
    ) -> list[int]:
        """Return the token-aligned mask of a conversation, control tokens included.

        `input_ids` are without special tokens added by the tokenizer. `own` is the mask from the template's generation
        blocks, if it has any; `scanned` that of all assistant turns that a scan found, if any, which the result is
        known to be if it `is_certain`.

        Raises:
            RowError: the assistant's tokens or the untrained turns cannot be found, or the template rejects the
                conversation without its last turn, which the recipe needs.
        """
        prefixes = Prefixes(self._tokenizer, self._cutting, chat.conversation, chat.text, input_ids)
        found = scanned if is_certain else None
        mask = self._assistant_mask(chat.conversation, input_ids, own, scanned, prefixes) if found is None else found
        kept = self._without_untrained(mask, chat.conversation, prefixes) if chat.conversation.untrained else mask
        if self._settings.loss_mode != "last_turn":
            return kept
        is_last_span = self._markers is not None and self._markers.joins_starts
        start = _last_span_start(mask) if is_last_span else _last_turn_start(mask, chat.conversation, prefixes)
        return [bit if index >= start else 0 for index, bit in enumerate(kept)]

    def has_markers_in_text(self, conversation: Conversation) -> bool:
        """Return whether a turn's text contains a marker, which a scan could mistake for the template's."""
        assert self._markers is not None
        texts = texts_of(conversation)
        if self._marker_texts is not None:
            whole = "\0".join(texts)
            if not [part for part in self._marker_texts if part in whole]:
                return False
        for text in filter(is_unicode, texts):  # only rendered text reaches the model, and it is checked to be Unicode
            ids = self._tokenizer.encode(text)
            if any(find_span(ids, marker) >= 0 for marker in self._markers.all_sequences):
                return True
        return False

    def _assistant_mask(
        self,
        conversation: Conversation,
        ids: list[int],
        own: list[int] | None,
        scanned: list[int] | None,
        prefixes: Prefixes,
    ) -> list[int]:
        if self._markers is None:
            if own is None:
                raise RowError(DropReason.NO_ASSISTANT_MASK, "the template's generation blocks gave no mask")
            return own
        has_own = own is not None and any(own)
        scan_is_first = self._markers.joins_starts
        found = None if scan_is_first else prefixes.assistant_mask(self._markers, includes_content=not has_own)
        if found is None and not self.has_markers_in_text(conversation):
            found = scanned if own is None else self._scanned(conversation, ids, includes_content=not has_own)
        if found is None and scan_is_first:
            found = prefixes.assistant_mask(self._markers, includes_content=not has_own)
        masks = [mask for mask in (own, found) if mask is not None]
        if not masks:
            raise self._no_mask(conversation)
        return masks[0] if len(masks) == 1 else [max(bits) for bits in zip(*masks, strict=True)]

    def _without_untrained(self, mask: list[int], conversation: Conversation, prefixes: Prefixes) -> list[int]:
        """Return a mask without the turns that the row excludes from training; one span of ones is one turn.

        A turn found by markers is one span, its end included. A template's own blocks may differ, so each must lie in
        its turn.
        """
        turns = [index for index, message in enumerate(conversation.messages) if message["role"] == ASSISTANT]
        edges = np.flatnonzero(np.diff([0, *mask, 0])).reshape(-1, 2).tolist()
        is_told = len(turns) == len(edges)
        if is_told and self._markers is None:
            ends = [prefixes.shared_length(turn + 1) for turn in turns]
            is_told = all(end is not None and stop <= end for (_, stop), end in zip(edges, ends, strict=True))
        if not is_told:
            detail = f"{len(turns)} assistant turns but {len(edges)} trained spans, so untrained turns cannot be found"
            raise RowError(DropReason.NO_ASSISTANT_MASK, detail)
        kept = list(mask)
        for turn, (start, stop) in zip(turns, edges, strict=True):
            if turn in conversation.untrained:
                kept[start:stop] = [0] * (stop - start)
        return kept

    def _scanned(self, conversation: Conversation, ids: list[int], *, includes_content: bool) -> list[int] | None:
        assert self._markers is not None
        num_turns = self._markers.num_turns([message["role"] for message in conversation.messages])
        turns = scan_turns(joined([ids]), self._markers, np.array([num_turns]), includes_content=includes_content)
        return turns.mask.tolist() if turns.is_found[0] else None

    def _no_mask(self, conversation: Conversation) -> RowError:
        if not any(message["role"] == ASSISTANT for message in conversation.messages):
            return RowError(DropReason.NO_ASSISTANT_MASK, "there is no assistant turn")
        if self.has_markers_in_text(conversation):
            detail = "a turn's text contains the chat template's own control tokens, so its turns cannot be told apart"
            return RowError(DropReason.CONTROL_TOKENS_IN_TEXT, detail)
        return RowError(DropReason.NO_ASSISTANT_MASK, "the rendered turns do not match the conversation's")


def texts_of(conversation: Conversation) -> list[str]:
    """Return every text inside a conversation's turns, tools and variables; keys and roles do not count."""
    if conversation.is_plain:
        return [message["content"] for message in conversation.messages]
    found: list[str] = []
    said = (value for message in conversation.messages for key, value in message.items() if key != "role")
    stack: list[Any] = [conversation.tools, conversation.template_kwargs, *said]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, Mapping):
            stack.extend(value.values())
        elif isinstance(value, (list, tuple)):
            stack.extend(value)
        elif value is not None and not isinstance(value, (bool, int, float)):
            found.append(str(value))
    return found


def _last_turn_start(mask: list[int], conversation: Conversation, prefixes: Prefixes) -> int:
    turns = [index for index, message in enumerate(conversation.messages) if message["role"] == ASSISTANT]
    if turns:
        start = prefixes.required_length(turns[-1])
        if any(mask[start:]):
            return start
    return _last_span_start(mask)


def _last_span_start(mask: list[int]) -> int:
    begins = [index for index, bit in enumerate(mask) if bit and (index == 0 or not mask[index - 1])]
    return begins[-1] if begins else 0


def _texts_in_markers(tokenizer: ChatTokenizer, markers: TurnMarkers | None) -> tuple[str, ...] | None:
    """Return texts of which every text with a marker contains at least one; None if there is no such list."""
    if markers is None:
        return ()
    text_of = {index: text for text, index in tokenizer.added_tokens.items()}
    isolated = tokenizer.isolated_token_ids
    first = [next((token for token in marker if token in isolated), None) for marker in markers.all_sequences]
    if any(token is None for token in first):
        return None
    return tuple(sorted({text_of[token] for token in first if token is not None}))
