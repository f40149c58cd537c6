"""Content, its parts, and arguments of calls in the form that a recipe writes, or that a build claims.

What a recipe leaves to the chat template (`auto`) a build decides, and its manifest says how. That is a claim: a judge
looks in the rendered text whether what a turn says stands there.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from bridgepack.config.recipe.preprocessing import FORM_FIELDS, ChatPreprocessing
from bridgepack.proof.masks.rows.conversation import ASSISTANT, UnreadableRowError

#: Types of parts with a text, of OpenAI's chat completions and responses.
_TEXT_PARTS = ("text", "input_text", "output_text")
#: Fields of a call, of which the one with its arguments may be missing.
_CALL_FIELDS = frozenset({"name", "arguments", "id", "type", "index"})
_GIVEN = "given"


class TurnForms:
    """The forms in which messages are given to one chat template."""

    def __init__(
        self, settings: ChatPreprocessing, claims: Mapping[str, Any], host_fields: frozenset[str] = frozenset()
    ) -> None:
        """Take settings, what a build claims of those on `auto`, and the settings that stand for what the host does.

        `claims` are `null_content` (beside_calls, alone), `tool_arguments` and `content_parts` (role -> form), as a
        manifest has them. The host changes nothing but lists of calls of the assistant, and turns of role and content.
        """
        self._host_fields = host_fields
        self._parts, self._arguments = settings.content_parts, settings.tool_arguments
        self._null = settings.null_content
        self._claims = {name: claims.get(name) for name in FORM_FIELDS}

    def message_in_form(self, message: dict[str, Any], *, is_openai: bool) -> dict[str, Any]:
        """Return a message in these forms; `is_openai` says that its turn had role and content.

        Raises:
            UnreadableRowError: a part of its content, or its arguments, are of no known shape.
        """
        content, calls = message["content"], message.get("tool_calls")
        if isinstance(content, list):
            content = self._joined_parts(content, message["role"])
        if content is None or content == "":
            content = self._empty_content(
                content, has_calls=bool(calls or message.get("function_call")), is_openai=is_openai
            )
        new_message = {**message, "content": content}
        if calls:
            new_message["tool_calls"] = self._with_arguments(calls, message["role"])
        return new_message

    def _joined_parts(self, parts: list[Any], role: str) -> Any:
        if self._parts == "keep":
            return parts
        full_parts = [part for part in parts if part is not None and not _is_empty_part(part)]
        if any(isinstance(part, Mapping) and part.get("type", "text") not in _TEXT_PARTS for part in full_parts):
            return parts
        texts = [part if isinstance(part, str) else part.get("text") for part in full_parts]
        if not all(isinstance(text, str) for text in texts):
            raise UnreadableRowError("a part of content has no text of OpenAI's form")
        form = "text" if self._parts == "join_text" else (self._claims["content_parts"] or {}).get(role, _GIVEN)
        if form == "text":
            return "".join(map(str, texts))
        return [{"type": "text", "text": text} for text in texts] if form == "parts" else parts

    def _empty_content(self, content: Any, *, has_calls: bool, is_openai: bool) -> Any:
        """Return what is given to the template for content that is null or empty."""
        if self._null == "empty":
            is_left = "null_content" in self._host_fields and not is_openai
            return content if is_left else ""
        if self._null == "auto":
            claim = (self._claims["null_content"] or {}).get("beside_calls" if has_calls else "alone", _GIVEN)
            return {"null": None, "empty": ""}.get(claim, content)
        return content

    def _with_arguments(self, calls: Any, role: str) -> Any:
        is_auto, is_host = self._arguments == "auto", "tool_arguments" in self._host_fields
        form = self._claims["tool_arguments"] if is_auto else self._arguments
        change = _CHANGES.get(form or _GIVEN)
        if change is None or (is_host and role != ASSISTANT):
            return calls
        if not isinstance(calls, list) or not all(isinstance(call, Mapping) for call in calls):
            if is_auto or is_host:
                return calls
            raise UnreadableRowError("tool_calls is no list of objects")
        new_calls = []
        for call in calls:
            function = call.get("function") if is_host else call.get("function", call)
            if not isinstance(function, Mapping) or not _takes_arguments(function, is_auto=is_auto):
                new_calls.append(call)
                continue
            new_function = {**function, "arguments": change(function.get("arguments"), is_auto=is_auto)}
            new_calls.append({**call, "function": new_function} if "function" in call else new_function)
        return new_calls


def _is_empty_part(part: Any) -> bool:
    if not isinstance(part, Mapping) or part.get("type", "text") not in _TEXT_PARTS:
        return False
    return all(value is None for name, value in part.items() if name != "type")


def _takes_arguments(function: Mapping[str, Any], *, is_auto: bool) -> bool:
    """Return whether a call has arguments, or is without, not one that has them under names of its own."""
    if "arguments" in function or not is_auto:
        return "arguments" in function
    return "name" in function and all(name in _CALL_FIELDS for name, value in function.items() if value is not None)


def _as_object(arguments: Any, *, is_auto: bool) -> Any:
    if is_auto and (arguments is None or (isinstance(arguments, str) and not arguments.strip())):
        return {}
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    if is_auto:
        return arguments
    raise UnreadableRowError("the arguments of a call are no JSON object")


def _as_text(arguments: Any, *, is_auto: bool) -> Any:
    if is_auto and (arguments is None or (isinstance(arguments, str) and not arguments.strip())):
        return "{}"
    return json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, Mapping) else arguments


#: Form of arguments -> what brings them into it.
_CHANGES: Mapping[str, Callable[..., Any]] = {"object": _as_object, "text": _as_text}
