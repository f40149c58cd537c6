"""Conversations -> tokens and masks, equal to Megatron-Bridge's chat preprocessing; renders each chat once."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bridgepack.config.json_text import parsed_json
from bridgepack.config.layouts.contents import FLAGS, holds, is_empty, is_flag
from bridgepack.config.layouts.keys import REASONING
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.answer_findings import AnswerFindings, empty_answer
from bridgepack.data.sequences.conversation import Conversation, ConversationReader, texts_of
from bridgepack.data.sequences.doubled_tokens import DoubledInChats
from bridgepack.data.sequences.encoding import FlatBatch, Loss, Prepared, mask_out
from bridgepack.data.sequences.lost_content import LostContentFinder
from bridgepack.data.sequences.marked_text import REFUSAL
from bridgepack.data.sequences.markers import ASSISTANT
from bridgepack.data.sequences.marking.of_recipe import markers_for
from bridgepack.data.sequences.masks import RenderedChat
from bridgepack.data.sequences.mending import OLD_CALL, part_hint, text_of_part, thought_fields_of
from bridgepack.data.sequences.splitting.parts import PartMaker, Parts
from bridgepack.data.sequences.thoughts import has_thoughts
from bridgepack.data.sequences.tool_findings import ToolFindings
from bridgepack.data.sequences.trained import TrainedAnswers
from bridgepack.data.sequences.unread import is_written, losses_of, unread_fields, unread_turn_fields
from bridgepack.data.tokenizers.forms import AS_GIVEN, Forms
from bridgepack.data.tokenizers.limits import TimeLimit
from bridgepack.data.tokenizers.templates import names_field, names_read
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.data.tokenizers.variables import why_unread
from bridgepack.errors import RowError
from bridgepack.records import LOSS_CURES, TOLERATED_LOSSES, DropReason, LostKind
from bridgepack.records.rows import ReadRow
from bridgepack.records.sequences import UnreadCount

#: Column with a row's variables for the template, if no layout names one.
_VARIABLES = "chat_template_kwargs"

_ENDLESS = Loss(
    LostKind.NO_END,
    "the template writes no end after an answer, so the model does not learn to stop; set assistant_markers with a "
    "stop_token",
)
#: What a row with media loses beside it.
_OF_MEDIA = frozenset({LostKind.TEXT, LostKind.CONTENT_PARTS})


class ChatEncoder:
    """Turns rows with conversations into ids and token-aligned masks."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        settings: ChatPreprocessing,
        *,
        decides_forms: bool = True,
        as_host: Collection[str] = (),
        trims_openings: bool = False,
        max_runtime_length: int | None = None,
    ) -> None:
        """Check that the template supports the settings.

        `decides_forms` is false where the host reads the data itself: `auto` is then `keep`, and thoughts stay in
        their field. `as_host` as of `Mender`.
        `trims_openings` as of `SFTRecipe.trims_thought_openings`.
        `max_runtime_length` is needed where over-long conversations lose their history.

        Raises:
            TokenizerError: there is no chat template, or no way to tell which tokens the assistant wrote.
        """
        self._tokenizer, self._settings = tokenizer, settings
        #: fields of turns that are read, or looked for by `_losses`
        self._read_fields = frozenset({"role", "content", "tool_calls", OLD_CALL, REFUSAL, *REASONING, *FLAGS})
        markers = markers_for(tokenizer, settings)
        forms = tokenizer.forms if decides_forms and settings.fields_on_auto else AS_GIVEN
        fields = thought_fields_of(tokenizer.chat_template or "") if decides_forms else {}
        template = tokenizer.chat_template
        reader = ConversationReader(settings, forms, as_host=as_host, template=template, thought_fields=fields)
        self._read = reader.read
        self._null_hint = _null_hint(settings, forms)
        self._answers = TrainedAnswers(tokenizer, settings, markers, trims_openings=trims_openings)
        parts = PartMaker(tokenizer, settings, markers, self._render, max_runtime_length)
        self._make: Callable[[Conversation], RenderedChat | Parts] = parts.parts if parts.may_split else self._render
        self._losses = LostContentFinder(tokenizer, markers, settings.loss_mode)
        #: of every row, where the recipe does not say that the model learns no end
        is_endless = markers is not None and not markers.ends and settings.assistant_markers is None
        self._endless = (_ENDLESS,) if is_endless else ()
        self._doubled = DoubledInChats(tokenizer, markers)
        self._tools = ToolFindings(tokenizer.config.chat_template_kwargs)
        self._answer_findings = AnswerFindings(tokenizer.chat_template or "")
        self._never_trained = sorted(tokenizer.never_trained_ids) if settings.masks_control_tokens else []

    def prepare(self, row: ReadRow) -> Prepared:
        """Return a row's conversation with its rendered text, or the parts that it is split into.

        Raises:
            RowError: there is no conversation, the template rejects it, or loses content that the recipe wants kept.
        """
        conversation = self._read(row)
        for text in texts_of(conversation) if self._settings.control_tokens == "drop" else ():
            control_token = next((token for token in self._tokenizer.control_tokens if token in text), None)
            if control_token is not None:
                raise RowError(DropReason.CONTROL_TOKENS_IN_TEXT, f"the text contains {control_token!r}")
        if self._settings.empty_answers == "drop" and (index := empty_answer(conversation)) >= 0:
            detail = f"turn {index + 1} (assistant) is empty; preprocessing.empty_answers is drop"
            raise RowError(DropReason.MISSING_FIELD, detail)
        try:
            outcome = self._make(conversation)
        except RowError as error:
            is_null = any(message["content"] is None for message in conversation.messages)
            hint = (self._null_hint if is_null else "") or part_hint(conversation.messages)
            raise RowError(error.reason, error.detail + hint) from None
        unread = self._unread_fields(row, conversation, outcome)
        if isinstance(outcome, RenderedChat):
            chat, losses = self._judge_render(row, outcome, unread)
            if losses or self._endless:
                losses = (*self._tolerate(losses), *self._endless)
            return Prepared(len(chat.text), chat, losses, unread)
        chats, losses = [], outcome.losses
        for part, stop in zip(outcome.chats, outcome.stops or [""] * len(outcome.chats), strict=True):
            chat, part_losses = self._judge_render(row, part, unread, stop)
            chats.append(chat)
            losses += part_losses
        num_characters, more = sum(len(chat.text) for chat in chats), tuple(chats[1:])
        losses = (*self._tolerate(losses), *self._endless)
        return Prepared(num_characters, chats[0], losses, unread, more, outcome.turns, outcome.removed, outcome.stops)

    def _judge_render(
        self, row: ReadRow, chat: RenderedChat, unread: Iterable[UnreadCount], stop: str = ""
    ) -> tuple[RenderedChat, tuple[Loss, ...]]:
        """Return a rendered conversation, which tells whether it lacks an end, and the findings of it and its row."""
        conversation, text = chat.conversation, chat.text
        losses = (
            self._losses.find(conversation, text, stop)
            + tuple(self._unread(row, chat))
            + (tuple(losses_of(unread)) if unread else ())
            + self._doubled.find(conversation, text)
            + self._tools.find(conversation)
            + tuple(self._answer_findings.find(conversation))
        )
        if losses and any(
            loss.kind == LostKind.MEDIA for loss in losses
        ):  # its parts and texts are lost for that alone
            losses = tuple(loss for loss in losses if loss.kind not in _OF_MEDIA)
        if losses and any(loss.kind == LostKind.NO_END for loss in losses):
            chat = chat._replace(lacks_end=True)
        return chat, losses

    def _tolerate(self, losses: tuple[Loss, ...]) -> Iterable[Loss]:
        """Return the first loss of each kind; raises RowError if the recipe wants what is lost."""
        for kind, detail in losses if self._settings.on_lost_content != "keep" else ():
            if kind not in TOLERATED_LOSSES:
                raise RowError(DropReason.LOST_CONTENT, f"{kind}: {detail}; {LOSS_CURES[kind]}")
        return list({loss.kind: loss for loss in reversed(losses)}.values())[::-1]

    def encode(self, rows: Sequence[RenderedChat]) -> FlatBatch:
        """Return the tokens and masks of conversations; raises DataError if many take too much time or memory."""
        errors: dict[int, RowError] = {}
        with TimeLimit() as limit:  # masks may need renders of a conversation's parts
            flat, segments = self._answers.encode(rows, errors, limit)
        mask = segments.mask(len(flat.input_ids))
        mask_out(mask, flat.input_ids, self._never_trained)
        num_context = np.full(len(rows), -1, dtype=np.int32)
        return FlatBatch(flat.input_ids, mask, flat.offsets, num_context, errors, segments)

    def _unread(self, row: ReadRow, chat: RenderedChat) -> Iterator[Loss]:
        """Yield the row's settings that the recipe ignores, and thoughts that the recipe expects but the text lacks."""
        conversation = chat.conversation
        if self._settings.reasoning_loss == "mask" and not has_thoughts(chat.text):
            yield Loss(LostKind.NO_REASONING, "the text has no marker of thoughts, so reasoning_loss masks nothing")
        if conversation.overruled:
            turns = [index for index, message in enumerate(conversation.messages) if message["role"] == ASSISTANT]
            trained_turns = {"assistant": turns, "last_turn": turns[-1:], "full": []}[self._settings.loss_mode]
            turn = min(conversation.overruled.intersection(trained_turns), default=None)
            if turn is not None:
                detail = f"turn {turn + 1} (assistant) has a weight other than 1, but is trained like any other"
                yield Loss(LostKind.WEIGHT, detail)
        settings = [
            name for name, value in self._unread_variables(conversation).items() if holds(name, value) != "text"
        ]
        if settings:
            yield Loss(LostKind.UNREAD_VARIABLE, f"{_VARIABLES} {why_unread(self._tokenizer, settings)}")
        variables = row.unread.get(_VARIABLES)
        values = parsed_json(variables) if isinstance(variables, str) else variables
        items, template = values.items() if isinstance(values, Mapping) else (), self._tokenizer.chat_template or ""
        template_variables = [name for name, value in items if value is not None and name in template]
        if template_variables:
            names = ", ".join(sorted(template_variables))
            yield Loss(LostKind.TEMPLATE_KWARGS, f"the column {_VARIABLES} sets {names}, which the template reads")

    def _unread_fields(
        self, row: ReadRow, conversation: Conversation, outcome: RenderedChat | Parts
    ) -> tuple[UnreadCount, ...]:
        """Return the row's columns, and keys inside them, that neither the reader nor the template reads."""
        if conversation.is_plain and not row.unread:  # fast path
            return ()
        unread = dict(row.unread)
        if not conversation.is_plain:
            unread |= unread_turn_fields(conversation.messages, self._read_fields, self._is_read)
            system = row.columns.get("system")
            has_own = any(message["role"] == "system" for message in row.columns["messages"])
            if system and has_own and conversation.messages[0]["content"] != system:
                unread[row.system_name] = system
            unread_variables = self._unread_variables(conversation)
            unread |= {f"{_VARIABLES}.{name}": value for name, value in unread_variables.items()}
        if row.other_keys:
            text = outcome.text if isinstance(outcome, RenderedChat) else "".join(chat.text for chat in outcome.chats)
            unread |= {path: value for path, value in row.other_keys.items() if not is_written(path, value, text)}
        if not unread:
            return ()
        ignored_names = row.ignored_names
        unread = {name: value for name, value in unread.items() if name not in ignored_names}
        fields = unread_fields(unread, _texts_read(conversation))
        is_obeyed = self._settings.message_weights == "mask"
        return tuple(
            field._replace(holds="identifier") if field.name == _VARIABLES else field  # `_unread` says what is lost
            for field in fields
            if not (is_obeyed and is_flag(field.name))
        )

    def _unread_variables(self, conversation: Conversation) -> dict[str, Any]:
        """Return the row's own variables that the chat template does not read and that hold something."""
        names = names_read(self._tokenizer.chat_template or "") if conversation.template_kwargs else frozenset()
        variables = conversation.template_kwargs.items()
        return {name: value for name, value in variables if name not in names and not is_empty(value)}

    def _is_read(self, name: str) -> bool:
        """Return whether the chat template names a field of turns."""
        return names_field(self._tokenizer.chat_template or "", name)

    def _render(self, conversation: Conversation) -> RenderedChat:
        inputs = conversation.messages, conversation.tools, conversation.template_kwargs
        if self._tokenizer.has_generation_blocks:
            return RenderedChat(conversation, *self._tokenizer.render_marked(*inputs))
        return RenderedChat(conversation, self._tokenizer.render_text(*inputs), None)


def _texts_read(conversation: Conversation) -> list[str]:
    """Return the texts and thoughts of a conversation's turns."""
    texts: list[str | None] = []
    for message in conversation.messages:
        content = message["content"]
        texts += map(text_of_part, content if isinstance(content, list) else [content])
        texts += [message[name] for name in REASONING if isinstance(message.get(name), str)]
    return [text for text in texts if text]


def _null_hint(settings: ChatPreprocessing, forms: Forms) -> str:
    """Return what to say of a row with null content that the template rejects."""
    if settings.null_content == "keep":
        return "; a turn's content is null: preprocessing.null_content: auto may help"
    shows_none = settings.null_content == "auto" and forms is not AS_GIVEN and forms.beside_calls == "given"
    return "; a turn's content is null, and the template does not write the turn's calls" if shows_none else ""
