"""Parts of content that are calls, results and thoughts, as APIs have them -> messages.

Anthropic's, Gemini's, Bedrock's Converse, Vercel's AI SDK, Haystack's, LlamaIndex's and OpenTelemetry's.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from bridgepack.config.layouts.keys import REASONING, RESULT
from bridgepack.config.recipe.layout import TURN_FIELD
from bridgepack.data.layouts.calls import OtherKeys, call_of, wrapped_call
from bridgepack.data.layouts.results import text_of_documents, text_of_result
from bridgepack.data.layouts.ui_parts import is_part_of_ui, parts_of_ui, without_block_type
from bridgepack.errors import RowError
from bridgepack.records import DropReason

#: Keys of a part that hold a call, or a result.
_CALLS = ("functionCall", "function_call", "toolUse", "tool_call")
_RESULTS = ("functionResponse", "function_response", "toolResult", "tool_call_result")
#: Types of parts that are a call, a result, or a thought.
_CALL_TYPES = ("tool_use", "mcp_tool_use", "tool-call", "tool_call")
_RESULT_TYPES = ("tool_result", "mcp_tool_result", "tool-result", "tool_call_response")
_THOUGHT_TYPES = ("thinking", "reasoning")
#: What a part is: of another kind, it is content. A part of a user interface has its result, so that calls behind it
#: are of the same step until one begins.
_CALL, _RESULT, _THOUGHT, _CONTENT = "call", "result", "thought", "content"
_STEP, _CALL_WITH_RESULT = "step", "call with result"
_PATH = f"{TURN_FIELD}content"

type Kinds = dict[str, list[Any]]


def messages_in_parts(message: dict[str, Any], where: str, unread: OtherKeys) -> list[dict[str, Any]]:
    """Return the messages of one whose content may have parts that are calls, results and thoughts.

    Of the assistant, what comes behind a result is a message of its own; of others, results come first. Adds the keys
    of such parts that nobody reads to `unread`.

    Raises:
        RowError: two keys of a call or of a result mean the same, or a call is not complete.
    """
    content = message["content"]
    if not isinstance(content, list) or not any(map(is_part_of_api, content)):
        return [message]
    parts = [kind for part in content for kind in _kinds_of(part, where, unread)]
    if message["role"] != "assistant":
        parts.sort(key=lambda part: part[0] != _RESULT)
    steps: list[Kinds] = [{}]
    for kind, value in parts:
        is_behind_result = _RESULT in steps[-1] and kind not in (_RESULT, _CALL_WITH_RESULT)
        if is_behind_result or (kind == _STEP and _CALL in steps[-1]):
            steps.append({})
        if kind != _STEP:
            steps[-1].setdefault(_CALL if kind == _CALL_WITH_RESULT else kind, []).append(value)
    messages: list[dict[str, Any]] = []
    for step in steps:
        if {_CONTENT, _CALL, _THOUGHT} & step.keys():
            messages.append(_message(message, step, unread, is_first=not messages))
        messages += step.get(_RESULT, ())
    return messages or [{**message, "content": ""}]


def is_part_of_api(part: Any) -> bool:
    """Return whether a part of content is a call, a result or a thought, or has its type under another name."""
    if not isinstance(part, Mapping):
        return False
    if "block_type" in part or part.get("type") in (*_CALL_TYPES, *_RESULT_TYPES) or is_part_of_ui(part):
        return True
    is_object = bool(_first(part, (*_CALLS, *_RESULTS)))
    return is_object or _thought(part) is not None or text_of_documents(part) is not None


def _message(message: Mapping[str, Any], step: Kinds, unread: OtherKeys, *, is_first: bool) -> dict[str, Any]:
    """Return the message of what is said up to a result; the first has the calls and thoughts of the whole message."""
    calls, thoughts = step.get(_CALL, []), "\n\n".join(step.get(_THOUGHT, ()))
    left_out = () if is_first else ("tool_calls", *REASONING)
    new_message = {name: value for name, value in message.items() if name not in left_out}
    new_message["content"] = step.get(_CONTENT) or ""
    if calls:
        new_message["tool_calls"] = [*(new_message.get("tool_calls") or ()), *calls]
    texts = [new_message[name] for name in REASONING if name in new_message]
    if thoughts and not texts:
        new_message["reasoning_content"] = thoughts
    elif thoughts and thoughts not in texts:
        unread.setdefault(f"{_PATH}.{_THOUGHT_TYPES[0]}", thoughts)
    return new_message


def _kinds_of(part: Any, where: str, unread: OtherKeys) -> Iterator[tuple[str, Any]]:
    """Yield what a part is, and its call, its result as a message, the text of its thought, or itself."""
    if not is_part_of_api(part):
        yield _CONTENT, part
        return
    part = without_block_type(part)
    kind = part.get("type")
    if is_part_of_ui(part):
        if kind == "step-start":
            yield _STEP, None
        for plain in parts_of_ui(part, where, unread):
            for plain_kind, value in _kinds_of(plain, where, unread):
                yield _CALL_WITH_RESULT if plain_kind == _CALL else plain_kind, value
    elif kind in _RESULT_TYPES or _first(part, _RESULTS):
        yield _RESULT, _result(part, where, unread)
    elif thought := _thought(part):
        yield _THOUGHT, thought[0]
        _note(part, thought[1], unread)
    elif (text := text_of_documents(part)) is not None:
        yield _CONTENT, {"type": "text", "text": text}
    elif kind in _CALL_TYPES or _first(part, _CALLS):
        yield _CALL, _call(part, where, unread)
    else:
        yield _CONTENT, part


def _thought(part: Mapping[str, Any]) -> tuple[str, frozenset[str]] | None:
    """Return the text of a part that is a thought, and the keys that say so; None for other parts."""
    names = [name for name in ("thinking", "text", "reasoning", "content") if part.get(name) is not None]
    if names and (part.get("type") in _THOUGHT_TYPES or part.get("thought") is True):
        text = text_of_thought(part[names[0]])
        return None if text is None else (text, frozenset({"type", "thought", names[0]}))
    inner = _first(_first(part, ("reasoningContent",)), ("reasoningText",))
    return (inner["text"], frozenset({"reasoningContent"})) if isinstance(inner.get("text"), str) else None


def text_of_thought(value: Any) -> str | None:
    """Return the text of thoughts, which some write as a list with one text or as parts of text; None for others."""
    if isinstance(value, list) and value:
        texts = [part.get("text") if isinstance(part, Mapping) else part for part in value]
        is_one = len(texts) == 1 or all(isinstance(part, Mapping) for part in value)
        are_texts = is_one and all(isinstance(text, str) for text in texts)
        return "".join(map(str, texts)) if are_texts else None
    return value if isinstance(value, str) else None


def _first(part: Mapping[str, Any], names: tuple[str, ...]) -> Mapping[str, Any]:
    return next((part[name] for name in names if isinstance(part.get(name), Mapping)), {})


def _call(part: Mapping[str, Any], where: str, unread: OtherKeys) -> dict[str, Any]:
    call = _first(part, _CALLS) or {name: value for name, value in part.items() if name != "type"}
    new_call = call_of(call, _PATH, where, unread)
    return new_call if "function" in new_call else wrapped_call(new_call)


def _result(part: Mapping[str, Any], where: str, unread: OtherKeys) -> dict[str, Any]:
    result = _first(part, _RESULTS) or part
    if isinstance(call := result.get("origin"), Mapping):  # Haystack's results hold their call
        ids = {"id": call.get("id"), "tool_name": call.get("tool_name")}
        result = {**{name: value for name, value in result.items() if name != "origin"}, **ids}
    names = RESULT.names_in(result)
    if why := RESULT.why_twice(names):
        raise RowError(DropReason.INVALID_FIELD, f"{where}: {why}")
    for name in RESULT.unknown_names(result):
        unread.setdefault(f"{_PATH}.{name}", result[name])
    values = {key: result[names_of_key[0]] for key, names_of_key in names.items()}
    return {"role": "tool", "content": text_of_result(values.pop("content", None)), **values}


def _note(part: Mapping[str, Any], fields: frozenset[str], unread: OtherKeys) -> None:
    for name, value in part.items():
        if name not in fields and value is not None:
            unread.setdefault(f"{_PATH}.{name}", value)
