"""With `keep`, turns reach the template as the host's own normalisation gives them, whatever their shape."""

import copy
from itertools import product
from types import ModuleType
from typing import Any

import pytest

from bridgepack.config.recipe.preprocessing import ChatPreprocessing, mended_by_host
from bridgepack.data.sequences.conversation import ConversationReader
from bridgepack.errors import RowError
from tests.support.installed_host import host_release
from tests.support.read_rows import read_row

pytestmark = pytest.mark.bridge

KEEP = ChatPreprocessing(null_content="keep", tool_arguments="keep", content_parts="keep")
ASKED = {"role": "user", "content": "hi"}
OBJECT = {"at": "it", "n": [1, None]}
ARGUMENTS: tuple[Any, ...] = (OBJECT, '{"at": "it"}', " {} ", "it", "", "[1]", "null", '"x"', 7, [1], None)
ROLES = ("assistant", "user", "tool", "system", "developer")


def _called(function: Any, **others: Any) -> list[Any]:
    return [{"type": "function", "function": function, **others}]


def _calls() -> list[Any]:
    named = [{"name": "look", "arguments": arguments} for arguments in ARGUMENTS]
    return [
        *map(_called, named),
        *([one] for one in named),  # flat
        [{"name": "look", "arguments": '{"a": 1}', "function": "look"}],
        [{"function": "look"}],
        [{"type": "function", "function": {"name": "look"}}],
        [*_called({"name": "look", "arguments": '{"a": 1}'}), "text", 3],
        {"name": "look", "arguments": '{"a": 1}'},
    ]


def _turns() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"role": role, "content": content} for role, content in product(ROLES, ("hi", "", None, [{"type": "text"}]))
    ]
    found += [
        {"role": "assistant", "content": content, "tool_calls": calls} for content in ("", None) for calls in _calls()
    ]
    found += [{"role": role, "content": "", "tool_calls": calls} for role in ROLES[1:] for calls in _calls()[1:4]]
    found += [
        {"from": name, "value": value} for name in ("human", "gpt", "system", "tool") for value in ("hi", "", None)
    ]
    return found


def _in_list(turn: dict[str, Any]) -> dict[str, Any]:
    """Return a turn whose one call stands alone with that call in a list, which templates go through."""
    calls = turn.get("tool_calls")
    return {**turn, "tool_calls": [calls]} if isinstance(calls, dict) else turn


def _has_nameless_call(turn: dict[str, Any]) -> bool:
    """Return whether a call of a turn has no name where templates read it: the host trains a call of nothing."""
    calls = turn.get("tool_calls")
    functions = [call.get("function", call) if isinstance(call, dict) else call for call in calls or ()]
    return isinstance(calls, list) and not all(isinstance(function, dict) for function in functions)


def _without_nulls(turn: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in turn.items() if name == "content" or value is not None}


def test_turns_are_those_of_the_host(bridge: ModuleType) -> None:
    from megatron.bridge.data.conversation_processing import normalize_chat_conversation

    habits = mended_by_host(KEEP, host_release())
    read = ConversationReader(KEEP.model_copy(update=habits), as_host=habits.keys()).read
    num_equal = num_refused = num_nameless = 0
    for turn in _turns():
        column = "conversations" if "from" in turn else "messages"
        asked = {"from": "human", "value": "hi"} if "from" in turn else ASKED
        row = {column: [asked, turn]}
        try:
            theirs = [_in_list(_without_nulls(one)) for one in normalize_chat_conversation(copy.deepcopy(row))]
        except ValueError:
            theirs = None
        try:
            ours = read(read_row(copy.deepcopy(row))).messages
        except RowError:
            ours = None
        if _has_nameless_call(turn):
            assert ours is None, turn
            num_nameless += 1
            continue
        assert ours == theirs, turn
        num_equal, num_refused = num_equal + (theirs is not None), num_refused + (theirs is None)
    assert num_equal >= 60
    assert num_nameless >= 6
    assert bool(num_refused) == host_release().parses_call_arguments
