"""Conversations whose answers are compared with served ones: plain, with thoughts, and of an agent."""

from typing import Any

_CALL = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "lookup", "arguments": {"city": "Bonn"}},
}
TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Looks up.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def _said(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def _thought(number: int) -> str:
    return f"<think>\nThought {number}.\n</think>\n\nAnswer {number}."


#: Name of a set -> its row.
SETS: dict[str, dict[str, Any]] = {
    "plain": {
        "messages": [
            *(_said("user", "Question 1?"), _said("assistant", "Answer 1.")),
            *(_said("user", "Question 2?"), _said("assistant", "Answer 2.")),
        ]
    },
    "thoughts": {
        "messages": [
            *(_said("user", "Question 1?"), _said("assistant", _thought(1))),
            *(_said("user", "Question 2?"), _said("assistant", _thought(2))),
        ]
    },
    "agents": {
        "messages": [
            _said("user", "Question 1?"),
            _said("assistant", "", reasoning_content="Thought 0.", tool_calls=[_CALL]),
            _said("tool", "It rains.", tool_call_id="call00001", name="lookup"),
            _said("assistant", "Answer 1.", reasoning_content="Thought 1."),
            _said("user", "Question 2?"),
            _said("assistant", "Answer 2.", reasoning_content="Thought 2."),
        ],
        "tools": [TOOL],
    },
}
