"""Finds calls of tools without their schemas, and schemas that are no JSON Schema."""

import marshal
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from bridgepack.config.layouts.forms import function_of
from bridgepack.config.layouts.roles import FUNCTION_CALL
from bridgepack.data.sequences.conversation import Conversation
from bridgepack.data.sequences.encoding import Loss
from bridgepack.data.sequences.findings.case import ChatCase
from bridgepack.data.sequences.findings.json_schemas import why_no_schema
from bridgepack.data.sequences.marked_text import TOOL
from bridgepack.records import ASSISTANT, LostKind

#: Texts that show schemas in a turn: Hermes's element, and a field of every schema.
_SCHEMA_TEXTS = ("<tools>", '"parameters"', "'parameters'")
#: Roles of turns that a data set's authors write, and that may therefore name the tools.
_AUTHORS = ("system", "developer")
#: Version of marshalled bytes, the last without references, which depend on more than values.
_WITHOUT_REFERENCES = 2
#: Maximum characters of a finding.
_SHOWN = 300
#: A call as text: `<tool_call>{"name": "lookup", ...}`.
_NAME_IN_TEXT = re.compile(r"""["']name["']\s*:\s*["']([^"']+)["']""")


class _Tools(NamedTuple):
    """What is known of the tools of a row."""

    names: tuple[str, ...] = ()
    has_unnamed: bool = False
    wrong_schema: Loss | None = None


class ToolFindings:
    """Finds what is wrong with the tools of conversations."""

    def __init__(self, template_kwargs: Mapping[str, Any]) -> None:
        """Take the recipe's variables for the chat template, which may hold tools."""
        self._template_kwargs = template_kwargs

    def find(self, case: ChatCase) -> tuple[Loss, ...]:
        """Return the findings of a conversation, at most one of each kind."""
        conversation = case.conversation
        if conversation.is_plain:
            for message in conversation.messages:
                if message["role"] == TOOL:
                    break
            else:
                return ()
        tools = _facts_of(conversation.tools)
        findings = [self._without_schemas(conversation, tools), tools.wrong_schema]
        return tuple(loss for loss in findings if loss is not None)

    def _without_schemas(self, conversation: Conversation, tools: _Tools) -> Loss | None:
        tool_names = tools.names
        missing_calls = [(where, name) for where, name in _uses(conversation.messages) if name not in tool_names]
        if tool_names:  # a result without a name may be of any of them
            missing_calls = [(where, name) for where, name in missing_calls if name]
        if not missing_calls or tools.has_unnamed or self._shows_schemas(conversation):
            return None  # a tool without a name is one that the server has built in
        author_text = "\n".join(_texts(conversation.messages, _AUTHORS))
        for where, name in missing_calls:
            if not name or name not in author_text:
                name_text = f" {name!r}" if name else ""
                known_text = f"; there are schemas of {', '.join(map(repr, tool_names))}" if tool_names else ""
                return Loss(
                    LostKind.NO_SCHEMAS, f"{where}{name_text}, of which there is no schema{known_text}"[:_SHOWN]
                )
        return None

    def _shows_schemas(self, conversation: Conversation) -> bool:
        """Return whether turns show schemas as text, or a variable of the template holds them."""
        for variables in (self._template_kwargs, conversation.template_kwargs):
            if any("tools" in name and isinstance(value, (list, tuple, Mapping)) for name, value in variables.items()):
                return True
        return any(
            text in turn for turn in _texts(conversation.messages, (*_AUTHORS, "user")) for text in _SCHEMA_TEXTS
        )


def _facts_of(tools: list[dict[str, Any]] | None) -> _Tools:
    if not tools:
        return _Tools()
    try:
        return _facts_of_marshalled(marshal.dumps(tools, _WITHOUT_REFERENCES))
    except ValueError:  # nested too deeply, or no JSON
        return _facts(tools)


@lru_cache(maxsize=512)
def _facts_of_marshalled(tools: bytes) -> _Tools:
    """Return the facts of tools as bytes: many rows have the same tools, and to compare bytes costs little."""
    return _facts(marshal.loads(tools))  # noqa: S302 -- bytes of this process


def _facts(tools: Sequence[Mapping[str, Any]]) -> _Tools:
    functions = [function_of(tool) for tool in tools]
    names = [function.get("name") for function in functions]
    text_names = tuple(name for name in names if isinstance(name, str))
    wrong = ((name, why_no_schema(function.get("parameters"))) for name, function in zip(names, functions, strict=True))
    first = next(((name, why) for name, why in wrong if why), None)
    loss = Loss(LostKind.TOOL_SCHEMA, f"the tool {str(first[0])[:60]!r}: {first[1]}"[:_SHOWN]) if first else None
    return _Tools(text_names, len(text_names) < len(names), loss)


def _uses(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return (turn, name) of every function that is called; the name is empty if only its result tells of it."""
    uses, results = [], []
    for index, message in enumerate(messages, 1):
        where = f"turn {index} ({message['role']})"
        calls = message.get("tool_calls")
        all_calls = [*(calls if isinstance(calls, list) else ()), message.get(FUNCTION_CALL)]
        names = [function_of(call).get("name") for call in all_calls]
        uses += [(f"{where} calls", name) for name in names if isinstance(name, str)]
        if message["role"] == TOOL:
            name = message.get("name")
            results.append((f"{where} is the result of a call", name if isinstance(name, str) else ""))
    return uses or (results and (_used_in_texts(messages) or results))


def _used_in_texts(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [
        (f"turn {index} ({ASSISTANT}) calls", name)
        for index, message in enumerate(messages, 1)
        if message["role"] == ASSISTANT and isinstance(message["content"], str)
        for name in _NAME_IN_TEXT.findall(message["content"])
    ]


def _texts(messages: Sequence[Mapping[str, Any]], roles: tuple[str, ...]) -> Iterator[str]:
    for message in messages:
        if message["role"] in roles:
            content = message["content"]
            for part in [content] if isinstance(content, str) else content or ():
                text = part.get("text") if isinstance(part, Mapping) else part
                if isinstance(text, str):
                    yield text
