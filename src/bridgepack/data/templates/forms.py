"""Decides, by small conversations, in which form a chat template shows content, calls and their arguments.

Templates differ: with null content beside a call Qwen3's raises an error, and DeepSeek-V3's shows the call only then;
the one writes arguments that are an object, the other joins them as text. A form counts only if the rendered text has
everything that was said, and nothing as Python writes it.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal, NamedTuple

from bridgepack.data.templates.probe import render_chat
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer

#: `given` leaves a turn as its row has it: the template shows, or takes, no form.
ContentForm = Literal["null", "empty", "given"]
ArgumentsForm = Literal["object", "text", "given"]
PartsForm = Literal["text", "parts", "given"]

_QUESTION, _ANSWER, _RESULT, _SAID = "Probe question?", "Probe answer.", "probe result", "probe content"
_NAME, _KEY, _VALUE, _INNER = "probe_function", "probe_key", "probe value", "probe_inner"
_ARGUMENTS: tuple[Mapping[str, Any], ...] = ({_KEY: _VALUE, "probe_list": [{_INNER: _VALUE}]}, {_KEY: _VALUE})
#: A key as Python writes a dict, and as JSON within a JSON text.
_GARBLED = re.compile(rf"'(probe_\w+|type|text)': |\\\"{_KEY}")
#: Null as Python and JSON write it.
_NULL = re.compile("None|null")
_TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "listed_function",
            "description": "Looks something up.",
            "parameters": {"type": "object", "properties": {"listed_key": {"type": "string", "description": "A key."}}},
        },
    },
)
#: (a result and an answer follow the call, tool schemas)
_CONVERSATIONS = tuple(product((True, False), (_TOOLS, None)))
#: Forms of arguments and content beside them, in the order of preference.
_CALLS: tuple[tuple[ArgumentsForm, ContentForm], ...] = (
    ("object", "null"),
    ("object", "empty"),
    ("text", "null"),
    ("text", "empty"),
)
_ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, kw_only=True, slots=True)
class Forms:
    """The forms in which turns are given to one chat template."""

    beside_calls: ContentForm = "given"  #: null or empty content of a turn with calls
    alone: ContentForm = "given"  #: null content of any other turn
    arguments: ArgumentsForm = "given"  #: arguments of calls
    #: role -> content that is a list of text parts: one text, or parts of type text; roles that are missing are `given`
    parts: Mapping[str, PartsForm] = field(default_factory=dict)

    def decisions(self, fields: Iterable[str]) -> dict[str, Any]:
        """Return field of `preprocessing` -> what is decided for it, as plain values for manifest and preview."""
        decision_of = {
            "null_content": {"beside_calls": self.beside_calls, "alone": self.alone},
            "tool_arguments": self.arguments,
            "content_parts": dict(self.parts),
        }
        return {name: decision_of[name] for name in fields}


#: Every turn as its row has it.
AS_GIVEN = Forms()


def forms_of(tokenizer: ChatTokenizer) -> Forms:
    """Return the forms that a tokenizer's chat template shows; the same for the same template and variables."""
    beside, arguments = _forms_of_calls(tokenizer)
    empty = [_user(), _assistant(""), _user(), _assistant(_ANSWER)]
    return Forms(
        beside_calls=beside,
        alone="empty" if _is_shown(tokenizer, empty, (_QUESTION, _ANSWER)) else "given",
        arguments=arguments,
        parts={role: _form_of_parts(tokenizer, role, beside, arguments) for role in _ROLES},
    )


class _Shown(NamedTuple):
    """A form of a call that the template shows."""

    num_nulls: int  #: times that the text has null or None
    content: ContentForm
    arguments: ArgumentsForm


def _forms_of_calls(tokenizer: ChatTokenizer) -> tuple[ContentForm, ArgumentsForm]:
    """Return the forms of content and arguments with which the template shows most of a call.

    Among equals, arguments are an object, as servers give them, and content is null, as OpenAI's API does.
    """
    for is_named, values, (has_result, tools) in product((True, False), _ARGUMENTS, _CONVERSATIONS):
        texts = [_QUESTION, _VALUE, *values]
        texts += [_NAME] if is_named else []
        texts += [_INNER] if len(values) > 1 else []
        texts += [_RESULT, _ANSWER] if has_result else []
        ways: list[_Shown] = []
        for arguments, content in _CALLS:
            turns = _call_messages(content, arguments, values)
            text = render_chat(tokenizer, turns if has_result else turns[:2], tools)
            if _shows(text, texts):
                ways.append(_Shown(len(_NULL.findall(text or "")), content, arguments))
        if ways:
            fewest = min(way.num_nulls for way in ways)
            best = next(way for way in ways if way.num_nulls == fewest)
            return best.content, best.arguments
    return _form_beside_lost_calls(tokenizer), "given"


def _form_beside_lost_calls(tokenizer: ChatTokenizer) -> ContentForm:
    """Return the form of content beside calls that the template leaves out: null must not become a word at least."""
    texts = [
        render_chat(tokenizer, _call_messages(content, "object", _ARGUMENTS[-1])[:2]) for content in ("null", "empty")
    ]
    null, empty = (len(_NULL.findall(text)) if text is not None else None for text in texts)
    return "empty" if null is not None and empty is not None and empty < null else "given"


def _form_of_parts(tokenizer: ChatTokenizer, role: str, beside: ContentForm, arguments: ArgumentsForm) -> PartsForm:
    """Return the form in which the template shows content of a role that is a list of text parts."""
    forms: Mapping[PartsForm, Any] = {"text": _SAID, "parts": [{"type": "text", "text": _SAID}]}
    for form, content in forms.items():
        if any(_is_shown(tokenizer, turns, (_SAID,)) for turns in _turns_with(role, content, beside, arguments)):
            return form
    return "given"


def _turns_with(
    role: str, content: Any, beside: ContentForm, arguments: ArgumentsForm
) -> Iterable[list[dict[str, Any]]]:
    """Yield conversations that have a turn of a role."""
    turn, answer = {"role": role, "content": content}, _assistant(_ANSWER)
    if role == "tool":
        question, call, result, _ = _call_messages(beside, arguments, _ARGUMENTS[-1])
        yield [question, call, {**result, "content": content}, answer]
        yield [question, answer, turn, answer]
    elif role == "user":
        yield [turn, answer]
    elif role == "assistant":
        yield [_user(), turn]
    else:
        yield [turn, _user(), answer]
        yield [turn, _user()]  # Mistral's templates write a system turn with the last user turn


def _user() -> dict[str, Any]:
    return {"role": "user", "content": _QUESTION}


def _assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def _call_messages(content: ContentForm, arguments: ArgumentsForm, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a question, a call, its result and an answer; the call's id is one that Mistral's templates take."""
    arguments_value = json.dumps(values) if arguments == "text" else dict(values)
    call = {"id": "call00001", "type": "function", "function": {"name": _NAME, "arguments": arguments_value}}
    result = {"role": "tool", "tool_call_id": "call00001", "name": _NAME, "content": _RESULT}
    return [
        _user(),
        {**_assistant("" if content == "empty" else None), "tool_calls": [call]},
        result,
        _assistant(_ANSWER),
    ]


def _is_shown(tokenizer: ChatTokenizer, turns: Sequence[Mapping[str, Any]], texts: Iterable[str]) -> bool:
    """Return whether the template shows some texts in a conversation, without tools or with them."""
    return any(_shows(render_chat(tokenizer, turns, tools), texts) for tools in (None, _TOOLS))


def _shows(text: str | None, texts: Iterable[str]) -> bool:
    """Return whether a rendered text has all wanted texts, and none as Python writes it."""
    return text is not None and all(part in text for part in texts) and not _GARBLED.search(text)
