"""The answers that a recipe trains, as segments: which answers, and up to where.

Each setting leaves out some of them. The mask is made of the rest, last (`Segments.mask`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.answers.finder import AnswerFinder
from bridgepack.data.answers.marking import Content, Spot, Text
from bridgepack.data.answers.regions import UnplaceableError
from bridgepack.data.answers.segments import Kind, Segment, Segments
from bridgepack.data.sequences.blocks import BlockAnswers
from bridgepack.data.sequences.chat_answers import ChatAnswers, turns_of
from bridgepack.data.sequences.conversation import RenderedChat
from bridgepack.data.sequences.generation_prompts import Answer, GenerationPrompts
from bridgepack.data.sequences.thoughts import ReasoningMasks, Span, openings_of
from bridgepack.data.templates.facts import TemplateFacts
from bridgepack.data.templates.markers import TurnTexts
from bridgepack.data.tokenizers.engines import FlatIds, join_ids
from bridgepack.data.tokenizers.limits import TimeLimit
from bridgepack.data.tokenizers.places import TokenPlaces
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import DropReason, TokenArray


class TrainedAnswers:
    """Encodes conversations with the masks of one recipe."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        settings: ChatPreprocessing,
        facts: TemplateFacts,
    ) -> None:
        """Take a recipe's settings and the facts of its chat template.

        Raises:
            TokenizerError: a setting needs the positions of tokens, which the tokenizer does not report.
        """
        self._tokenizer, self._settings = tokenizer, settings
        self._takes_last_turn = settings.loss_mode == "last_turn"
        self._answers: ChatAnswers | None = None
        if facts.markers is not None:
            has_plain_calls = facts.has_plain_calls
            self._answers = ChatAnswers(tokenizer, settings, facts.markers, has_plain_calls=has_plain_calls)
        self._blocks: BlockAnswers | None = None
        if facts.has_blocks:
            self._blocks = BlockAnswers(tokenizer, self._answers, names_answers=self._takes_last_turn)
        masks_prompts = settings.mask_generation_prompt
        self._prompts = GenerationPrompts(tokenizer, settings, facts) if masks_prompts else None
        self._finder = AnswerFinder(tokenizer, TurnTexts())
        self._reasoning: ReasoningMasks | None = None
        if settings.reasoning_loss != "keep":
            self._reasoning = ReasoningMasks(tokenizer, settings.reasoning_loss, keeps_empty=masks_prompts)
        self._openings = facts.trimmed_openings

    def encode(
        self, rows: Sequence[RenderedChat], errors: dict[int, RowError], limit: TimeLimit
    ) -> tuple[FlatIds, Segments]:
        """Return tokens and what is trained of them; adds to `errors` why that is unknown for a row."""
        if self._blocks is None:
            flat = self._tokenizer.engine.encode_flat([row.text for row in rows])
        else:
            flat, ranges = self._with_blocks(rows, errors)
        if self._settings.loss_mode == "full":
            return flat, Segments.one_text_each(flat.offsets)
        if self._blocks is not None:
            segments = self._blocks.find(rows, ranges, flat, errors, limit)
        else:
            assert self._answers is not None
            segments = self._answers.find(rows, flat, errors, limit)
        if self._takes_last_turn:
            segments = self._last_turns(segments, rows)
        segments = _without_untrained(segments, rows)
        if self._settings.labels_after_eos == "mask":
            segments = self._without_blanks_after_eos(segments, flat.input_ids)
        if self._prompts is not None or self._reasoning is not None or self._openings:
            segments = self._within_turns(segments, rows, flat, errors, limit)
        return flat, segments

    def _with_blocks(
        self, rows: Sequence[RenderedChat], errors: dict[int, RowError]
    ) -> tuple[FlatIds, list[list[Span]]]:
        """Return tokens, and those of the template's generation blocks, which need each token's character position."""
        encodings = self._tokenizer.encode_with_places([row.text for row in rows])
        ranges: list[list[Span]] = []
        for index, (row, encoding) in enumerate(zip(rows, encodings, strict=True)):
            try:
                ranges.append(self._tokenizer.ranges_of_blocks(encoding, row.spans or []))
            except RowError as error:
                errors[index] = error
                ranges.append([])
        return join_ids([encoding.ids for encoding in encodings]), ranges

    def _last_turns(self, segments: Segments, rows: Sequence[RenderedChat]) -> Segments:
        """Return the segments of each conversation's last answer."""
        roles = ([message["role"] for message in row.conversation.messages] for row in rows)
        last = [max(turns_of(turns), default=0) for turns in roles]
        return segments.only(segments.message == np.array(last, dtype=np.int64)[segments.row])

    def _within_turns(
        self,
        segments: Segments,
        rows: Sequence[RenderedChat],
        flat: FlatIds,
        errors: dict[int, RowError],
        limit: TimeLimit,
    ) -> Segments:
        """Return the answers from where the model begins them, without thoughts that are not trained."""
        answers: list[Segment] = []
        gaps: list[Span] = []
        for row in (index for index in range(len(rows)) if index not in errors):
            first, stop = flat.offsets[row : row + 2].tolist()
            spans = [(item.message, item.start - first, item.stop - first) for item in segments.answers_of(row)]
            try:
                spans, thoughts = limit(partial(self._within, rows[row], flat.input_ids[first:stop]), spans)
            except RowError as error:
                errors[row] = error
                continue
            answers += (Segment(row, turn, Kind.TEXT, first + start, first + stop) for turn, start, stop in spans)
            gaps += ((first + start, first + stop) for start, stop in thoughts)
        return Segments.of(answers).without(gaps)

    def _within(self, chat: RenderedChat, ids: TokenArray, answers: list[Answer]) -> tuple[list[Answer], list[Span]]:
        """Return the answers of one conversation, and which of their tokens are not trained."""
        gaps: list[Span] = []
        if self._prompts is not None:
            parts, answers = answers, self._prompts.correct(chat, ids, answers)
            gaps = self._said_by_others(chat, parts, answers)
        spans = [(start, stop) for _, start, stop in answers]
        thoughts: list[Span] = []
        if self._reasoning is not None:
            thoughts = self._reasoning.tokens(spans, chat.text, partial(self._are_of_one_turn, chat))
        return answers, [*gaps, *thoughts, *openings_of(self._openings, spans, ids)]

    def _said_by_others(self, chat: RenderedChat, parts: Sequence[Answer], answers: Sequence[Answer]) -> list[Span]:
        """Return the tokens between parts of an answer in which a tool's result stands, or another turn's text."""
        between = [(stop, start) for (_, _, stop), (_, start, _) in pairwise(parts) if stop < start]
        between = [gap for gap in between if any(start <= gap[0] and gap[1] <= stop for _, start, stop in answers)]
        if not between:
            return []
        texts, spots = self._place(chat)
        starts = TokenPlaces.of(self._tokenizer, chat.text).starts
        other_places = [spot.start for spot in spots if texts[spot.text].content is Content.CONTEXT]
        return [gap for gap in between if any(starts[gap[0]] <= place < starts[gap[1]] for place in other_places)]

    def _are_of_one_turn(self, chat: RenderedChat, place: Span) -> bool:
        """Return whether a part of the text says nothing of several messages."""
        texts, spots = self._place(chat)
        inside = {texts[spot.text].message for spot in spots if place[0] <= spot.start < place[1]}
        return len(inside) <= 1

    def _place(self, chat: RenderedChat) -> tuple[list[Text], list[Spot]]:
        conversation = chat.conversation
        inputs = conversation.messages, conversation.tools, conversation.template_kwargs
        try:
            return self._finder.place(*inputs, chat.text)
        except UnplaceableError as error:
            detail = f"an answer has several parts, and it is unknown what stands between them ({error})"
            raise RowError(DropReason.NO_ASSISTANT_MASK, detail) from None

    def _without_blanks_after_eos(self, segments: Segments, input_ids: TokenArray) -> Segments:
        """Return segments whose ends stop one token behind EOS, where only white space follows.

        The host trains no label right behind EOS; a tokenizer may write a line end there as two tokens.
        """
        is_end, stops = (segments.kind == Kind.END) & (segments.stop - segments.start > 2), segments.stop.copy()
        for index in np.flatnonzero(is_end).tolist():
            start, stop = int(segments.start[index]), int(segments.stop[index])
            blanks = input_ids[start + 1 : stop].tolist()
            if input_ids[start] == self._tokenizer.eos_token_id and not self._tokenizer.decode(blanks).strip():
                stops[index] = start + 2
        return replace(segments, stop=stops)


def _without_untrained(segments: Segments, rows: Sequence[RenderedChat]) -> Segments:
    """Return segments without those of answers that their row, or the piece that it is, excludes from training."""
    exclusions: list[tuple[int, int]] = []
    for row, chat in enumerate(rows):
        if chat.conversation.untrained:
            exclusions += [(row, message) for message in chat.conversation.untrained]
    if not exclusions:
        return segments
    base = 1 + max(message for _, message in exclusions)
    keys = np.array([row * base + message for row, message in exclusions])
    is_named = (segments.message >= 0) & (segments.message < base)
    return segments.only(~(is_named & np.isin(segments.row * base + segments.message, keys)))
