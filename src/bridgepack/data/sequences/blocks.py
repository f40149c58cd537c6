"""Answers that the template itself shows in `{% generation %}` blocks, as segments.

A block's text is trained, whosever it is, and beside it the end of each answer that the markers of turns show, as
Megatron-Bridge trains both.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial

from bridgepack.data.answers.finder import AnswerFinder
from bridgepack.data.answers.regions import UnplaceableError
from bridgepack.data.answers.segments import NO_ANSWER, Kind, Segment, Segments
from bridgepack.data.sequences.chat_answers import ChatAnswers
from bridgepack.data.sequences.conversation import Conversation, RenderedChat
from bridgepack.data.templates.markers import TurnTexts
from bridgepack.data.tokenizers.engines import FlatIds
from bridgepack.data.tokenizers.limits import TimeLimit
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import ASSISTANT, DropReason

#: (start, stop)
Range = tuple[int, int]


class BlockAnswers:
    """Finds the answers of conversations by the generation blocks of one chat template."""

    def __init__(self, tokenizer: ChatTokenizer, answers: ChatAnswers | None, *, names_answers: bool) -> None:
        """Take what finds answers by the markers of turns, if the template has any.

        `names_answers`: all rows need to know whose each block is, as one of the settings leaves out answers.
        """
        self._tokenizer, self._answers, self._names_answers = tokenizer, answers, names_answers
        self._finder = AnswerFinder(tokenizer, TurnTexts())

    def find(
        self,
        chats: Sequence[RenderedChat],
        blocks: Sequence[Sequence[Range]],
        flat: FlatIds,
        errors: dict[int, RowError],
        limit: TimeLimit,
    ) -> Segments:
        """Return the segments of each conversation; `blocks` are the tokens of each block of a conversation."""
        by_markers = Segments.of([])
        if self._answers is not None:
            by_markers = self._answers.find(chats, flat, {}, limit)
        rows: list[Segment] = []
        for row, (chat, ranges) in enumerate(zip(chats, blocks, strict=True)):
            answers = by_markers.of_row(row)
            if not any(start < stop for start, stop in ranges):
                rows += answers
                continue
            first = int(flat.offsets[row])
            messages = [NO_ANSWER] * len(ranges)
            if self._names_answers or chat.conversation.untrained:
                try:
                    messages = limit(partial(messages_of_blocks, self._finder), chat)
                except RowError as error:
                    errors[row] = error
                    continue
            texts = [
                Segment(row, message, Kind.TEXT, first + start, first + stop)
                for message, (start, stop) in zip(messages, ranges, strict=False)  # what has no token is no block
            ]
            rows += _without_overlaps(texts, [item for item in answers if item.kind == Kind.END])
        return Segments.of(rows)


def messages_of_blocks(finder: AnswerFinder, chat: RenderedChat) -> list[int]:
    """Return the message that each of the chat's generation blocks says; `NO_ANSWER` if it is no answer.

    Raises:
        RowError: that is unknown.
    """
    conversation = chat.conversation
    try:
        texts, spots = finder.place(conversation.messages, conversation.tools, conversation.template_kwargs, chat.text)
    except UnplaceableError as error:
        raise _untold(chat, str(error)) from None
    messages: list[int | None] = []
    for start, stop in chat.spans or ():
        inside = {texts[spot.text].message for spot in spots if start <= spot.start and spot.stop <= stop}
        answers = {message for message in inside if conversation.messages[message]["role"] == ASSISTANT}
        if len(answers) > 1:
            raise _untold(chat, "a block holds several answers")
        is_told = bool(inside) or start == stop  # nobody needs to know whose an empty block is
        messages.append(next(iter(answers), NO_ANSWER if is_told else None))
    silent = _answers(conversation) - {message for message in messages if message is not None}
    if messages.count(None) == len(silent):
        ascending = iter(sorted(silent))
        return [next(ascending) if message is None else message for message in messages]
    if silent and None in messages:
        raise _untold(chat, "a block says nothing")
    owners = [texts[spot.text].message for spot in spots]
    for index, (start, stop) in enumerate(chat.spans or ()):
        if messages[index] is None:
            before, behind = (bisect_left(spots, (place, 0, 0, 0)) for place in (start, stop))
            messages[index] = _answer_around(chat, owners[max(before - 1, 0) : behind + 1])
    return [message for message in messages if message is not None]


def _answer_around(chat: RenderedChat, owners: Sequence[int]) -> int:
    """Return the answer of a block without texts: it has markers of thoughts, or an end.

    `owners` are the messages whose texts stand right before and behind it.

    Raises:
        RowError: they are two answers, or none.
    """
    answers = _answers(chat.conversation).intersection(owners)
    if len(answers) != 1:
        raise _untold(chat, "a block says nothing")
    return answers.pop()


def _answers(conversation: Conversation) -> set[int]:
    return {index for index, message in enumerate(conversation.messages) if message["role"] == ASSISTANT}


def _untold(chat: RenderedChat, why: str) -> RowError:
    num_turns, num_blocks = len(_answers(chat.conversation)), len(chat.spans or ())
    detail = f"{num_turns} assistant turns but {num_blocks} trained spans, so untrained turns cannot be found ({why})"
    return RowError(DropReason.NO_ASSISTANT_MASK, detail)


def _without_overlaps(texts: Sequence[Segment], ends: Sequence[Segment]) -> list[Segment]:
    """Return the segments of blocks, and the ends beside them; what is in several belongs to the first."""
    segments: list[Segment] = []
    place = 0
    for item in sorted([*texts, *ends], key=lambda item: (item.start, item.kind)):
        start = max(item.start, place)
        if start < item.stop:
            segments.append(item._replace(start=start))
            place = item.stop
    return segments
