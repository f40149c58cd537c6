"""Compares the answers of rows, read and tokenised as a build does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.conversation import RenderedChat
from bridgepack.data.sequences.encoding import Prepared
from bridgepack.data.sequences.kinds import EncoderOfKinds, OfKind
from bridgepack.data.sequences.over_long import REASONS, SequencePolicy
from bridgepack.data.served.answer_tokens import AnswerTokens, Span
from bridgepack.data.served.compare import ServedAnswer, ServedComparer
from bridgepack.data.tokenizers.limits import TimeLimit
from bridgepack.errors import ConfigError, RowError
from bridgepack.records import ASSISTANT, CURING_SETTINGS, DropReason, MaskArray, ServedKind, TokenArray
from bridgepack.records.rows import ReadRow
from bridgepack.records.sequences import token_counts

if TYPE_CHECKING:
    from bridgepack.data.sequences.loading import LoadedStage


_CHAT = "chat"
_CUT = "earlier exchanges are left out, as preprocessing.over_long says"
_SPLIT = (
    "the sequence was split, and the piece with the answer lacks what stands before it; preprocessing.over_long "
    "split_exchanges splits between exchanges and shows the system prompt again, if an exchange fits"
)
#: Reasons for which a piece of a conversation is dropped alone.
_OF_PIECES = frozenset({*REASONS, DropReason.TRUNCATED_NO_TRAINED_TOKEN})
#: Kinds that an answer keeps if a part of it is cut off.
_WORSE_THAN_CUT = frozenset({ServedKind.REFUSED, ServedKind.CONTEXT})
#: Rendering a message costs as much as so many characters.
_MESSAGE_COST = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedRows:
    """Compares rows of one recipe."""

    stage: LoadedStage
    comparer: ServedComparer
    policy: SequencePolicy

    @classmethod
    def of(cls, stage: LoadedStage, *, shows_texts: bool = True) -> ServedRows:
        """Return what compares the rows of a loaded stage; `shows_texts` as of `ServedComparer`.

        Raises:
            ConfigError: the recipe's rows are no conversations.
        """
        recipe = stage.recipe
        if recipe.chat_preprocessing is None:
            raise ConfigError(
                f"preprocessing.kind is {recipe.preprocessing.kind}; a server's text is known of conversations only, "
                "kind chat. `bridgepack prove masks` compares the masks.",
                field="preprocessing.kind",
            )
        settings, facts = recipe.applied_preprocessing.of_kind(_CHAT), stage.facts
        assert isinstance(settings, ChatPreprocessing)
        assert facts is not None
        return cls(
            stage=stage,
            comparer=ServedComparer(stage.tokenizer, settings, facts, recipe.serving, shows_texts=shows_texts),
            policy=SequencePolicy.of(recipe.resolve(), stage.tokenizer.eos_token_id, _CHAT),
        )

    @property
    def settings(self) -> dict[str, object]:
        """The recipe's settings that cures propose, of those that are set already."""
        chat_settings = self.stage.recipe.preprocessing.of_kind(_CHAT)
        return {
            name: value
            for name, curing_values in CURING_SETTINGS.items()
            if (value := getattr(chat_settings, name)) in curing_values
        }

    def answers(
        self, rows: Sequence[ReadRow], *, most_characters: int | None = None
    ) -> list[list[ServedAnswer] | RowError]:
        """Return the trained answers of each row, or why it gives no sequence; takes rows as layouts read them.

        Rows of other kinds give no answers, nor do those of which more than `most_characters` would be rendered.
        """
        return list(self.iter_answers(rows, most_characters=most_characters))

    def iter_answers(
        self, rows: Sequence[ReadRow], *, most_characters: int | None = None
    ) -> Iterator[list[ServedAnswer] | RowError]:
        """Yield what `answers` returns; encodes all rows first, and compares each when it is asked for."""
        for answers, _ in self.iter_with_tokens(rows, most_characters=most_characters):
            yield answers

    def iter_with_tokens(
        self, rows: Sequence[ReadRow], *, most_characters: int | None = None
    ) -> Iterator[tuple[list[ServedAnswer] | RowError, int]]:
        """Yield what `answers` returns, and the runtime tokens of each row's sequences."""
        prepared_rows: list[list[_Piece] | RowError] = []
        with TimeLimit() as limit:
            for row in rows:
                try:
                    row_pieces = list(_pieces_of(limit(self.stage.encoder.prepare, row)))
                except RowError as error:
                    prepared_rows.append(error)
                    continue
                is_small = (
                    most_characters is None or sum(num_rendered(part.chat) for part in row_pieces) <= most_characters
                )
                prepared_rows.append(row_pieces if is_small else [])
            pieces = [
                piece for row_pieces in prepared_rows if not isinstance(row_pieces, RowError) for piece in row_pieces
            ]
            comparisons = self._iter_compared([piece.chat for piece in pieces], limit)
            for item in prepared_rows:
                if isinstance(item, RowError):
                    yield item, 0
                    continue
                members = list(zip(item, comparisons, strict=False))
                answers = _of_row([(piece, outcome) for piece, (outcome, _) in members]) if item else []
                yield answers, 0 if isinstance(answers, RowError) else sum(count for _, (_, count) in members)

    def compare_chats(
        self, chats: Sequence[RenderedChat], limit: TimeLimit | None = None
    ) -> list[list[ServedAnswer] | RowError]:
        """Return the trained answers of rendered conversations, or why they give no sequence."""
        return [answers for answers, _ in self._iter_compared(chats, limit)]

    def _iter_compared(
        self, chats: Sequence[RenderedChat], limit: TimeLimit | None
    ) -> Iterator[tuple[list[ServedAnswer] | RowError, int]]:
        has_kinds = isinstance(self.stage.encoder, EncoderOfKinds)
        batch = self.stage.encoder.encode([OfKind(_CHAT, chat) for chat in chats] if has_kinds else chats)
        for index, chat in enumerate(chats):
            start, stop = int(batch.offsets[index]), int(batch.offsets[index + 1])
            ids, mask = batch.input_ids[start:stop], batch.loss_mask[start:stop]
            kept_spans = batch.errors.get(index) or self._kept_spans(ids, mask, int(batch.num_context[index]))
            if isinstance(kept_spans, RowError):
                yield kept_spans, 0
                continue
            num_tokens = sum(stop - start - 1 for start, stop in kept_spans)
            tokens = AnswerTokens.of(batch.segments.of_row(index), self.policy.mask_of_row(ids, mask), start)
            case = _Case(chat, ids, tokens, kept_spans)
            try:
                yield limit(self._compare, case) if limit is not None else self._compare(case), num_tokens
            except RowError as error:
                yield [ServedAnswer(turn=1, kind=ServedKind.REFUSED, detail=error.detail)], num_tokens

    def _compare(self, case: _Case) -> list[ServedAnswer]:
        tokens = self.comparer.name_blocks(case.chat, case.tokens)
        answers = self.comparer.compare(case.chat, case.input_ids, tokens)
        return _packed_answers(answers, tokens, case.kept_spans, splits=self.policy.splits)

    def _kept_spans(self, ids: TokenArray, mask: MaskArray, num_context: int) -> list[Span] | RowError:
        """Return which tokens of an uncut sequence are packed, sequence by sequence, or why none are."""
        if len(ids) < 2:
            return RowError(DropReason.TOO_SHORT, f"{len(ids)} tokens; next-token loss needs at least 2")
        _, num_learned = token_counts(ids, mask, np.array([0, len(ids)]), self.policy.eos_token_id)
        judgement = self.policy.judge(np.array([len(ids)]), num_learned)
        code = int(judgement.codes[0])
        if code:
            return RowError(DropReason(REASONS[code]), self.policy.detail(code, len(ids)))
        if not judgement.needs_cut[0]:
            return [(0, len(ids))]
        cut = self.policy.cut(ids, mask, num_context)
        if isinstance(cut, RowError):
            return cut
        return [(piece.first_token, piece.first_token + len(piece[0])) for piece in cut]


class _Case(NamedTuple):
    """A conversation's uncut sequence, and which of its tokens are packed."""

    chat: RenderedChat
    input_ids: TokenArray
    tokens: AnswerTokens
    kept_spans: Sequence[Span]


class _Piece(NamedTuple):
    """A conversation, or a piece of one."""

    chat: RenderedChat
    removed: frozenset[int]  #: positions of messages that were left out on purpose

    @property
    def kept_turns(self) -> list[int]:
        """Positions in the row of the messages that are left."""
        num_messages = len(self.chat.conversation.messages) + len(self.removed)
        return [index for index in range(num_messages) if index not in self.removed]

    def with_row_turn(self, answer: ServedAnswer) -> ServedAnswer:
        """Return an answer with its turn in the row; one that equals what is served but for its history is cut."""
        turn = self.kept_turns[answer.turn - 1] + 1
        if answer.kind == ServedKind.EQUAL and any(index < turn for index in self.removed):
            return replace(answer, turn=turn, kind=ServedKind.CUT, detail=_CUT)
        return replace(answer, turn=turn)


def _pieces_of(row: Prepared) -> Iterator[_Piece]:
    removed_turns = row.removed or (frozenset[int](),) * len(row.values)
    for value, positions in zip(row.values, removed_turns, strict=True):
        chat = chat_of(value)
        if chat is not None:
            yield _Piece(chat, positions)


def _of_row(members: Sequence[tuple[_Piece, list[ServedAnswer] | RowError]]) -> list[ServedAnswer] | RowError:
    """Return the answers of a row's pieces, in order; an error that is not about a length drops the whole row."""
    errors = [outcome for _, outcome in members if isinstance(outcome, RowError)]
    dropping = [error for error in errors if error.reason not in _OF_PIECES]
    if dropping or len(errors) == len(members):
        return (dropping or errors)[0]
    answers = [
        piece.with_row_turn(answer)
        for piece, outcome in members
        if not isinstance(outcome, RowError)
        for answer in outcome
    ]
    return sorted(answers, key=lambda answer: answer.turn)


def chat_of(row: Any) -> RenderedChat | None:
    """Return the conversation of a prepared row; None if the row is of another kind."""
    value = row.value if isinstance(row, OfKind) else row
    return value if isinstance(value, RenderedChat) else None


def num_rendered(chat: RenderedChat) -> int:
    """Return how many characters are rendered for a comparison, about; each message costs as some more."""
    messages = chat.conversation.messages
    num_answers = [message["role"] for message in messages].count(ASSISTANT)
    return 2 * num_answers * (len(chat.text) + _MESSAGE_COST * len(messages))


def _packed_answers(
    answers: Sequence[ServedAnswer], tokens: AnswerTokens, kept_spans: Sequence[Span], *, splits: bool
) -> list[ServedAnswer]:
    """Return the answers that are packed, with what became of those whose beginning or end was cut off."""
    packed_answers = []
    for answer in answers:
        span = answer.span
        if span is None or any(start == 0 and span[1] <= stop for start, stop in kept_spans):
            packed_answers.append(answer)
        elif splits:
            is_worse = answer.kind in _WORSE_THAN_CUT
            cut = answer if is_worse else replace(answer, kind=ServedKind.CONTEXT, detail=_SPLIT, token=span[0])
            packed_answers.append(cut)
        elif any(start <= span[0] < stop for start, stop in kept_spans):
            num_tokens = tokens.num_trained(answer.turn - 1, span, before=max(stop for _, stop in kept_spans))
            cut = replace(answer, num_trained_tokens=num_tokens)
            if answer.kind not in _WORSE_THAN_CUT:
                detail = "the sequence was truncated, and the answer lost its end"
                cut = replace(cut, kind=ServedKind.CUT, detail=detail, token=span[0])
            packed_answers.append(cut)
    return packed_answers
