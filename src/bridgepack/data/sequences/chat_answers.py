"""Finds the answers of rendered conversations, as segments of their tokens.

A scan for the markers of turns is certain where no turn's text has a marker, there are as many starts as answers, in
the text, too, each answer has one end, and calls change none of that. Any other conversation is rendered once more with
marks around what its turns say (`data/answers`), which proves where each answer is.

Where Megatron-Bridge leaves an answer untrained because nothing ends it, it is trained here to where the next turn or
the text's end is. The chat's text must then show the same (`RenderedChat.lacks_end`), or the row is dropped.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, pairwise

import numpy as np

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.answers.finder import AnswerFinder
from bridgepack.data.answers.parts import has_results
from bridgepack.data.answers.regions import UnplaceableError
from bridgepack.data.answers.scan import BoolArray, ScannedTurns, find_all, scan_turns
from bridgepack.data.answers.segments import Kind, Segment, Segments
from bridgepack.data.answers.tokens import TokenRegion, token_regions
from bridgepack.data.sequences.conversation import Conversation, RenderedChat, texts_of
from bridgepack.data.templates.marker_tokens import why_missing
from bridgepack.data.templates.markers import TurnMarkers
from bridgepack.data.tokenizers.cutting import CuttingTokens
from bridgepack.data.tokenizers.engines import FlatIds
from bridgepack.data.tokenizers.limits import TimeLimit
from bridgepack.data.tokenizers.texts import finder_of, is_unicode
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.geometry import IntArray
from bridgepack.records import ASSISTANT, DropReason, TokenArray


class ChatAnswers:
    """Finds the answers of conversations: of batches by a scan, and of single ones by marks."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        settings: ChatPreprocessing,
        markers: TurnMarkers,
        *,
        has_plain_calls: bool,
    ) -> None:
        """Take a recipe's settings and the markers of turns; `has_plain_calls` as of `TemplateFacts`."""
        self._tokenizer, self._markers = tokenizer, markers
        #: the ends of other answers do not matter
        self._takes_last_turn = settings.loss_mode == "last_turn"
        self._has_own_markers = settings.assistant_markers is not None
        #: Tokens in a turn's text at which a scan would stop.
        self._stops = (*markers.all_sequences, *((token,) for token in markers.openers))
        texts = _texts_in(tokenizer, self._stops)
        #: Whether a text may have such tokens; None if only its tokens tell.
        self._has_marker_text = None if texts is None else finder_of(texts)
        self._finder = AnswerFinder(tokenizer, markers.around)
        #: a scan may find the answers of chats with calls; with joined starts it takes the last end
        self._scans_calls = markers.joins_starts or has_plain_calls
        self._cutting = CuttingTokens(tokenizer)
        #: starts that a scan may miss, as one token may hold their end and what follows; joined ones are not counted
        is_whole = all(start[-1] in tokenizer.isolated_token_ids for start in markers.assistant_starts)
        self._mergeable_starts = () if is_whole or markers.joins_starts else markers.start_texts

    def find(
        self, chats: Sequence[RenderedChat], flat: FlatIds, errors: dict[int, RowError], limit: TimeLimit
    ) -> Segments:
        """Return the segments of each conversation; adds to `errors` why one has none."""
        roles = [[message["role"] for message in chat.conversation.messages] for chat in chats]
        counts = np.fromiter((turns.count(ASSISTANT) for turns in roles), dtype=np.int64, count=len(roles))
        scan = scan_turns(flat, self._markers, counts)
        is_certain = scan.is_found.copy()
        for index in np.flatnonzero(is_certain).tolist():
            is_open = bool(scan.is_open[index])
            is_certain[index] = (
                is_open == chats[index].lacks_end
                and (not is_open or roles[index][-1] == ASSISTANT)
                and sum(map(chats[index].text.count, self._mergeable_starts)) <= counts[index]
                and (self._scans_calls or not _has_calls(chats[index].conversation))
                and not _has_results_inside(chats[index].conversation)
                and not self._has_any(chats[index].conversation, self._stops)
            )
        answers = (turns_of(roles[index]) for index in np.flatnonzero(scan.is_found).tolist())
        messages = np.array([*chain.from_iterable(answers)], dtype=np.int64)
        rows: list[Segment] = []
        for index in np.flatnonzero(~is_certain).tolist():
            try:
                rows += limit(partial(self._by_marks, index, chats[index]), flat)
            except RowError as error:
                errors[index] = error
        return Segments.concatenate([_segments_of_scan(scan, is_certain, messages), Segments.of(rows)])

    def _by_marks(self, row: int, chat: RenderedChat, flat: FlatIds) -> list[Segment]:
        """Return the segments of a conversation that is rendered once more; raises RowError."""
        conversation, first = chat.conversation, int(flat.offsets[row])
        ids = flat.input_ids[first : int(flat.offsets[row + 1])]
        if all(message["role"] != ASSISTANT for message in conversation.messages):
            raise RowError(DropReason.NO_ASSISTANT_MASK, "there is no assistant turn")
        try:
            regions = self._finder.regions(
                conversation.messages, conversation.tools, conversation.template_kwargs, chat.text
            )
            answers = token_regions(self._tokenizer, self._cutting, chat.text, ids, regions)
        except UnplaceableError as error:
            raise self._why_unknown(conversation, ids, str(error)) from None
        num_answers = sum(message["role"] == ASSISTANT for message in conversation.messages)
        are_joined = len({answer.message for answer in answers}) < num_answers
        if are_joined and (fault := _trained_in_part(conversation)):
            raise fault
        self._check_ends(chat, answers, are_joined=are_joined)
        return [item for answer in answers for item in _segments_of(row, first, answer)]

    def _check_ends(self, chat: RenderedChat, answers: Sequence[TokenRegion], *, are_joined: bool) -> None:
        """Check that answers without an end are those that the text shows, and that none of them is empty.

        Of answers that are joined to one, only the last has its end.
        """
        untrained_turns = chat.conversation.untrained
        last_parts = {answer.message: answer for answer in sorted(answers)}  # what stands before a result may have none
        answers = list(last_parts.values())[-1:] if self._takes_last_turn else list(last_parts.values())
        open_answers = [
            answer for answer in answers if answer.end == answer.stop and answer.message not in untrained_turns
        ]
        for answer in open_answers:
            if answer.start == answer.stop:
                detail = f"turn {answer.message + 1} (assistant) is empty and has no end marker"
                raise RowError(DropReason.NO_ASSISTANT_MASK, detail)
        if self._markers.ends and bool(open_answers) != chat.lacks_end and not (are_joined and chat.lacks_end):
            detail = "an answer has no end marker of its own, so it is unknown where it ends"
            raise RowError(DropReason.NO_ASSISTANT_MASK, detail)

    def _has_any(self, conversation: Conversation, patterns: Sequence[Sequence[int]]) -> bool:
        """Return whether a text of the conversation, tokenised alone, has some of the markers' or openers' tokens."""
        texts = texts_of(conversation)
        if self._has_marker_text is not None and not self._has_marker_text("\0".join(texts)):
            return False
        # only rendered text reaches the model, and it is checked to be Unicode
        token_arrays = (np.array(self._tokenizer.encode(text)) for text in filter(is_unicode, texts))
        return any(len(find_all(ids, pattern)) for ids in token_arrays for pattern in patterns)

    def _why_unknown(self, conversation: Conversation, ids: TokenArray, why: str) -> RowError:
        if self._has_any(conversation, self._markers.all_sequences):
            detail = "a turn's text contains the chat template's own turn markers, so its turns cannot be told apart"
            return RowError(DropReason.CONTROL_TOKENS_IN_TEXT, f"{detail} ({why})")
        if all(not len(find_all(ids, start)) for start in self._markers.assistant_starts):
            markers, text = self._markers, self._tokenizer.decode(ids.tolist())
            detail = why_missing(self._tokenizer, markers.start_texts, markers.assistant_starts, text)
            return RowError(DropReason.NO_ASSISTANT_MASK, detail)
        cure = _cure(conversation, has_own_markers=self._has_own_markers)
        return RowError(
            DropReason.NO_ASSISTANT_MASK, f"the rendered turns do not match the conversation's ({why}); {cure}"
        )


def _trained_in_part(conversation: Conversation) -> RowError | None:
    """Return an error if messages that the template joins to one turn are not all trained or all untrained."""
    roles = [message["role"] for message in conversation.messages]
    for index, pair in enumerate(pairwise(roles)):
        if pair == (ASSISTANT, ASSISTANT) and (index in conversation.untrained) != (
            index + 1 in conversation.untrained
        ):
            detail = f"turns {index + 1} and {index + 2} (assistant) are one turn, of which a part is untrained"
            return RowError(DropReason.NO_ASSISTANT_MASK, detail)
    return None


def _has_calls(conversation: Conversation) -> bool:
    return any(message["role"] == "tool" or message.get("tool_calls") for message in conversation.messages)


def _has_results_inside(conversation: Conversation) -> bool:
    messages = () if conversation.is_plain else conversation.messages  # fast path
    return any(message["role"] == ASSISTANT and has_results(message) for message in messages)


def turns_of(roles: Sequence[str]) -> list[int]:
    """Return the positions of the assistant's messages."""
    return [index for index, role in enumerate(roles) if role == ASSISTANT]


def _segments_of_scan(scan: ScannedTurns, is_certain: BoolArray, messages: IntArray) -> Segments:
    is_kept = is_certain[scan.text]
    columns = (scan.text, scan.header, scan.content, scan.end, scan.stop)
    text, header, content, end, stop = (column[is_kept] for column in columns)
    header[1:] = np.maximum(header[1:], stop[:-1])
    edges = [(Kind.HEADER, header, content), (Kind.TEXT, content, end), (Kind.END, end, stop)]
    parts = []
    for kind, start, after in edges:
        part = Segments(row=text, message=messages[is_kept], kind=np.full(len(text), kind), start=start, stop=after)
        parts.append(part.only(start < after))
    return Segments.concatenate(parts)


def _segments_of(row: int, first: int, answer: TokenRegion) -> Iterator[Segment]:
    """Yield the segments of an answer whose conversation begins at a token."""
    edges = first + answer.header, first + answer.start, first + answer.end, first + answer.stop
    for kind, (start, stop) in zip(Kind, pairwise(edges), strict=True):
        yield Segment(row, answer.message, kind, start, stop)


def _cure(conversation: Conversation, *, has_own_markers: bool) -> str:
    """Return what to do about turns that the template does not write one by one; the recipe may have markers."""
    roles = [message["role"] for message in conversation.messages]
    alike = next((turn for turn, (role, after) in enumerate(pairwise(roles), 1) if role == after), None)
    if alike is None and has_own_markers:
        return "use a template that begins and ends each answer with assistant_markers, or remove the row"
    if alike is None:
        return "set preprocessing.assistant_markers, or use another template"
    turns_text = f"turns {alike} and {alike + 1} both have the role {roles[alike]}, which the template may write as one"
    return f"{turns_text}: join their texts in one turn, or use another template"


def _texts_in(tokenizer: ChatTokenizer, sequences: Sequence[Sequence[int]]) -> tuple[str, ...] | None:
    """Return texts of which every text with such tokens contains at least one; None if there is no such list."""
    text_of = {index: text for text, index in tokenizer.added_tokens.items()}
    isolated_ids, texts = tokenizer.isolated_token_ids, set()
    for sequence in sequences:
        token = next((token for token in sequence if token in isolated_ids), None)
        plain = tokenizer.decode(sequence).strip() if tokenizer.keeps_bytes else ""
        texts.add(plain if token is None else text_of[token])
    return None if "" in texts else tuple(sorted(texts))
