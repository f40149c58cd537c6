"""Roles of turns under the names that data sets give them, and what these names mean."""

from collections.abc import Collection, Mapping

#: Names that need no alias: those of roles, and those that are built in.
#: Source: `role_aliases` of `DataConfig`.
_KNOWN = frozenset(
    {
        *("system", "developer", "user", "assistant", "tool", "human", "gpt", "function_call", "function_response"),
        "observation",
    }
)
#: Name, in lower case, of what has no other meaning in public data sets -> role.
_MEANINGS: Mapping[str, str] = {
    **dict.fromkeys(("function", "function_result", "tool_response", "tool_result", "ipython", "environment"), "tool"),
    **dict.fromkeys(("assistant", "bot", "chatbot", "model", "ai", "chatgpt", "bard", "bing", "claude"), "assistant"),
    **dict.fromkeys(("user", "human", "prompter"), "user"),
    **dict.fromkeys(("tool_call", "function-call"), "function_call"),
    **{"system": "system", "developer": "developer", "tool": "tool", "gpt": "assistant"},
}


def aliases_for(names: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Return (alias -> role, names whose role is not known) for roles of turns.

    [`user`, `Assistant`, `function`, `critic`] -> {`assistant`: `assistant`, `function`: `tool`}, [`critic`]
    """
    new_names = [name for name in names if name not in _KNOWN]
    aliases = {name.lower(): _MEANINGS[name.lower()] for name in new_names if name.lower() in _MEANINGS}
    return aliases, [name for name in new_names if name.lower() not in aliases]
