"""Finds content of a row that the chat template loses or garbles.

For most rows a quick look suffices: their texts occur in the render unchanged, one after the other. Any other row is
rendered again with a mark behind each text (`marked_text`), which works however the template writes texts.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridgepack.config.layouts.forms import function_of
from bridgepack.config.layouts.keys import REASONING
from bridgepack.data.sequences.conversation import Conversation
from bridgepack.data.sequences.encoding import Loss
from bridgepack.data.sequences.findings.case import ChatCase
from bridgepack.data.sequences.marked_text import (
    REFUSAL,
    TOOL,
    MarkedChat,
    split_thoughts,
    thoughts_are_due,
)
from bridgepack.data.sequences.mending import OLD_CALL
from bridgepack.data.templates.markers import TurnMarkers
from bridgepack.data.tokenizers.templates import names_field
from bridgepack.data.tokenizers.texts import finder_of
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import ASSISTANT, LostKind

Messages = Sequence[dict[str, Any]]

#: Maximum characters between two texts before the quick look gives up.
_REACH = 256
#: Leading characters of a control token to search for in a text.
_HINT = 4
#: Role and content.
_PLAIN_FIELDS = 2
#: Leading characters of a text to search for; a short search plus a comparison costs less than a long search.
_BEGINNING = 12
_as_json = json.JSONEncoder(ensure_ascii=False, default=str).encode


class LostContentFinder:
    """Compares conversations with their renders."""

    def __init__(self, tokenizer: ChatTokenizer, markers: TurnMarkers | None, loss_mode: str = "assistant") -> None:
        self._render = tokenizer.render_text
        self._written = [name for name in REASONING if names_field(tokenizer.chat_template or "", name)]
        self._takes_last_turn = loss_mode == "last_turn"
        #: answers are trained turn by turn, and not as the template's blocks say
        self._finds_turns = loss_mode != "full" and not tokenizer.has_generation_blocks
        self._ends = () if markers is None else markers.end_texts
        if markers is None:
            controls = [text for text in tokenizer.special_tokens.values() if isinstance(text, str)]
        else:  # the added tokens that open or close turns, and markers that are plain text
            ids = {token for sequence in markers.all_sequences for token in sequence}
            controls = [text for text, index in tokenizer.added_tokens.items() if index in ids]
            texts = (*markers.start_texts, *markers.end_texts)
            controls += [text for text in texts if not any(token in text for token in controls)]
        self._controls = sorted({text for text in controls if text.strip()})
        #: Every text that contains a control token has a hint of it.
        hints = sorted({text[:_HINT] if text in tokenizer.added_tokens else text for text in self._controls})
        self._has_hint = finder_of(hints)

    def find(self, case: ChatCase) -> tuple[Loss, ...]:
        """Return the content that a conversation's render lacks or garbles, the first of each kind."""
        conversation, text = case.conversation, case.text
        if conversation.is_plain:
            is_hinted = self._has_hint("\0".join([message["content"] for message in conversation.messages]))
            num_open = -1 if is_hinted else _num_open(conversation.messages, text, self._ends)
            if num_open >= 0:
                return (_without_end(conversation, len(conversation.messages) - 1),) if num_open else ()
        losses: dict[str, Loss] = {}
        try:
            if not self._is_whole(conversation, text):
                for loss in self._losses_of(conversation, text, case.stop):
                    losses.setdefault(loss.kind, loss)
        except RecursionError:  # arguments are nested too deeply to inspect
            pass
        return tuple(losses.values())

    def _find_trained(self, conversation: Conversation) -> frozenset[int]:
        """Return the positions of the answers that are trained."""
        answers = [index for index, message in enumerate(conversation.messages) if message["role"] == ASSISTANT]
        return frozenset(answers[-1:] if self._takes_last_turn else answers) - conversation.untrained

    def _is_whole(self, conversation: Conversation, text: str) -> bool:
        """Return whether a quick look finds every text in its place; False is not proof of a loss."""
        messages, place, first_user = conversation.messages, 0, len(text)
        trained_turns = self._find_trained(conversation)
        reach = len(text) if conversation.tools else _REACH
        for index, message in enumerate(messages):
            content, role = message["content"], message["role"]
            if type(content) is not str:
                if content is not None or "None" in text:
                    return False
                content = ""
            elif role == ASSISTANT and self._has_hint(content):
                return False
            if len(message) > _PLAIN_FIELDS:
                turn_json = _turn_as_json(message) if role == ASSISTANT else ""
                place = _after_thoughts(messages, index, text, place, is_trained=index in trained_turns)
                if place < 0 or self._has_hint(turn_json):
                    return False
            at = text.find(content, place, place + len(content) + reach)
            if at < 0:
                content = _as_templates_write(messages, index, is_trained=index in trained_turns)
                at = text.find(content, place, place + len(content) + reach)
                if at < 0:
                    return False
            place = at + len(content)
            if len(message) > _PLAIN_FIELDS:
                place = _after_calls(message, text, place)
                if place < 0:
                    return False
            if self._ends and index in trained_turns:
                place = _after_end(self._ends, text, place)
                if place < 0:
                    return False
            if role == "user" and first_user == len(text):
                first_user, reach = at, _REACH
        names = [
            function_of(tool).get("name") for tool in conversation.tools or ()
        ]  # not in Python's repr of an object
        return not names or (
            "{'" not in text and all(isinstance(name, str) and 0 <= text.find(name) < first_user for name in names)
        )

    def _losses_of(self, conversation: Conversation, text: str, stop: str) -> Iterator[Loss]:
        chat = MarkedChat(conversation, text, self._find_trained(conversation), self._written)
        render = self._render_changed(chat.messages, chat.tools, conversation.template_kwargs)
        if render is not None:
            yield from chat.losses(render)
            yield from chat.texts_behind_others(render) if self._finds_turns else ()
            for index in chat.turns_without_end(render + stop, self._ends) if self._ends else ():
                yield _without_end(conversation, index)
        yield from self._nulls(conversation, text)
        for index, message in enumerate(conversation.messages):
            if message["role"] == ASSISTANT:
                turn_json = _turn_as_json(message)
                token = next((token for token in self._controls if token in turn_json), None)
                if token is not None:
                    yield Loss(LostKind.INJECTED_TURN, f"turn {index + 1} (assistant) contains {token!r}")

    def _nulls(self, conversation: Conversation, text: str) -> Iterator[Loss]:
        """Yield a loss if null is written as `None`: the render of the same turns without nulls has fewer of them."""
        nulls = [index for index, message in enumerate(conversation.messages) if None in message.values()]
        if not nulls or "None" not in text:
            return
        without = [
            {"content": "", **{key: value for key, value in message.items() if value is not None}}
            for message in conversation.messages
        ]
        render = self._render_changed(without, conversation.tools, conversation.template_kwargs)
        if render is not None and render.count("None") < text.count("None"):
            role = conversation.messages[nulls[0]]["role"]
            yield Loss(LostKind.NULL_AS_NONE, f"turn {nulls[0] + 1} ({role}): null is written as None")

    def _render_changed(
        self, messages: Messages, tools: list[dict[str, Any]] | None, kwargs: Mapping[str, Any]
    ) -> str | None:
        """Return the render of changed turns; None if the template rejects them, which leaves the question open."""
        try:
            return self._render(messages, tools, kwargs)
        except RowError:
            return None


def _num_open(messages: Messages, text: str, ends: tuple[str, ...]) -> int:
    """Return how many answers of a plain conversation have no end marker, 0 or 1; -1 if that needs a longer look.

    Fast path for most rows: the turns occur one after the other, and an end marker directly follows every answer but
    one that the text ends with.
    """
    place = 0
    for message in messages:
        content = message["content"]
        place = text.find(content[:_BEGINNING], place, place + _REACH)
        if place < 0 or not text.startswith(content, place):
            return -1
        place += len(content)
        if ends and message["role"] == ASSISTANT and not text.startswith(ends, place):
            return 1 if content and place == len(text) and message is messages[-1] else -1
    return 0


def _without_end(conversation: Conversation, index: int) -> Loss:
    is_last = index + 1 == len(conversation.messages)
    where = f"turn {index + 1} (assistant)" + (", the last," if is_last else "")
    return Loss(LostKind.NO_END, f"{where} has no end marker, so the model does not learn to stop there")


def _after_end(ends: Sequence[str], text: str, place: int) -> int:
    """Return where the first end marker after a place stops, or -1 if none is near."""
    matches = [(at, at + len(end)) for end in ends if (at := text.find(end, place, place + _REACH)) >= 0]
    return min(matches)[1] if matches else -1


def _turn_as_json(message: dict[str, Any]) -> str:
    """Return a turn's content, parts, thoughts and calls as JSON."""
    return _as_json([value for key, value in message.items() if key != "role"])


def _as_templates_write(messages: Messages, index: int, *, is_trained: bool) -> str:
    """Return a turn's text as many templates write it: trimmed, without old thoughts, tool results as JSON.

    Old thoughts of an answer that is trained stay, because their loss counts.
    """
    content, role = messages[index]["content"] or "", messages[index]["role"]
    if role == ASSISTANT and not is_trained and not thoughts_are_due(messages, index):
        content = split_thoughts(content)[2]
    is_escaped = role == TOOL and ('"' in content or "\n" in content)
    return _as_json(content)[1:-1] if is_escaped else content.strip()


def _after_thoughts(messages: Messages, index: int, text: str, place: int, *, is_trained: bool) -> int:
    """Return where the thoughts expected before an answer end, or -1 if they are missing."""
    for name in REASONING:
        thoughts = messages[index].get(name)
        is_due = is_trained or thoughts_are_due(messages, index)
        if isinstance(thoughts, str) and thoughts.strip() and is_due:
            at = text.find(thoughts.strip(), place, place + len(thoughts) + _REACH)
            if at < 0:
                return -1
            place = at + len(thoughts.strip())
    return place


def _after_calls(message: dict[str, Any], text: str, place: int) -> int:
    """Return where a turn's calls end in the text after `place`, or -1 if one is missing."""
    if message.get(OLD_CALL) or message.get(REFUSAL) or (None in message.values() and "None" in text):
        return -1
    for call in message.get("tool_calls") or ():
        function = function_of(call)
        arguments = function.get("arguments")
        name, arguments_text = function.get("name"), arguments if isinstance(arguments, str) else _as_json(arguments)
        if not isinstance(name, str) or not (arguments is None or isinstance(arguments, (str, Mapping))):
            return -1
        name_at = text.find(name, place, place + len(name) + _REACH)
        arguments_at = text.find(arguments_text, name_at, name_at + len(name) + len(arguments_text) + _REACH)
        if name_at < 0 or arguments_at < 0:
            return -1
        is_object = (
            arguments_text.lstrip()[:1] == "{"
            and arguments_text.rstrip()[-1:] == "}"
            and text[arguments_at - 1 : arguments_at] != '"'
        )
        if isinstance(arguments, str) and not is_object:  # they would be a quoted text
            return -1
        place = arguments_at + len(arguments_text)
    return place
