"""Conversation -> tokens and mask, as Megatron-Bridge's chat preprocessing gives them, each chat rendered once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bridgepack.config.preprocessing import ChatPreprocessing
from bridgepack.data import masks
from bridgepack.data.conversation import Conversation, read_conversation
from bridgepack.data.markers import ASSISTANT, TurnMarkers, infer_markers, markers_from_recipe
from bridgepack.data.tokenizer import ChatTokenizer, Encoded, Rendered, is_unicode
from bridgepack.errors import RowError, TokenizerError
from bridgepack.records import DropReason, Example


class ChatEncoder:
    """Turns rows with conversations into ids and token-aligned masks."""

    def __init__(self, tokenizer: ChatTokenizer, settings: ChatPreprocessing, role_aliases: Mapping[str, str]) -> None:
        """Check that the template can do what the settings ask.

        Raises:
            TokenizerError: when there is no chat template, or no way to tell what the assistant wrote.
        """
        self._tokenizer = tokenizer
        self._settings = settings
        self._role_aliases = role_aliases
        self._markers = _markers_for(tokenizer, settings)
        self._marker_texts = _texts_in_markers(tokenizer, self._markers)

    def encode_batch(self, examples: Sequence[Example]) -> list[Encoded | RowError]:
        """Return ids and mask or the row's error, one per example, in order."""
        conversations = [self._read(example) for example in examples]
        rendered = self._render_all(conversations)
        return [
            item if isinstance(item, RowError) else self._masked(item, conversation)
            for item, conversation in zip(rendered, conversations, strict=True)
        ]

    def _read(self, example: Example) -> Conversation | RowError:
        try:
            conversation = read_conversation(example.columns, self._settings, self._role_aliases)
            if self._settings.control_tokens == "drop":
                self._refuse_control_tokens(conversation)
        except RowError as error:
            return error
        return conversation

    def _refuse_control_tokens(self, conversation: Conversation) -> None:
        for text in _texts([_payload(conversation)]):
            found = next((token for token in self._tokenizer.added_tokens if token in text), None)
            if found is not None:
                raise RowError(DropReason.CONTROL_TOKENS_IN_TEXT, f"the text contains {found!r}")

    def _render_all(self, conversations: Sequence[Conversation | RowError]) -> list[Rendered | RowError]:
        texts: list[str | RowError] = [
            item if isinstance(item, RowError) else self._text_or_error(item) for item in conversations
        ]
        encodings = iter(self._tokenizer.encode_batch([text for text in texts if isinstance(text, str)]))
        return [
            text if isinstance(text, RowError) else self._with_generation_mask(text, next(encodings), conversation)
            for text, conversation in zip(texts, conversations, strict=True)
        ]

    def _text_or_error(self, conversation: Conversation) -> str | RowError:
        try:
            return self._tokenizer.render_text(conversation.messages, conversation.tools)
        except RowError as error:
            nulls = any(message["content"] is None for message in conversation.messages)
            hint = "; a content is null: preprocessing.null_content: empty may help" if nulls else ""
            return RowError(error.reason, error.detail + hint)

    def _with_generation_mask(
        self, text: str, encoding: Any, conversation: Conversation | RowError
    ) -> Rendered | RowError:
        is_fast = hasattr(encoding, "ids")
        ids: list[int] = list(encoding.ids) if is_fast else encoding
        mask = None
        if self._tokenizer.has_generation_blocks and isinstance(conversation, Conversation):
            try:
                own_ids, mask = self._tokenizer.render_with_generation_mask(conversation.messages, conversation.tools)
            except RowError as error:
                return error
            mask = mask if own_ids == ids else None
        return Rendered(text=text, input_ids=ids, encoding=encoding if is_fast else None, generation_mask=mask)

    def _masked(self, rendered: Rendered, conversation: Conversation | RowError) -> Encoded | RowError:
        assert isinstance(conversation, Conversation)
        ids = rendered.input_ids
        try:
            mask = [1] * len(ids) if self._settings.loss_mode == "full" else self._turn_mask(rendered, conversation)
        except RowError as error:
            return error
        if self._settings.masks_control_tokens:
            never = self._tokenizer.never_trained_ids
            mask = [0 if token in never else bit for token, bit in zip(ids, mask, strict=True)]
        return Encoded(ids, mask)

    def _turn_mask(self, rendered: Rendered, conversation: Conversation) -> list[int]:
        prefixes = _Prefixes(self._tokenizer, rendered, conversation)
        mask = self._assistant_mask(rendered, conversation, prefixes)
        if self._settings.loss_mode != "last_turn":
            return mask
        start = self._last_turn_start(mask, conversation, prefixes)
        return [bit if index >= start else 0 for index, bit in enumerate(mask)]

    def _assistant_mask(self, rendered: Rendered, conversation: Conversation, prefixes: _Prefixes) -> list[int]:
        own = rendered.generation_mask
        if self._markers is None:
            if own is None:
                raise RowError(DropReason.NO_ASSISTANT_MASK, "the template's generation blocks gave no mask")
            return own
        has_own = own is not None and any(own)
        found = self._mask_from_markers(rendered, conversation, prefixes, includes_content=not has_own)
        if has_own and own is not None:
            return own if found is None else [max(pair) for pair in zip(own, found, strict=True)]
        if found is not None:
            return found
        if own is not None:
            return own
        raise self._no_mask(conversation)

    def _mask_from_markers(
        self, rendered: Rendered, conversation: Conversation, prefixes: _Prefixes, *, includes_content: bool
    ) -> list[int] | None:
        assert self._markers is not None
        ids, roles = rendered.input_ids, [message["role"] for message in conversation.messages]
        found = masks.mask_from_prefixes(
            ids, roles, self._markers, prefixes.shared_length, includes_content=includes_content
        )
        if found is None and not self._has_markers_in_text(conversation):
            found = masks.mask_from_scan(ids, roles, self._markers, includes_content=includes_content)
        return found

    def _no_mask(self, conversation: Conversation) -> RowError:
        if not any(message["role"] == ASSISTANT for message in conversation.messages):
            return RowError(DropReason.NO_ASSISTANT_MASK, "there is no assistant turn")
        if self._has_markers_in_text(conversation):
            detail = "a turn's text contains the chat template's own control tokens, so its turns cannot be told apart"
            return RowError(DropReason.CONTROL_TOKENS_IN_TEXT, detail)
        return RowError(DropReason.NO_ASSISTANT_MASK, "the rendered turns do not match the conversation's")

    def _last_turn_start(self, mask: list[int], conversation: Conversation, prefixes: _Prefixes) -> int:
        turns = [index for index, message in enumerate(conversation.messages) if message["role"] == ASSISTANT]
        if turns:
            start = prefixes.required_length(turns[-1])
            if any(mask[start:]):
                return start
        return masks.last_span_start(mask) or 0

    def _has_markers_in_text(self, conversation: Conversation) -> bool:
        assert self._markers is not None
        for text in _texts([_payload(conversation)]):
            is_suspect = self._marker_texts is None or any(part in text for part in self._marker_texts)
            # Only rendered text reaches the model, and that is known to be Unicode.
            if (
                is_suspect
                and is_unicode(text)
                and masks.contains(self._tokenizer.encode(text), self._markers.all_sequences)
            ):
                return True
        return False


class _Prefixes:
    """How far renders of a conversation's first turns agree, token by token, with the whole; each done once."""

    def __init__(self, tokenizer: ChatTokenizer, rendered: Rendered, conversation: Conversation) -> None:
        self._tokenizer = tokenizer
        self._rendered = rendered
        self._conversation = conversation
        self._known: dict[int, int | None] = {0: 0}

    def shared_length(self, num_turns: int) -> int | None:
        """Return the number of shared leading tokens, or None where the template refuses the prefix."""
        if num_turns not in self._known:
            try:
                self._known[num_turns] = self.required_length(num_turns)
            except RowError:
                self._known[num_turns] = None
        return self._known[num_turns]

    def required_length(self, num_turns: int) -> int:
        """Return the same.

        Raises:
            RowError: where the template refuses the prefix.
        """
        if num_turns == 0:
            return 0
        known = self._known.get(num_turns)
        if known is not None:
            return known
        prefix = self._tokenizer.render_text(self._conversation.messages[:num_turns], self._conversation.tools)
        boundary = self._token_at_boundary(len(prefix)) if self._rendered.text.startswith(prefix) else None
        if boundary is not None:
            return boundary
        return masks.common_prefix_length(self._tokenizer.encode(prefix), self._rendered.input_ids)

    def _token_at_boundary(self, position: int) -> int | None:
        """Return the index of the token at a character where an isolated added token cuts the text, or None.

        Text before such a token is tokenised without regard to what follows, so the prefix's tokens are exactly the
        tokens before it.
        """
        encoding = self._rendered.encoding
        if encoding is None:
            return None
        if position == len(self._rendered.text):
            return len(self._rendered.input_ids)
        index = encoding.char_to_token(position)
        if index is None or self._rendered.input_ids[index] not in self._tokenizer.isolated_token_ids:
            return None
        return int(index) if encoding.token_to_chars(index)[0] == position else None


def _markers_for(tokenizer: ChatTokenizer, settings: ChatPreprocessing) -> TurnMarkers | None:
    where = f"tokenizer.name_or_path is {tokenizer.config.name_or_path!r}"
    if tokenizer.chat_template is None:
        raise TokenizerError(
            f"{where}; it has no chat template. Set tokenizer.chat_template to a Jinja file, or use "
            "preprocessing.kind prompt_completion."
        )
    if settings.assistant_markers is not None:
        return markers_from_recipe(tokenizer, settings.assistant_markers)
    markers = infer_markers(tokenizer)
    if markers is None and settings.loss_mode != "full" and not tokenizer.has_generation_blocks:
        raise TokenizerError(
            f"{where}; its chat template has no {{% generation %}} block and is of no known family, so nothing tells "
            f"which tokens the assistant wrote (Megatron-Bridge refuses it too). Set preprocessing.assistant_markers, "
            "set tokenizer.chat_template to a template with generation blocks, or set preprocessing.loss_mode to full."
        )
    return markers


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


def _payload(conversation: Conversation) -> list[Any]:
    turns = [{key: value for key, value in message.items() if key != "role"} for message in conversation.messages]
    return [*turns, conversation.tools]


def _texts(values: Sequence[Any]) -> list[str]:
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
