"""Roles of turns under the names that data sets give them, and what these names mean."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
#: What a turn that holds nothing but calls is, in place of a role.
FUNCTION_CALL = "function_call"
#: Name, in lower case, of what has no other meaning in public data sets -> role, or `function_call`.
ROLE_NAMES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("tool", "observation", "function_response", "function", "function_result"), "tool"),
        **dict.fromkeys(("tool_response", "tool_result", "ipython", "environment"), "tool"),
        **dict.fromkeys(("assistant", "gpt", "bot", "chatbot", "model", "ai", "chatgpt"), "assistant"),
        **dict.fromkeys(("bard", "bing", "claude"), "assistant"),
        **dict.fromkeys(("user", "human", "prompter"), "user"),
        **dict.fromkeys((FUNCTION_CALL, "tool_call", "function-call"), FUNCTION_CALL),
        **{"system": "system", "developer": "developer"},
    }
)
#: Roles of turns that are no answer.
CONTEXT_ROLES = frozenset(name for name, role in ROLE_NAMES.items() if role not in {"assistant", FUNCTION_CALL})


def unknown_roles(names: Collection[str]) -> list[str]:
    """Return the names of roles that are not known: [`user`, `Assistant`, `critic`] -> [`critic`]."""
    return [name for name in names if name.lower() not in ROLE_NAMES]


def renamed_roles(names: Collection[str]) -> dict[str, str]:
    """Return name -> role, for names that are not the role's own and that few data sets have.

    [`user`, `gpt`, `bot`] -> {`bot`: `assistant`}
    """
    usual = ROLES | {"human", "gpt", "observation", "function_response", FUNCTION_CALL}
    return {name: ROLE_NAMES[name.lower()] for name in names if name not in usual and name.lower() in ROLE_NAMES}
