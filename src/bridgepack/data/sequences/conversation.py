"""A row's turns -> OpenAI-style messages, tools and variables; turns may be OpenAI's or ShareGPT's."""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, Self

from bridgepack.config.layouts.contents import flag_of, is_mask_claim, plain_name
from bridgepack.config.recipe.layout import TURN_FIELD
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.layouts.unread import FLAGS, flags_of
from bridgepack.data.layouts.values import value_of_json
from bridgepack.data.reading.inputs import names_of
from bridgepack.data.sequences.markers import ASSISTANT
from bridgepack.data.sequences.mending import Mender
from bridgepack.data.tokenizers.forms import AS_GIVEN, Forms
from bridgepack.errors import RowError
from bridgepack.records import DropReason
from bridgepack.records.words import kind_of

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
FUNCTION_CALL = "function_call"
#: Flags about the loss that are claims; the others are weights.
_CLAIMS = frozenset({"train", "training", "trainable"})
#: Role and content, or from and value.
_PLAIN_FIELDS = 2
_ALIASES = {"human": "user", "gpt": "assistant", "observation": "tool", "function_response": "tool"}


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
    def trained(self) -> list[int]:
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
        other_answers = frozenset(part.trained).difference(answers)
        if not other_answers:
            return part
        return part._replace(
            untrained=part.untrained | other_answers, overruled=part.overruled - other_answers, is_piece=True
        )


class ConversationReader:
    """Reads conversations from rows according to the recipe's settings."""

    def __init__(
        self,
        settings: ChatPreprocessing,
        role_aliases: Mapping[str, str],
        forms: Forms = AS_GIVEN,
        *,
        as_host: Collection[str] = (),
    ) -> None:
        """Take the forms of the chat template, for settings that are `auto`, and `as_host`, as of `Mender`."""
        self._settings = settings
        self._mend = Mender(settings, forms, as_host).mend
        self._role_aliases = {alias.lower(): _ALIASES.get(role, role) for alias, role in role_aliases.items()}
        self._own_names = ROLES - set(self._role_aliases)

    def read(self, columns: Mapping[str, Any]) -> Conversation:
        """Return a row's conversation.

        Raises:
            RowError: names what is missing, empty, of the wrong type, or an unknown role.
        """
        turns, system = _turns(columns), columns.get("system")
        are_messages = self._are_messages(turns)
        is_plain = are_messages and not system and {*map(len, turns)} <= {_PLAIN_FIELDS}
        if are_messages:
            messages = list(turns)
        else:
            messages = [_message(turn, index, self._role_aliases) for index, turn in enumerate(turns)]
        reads_weights, untrained_turns = self._settings.message_weights == "mask", frozenset[int]()
        flags = flags_of(columns)
        if not is_plain or flags:  # fast path: most are plain
            ignored_names = {name.removeprefix(TURN_FIELD) for name in getattr(columns, "ignored_names", ())}
            untrained_turns = _find_untrained(turns, messages, flags, ignored_names, refuses_others=reads_weights)
            pairs = enumerate(zip(turns, messages, strict=True), 1)
            messages = [
                self._mend(message, f"turn {index}", is_legacy="role" not in turn or "content" not in turn)
                for index, (turn, message) in pairs
            ]
        if system and not any(message["role"] == "system" for message in messages):
            messages.insert(0, self._mend({"role": "system", "content": system}, "system"))
            untrained_turns = frozenset(index + 1 for index in untrained_turns)
        tools = columns.get("tools") or [dict(tool) for tool in self._settings.tool_schemas or ()] or None
        kwargs = columns.get("chat_template_kwargs") or {}
        return Conversation(
            messages=messages,
            tools=tools,
            template_kwargs=kwargs,
            untrained=untrained_turns if reads_weights else frozenset(),
            overruled=frozenset() if reads_weights else untrained_turns,
            is_plain=is_plain and tools is None and not kwargs,
        )

    def _are_messages(self, turns: Sequence[Any]) -> bool:
        """Return whether every turn is already a plain message: a known role and text, nothing to translate or omit."""
        for turn in turns:
            if type(turn) is not dict or type(turn.get("content")) is not str:
                return False
            if type(role := turn.get("role")) is not str or role not in self._own_names:
                return False
            if len(turn) == _PLAIN_FIELDS:
                continue
            if None in turn.values() or turn.get("tool_calls") == [] or type(turn.get("tool_calls")) is str:
                return False
        return True


def _turns(columns: Mapping[str, Any]) -> Sequence[Any]:
    turns: Sequence[Any] | None = columns.get("messages")
    if turns is None:
        raise RowError(DropReason.MISSING_FIELD, f"messages is missing; it has: {names_of(columns)}")
    return turns


def _message(turn: Any, index: int, role_aliases: Mapping[str, str]) -> dict[str, Any]:
    where = f"turn {index + 1}"
    if not isinstance(turn, Mapping):
        raise RowError(DropReason.INVALID_FIELD, f"{where} is {kind_of(turn)}; it must be an object")
    # `datasets` and pyarrow give every turn the fields of all turns, with null where a turn lacks one.
    turn = _with_calls(turn, where)
    fill_ins = [key for key, value in turn.items() if value is None or (key == "tool_calls" and value == [])]
    fields = {key: value for key, value in turn.items() if key == "content" or key not in fill_ins}
    if "role" in fields and "content" in fields:
        name, message = fields["role"], fields
    elif "from" in fields and "value" in turn:
        other_fields = {key: value for key, value in fields.items() if key not in ("from", "value", "role", "content")}
        name, message = str(fields["from"]).lower(), {"role": fields["from"], "content": turn["value"], **other_fields}
    elif "role" in fields and fields.get("tool_calls"):
        name, message = fields["role"], {**fields, "content": None}
    else:
        detail = f"{where} has neither role and content nor from and value; it has: {names_of(fields)}"
        raise RowError(DropReason.MISSING_FIELD, detail)
    if not isinstance(name, str):
        raise RowError(DropReason.INVALID_FIELD, f"{where}: the role is {kind_of(name)}; it must be text")
    role = role_aliases.get(name.lower()) or _ALIASES.get(name, name)
    if role == FUNCTION_CALL:
        other_fields = {key: value for key, value in message.items() if key not in ("role", "content")}
        return {**other_fields, **_function_call(message["content"], where)}
    if role not in ROLES:
        raise RowError(DropReason.UNKNOWN_ROLE, f"{where}: role {name!r}; known: {', '.join(sorted(ROLES))}")
    _check_content(message["content"], f"{where}: content")
    message["role"] = role
    return message


def _with_calls(turn: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return a turn with its calls as a list, if they are JSON text."""
    calls = turn.get("tool_calls")
    if not isinstance(calls, str):
        return turn
    return {**turn, "tool_calls": value_of_json(calls, f"{where}: tool_calls") if calls.strip() else []}


def _find_untrained(
    turns: Sequence[Any],
    messages: Sequence[Mapping[str, Any]],
    row_flags: Mapping[str, Any],
    ignored_names: Set[str],
    *,
    refuses_others: bool,
) -> frozenset[int]:
    """Return the positions of the assistant's messages that a flag of the turn or of the row excludes from training."""
    positions = set()
    for index, (turn, message) in enumerate(zip(turns, messages, strict=True)):
        if message["role"] != ASSISTANT or (len(turn) == _PLAIN_FIELDS and not row_flags):
            continue
        turn_flags = {
            key: value for key, value in turn.items() if key not in ignored_names and plain_name(key) in FLAGS
        }
        flags = {
            key: flag for key, value in {**row_flags, **turn_flags}.items() if (flag := flag_of(value)) is not None
        }
        for key, flag in flags.items():
            value = turn_flags.get(key, row_flags.get(key))
            if refuses_others and (flag not in (0, 1) or is_mask_claim(key, value)):
                raise RowError(DropReason.INVALID_FIELD, f"turn {index + 1}: {_refusal(key, value)}")
        if any(flag == 0 for flag in flags.values()) or (
            not refuses_others and any(flag != 1 for flag in flags.values())
        ):
            positions.add(index)
    return frozenset(positions)


def _refusal(key: str, value: Any) -> str:
    if is_mask_claim(key, value):
        lower_case = str(value).lower()
        return f"{key} is {lower_case}, which may mean trained or masked; write 0 or 1 (1 is trained), or loss"
    choices = "true or false" if plain_name(key) in _CLAIMS else "0 or 1"
    return f"{key} is {value!r}; it must be {choices}"


def _check_content(content: Any, where: str) -> None:
    if content is not None and not isinstance(content, (str, list)):
        raise RowError(DropReason.INVALID_FIELD, f"{where} is {kind_of(content)}; it must be text")
    for number, part in enumerate(content if isinstance(content, list) else (), 1):
        if part is not None and not isinstance(part, (str, Mapping)):  # templates write nothing, or Python's syntax
            detail = f"{where}: part {number} is {kind_of(part)}; it must be text or an object"
            raise RowError(DropReason.INVALID_FIELD, detail)


def _function_call(value: Any, where: str) -> dict[str, Any]:
    """Return a ShareGPT `function_call` turn (JSON text of one call or a list) as an assistant turn with tool calls."""
    calls = value_of_json(value, f"{where}: function_call") if isinstance(value, str) else value
    calls = calls if isinstance(calls, list) else [calls]
    if not calls:
        raise RowError(DropReason.INVALID_FIELD, f"{where}: function_call is an empty list")
    tool_calls = []
    for call in calls:
        if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
            raise RowError(DropReason.INVALID_FIELD, f"{where}: function_call must be an object with a name")
        function = {"name": call["name"], "arguments": call.get("arguments", {})}
        tool_calls.append({"type": "function", "function": function})
    return {"role": "assistant", "content": "", "tool_calls": tool_calls}


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
