"""Conversations -> tokens and masks, equal to Megatron-Bridge's chat preprocessing, in passes.

A row is read, refused or rendered, and judged (`ChatEncoder.prepare`); then the answers of many are found and filtered,
and become arrays (`ChatEncoder.encode`). A finding is a function in the list that `chat_encoder` makes.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.conversation import Conversation, ConversationReader, RenderedChat, texts_of
from bridgepack.data.sequences.encoding import FlatBatch, Loss, Prepared, mask_out
from bridgepack.data.sequences.findings.answers import AnswerFindings, empty_answer
from bridgepack.data.sequences.findings.case import ChatCase, Finding
from bridgepack.data.sequences.findings.doubled_tokens import DoubledInChats
from bridgepack.data.sequences.findings.lost_content import LostContentFinder
from bridgepack.data.sequences.findings.tools import ToolFindings
from bridgepack.data.sequences.findings.unread import UnreadInChats
from bridgepack.data.sequences.rendering import ChatRenderer
from bridgepack.data.sequences.trained import TrainedAnswers
from bridgepack.data.templates.facts import TemplateFacts
from bridgepack.data.tokenizers.limits import TimeLimit
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import LOSS_CURES, TOLERATED_LOSSES, DropReason, LostKind
from bridgepack.records.rows import ReadRow

_ENDLESS = Loss(
    LostKind.NO_END,
    "the template writes no end after an answer, so the model does not learn to stop; set assistant_markers with a "
    "stop_token",
)
#: What a row with media loses beside it.
_OF_MEDIA = frozenset({LostKind.TEXT, LostKind.CONTENT_PARTS})


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatEncoder:
    """Turns rows with conversations into ids and token-aligned masks, pass by pass."""

    read: Callable[[ReadRow], Conversation]
    refusals: tuple[Callable[[Conversation], None], ...]  #: each raises RowError for a conversation that is not wanted
    renderer: ChatRenderer
    unread: UnreadInChats
    findings: tuple[Finding, ...]
    keeps_losses: bool  #: a row that loses content is kept
    of_each_row: tuple[Loss, ...]  #: what every row loses
    answers: TrainedAnswers
    never_trained: tuple[int, ...]  #: ids

    def prepare(self, row: ReadRow) -> Prepared:
        """Return a row's conversation with its rendered text, or the parts that it is split into.

        Raises:
            RowError: there is no conversation, the template rejects it, or loses content that the recipe wants kept.
        """
        conversation = self.read(row)
        for refuse in self.refusals:
            refuse(conversation)
        parts = self.renderer.parts(conversation)
        unread, losses = self.unread.fields(row, conversation, parts.chats), parts.losses
        chats, stops, num_characters = parts.chats, parts.stops, 0
        for index, chat in enumerate(chats):
            num_characters += len(chat.text)
            chat_losses = self._judge(ChatCase(row, chat, unread, stops[index] if stops else ""))
            if chat_losses:
                losses += tuple(chat_losses)
                if any(loss.kind == LostKind.NO_END for loss in chat_losses):
                    chats[index] = chat._replace(lacks_end=True)
        if losses or self.of_each_row:
            losses = (*self._tolerate(losses), *self.of_each_row)
        more = tuple(chats[1:])
        return Prepared(num_characters, chats[0], losses, unread, more, parts.turns, parts.removed, stops)

    def _judge(self, case: ChatCase) -> list[Loss]:
        """Return the findings of a conversation and its row; of media alone, where its parts and texts are lost."""
        losses: list[Loss] = []
        for find in self.findings:
            losses += find(case)
        if losses and any(loss.kind == LostKind.MEDIA for loss in losses):
            losses = [loss for loss in losses if loss.kind not in _OF_MEDIA]
        return losses

    def _tolerate(self, losses: tuple[Loss, ...]) -> Iterable[Loss]:
        """Return the first loss of each kind; raises RowError if the recipe wants what is lost."""
        for kind, detail in () if self.keeps_losses else losses:
            if kind not in TOLERATED_LOSSES:
                raise RowError(DropReason.LOST_CONTENT, f"{kind}: {detail}; {LOSS_CURES[kind]}")
        return list({loss.kind: loss for loss in reversed(losses)}.values())[::-1]

    def encode(self, rows: Sequence[RenderedChat]) -> FlatBatch:
        """Return the tokens and masks of conversations; raises DataError if many take too much time or memory."""
        errors: dict[int, RowError] = {}
        with TimeLimit() as limit:  # masks may need renders of a conversation's parts
            flat, segments = self.answers.encode(rows, errors, limit)
        mask = segments.mask(len(flat.input_ids))
        mask_out(mask, flat.input_ids, self.never_trained)
        num_context = np.full(len(rows), -1, dtype=np.int32)
        return FlatBatch(flat.input_ids, mask, flat.offsets, num_context, errors, segments)


def chat_encoder(
    tokenizer: ChatTokenizer,
    settings: ChatPreprocessing,
    facts: TemplateFacts | None = None,
    *,
    as_host: Collection[str] = (),
    max_runtime_length: int | None = None,
) -> ChatEncoder:
    """Return the encoder of conversations.

    `facts` are those of the chat template; None learns them. `as_host` as of `Mender`. `max_runtime_length` is needed
    where over-long conversations lose their history.

    Raises:
        TokenizerError: there is no chat template, or it does not support the settings.
    """
    facts = facts or TemplateFacts.of(tokenizer, settings)
    template, markers = tokenizer.chat_template or "", facts.markers
    reader = ConversationReader(
        settings, facts.forms, as_host=as_host, template=template, thought_fields=facts.thought_fields
    )
    refusals: list[Callable[[Conversation], None]] = []
    if settings.control_tokens == "drop":
        refusals.append(partial(_refuse_control_tokens, tokenizer.control_tokens))
    if settings.empty_answers == "drop":
        refusals.append(_refuse_empty_answers)
    unread = UnreadInChats(tokenizer, settings)
    return ChatEncoder(
        read=reader.read,
        refusals=tuple(refusals),
        renderer=ChatRenderer(tokenizer, settings, facts, max_runtime_length),
        unread=unread,
        findings=(
            LostContentFinder(tokenizer, markers, settings.loss_mode).find,
            unread.find,
            DoubledInChats(tokenizer, markers).find,
            ToolFindings(tokenizer.config.chat_template_kwargs).find,
            AnswerFindings(template).find,
        ),
        keeps_losses=settings.on_lost_content == "keep",
        # where the recipe does not say that the model learns no end
        of_each_row=(_ENDLESS,) if markers and not markers.ends and settings.assistant_markers is None else (),
        answers=TrainedAnswers(tokenizer, settings, facts),
        never_trained=tuple(sorted(tokenizer.never_trained_ids)) if settings.masks_control_tokens else (),
    )


def _refuse_control_tokens(control_tokens: Sequence[str], conversation: Conversation) -> None:
    for text in texts_of(conversation):
        control_token = next((token for token in control_tokens if token in text), None)
        if control_token is not None:
            raise RowError(DropReason.CONTROL_TOKENS_IN_TEXT, f"the text contains {control_token!r}")


def _refuse_empty_answers(conversation: Conversation) -> None:
    if (index := empty_answer(conversation)) >= 0:
        detail = f"turn {index + 1} (assistant) is empty; preprocessing.empty_answers is drop"
        raise RowError(DropReason.MISSING_FIELD, detail)
