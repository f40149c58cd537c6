"""The keys of turns, calls, tool schemas and parts under the names that data sets give them: one table for all readers.

A name counts at an object's own level only: the parameters of a tool and the arguments of a call may have any names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from bridgepack.config.layouts.contents import plain_name


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The keys of one kind of object."""

    what: str  #: such an object, for messages
    names: Mapping[str, tuple[str, ...]]  #: key -> its names, as `plain_name` writes them; its own is the first
    others: frozenset[str] = frozenset()  #: names of keys that are kept as they are

    @cached_property
    def key_of(self) -> Mapping[str, str]:
        """Name -> key."""
        return {name: key for key, names in self.names.items() for name in names}

    def key(self, name: Any) -> str:
        """Return the key that a name stands for; empty for a name of no key."""
        return self.key_of.get(name) or self.key_of.get(plain_name(str(name)), "")

    def names_in(self, item: Mapping[str, Any]) -> dict[str, list[str]]:
        """Return key -> the names that an object has for it, without those whose value is null."""
        names: dict[str, list[str]] = {}
        for name, value in item.items():
            if value is not None and (key := self.key(name)):
                names.setdefault(key, []).append(name)
        return names

    def why_twice(self, names_of_keys: Mapping[str, Sequence[str]]) -> str:
        """Return what to say of an object with two names for one key; empty if it has none."""
        for key, names in names_of_keys.items():
            if len(names) > 1:
                return f"a {self.what} has both {names[0]} and {names[1]}, and only one can be its {key}; remove one"
        return ""

    def unknown_names(self, item: Mapping[str, Any]) -> list[str]:
        """Return the names in an object that stand for no key, without those whose value is null."""
        return [str(name) for name, value in item.items() if value is not None and not self._is_of_table(name)]

    def _is_of_table(self, name: Any) -> bool:
        return name in self.others or bool(self.key(name))


#: Fields of a turn with its reasoning.
REASONING = ("reasoning_content", "reasoning", "thinking")
#: Fields of an assistant's turn with what tools returned, which templates such as Gemma 4's write within the turn; and
#: keys of a call with the same.
TURN_RESULTS = (
    *("tool_responses", "tool_response", "tool_results", "tool_result", "tool_outputs", "tool_output"),
    *("function_responses", "function_response", "observations", "observation"),
)
CALL_RESULTS = ("result", "results", "response", "output", "observation")
#: A call: OpenAI's function, LangChain's, Anthropic's and Gemini's parts, ReAct's actions.
CALL = Keys(
    what="call",
    names=MappingProxyType(
        {
            "name": ("name", "tool_name", "function_name", "tool", "action"),
            "arguments": (
                *("arguments", "args", "parameters", "input", "params", "kwargs", "tool_input", "tool_args"),
                *("tool_arguments", "function_arguments", "action_input", "tool_kwargs"),
            ),
            "id": ("id", "call_id", "tool_call_id", "tool_use_id"),
        }
    ),
    others=frozenset({"type", "index", "function"}),
)
#: What a tool returned, as a part of content: Anthropic's, Gemini's, Bedrock's and Vercel's.
RESULT = Keys(
    what="result",
    names=MappingProxyType(
        {
            "content": ("content", "response", "result", "output"),
            "tool_call_id": ("tool_call_id", "tool_use_id", "id", "call_id"),
            "name": ("name", "tool_name"),
        }
    ),
    others=frozenset({"type", "is_error", "status"}),
)
#: A tool schema: OpenAI's function, Anthropic's, MCP's, Gemini's.
SCHEMA = Keys(
    what="tool schema",
    names=MappingProxyType(
        {
            "name": ("name",),
            "description": ("description",),
            "parameters": ("parameters", "input_schema", "args_schema", "parameters_json_schema", "arguments"),
        }
    ),
    others=frozenset({"type", "function", "strict"}),
)
#: A list of schemas in one object, as Gemini has them; the key of each object in the list that Bedrock has.
_DECLARATIONS = ("function_declarations", "functionDeclarations")
BEDROCK_TOOL = "toolSpec"
#: A turn: OpenAI's, ShareGPT's, Gemini's. The text of one under several names is that of the first.
TURN = Keys(
    what="turn",
    names=MappingProxyType(
        {
            "role": ("role", "from", "speaker", "sender"),
            "content": ("content", "value", "parts", "text", "message", "utterance", "blocks"),
        }
    ),
)
#: A question with its answer in one object of a list, and the system text before the first.
PAIR = Keys(
    what="pair",
    names=MappingProxyType(
        {
            "system": ("system", "system_prompt"),
            "user": ("user", "human", "input", "question", "query", "prompt", "instruction"),
            "assistant": ("assistant", "gpt", "bot", "output", "answer", "response", "completion"),
        }
    ),
)
#: A part of content that is text.
PART = Keys(
    what="part",
    names=MappingProxyType({"text": ("text", "value", "content")}),
    others=frozenset({"type"}),
)


def declared_schemas(item: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the schemas of an object that lists several, as Gemini's, Bedrock's `toolConfig` and MCP's; else none."""
    lists: dict[str, Sequence[Mapping[str, Any]]] = {
        name: item[name] for name in (*_DECLARATIONS, "tools") if isinstance(item.get(name), (list, tuple))
    }
    for name, schemas in lists.items():
        if all(isinstance(schema, Mapping) and (name != "tools" or _is_listed(schema)) for schema in schemas):
            return schemas
    return ()


def _is_listed(schema: Mapping[str, Any]) -> bool:
    return BEDROCK_TOOL in schema or "function" in schema or {"name", "parameters"} <= SCHEMA.names_in(schema).keys()


def schemas_by_name(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas of an object that has them under their names; none if it is no such object.

    {"depth": {"description": "Depth of a lake."}} -> [{"name": "depth", "description": "Depth of a lake."}]
    """
    are_schemas = all(
        isinstance(schema, Mapping) and {"description", "parameters"} & SCHEMA.names_in(schema).keys()
        for schema in item.values()
    )
    if not item or not are_schemas or "properties" in item or BEDROCK_TOOL in item:
        return []
    return [{"name": name, **schema} for name, schema in item.items()]


def listed_turns(turns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the turns of an object of lists; none if it is no such object.

    {"role": ["user", "assistant"], "content": ["2 + 2?", "4"]} -> two turns
    """
    lists = {name: value for name, value in turns.items() if value is not None}
    if "role" not in TURN.names_in(lists) or not all(isinstance(value, list | tuple) for value in lists.values()):
        return []
    if len({len(value) for value in lists.values()}) > 1:
        return []
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
