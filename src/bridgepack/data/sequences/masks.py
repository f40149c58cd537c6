"""Masks of rendered conversations: finds the assistant's tokens as Megatron-Bridge does, at first by one scan.

Megatron-Bridge looks for each assistant turn between two renders of the conversation's first turns, and scans for
markers only if it does not find a turn that way. For markers whose starts are joined it scans first. Otherwise, three
kinds of conversations need no such renders, provided that no turn's text has a marker and the scan finds every turn:

- The only answer is the last turn. The rest of the text lies between the renders and has the answer's marker and one
  end marker once: the result is either the span that the scan finds, or none, and then the scan counts.
- The render of the turns up to the first answer differs from the whole from where that answer begins. The answer then
  does not lie between the renders, and the scan counts. This is so if a template shows only the last answer's thoughts.
- The markers of each answer stand where the renders around it end (`RenderedChat.ends`): both find the same.

Megatron-Bridge knows no pieces of conversations. Of a piece only the trained turns are looked for; a scan that finds
every turn counts.

Where Megatron-Bridge leaves an answer untrained because nothing ends it, it is trained here to where the next turn or
the text's end is. The chat's text must then show the same (`RenderedChat.lacks_end`), or the row is dropped.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.conversation import Conversation, said_in, texts_of, texts_within
from bridgepack.data.sequences.markers import ASSISTANT, BoolArray, ScannedTurns, TurnMarkers, find_all, scan_turns
from bridgepack.data.sequences.marking.tokens import why_missing
from bridgepack.data.sequences.places import TokenPlaces, touching_blocks
from bridgepack.data.sequences.prefixes import CuttingTokens, FoundTurns, Message, Prefixes, find_span
from bridgepack.data.sequences.splitting.untrained import take_off_untrained, without_untrained
from bridgepack.data.tokenizers.engines import FlatIds, joined
from bridgepack.data.tokenizers.limits import TimeLimit
from bridgepack.data.tokenizers.texts import finder_of, is_unicode
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import DropReason


class RenderedChat(NamedTuple):
    """A conversation with its rendered text."""

    conversation: Conversation  #: as read from the row
    text: str  #: output of the chat template
    #: (start, stop) in characters of the template's generation blocks; None if it has none
    spans: list[tuple[int, int]] | None
    lacks_end: bool = False  #: the text has no end marker behind an answer that is to be trained
    #: number of first turns -> where their own render ends in the text, see `ChatTokenizer.render_turns`
    ends: tuple[int, ...] | None = None


class ChatMasks:
    """Computes masks of conversations: of batches by a scan, and of single ones for which that does not settle it."""

    def __init__(self, tokenizer: ChatTokenizer, settings: ChatPreprocessing, markers: TurnMarkers | None) -> None:
        self._tokenizer, self._settings, self._markers = tokenizer, settings, markers
        #: Tokens in a turn's text at which a scan would stop.
        self._stops: tuple[tuple[int, ...], ...] = ()
        if markers is not None:
            self._stops = (*markers.all_sequences, *((token,) for token in markers.openers))
        texts = _texts_in(tokenizer, self._stops)
        #: Whether a text may have such tokens; None if only its tokens tell.
        self._has_marker_text = None if texts is None else finder_of(texts)
        self._cutting = CuttingTokens(tokenizer)

    def scan(
        self, chats: Sequence[RenderedChat], flat: FlatIds, errors: dict[int, RowError], limit: TimeLimit
    ) -> tuple[ScannedTurns, BoolArray]:
        """Return what a scan finds, and whether each is certain; adds to `errors` what takes too much to render."""
        assert self._markers is not None
        roles = [[message["role"] for message in chat.conversation.messages] for chat in chats]
        counts = np.fromiter((self._markers.num_turns(turns) for turns in roles), dtype=np.int64, count=len(roles))
        scanned = scan_turns(flat, self._markers, counts)
        is_decided = np.zeros(len(roles), dtype=np.bool_)
        for index in np.flatnonzero(scanned.is_found & scanned.is_open).tolist():
            if roles[index][-1] != ASSISTANT:  # another turn's text may stand behind the answer
                scanned.mask[flat.offsets[index] : flat.offsets[index + 1]] = 0
                scanned.is_found[index] = False
        is_open, has_only_answer = scanned.is_open.tolist(), scanned.ends_with_only_answer.tolist()
        for index in np.flatnonzero(scanned.is_found).tolist():
            chat, turns, is_piece = chats[index], roles[index], chats[index].conversation.is_piece
            is_settled = is_piece or self._markers.joins_starts or (has_only_answer[index] and turns[-1] == ASSISTANT)
            is_whole = is_piece or not chat.conversation.untrained
            try:
                is_decided[index] = (
                    (is_whole and is_open[index] == chat.lacks_end)
                    and (is_settled or self._shows_turns(chat, turns) or limit(self._loses_first_answer, chat))
                    and not self._has_any(chat.conversation, self._stops)
                )
            except RowError as error:
                errors[index] = error
            if is_piece and is_decided[index]:
                bits = scanned.mask[flat.offsets[index] : flat.offsets[index + 1]]
                is_decided[index] = take_off_untrained(bits, chat.conversation)
        return scanned, is_decided

    @cached_property
    def _start_text(self) -> str | None:
        """The text of the assistant's only start marker, if its places in a text are those of its tokens."""
        assert self._markers is not None
        marker = self._markers.starts[ASSISTANT]
        text = self._tokenizer.decode(marker)
        is_kept = self._tokenizer.keeps_bytes and tuple(self._tokenizer.encode(text)) == marker
        return text if is_kept and not self._markers.more_starts else None

    def _shows_turns(self, chat: RenderedChat, roles: Sequence[str]) -> bool:
        """Return whether each answer lies between the renders around it, from its start marker to its end marker."""
        start = self._start_text
        if chat.ends is None or start is None or self._markers is None:
            return False
        answers = [index for index, role in enumerate(roles) if role == ASSISTANT]
        return self._cutting.lie_between(chat.text, chat.ends, answers, start, self._markers.end_texts)

    def _loses_first_answer(self, chat: RenderedChat) -> bool:
        """Return whether the first answer certainly does not lie between the renders around it."""
        whole, start = chat.conversation, self._start_text
        turn = [message["role"] for message in whole.messages].index(ASSISTANT)
        if start is None or turn + 1 == len(whole.messages):
            return False
        if chat.ends is not None and chat.ends[turn + 1] >= 0:
            return False  # the text begins with the render of these turns
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
        scanned: FoundTurns | None = None,
        *,
        is_certain: bool = False,
    ) -> list[int]:
        """Return the token-aligned mask of a conversation, control tokens included.

        `input_ids` are without special tokens added by the tokenizer. `own` is the mask from the template's generation
        blocks, if it has any; `scanned` are all assistant turns that a scan found, if any, which the result is known
        to be if it `is_certain`.

        Raises:
            RowError: the assistant's tokens, the untrained turns or the last turn cannot be found, or the template
                rejects the conversation without its last turn, which the recipe needs.
        """
        conversation = chat.conversation
        prefixes = Prefixes(self._tokenizer, self._cutting, conversation, chat.text, input_ids, chat.ends)
        has_own = own is not None and any(own)
        found = scanned if is_certain else None
        turns = self._assistant_turns(conversation, input_ids, own, scanned, prefixes) if found is None else found
        has_others = conversation.untrained and not turns.has_only_trained and not is_certain
        kept = turns.mask
        if has_others:
            cuts = touching_blocks(chat.spans, TokenPlaces.of(self._tokenizer, chat.text)) if has_own else ()
            has_markers = self._markers is not None
            kept = without_untrained(turns.mask, conversation, prefixes, has_markers=has_markers, cuts=cuts)
        if self._settings.loss_mode == "last_turn":
            start = self._last_turn_start(turns, conversation, prefixes, has_own=has_own)
            kept = [bit if index >= start else 0 for index, bit in enumerate(kept)]
        if not has_own:
            self._check_ends(chat, turns, kept)
        return kept

    def _check_ends(self, chat: RenderedChat, turns: FoundTurns, mask: list[int]) -> None:
        """Check that the mask trains answers without an end only where the text has some, and no beginning of one."""
        conversation, is_open = chat.conversation, False
        is_answer = (message["role"] == ASSISTANT for message in conversation.messages)
        last = max((index for index, is_own in enumerate(is_answer) if is_own), default=-1)
        for turn, (start, stop) in turns.open_turns.items():
            if turn in conversation.untrained or (turn != last and self._settings.loss_mode == "last_turn"):
                continue
            if start == stop:
                detail = f"turn {turn + 1} (assistant) is empty and has no end marker"
                raise RowError(DropReason.NO_ASSISTANT_MASK, detail)
            is_open = is_open or any(mask[start:stop])
        if is_open != chat.lacks_end and (self._markers is None or self._markers.ends):
            if self.has_markers_in_text(conversation):
                raise _marked_text_error()
            detail = "an answer has no end marker of its own, so it is unknown where it ends"
            raise RowError(DropReason.NO_ASSISTANT_MASK, detail)

    def has_markers_in_text(self, conversation: Conversation) -> bool:
        """Return whether a turn's text contains a marker, which a scan could mistake for the template's."""
        assert self._markers is not None
        return self._has_any(conversation, self._markers.all_sequences)

    def _has_any(self, conversation: Conversation, patterns: Sequence[Sequence[int]]) -> bool:
        return self._num_in(texts_of(conversation), patterns) > 0

    def _num_in(self, texts: Sequence[str], patterns: Sequence[Sequence[int]]) -> int:
        """Return at how many places texts, each tokenised alone, have some of the markers' or openers' tokens."""
        if self._has_marker_text is not None and not self._has_marker_text("\0".join(texts)):
            return 0
        # only rendered text reaches the model, and it is checked to be Unicode
        encoded = [np.array(self._tokenizer.encode(text)) for text in filter(is_unicode, texts)]
        return sum(len({*chain(*(find_all(ids, pattern).tolist() for pattern in patterns))}) for ids in encoded)

    def _assistant_turns(
        self,
        conversation: Conversation,
        ids: list[int],
        own: list[int] | None,
        scanned: FoundTurns | None,
        prefixes: Prefixes,
    ) -> FoundTurns:
        if self._markers is None:
            if own is None:
                raise RowError(DropReason.NO_ASSISTANT_MASK, "the template's generation blocks gave no mask")
            return FoundTurns(own, {})
        has_own = own is not None and any(own)
        scan_is_first = self._markers.joins_starts
        by_prefixes = partial(prefixes.assistant_turns, self._markers, self._num_quoted, includes_content=not has_own)
        found = None if scan_is_first else by_prefixes()
        if found is None and not self.has_markers_in_text(conversation):
            found = scanned
            if own is not None or self._has_any(conversation, self._stops):
                found = self._scan_one(conversation, ids, includes_content=not has_own)
        if found is None and scan_is_first:
            found = by_prefixes()
        if found is not None and own is not None:
            mask = [max(bits) for bits in zip(own, found.mask, strict=True)]
            return found._replace(mask=mask, has_only_trained=False)
        if found is not None:
            return found
        if own is not None:
            return FoundTurns(own, {})
        raise self._no_mask(conversation, ids)

    def _num_quoted(self, messages: Sequence[Message], patterns: Sequence[Sequence[int]]) -> int:
        """Return at how many places the texts of messages have some of the markers' or openers' tokens."""
        return self._num_in(list(texts_within([said_in(message) for message in messages])), patterns)

    def _scan_one(self, conversation: Conversation, ids: list[int], *, includes_content: bool) -> FoundTurns | None:
        """Return what a scan finds of one conversation whose texts have no marker, but perhaps openers.

        Openers in the assistant's texts do not open turns. A scan for markers alone then counts, if it runs over as
        many openers as these texts have.
        """
        assert self._markers is not None
        roles = [message["role"] for message in conversation.messages]
        answers = [message for message in conversation.messages if message["role"] == ASSISTANT]
        openers = [(token,) for token in self._markers.openers]
        num_quoted = self._num_quoted(answers, openers)
        markers = replace(self._markers, openers=frozenset()) if num_quoted else self._markers
        num_turns = np.array([markers.num_turns(roles)])
        turns = scan_turns(joined([ids]), markers, num_turns, includes_content=includes_content)
        if not turns.is_found[0] or (turns.is_open[0] and roles[-1] != ASSISTANT):
            return None
        if num_quoted and np.isin(np.array(ids)[turns.mask > 0], list(self._markers.openers)).sum() != num_quoted:
            return None
        return found_turns(turns.mask.tolist(), conversation, is_open=bool(turns.is_open[0]))

    def _last_turn_start(
        self, turns: FoundTurns, conversation: Conversation, prefixes: Prefixes, *, has_own: bool
    ) -> int:
        """Return where the last answer begins; never before the end of the answer before it.

        Raises:
            RowError: that is unknown.
        """
        answers = [index for index, message in enumerate(conversation.messages) if message["role"] == ASSISTANT]
        if not answers or (self._markers is not None and self._markers.joins_starts):
            return _last_span_start(turns.mask)
        if answers[-1] in turns.open_turns:
            return turns.open_turns[answers[-1]][0]
        last, num_spans = _last_span_start(turns.mask), len(_span_starts(turns.mask))
        if num_spans == len(answers) and not has_own:
            return last
        start = prefixes.required_length(answers[-1])
        if num_spans == len(answers) and last >= start:
            return last
        if not any(turns.mask[start:]):
            detail = f"{len(answers)} assistant turns but {num_spans} trained spans, and none is in the last turn"
            raise RowError(DropReason.NO_ASSISTANT_MASK, detail)
        return start

    def _no_mask(self, conversation: Conversation, ids: list[int]) -> RowError:
        assert self._markers is not None
        if not any(message["role"] == ASSISTANT for message in conversation.messages):
            return RowError(DropReason.NO_ASSISTANT_MASK, "there is no assistant turn")
        if self.has_markers_in_text(conversation):
            return _marked_text_error()
        if all(find_span(ids, start) < 0 for start in self._markers.assistant_starts):
            markers, text = self._markers, self._tokenizer.decode(ids)
            detail = why_missing(self._tokenizer, markers.start_texts, markers.assistant_starts, text)
            return RowError(DropReason.NO_ASSISTANT_MASK, detail)
        return RowError(
            DropReason.NO_ASSISTANT_MASK, f"the rendered turns do not match the conversation's; {_cure(conversation)}"
        )


def found_turns(mask: list[int], conversation: Conversation, *, is_open: bool) -> FoundTurns:
    """Return the turns that a scan found, the last without an end if it `is_open`."""
    if not is_open:
        return FoundTurns(mask, {})
    start = _last_span_start(mask) if mask[-1] else len(mask)
    return FoundTurns(mask, {len(conversation.messages) - 1: (start, len(mask))})


def _cure(conversation: Conversation) -> str:
    """Return what to do about turns that the template does not write one by one."""
    roles = [message["role"] for message in conversation.messages]
    alike = next((turn for turn, (role, after) in enumerate(pairwise(roles), 1) if role == after), None)
    if alike is None:
        return "set preprocessing.assistant_markers, or use another template"
    both = f"turns {alike} and {alike + 1} both have the role {roles[alike]}, which the template may write as one"
    return f"{both}: join their texts in one turn, or use another template"


def _marked_text_error() -> RowError:
    detail = "a turn's text contains the chat template's own turn markers, so its turns cannot be told apart"
    return RowError(DropReason.CONTROL_TOKENS_IN_TEXT, detail)


def _last_span_start(mask: list[int]) -> int:
    return max(_span_starts(mask), default=0)


def _span_starts(mask: list[int]) -> list[int]:
    return [index for index, bit in enumerate(mask) if bit and (index == 0 or not mask[index - 1])]


def _texts_in(tokenizer: ChatTokenizer, sequences: Sequence[Sequence[int]]) -> tuple[str, ...] | None:
    """Return texts of which every text with such tokens contains at least one; None if there is no such list."""
    text_of = {index: text for text, index in tokenizer.added_tokens.items()}
    isolated, found = tokenizer.isolated_token_ids, set()
    for sequence in sequences:
        token = next((token for token in sequence if token in isolated), None)
        plain = tokenizer.decode(sequence).strip() if tokenizer.keeps_bytes else ""
        found.add(plain if token is None else text_of[token])
    return None if "" in found else tuple(sorted(found))
