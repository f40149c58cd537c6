"""Parts that are a call and its result in one, of messages as user interfaces keep them (Vercel's AI SDK).

Their types name the tool, `tool-depth`, or say `dynamic-tool` or, before version 5, `tool-invocation`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from bridgepack.config.recipe.layout import TURN_FIELD
from bridgepack.data.layouts.calls import OtherKeys
from bridgepack.errors import RowError
from bridgepack.records import DropReason

_PREFIX, _INVOCATION, _DYNAMIC, _STEP = "tool-", "tool-invocation", "dynamic-tool", "step-start"
#: Types of parts that no model is sent.
_NOT_SENT = ("source-", "data-")
#: Parts of a call, and of its result.
_OF_CALL, _OF_RESULT = ("input", "args"), ("output", "result", "errorText")
#: States of a call that has its result, which can be null, and of one whose input is still being written.
_FINISHED = ("output-available", "result")
_INCOMPLETE = ("input-streaming", "partial-call")
#: Keys that say how a call went, or where it ran.
_HOW = frozenset({"type", "state", "step", "toolName", "toolCallId", "providerExecuted", "preliminary", "dynamic"})


def without_block_type(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part of LlamaIndex with its `block_type` as its type; others unchanged."""
    if "block_type" not in part or "type" in part:
        return part
    return {"type": part["block_type"], **{name: value for name, value in part.items() if name != "block_type"}}


def is_part_of_ui(part: Mapping[str, Any]) -> bool:
    """Return whether a part is a call with its result, begins a step, or is for a user interface alone."""
    kind = part.get("type")
    if not isinstance(kind, str):
        return False
    is_tool = kind == _INVOCATION or (bool({"state", "toolCallId"} & part.keys()) and "toolName" not in part)
    is_call = kind.startswith(_PREFIX) and is_tool
    return is_call or kind in (_DYNAMIC, _STEP, "redacted_thinking") or kind.startswith(_NOT_SENT)


def parts_of_ui(part: Mapping[str, Any], where: str, unread: OtherKeys) -> Iterator[dict[str, Any]]:
    """Yield a call and its result as parts of their own; adds what no model is sent to `unread`.

    Raises:
        RowError: the call is not complete.
    """
    kind = part["type"]
    if kind == _STEP:
        return
    call = part.get("toolInvocation") if kind == _INVOCATION else part
    if not (kind.startswith(_PREFIX) or kind == _DYNAMIC) or not isinstance(call, Mapping):
        unread.setdefault(f"{TURN_FIELD}content.{kind}", dict(part))
        return
    name = call.get("toolName") or (kind.removeprefix(_PREFIX) if kind not in (_INVOCATION, _DYNAMIC) else None)
    if call.get("state") in _INCOMPLETE:
        detail = f"{where}: the call of {name!r} is not complete, as its state is {call['state']!r}; remove the turn"
        raise RowError(DropReason.INVALID_FIELD, detail)
    ids = {"toolName": name, "toolCallId": call.get("toolCallId")}
    yield {"type": "tool-call", **ids, **{key: call[key] for key in _OF_CALL if key in call}}
    results = {key: call[key] for key in _OF_RESULT if call.get(key) is not None}
    if results or call.get("state") in _FINISHED:
        yield {"type": "tool-result", **ids, **{_result_name(key): value for key, value in results.items()}}
    for key, value in (*part.items(), *(call.items() if call is not part else ())):
        if key not in {*_HOW, *_OF_CALL, *_OF_RESULT, "toolInvocation"} and value is not None:
            unread.setdefault(f"{TURN_FIELD}content.{key}", value)


def _result_name(key: str) -> str:
    return "content" if key == "errorText" else key
