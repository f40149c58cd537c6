"""Finds calls of tools without their schemas, and schemas that are no JSON Schema."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridgepack.data.sequences.conversation import FUNCTION_CALL, Conversation
from bridgepack.data.sequences.encoding import Loss
from bridgepack.data.sequences.json_schemas import why_no_schema
from bridgepack.data.sequences.marked_text import TOOL, function_of
from bridgepack.data.sequences.markers import ASSISTANT
from bridgepack.records import LostKind

#: Texts that show schemas in a turn: Hermes's element, and a field of every schema.
_SCHEMA_TEXTS = ("<tools>", '"parameters"', "'parameters'")
#: Roles of turns that a data set's authors write, and that may therefore name the tools.
_AUTHORS = ("system", "developer")
#: Maximum characters of a finding.
_SHOWN = 300
#: A call as text: `<tool_call>{"name": "lookup", ...}`.
_NAME_IN_TEXT = re.compile(r"""["']name["']\s*:\s*["']([^"']+)["']""")


class ToolFindings:
    """Finds what is wrong with the tools of conversations."""

    def __init__(self, template_kwargs: Mapping[str, Any]) -> None:
        """Take the recipe's variables for the chat template, which may hold tools."""
        self._template_kwargs = template_kwargs

    def find(self, conversation: Conversation) -> tuple[Loss, ...]:
        """Return the findings of a conversation, at most one of each kind."""
        if conversation.is_plain:
            for message in conversation.messages:
                if message["role"] == TOOL:
                    break
            else:
                return ()
        found = (self._without_schemas(conversation), _wrong_schema(conversation))
        return tuple(loss for loss in found if loss is not None)

    def _without_schemas(self, conversation: Conversation) -> Loss | None:
        used = _used(conversation.messages)
        if not used or self._shows_schemas(conversation):
            return None
        tools = [function_of(tool).get("name") for tool in conversation.tools or ()]
        known = [name for name in tools if isinstance(name, str)]
        if len(known) < len(tools):  # e.g. a search that the server has built in
            return None
        told = "\n".join(_texts(conversation.messages, _AUTHORS))
        for where, name in used:
            if name not in known and not (name and name in told) and (name or not known):
                what = f" {name!r}" if name else ""
                others = f"; there are schemas of {', '.join(map(repr, known))}" if known else ""
                return Loss(LostKind.NO_SCHEMAS, f"{where}{what}, of which there is no schema{others}"[:_SHOWN])
        return None

    def _shows_schemas(self, conversation: Conversation) -> bool:
        """Return whether turns show schemas as text, or a variable of the template holds them."""
        for variables in (self._template_kwargs, conversation.template_kwargs):
            if any("tools" in name and isinstance(value, (list, tuple, Mapping)) for name, value in variables.items()):
                return True
        return any(
            text in turn for turn in _texts(conversation.messages, (*_AUTHORS, "user")) for text in _SCHEMA_TEXTS
        )


def _used(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return (turn, name) of every function that is called; the name is empty if only its result tells of it."""
    found, in_texts, results = [], [], []
    for index, message in enumerate(messages, 1):
        role, where = message["role"], f"turn {index} ({message['role']})"
        calls = [*(message.get("tool_calls") or ()), *filter(None, [message.get(FUNCTION_CALL)])]
        names = [function_of(call).get("name") for call in calls]
        found += [(f"{where} calls", name) for name in names if isinstance(name, str)]
        if role == TOOL:
            name = message.get("name")
            results.append((f"{where} is the result of a call", name if isinstance(name, str) else ""))
        elif role == ASSISTANT and isinstance(message["content"], str):
            in_texts += [(f"{where} calls", name) for name in _NAME_IN_TEXT.findall(message["content"])]
    return found or (results and (in_texts or results))


def _texts(messages: Sequence[Mapping[str, Any]], roles: tuple[str, ...]) -> Iterator[str]:
    for message in messages:
        if message["role"] in roles:
            content = message["content"]
            for part in [content] if isinstance(content, str) else content or ():
                text = part.get("text") if isinstance(part, Mapping) else part
                if isinstance(text, str):
                    yield text


def _wrong_schema(conversation: Conversation) -> Loss | None:
    for tool in conversation.tools or ():
        function = function_of(tool)
        why = why_no_schema(function.get("parameters"))
        if why:
            return Loss(LostKind.TOOL_SCHEMA, f"the tool {str(function.get('name'))[:60]!r}: {why}"[:_SHOWN])
    return None
