"""What nobody reads or obeys of a conversation's row: columns, keys, fields of turns, variables, weights."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from bridgepack.config.json_text import parsed_json
from bridgepack.config.layouts.contents import FLAGS, holds, is_empty, is_flag
from bridgepack.config.layouts.keys import REASONING
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.conversation import Conversation, RenderedChat
from bridgepack.data.sequences.encoding import Loss
from bridgepack.data.sequences.findings.case import ChatCase
from bridgepack.data.sequences.marked_text import REFUSAL
from bridgepack.data.sequences.mending import OLD_CALL, text_of_part
from bridgepack.data.sequences.thoughts import has_thoughts
from bridgepack.data.sequences.unread import is_written, losses_of, unread_fields, unread_turn_fields
from bridgepack.data.templates.variables import why_unread
from bridgepack.data.tokenizers.templates import names_field, names_read
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.records import ASSISTANT, LostKind
from bridgepack.records.rows import ReadRow
from bridgepack.records.sequences import UnreadCount

#: Column with a row's variables for the template, if no layout names one.
_VARIABLES = "chat_template_kwargs"
#: Fields of turns that are read, or looked for by other findings.
_READ_FIELDS = frozenset({"role", "content", "tool_calls", OLD_CALL, REFUSAL, *REASONING, *FLAGS})


class UnreadInChats:
    """Finds what one recipe and its chat template leave unread or do not obey."""

    def __init__(self, tokenizer: ChatTokenizer, settings: ChatPreprocessing) -> None:
        """Take a recipe's settings."""
        self._tokenizer, self._settings = tokenizer, settings
        self._template = tokenizer.chat_template or ""
        self._masks_thoughts = settings.reasoning_loss == "mask"

    def fields(
        self, row: ReadRow, conversation: Conversation, chats: Collection[RenderedChat]
    ) -> tuple[UnreadCount, ...]:
        """Return the row's columns, and keys inside them, that neither the reader nor the template reads.

        `chats` are the sequences of its `conversation`, rendered.
        """
        if conversation.is_plain and not row.unread:  # fast path
            return ()
        unread = dict(row.unread)
        if not conversation.is_plain:
            unread |= unread_turn_fields(conversation.messages, _READ_FIELDS, self._is_read)
            system = row.columns.get("system")
            has_own = any(message["role"] == "system" for message in row.columns["messages"])
            if system and has_own and conversation.messages[0]["content"] != system:
                unread[row.system_name] = system
            variables = self._variables(conversation)
            unread |= {f"{_VARIABLES}.{name}": value for name, value in variables.items()}
        if row.other_keys:
            text = "".join(chat.text for chat in chats)
            unread |= {path: value for path, value in row.other_keys.items() if not is_written(path, value, text)}
        if not unread:
            return ()
        ignored_names = row.ignored_names
        unread = {name: value for name, value in unread.items() if name not in ignored_names}
        fields = unread_fields(unread, _texts_read(conversation))
        is_obeyed = self._settings.message_weights == "mask"
        return tuple(
            field._replace(holds="identifier") if field.name == _VARIABLES else field  # `find` says what is lost
            for field in fields
            if not (is_obeyed and is_flag(field.name))
        )

    def find(self, case: ChatCase) -> Iterable[Loss]:
        """Return what is lost of what the row has, and what its recipe or the row asks for in vain."""
        is_usual = case.conversation.is_plain and not (case.unread or case.row.unread or case.conversation.overruled)
        return () if is_usual and not self._masks_thoughts else self._losses(case)

    def _losses(self, case: ChatCase) -> Iterator[Loss]:
        conversation = case.conversation
        if self._masks_thoughts and not has_thoughts(case.text):
            yield Loss(LostKind.NO_REASONING, "the text has no marker of thoughts, so reasoning_loss masks nothing")
        if conversation.overruled:
            yield from self._weights(conversation)
        if conversation.template_kwargs:
            variables = self._variables(conversation).items()
            names = [name for name, value in variables if holds(name, value) != "text"]
            if names:
                yield Loss(LostKind.UNREAD_VARIABLE, f"{_VARIABLES} {why_unread(self._tokenizer, names)}")
        if case.row.unread:
            yield from self._column_of_variables(case.row.unread.get(_VARIABLES))
        if case.unread:
            yield from losses_of(case.unread)

    def _weights(self, conversation: Conversation) -> Iterator[Loss]:
        turns = [index for index, message in enumerate(conversation.messages) if message["role"] == ASSISTANT]
        trained_turns = {"assistant": turns, "last_turn": turns[-1:], "full": []}[self._settings.loss_mode]
        turn = min(conversation.overruled.intersection(trained_turns), default=None)
        if turn is not None:
            detail = f"turn {turn + 1} (assistant) has a weight other than 1, but is trained like any other"
            yield Loss(LostKind.WEIGHT, detail)

    def _column_of_variables(self, column: Any) -> Iterator[Loss]:
        values = parsed_json(column) if isinstance(column, str) else column
        items = values.items() if isinstance(values, Mapping) else ()
        names = [name for name, value in items if value is not None and name in self._template]
        if names:
            detail = f"the column {_VARIABLES} sets {', '.join(sorted(names))}, which the template reads"
            yield Loss(LostKind.TEMPLATE_KWARGS, detail)

    def _variables(self, conversation: Conversation) -> dict[str, Any]:
        """Return the row's own variables that the chat template does not read and that hold something."""
        names = names_read(self._template) if conversation.template_kwargs else frozenset()
        variables = conversation.template_kwargs.items()
        return {name: value for name, value in variables if name not in names and not is_empty(value)}

    def _is_read(self, name: str) -> bool:
        """Return whether the chat template names a field of turns."""
        return names_field(self._template, name)


def _texts_read(conversation: Conversation) -> list[str]:
    """Return the texts and thoughts of a conversation's turns."""
    texts: list[str | None] = []
    for message in conversation.messages:
        content = message["content"]
        texts += map(text_of_part, content if isinstance(content, list) else [content])
        texts += [message[name] for name in REASONING if isinstance(message.get(name), str)]
    return [text for text in texts if text]
