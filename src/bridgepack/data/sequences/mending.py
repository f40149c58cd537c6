"""Writes a turn's content and calls in the form that the recipe names, or that the chat template shows."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from bridgepack.config.json_text import parse_json
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.reading.json_texts import value_of_json
from bridgepack.data.templates.forms import ContentForm, Forms
from bridgepack.errors import RowError
from bridgepack.records import ASSISTANT, DropReason

#: Types of parts that are text, and the fields in which data sets have it.
_TEXT_TYPES = ("text", "input_text", "output_text")
_TEXT_FIELDS = ("text", "value", "content")
#: Fields of a call beside its arguments; a call with others may have its arguments there.
_CALL_FIELDS = frozenset({"name", "arguments", "id", "type", "index"})
#: Parts of Anthropic's API, which have fields of their own in OpenAI's form.
_ANTHROPIC = {
    "tool_use": "write Anthropic's calls as tool_calls of the turn",
    "tool_result": "write Anthropic's results as turns with the role tool",
    "thinking": "write Anthropic's thoughts as reasoning_content of the turn",
}
#: OpenAI's older field for a turn's only call.
OLD_CALL = "function_call"
_Change = Callable[[Any, str], Any]
_Contents = Mapping[str | None, str | None]


class Mender:
    """Changes turns for one chat template."""

    def __init__(
        self,
        settings: ChatPreprocessing,
        forms: Forms,
        as_host: Collection[str] = (),
        thought_fields: Mapping[str, str] = MappingProxyType({}),
        *,
        moves_old_calls: bool = False,
    ) -> None:
        """Take the forms of the template, for settings that are `auto`.

        `as_host` names settings that are `keep` where the host changes rows itself: it leaves other turns alone.
        `thought_fields` as of `thought_fields_of`. `moves_old_calls` puts a `function_call` among the `tool_calls`.
        """
        self._moves_old_calls = moves_old_calls
        self._thought_fields = thought_fields
        self._as_host = frozenset(as_host)
        self._parts, self._forms_of_parts = settings.content_parts, forms.parts
        #: Content that is null or empty -> what is given to the template, for turns with calls and for others.
        self._beside_calls: _Contents = {}
        self._alone: _Contents = {}
        if settings.null_content == "empty":
            self._beside_calls = self._alone = {None: ""}
        elif settings.null_content == "auto":
            contents_of_form: Mapping[ContentForm, _Contents] = {"null": {"": None}, "empty": {None: ""}, "given": {}}
            self._beside_calls, self._alone = contents_of_form[forms.beside_calls], contents_of_form[forms.alone]
        self._is_strict = settings.tool_arguments != "auto"
        arguments_form = settings.tool_arguments if self._is_strict else forms.arguments
        changes: Mapping[str, _Change] = {
            "object": _object_of if self._is_strict else _shown_as_object,
            "text": _text_of_object if self._is_strict else _shown_as_text,
        }
        self._change = changes.get(arguments_form)

    def mend(self, message: dict[str, Any], where: str, *, is_legacy: bool = False) -> dict[str, Any]:
        """Return a message with its content and calls in the right form; `is_legacy` for turns of `from` and `value`.

        Raises:
            RowError: it has none, and the recipe names the form.
        """
        if self._thought_fields and message["role"] == ASSISTANT:
            message = _with_thoughts(message, self._thought_fields)
        if self._moves_old_calls and isinstance(message.get(OLD_CALL), Mapping) and not message.get("tool_calls"):
            message = {**message, "tool_calls": [{"type": "function", "function": message[OLD_CALL]}]}
            del message[OLD_CALL]
        content, calls = message["content"], message.get("tool_calls")
        if content and not calls and type(content) is str:
            return message
        if isinstance(content, list) and self._parts != "keep":
            content = self._join_texts(content, message["role"], where)
        leaves_null = is_legacy and "null_content" in self._as_host
        if (content is None or content == "") and not leaves_null:
            is_call = calls or message.get("function_call")
            content = (self._beside_calls if is_call else self._alone).get(content, content)
        if content is not message["content"]:
            message = {**message, "content": content}
        if calls and self._change is not None and self._host_looks_at(message):
            message = {**message, "tool_calls": self._with_arguments(calls, where, self._change)}
        return message

    def _join_texts(self, parts: list[Any], role: str, where: str) -> Any:
        if self._parts == "drop":
            detail = f"{where}: content is a list of parts; preprocessing.content_parts is drop"
            raise RowError(DropReason.INVALID_FIELD, detail)
        texts = [text_of_part(part) for part in parts if self._parts != "auto" or not _says_nothing(part)]
        known_texts = [text for text in texts if text is not None]
        if self._parts == "auto":
            form = self._forms_of_parts.get(role, "given") if len(known_texts) == len(texts) else "given"
            value_of_form: Mapping[str, Any] = {"text": "".join(known_texts), "given": parts}
            return (
                value_of_form[form]
                if form in value_of_form
                else [{"type": "text", "text": text} for text in known_texts]
            )
        if len(known_texts) < len(texts):
            part = parts[texts.index(None)]
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            detail = f"{where}: content has a part of type {kind!r} without text"
            raise RowError(DropReason.INVALID_FIELD, f"{detail}; preprocessing.content_parts is join_text")
        return "".join(known_texts)

    def _host_looks_at(self, message: Mapping[str, Any]) -> bool:
        """Return whether calls of a message are changed: the host changes lists of the assistant's alone."""
        is_of_assistant = message["role"] == ASSISTANT and isinstance(message["tool_calls"], list)
        return is_of_assistant or "tool_arguments" not in self._as_host

    def _with_arguments(self, calls: Any, where: str, change: _Change) -> Any:
        as_host = "tool_arguments" in self._as_host
        if not as_host and (not isinstance(calls, list) or not all(isinstance(call, Mapping) for call in calls)):
            if self._is_strict:
                raise RowError(DropReason.INVALID_FIELD, f"{where}: tool_calls must be a list of objects")
            return calls
        new_calls: list[Any] = []
        for index, call in enumerate(calls, 1):
            function = (
                (call.get("function") if as_host else call.get("function", call)) if isinstance(call, Mapping) else None
            )
            if not isinstance(function, Mapping) or not self._has_arguments(function):
                new_calls.append(call)
                continue
            arguments = change(function.get("arguments"), f"{where}: arguments of tool call {index}")
            new_function = {**function, "arguments": arguments}
            new_calls.append({**call, "function": new_function} if "function" in call else new_function)
        return new_calls

    def _has_arguments(self, function: Mapping[str, Any]) -> bool:
        """Return whether a call has arguments, or, without a field for them, is one without arguments."""
        if "arguments" in function or self._is_strict:
            return "arguments" in function
        return "name" in function and _CALL_FIELDS.issuperset(
            name for name, value in function.items() if value is not None
        )


def _with_thoughts(message: dict[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Return a message whose thoughts stand in the field that the template reads, unless that has some."""
    for name, target in fields.items():
        if message.get(name) and not message.get(target):
            thoughts = message[name]
            message = {key: value for key, value in message.items() if key not in (name, target)}
            message[target] = thoughts
    return message


def part_hint(messages: Iterable[Mapping[str, Any]]) -> str:
    """Return what to say of a conversation that a template rejects, and that has a part of content that is no text."""
    for turn, message in enumerate(messages, 1):
        for part in message["content"] if isinstance(message["content"], list) else ():
            kind = part.get("type") if isinstance(part, Mapping) else None
            if isinstance(kind, str) and text_of_part(part) is None and not _says_nothing(part):
                return f"; turn {turn} has a part of type {kind!r}: {_ANTHROPIC.get(kind, 'remove such parts')}"
    return ""


def text_of_part(part: Any) -> str | None:
    """Return the text of a part of content; None if it is none, or is not only text.

    {"type": "output_text", "content": "Hi"} -> "Hi"; {"type": "text", "text": {"value": "Hi"}} -> "Hi"
    """
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return None
    kind, fields = part.get("type"), _given_fields(part)
    if kind not in _TEXT_TYPES and (kind is not None or len(fields) != 1):
        return None
    values = [fields[name] for name in _TEXT_FIELDS if name in fields]
    texts = [text.get("value") if isinstance(text, Mapping) else text for text in values]
    is_one = bool(texts) and isinstance(texts[0], str) and all(text == texts[0] for text in texts)
    return texts[0] if is_one else None


def _says_nothing(part: Any) -> bool:
    """Return whether a part is null, or a part of text without any."""
    is_text = isinstance(part, Mapping) and part.get("type") in (None, *_TEXT_TYPES)
    return part is None or (is_text and not _given_fields(part))


def _given_fields(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a part that are not null, but its type."""
    return {name: value for name, value in part.items() if value is not None and name != "type"}


def _object_of(arguments: Any, place: str) -> Any:
    if not isinstance(arguments, str):
        return arguments
    value = value_of_json(arguments, place)
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise RowError(DropReason.INVALID_FIELD, f"{place} are a JSON {kind}; they must be an object")
    return value


def _text_of_object(arguments: Any, place: str) -> Any:
    try:
        return json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, Mapping) else arguments
    except (TypeError, ValueError, RecursionError) as error:
        raise RowError(DropReason.INVALID_FIELD, f"{place} cannot be written as JSON: {error}") from None


def _shown_as_object(arguments: Any, _: str) -> Any:
    """Return arguments as an object; what is no JSON object stays as it is, and is found as lost where it is lost."""
    if _is_nothing(arguments):
        return {}
    if not isinstance(arguments, str):
        return arguments
    try:
        value = parse_json(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _shown_as_text(arguments: Any, place: str) -> Any:
    return "{}" if _is_nothing(arguments) else _text_of_object(arguments, place)


def _is_nothing(arguments: Any) -> bool:
    """Return whether a call has no arguments: null, or a text without a letter."""
    return arguments is None or (isinstance(arguments, str) and not arguments.strip())
