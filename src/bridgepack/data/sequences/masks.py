"""Which tokens of one rendered conversation the assistant wrote, as Megatron-Bridge finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences import spans as masks
from bridgepack.data.sequences.conversation import Conversation
from bridgepack.data.sequences.markers import ASSISTANT, TurnMarkers
from bridgepack.data.sequences.prefixes import CuttingTokens, Prefixes
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer, is_unicode
from bridgepack.errors import RowError
from bridgepack.records import DropReason


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderedChat:
    """A conversation as text and as tokens.

    Attributes:
        conversation: what was rendered.
        text: what the chat template gives.
        input_ids: its tokens, without any that the tokenizer would add by itself.
        generation_mask: token-aligned mask from the template's own generation blocks; None where it has none.
    """

    conversation: Conversation
    text: str
    input_ids: list[int]
    generation_mask: list[int] | None = None


class ChatMasks:
    """Masks of conversations, one by one."""

    def __init__(self, tokenizer: ChatTokenizer, settings: ChatPreprocessing, markers: TurnMarkers | None) -> None:
        """Take the markers of the template, where they are known."""
        self._tokenizer = tokenizer
        self._settings = settings
        self._markers = markers
        self._marker_texts = _texts_in_markers(tokenizer, markers)
        self._cutting = CuttingTokens(tokenizer)

    def mask_of(self, chat: RenderedChat) -> list[int]:
        """Return the mask of a conversation, control tokens included.

        Raises:
            RowError: when nothing tells what the assistant wrote.
        """
        prefixes = self._prefixes(chat)
        return self._of_last_turn(self._assistant_mask(chat, prefixes), chat, prefixes)

    def of_last_turn(self, mask: list[int], chat: RenderedChat) -> list[int]:
        """Return the part of an assistant mask that the recipe asks for: all of it, or its last turn.

        Raises:
            RowError: when the template refuses the conversation without its last turn.
        """
        return self._of_last_turn(mask, chat, self._prefixes(chat))

    def has_markers_in_text(self, conversation: Conversation) -> bool:
        """Say whether a turn's text holds a marker, so that a scan could take it for the template's."""
        assert self._markers is not None
        if self._is_plainly_clean(conversation):
            return False
        for text in texts_of([_payload(conversation)]):
            is_suspect = self._marker_texts is None or any(part in text for part in self._marker_texts)
            # Only rendered text reaches the model, and that is known to be Unicode.
            if (
                is_suspect
                and is_unicode(text)
                and masks.contains(self._tokenizer.encode(text), self._markers.all_sequences)
            ):
                return True
        return False

    def _is_plainly_clean(self, conversation: Conversation) -> bool:
        """Say whether every turn is plain text without anything that a marker needs; a quick look."""
        if self._marker_texts is None or conversation.tools is not None:
            return False
        for message in conversation.messages:
            for key, value in message.items():
                if key == "role":
                    continue
                if type(value) is not str:
                    return False
                for part in self._marker_texts:
                    if part in value:
                        return False
        return True

    def _prefixes(self, chat: RenderedChat) -> Prefixes:
        return Prefixes(self._tokenizer, self._cutting, chat.conversation, chat.text, chat.input_ids)

    def _of_last_turn(self, mask: list[int], chat: RenderedChat, prefixes: Prefixes) -> list[int]:
        if self._settings.loss_mode != "last_turn":
            return mask
        start = self._last_turn_start(mask, chat.conversation, prefixes)
        return [bit if index >= start else 0 for index, bit in enumerate(mask)]

    def _assistant_mask(self, chat: RenderedChat, prefixes: Prefixes) -> list[int]:
        own = chat.generation_mask
        if self._markers is None:
            if own is None:
                raise RowError(DropReason.NO_ASSISTANT_MASK, "the template's generation blocks gave no mask")
            return own
        has_own = own is not None and any(own)
        found = self._mask_from_markers(chat, prefixes, includes_content=not has_own)
        if has_own and own is not None:
            return own if found is None else [max(pair) for pair in zip(own, found, strict=True)]
        if found is not None:
            return found
        if own is not None:
            return own
        raise self._no_mask(chat.conversation)

    def _mask_from_markers(self, chat: RenderedChat, prefixes: Prefixes, *, includes_content: bool) -> list[int] | None:
        assert self._markers is not None
        ids, roles = chat.input_ids, [message["role"] for message in chat.conversation.messages]
        found = masks.mask_from_prefixes(
            ids, roles, self._markers, prefixes.shared_length, includes_content=includes_content
        )
        if found is None and not self.has_markers_in_text(chat.conversation):
            found = masks.mask_from_scan(ids, roles, self._markers, includes_content=includes_content)
        return found

    def _no_mask(self, conversation: Conversation) -> RowError:
        if not any(message["role"] == ASSISTANT for message in conversation.messages):
            return RowError(DropReason.NO_ASSISTANT_MASK, "there is no assistant turn")
        if self.has_markers_in_text(conversation):
            detail = "a turn's text contains the chat template's own control tokens, so its turns cannot be told apart"
            return RowError(DropReason.CONTROL_TOKENS_IN_TEXT, detail)
        return RowError(DropReason.NO_ASSISTANT_MASK, "the rendered turns do not match the conversation's")

    def _last_turn_start(self, mask: list[int], conversation: Conversation, prefixes: Prefixes) -> int:
        turns = [index for index, message in enumerate(conversation.messages) if message["role"] == ASSISTANT]
        if turns:
            start = prefixes.required_length(turns[-1])
            if any(mask[start:]):
                return start
        return masks.last_span_start(mask) or 0


def texts_of(values: Sequence[Any]) -> list[str]:
    """Return every text inside nested lists and objects; keys do not count."""
    found: list[str] = []
    stack: list[Any] = list(values)
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


def _payload(conversation: Conversation) -> list[Any]:
    turns = [{key: value for key, value in message.items() if key != "role"} for message in conversation.messages]
    return [*turns, conversation.tools]


def _texts_in_markers(tokenizer: ChatTokenizer, markers: TurnMarkers | None) -> tuple[str, ...] | None:
    """Return texts one of which a text must contain to hold a marker; None when that cannot be told so simply."""
    if markers is None:
        return ()
    text_of = {index: text for text, index in tokenizer.added_tokens.items()}
    isolated = tokenizer.isolated_token_ids
    first = [next((token for token in marker if token in isolated), None) for marker in markers.all_sequences]
    if any(token is None for token in first):
        return None
    return tuple(sorted({text_of[token] for token in first if token is not None}))
