"""A row as its layout reads it -> the messages, tools and variables of a conversation, in the template's forms."""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from bridgepack.config.layouts.contents import FLAGS, flag_of, is_mask_claim, plain_name
from bridgepack.config.recipe.layout import TURN_FIELD
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.inline_thoughts import ThoughtMover
from bridgepack.data.sequences.mending import OLD_CALL, Mender
from bridgepack.data.sequences.unread import flags_of
from bridgepack.data.templates.forms import AS_GIVEN, Forms
from bridgepack.data.tokenizers.templates import names_field
from bridgepack.errors import RowError
from bridgepack.records import ASSISTANT, DropReason
from bridgepack.records.rows import ReadRow

#: Flags about the loss that are claims; the others are weights.
_CLAIMS = frozenset({"train", "training", "trainable"})
#: Role and content, or from and value.
_PLAIN_FIELDS = 2


class Conversation(NamedTuple):
    """One example in the form that chat templates take; a tuple, as every row makes one."""

    messages: list[dict[str, Any]]  #: in OpenAI style
    tools: list[dict[str, Any]] | None  #: schemas; None if the row has none
    template_kwargs: Mapping[str, Any]  #: the row's own variables for the template
    untrained: frozenset[int] = frozenset()  #: positions of assistant messages that the row excludes from training
    overruled: frozenset[int] = frozenset()  #: positions of messages whose weight is ignored and not 1
    is_plain: bool = False  #: its messages have only a role and a text, and there are no tools or variables
    #: it is one of several sequences of its row's conversation; other answers than its own are untrained
    is_piece: bool = False

    @property
    def trained_positions(self) -> list[int]:
        """Positions of the assistant's messages that the row does not exclude from training."""
        roles = enumerate(message["role"] for message in self.messages)
        return [index for index, role in roles if role == ASSISTANT and index not in self.untrained]

    def through(self, stop: int) -> Self:
        """Return the conversation's messages before a position."""
        if stop == len(self.messages):
            return self
        return self._replace(
            messages=self.messages[:stop],
            untrained=frozenset(index for index in self.untrained if index < stop),
            overruled=frozenset(index for index in self.overruled if index < stop),
        )

    def without(self, positions: Collection[int]) -> Self:
        """Return the conversation without the messages at some positions."""
        if not positions:
            return self
        kept_positions = [index for index in range(len(self.messages)) if index not in positions]
        place_of = {index: place for place, index in enumerate(kept_positions)}
        return self._replace(
            messages=[self.messages[index] for index in kept_positions],
            untrained=frozenset(place_of[index] for index in self.untrained if index in place_of),
            overruled=frozenset(place_of[index] for index in self.overruled if index in place_of),
        )

    def piece(self, answers: Collection[int]) -> Self:
        """Return the messages up to the last of some trained answers, with only these trained."""
        part = self.through(max(answers) + 1)
        other_answers = frozenset(part.trained_positions).difference(answers)
        if not other_answers:
            return part
        return part._replace(
            untrained=part.untrained | other_answers, overruled=part.overruled - other_answers, is_piece=True
        )


class RenderedChat(NamedTuple):
    """A conversation with its rendered text."""

    conversation: Conversation  #: as read from the row
    text: str  #: output of the chat template
    #: (start, stop) in characters of the template's generation blocks; None if it has none
    spans: list[tuple[int, int]] | None
    lacks_end: bool = False  #: the text has no end marker behind an answer that is to be trained


class ConversationReader:
    """Reads conversations from rows according to the recipe's settings."""

    def __init__(
        self,
        settings: ChatPreprocessing,
        forms: Forms = AS_GIVEN,
        *,
        as_host: Collection[str] = (),
        template: str | None = None,
        thought_fields: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Take the forms of the chat template, for settings that are `auto`, and the rest as of `Mender`.

        Raises:
            TokenizerError: thoughts are to be moved, and `template` has none.
        """
        self._settings = settings
        # a template that shows calls, but does not know OpenAI's older field for one
        shows_calls = forms.arguments != "given" and settings.tool_arguments != "keep"
        moves_old_calls = shows_calls and not names_field(template or "", OLD_CALL)
        self._mend = Mender(settings, forms, as_host, thought_fields, moves_old_calls=moves_old_calls).mend
        self._mover = ThoughtMover(template or "") if settings.inline_thoughts == "move" else None
        if self._mover is not None:
            self._mover.require_thoughts()

    def read(self, row: ReadRow) -> Conversation:
        """Return a row's conversation.

        Raises:
            RowError: a flag of a turn says neither 0 nor 1, or content has another form than the recipe allows.
        """
        messages, system = row.columns["messages"], row.columns.get("system")
        is_plain = row.is_plain and not system
        reads_weights, untrained_turns = self._settings.message_weights == "mask", frozenset[int]()
        flags = flags_of(row)
        if not is_plain or flags:  # fast path: most are plain
            ignored_names = {name.removeprefix(TURN_FIELD) for name in row.ignored_names}
            untrained_turns = _find_untrained(messages, flags, ignored_names, refuses_others=reads_weights)
            messages = [
                self._mend(message, f"turn {index + 1}", is_legacy=index in row.renamed)
                for index, message in enumerate(messages)
            ]
        if self._mover is not None:
            originals, messages = messages, [self._mover.move(message) for message in messages]
            is_plain = is_plain and all(new is old for new, old in zip(messages, originals, strict=True))
        if system and not any(message["role"] == "system" for message in messages):
            messages = [self._mend({"role": "system", "content": system}, "system"), *messages]
            untrained_turns = frozenset(index + 1 for index in untrained_turns)
        tools = row.columns.get("tools") or [dict(tool) for tool in self._settings.tool_schemas or ()] or None
        kwargs = row.columns.get("chat_template_kwargs") or {}
        return Conversation(
            messages=messages,
            tools=tools,
            template_kwargs=kwargs,
            untrained=untrained_turns if reads_weights else frozenset(),
            overruled=frozenset() if reads_weights else untrained_turns,
            is_plain=is_plain and tools is None and not kwargs,
        )


def _find_untrained(
    messages: Sequence[Mapping[str, Any]],
    row_flags: Mapping[str, Any],
    ignored_names: Set[str],
    *,
    refuses_others: bool,
) -> frozenset[int]:
    """Return the positions of the assistant's messages that a flag of the turn or of the row excludes from training."""
    positions = set()
    for index, message in enumerate(messages):
        if message["role"] != ASSISTANT or (len(message) == _PLAIN_FIELDS and not row_flags):
            continue
        turn_flags = {
            key: value for key, value in message.items() if key not in ignored_names and plain_name(key) in FLAGS
        }
        values = {key: _of_turn(value, index, messages) for key, value in row_flags.items()} | turn_flags
        flags = {key: flag for key, value in values.items() if (flag := flag_of(value, key)) is not None}
        for key, flag in flags.items():
            value = values[key]
            if refuses_others and (flag not in (0, 1) or is_mask_claim(key, value)):
                raise RowError(DropReason.INVALID_FIELD, f"turn {index + 1}: {_refusal(key, value)}")
        if any(flag == 0 for flag in flags.values()) or (
            not refuses_others and any(flag != 1 for flag in flags.values())
        ):
            positions.add(index)
    return frozenset(positions)


def _of_turn(value: Any, index: int, messages: Sequence[Mapping[str, Any]]) -> Any:
    """Return a row's flag for a turn, of a list with one for each turn or each answer; others unchanged."""
    if not isinstance(value, (list, tuple)):
        return value
    if len(value) == len(messages):
        return value[index]
    answers = [place for place, message in enumerate(messages) if message["role"] == ASSISTANT]
    return value[answers.index(index)] if len(value) == len(answers) else value


def _refusal(key: str, value: Any) -> str:
    if is_mask_claim(key, value):
        lower_case = str(value).lower()
        return f"{key} is {lower_case}, which may mean trained or masked; write 0 or 1 (1 is trained), or loss"
    choices = "true or false" if plain_name(key) in _CLAIMS else "0 or 1"
    return f"{key} is {value!r}; it must be {choices}"


def texts_of(conversation: Conversation) -> list[str]:
    """Return every text inside a conversation's turns, tools and variables; keys and roles do not count."""
    if conversation.is_plain:
        return [message["content"] for message in conversation.messages]
    message_values = (value for message in conversation.messages for value in said_in(message))
    return list(texts_within([conversation.tools, conversation.template_kwargs, *message_values]))


def said_in(message: Mapping[str, Any]) -> list[Any]:
    """Return the values of a message's fields but its role."""
    return [value for key, value in message.items() if key != "role"]


def texts_within(values: list[Any]) -> Iterator[str]:
    """Yield every text in values, however deep, and others but numbers and booleans as texts."""
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            stack.extend(value.values())
        elif isinstance(value, (list, tuple)):
            stack.extend(value)
        elif value is not None and not isinstance(value, (bool, int, float)):
            yield str(value)
