"""Turns of OpenAI's API and of ShareGPT's files -> messages, and the turns whose flag says that they are not trained.

Source of the names: OpenAI, API reference of chat completions, and its guide to supervised fine-tuning (`weight`);
LLaMA-Factory, data/README.md (`from`, `value`, `function_call`, `observation`); Axolotl, docs/dataset-formats
(`train`, `training`, `weight`); ms-swift, docs of custom data sets (`loss`, `loss_scale`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bridgepack.proof.masks.rows.columns import is_blank, of_json
from bridgepack.proof.masks.rows.conversation import ASSISTANT, REASONING, UnreadableRowError

_ROLES = ("system", "developer", "user", ASSISTANT, "tool")
#: ShareGPT's names of speakers.
_SPEAKERS = {
    **dict.fromkeys(("human", "prompter"), "user"),
    **dict.fromkeys(("gpt", "bot", "chatbot", "model", "ai", "chatgpt", "bard", "bing", "claude"), ASSISTANT),
    **dict.fromkeys(("observation", "function_response", "function", "function_result"), "tool"),
    **dict.fromkeys(("tool_response", "tool_result", "ipython", "environment"), "tool"),
    **dict.fromkeys(("tool_call", "function-call"), "function_call"),
}
_CALLER = "function_call"
#: Names of a call's arguments, and of a schema's parameters, in data sets.
_ARGUMENTS = (
    *("arguments", "args", "parameters", "input", "params", "kwargs", "tool_input", "tool_args", "tool_arguments"),
    *("function_arguments", "action_input"),
)
_PARAMETERS = ("parameters", "inputSchema", "input_schema", "args_schema", "arguments")
_NEGATED = (
    *("ignore_loss", "no_loss", "skip_loss", "mask_loss", "loss_masked", "masked", "is_masked", "exclude_from_loss"),
    *("no_train", "skip_train", "no_training", "skip_training", "untrained", "exclude_from_training"),
)
#: Fields of a turn, or columns of a row, that say whether it is trained.
FLAGS = frozenset(
    {
        *("weight", "loss_weight", "loss", "loss_mask", "loss_scale", "train", "training", "trainable", "mask"),
        *("is_trained", "is_training", "trained", "train_on_turn", "train_on_turns", "is_correct"),
        *("compute_loss", "calculate_loss", "use_loss", "has_loss", "do_train", "should_train", "train_on"),
        *("weights", "loss_weights", "loss_masks", "train_mask", "calc_loss"),
        *("include_in_loss", "in_loss", "with_loss"),
        *("use_for_training", "for_training", "to_train", "loss_on", "learn", "should_learn"),
        *_NEGATED,
    }
)
#: Types of parts that are no text, and keys of parts that hold none.
_OF_APIS = ("tool_use", "tool_result", "thinking", "mcp_tool_use", "mcp_tool_result")
_OF_VERCEL = ("tool-call", "tool-result", "reasoning", "dynamic-tool", "step-start")
_OF_OTHERS = ("tool_call", "tool_call_response", "redacted_thinking", "document")
#: What types of parts begin with that name a tool, or that no model is sent.
_BEGINNINGS = ("tool-", "source-", "data-")
_KEYS_OF_APIS = frozenset(
    {"functionCall", "function_call", "functionResponse", "function_response", "toolUse", "toolResult"}
    | {"reasoningContent", "thought", "tool_call", "tool_call_result", "block_type"}
)
#: Fields of turns with what other fields say, too, or with what APIs have elsewhere.
_OF_FRAMEWORKS = ("additional_kwargs", "parts", "blocks", "function_call", "call_id", "tool_use_id", "tool_name")
_UNTRAINED, _TRAINED = (0, "0", "0.0", "false"), (1, "1", "1.0", "true")


def message_of(turn: Any, aliases: Mapping[str, str]) -> dict[str, Any]:
    """Return a turn as a message: role, content, and its other fields without nulls; `aliases` are in lower case.

    Raises:
        UnreadableRowError: it is no turn of a known shape.
    """
    if not isinstance(turn, Mapping):
        raise UnreadableRowError("a turn is no object")
    fields = {name: value for name, value in turn.items() if value is not None}
    calls = of_json(fields.get("tool_calls"), "tool_calls")
    if is_blank(calls):
        fields.pop("tool_calls", None)
    else:
        calls = [calls] if isinstance(calls, Mapping) else calls
        fields["tool_calls"] = [_call_of(call) for call in calls] if isinstance(calls, list) else calls
    if "role" in fields and ("content" in turn or "tool_calls" in fields):
        speaker, content = fields["role"], turn.get("content")
    elif "from" in fields and "value" in turn:
        speaker, content = str(fields.pop("from")).lower(), fields.pop("value", None)
    else:
        raise UnreadableRowError("a turn has neither role and content nor from and value")
    other_fields = {name: value for name, value in fields.items() if name not in ("role", "content")}
    role = _role_of(speaker, aliases)
    if role == _CALLER:
        return {"role": ASSISTANT, "content": "", **other_fields, "tool_calls": _calls_of(content)}
    if content is not None and not isinstance(content, (str, list)):
        raise UnreadableRowError("the content of a turn is neither text nor a list of parts")
    if isinstance(content, list) and any(map(_is_of_api, content)):
        raise UnreadableRowError("the content of a turn has parts that are calls, results or thoughts")
    if isinstance(content, str) and content.startswith("[{") and '"type"' in content:
        raise UnreadableRowError("the content of a turn may be parts as JSON text")
    if any(not is_blank(fields.get(name)) for name in _OF_FRAMEWORKS):
        raise UnreadableRowError("a turn has fields of a framework, or of OpenAI's older API")
    if any(not isinstance(fields.get(name, ""), str) for name in REASONING):
        raise UnreadableRowError("the thoughts of a turn are no text")
    are_parts = isinstance(content, list) and all(isinstance(part, Mapping) and "type" in part for part in content)
    if role == "tool" and isinstance(content, list) and not are_parts:
        raise UnreadableRowError("the content of a turn may be what a tool returned")
    return {"role": role, "content": content, **other_fields}


def _is_of_api(part: Any) -> bool:
    """Return whether a part of content is a call, a result or a thought, as APIs have them."""
    if not isinstance(part, Mapping):
        return False
    kind = part.get("type")
    is_named = isinstance(kind, str) and (kind in (*_OF_APIS, *_OF_VERCEL, *_OF_OTHERS) or kind.startswith(_BEGINNINGS))
    return is_named or not _KEYS_OF_APIS.isdisjoint(part)


def _role_of(speaker: Any, aliases: Mapping[str, str]) -> str:
    name = str(speaker)
    alias = aliases.get(name.lower(), name)
    role = _SPEAKERS.get(alias.lower(), alias if alias in _ROLES else alias.lower())
    if role not in (*_ROLES, _CALLER):
        raise UnreadableRowError(f"{role!r} is no role of OpenAI's API or of ShareGPT's files")
    return role


def _calls_of(value: Any) -> list[dict[str, Any]]:
    """Return the calls that a turn of ShareGPT's `function_call` holds, one or a list, as objects or JSON text."""
    calls = of_json(value, "the value of a function_call")
    calls = calls if isinstance(calls, list) else [calls]
    if not calls or not all(isinstance(call, Mapping) and isinstance(call.get("name"), str) for call in calls):
        raise UnreadableRowError("the value of a function_call is no call with a name")
    named_calls = [_with_first_name(call, _ARGUMENTS) for call in calls]
    return [
        {
            **({"id": call["id"]} if call.get("id") is not None else {}),
            "type": "function",
            "function": {"name": call["name"], "arguments": call.get("arguments", {})},
        }
        for call in named_calls
    ]


def _call_of(call: Any) -> Any:
    """Return a call of a turn with OpenAI's names; itself if it has them."""
    if not isinstance(call, Mapping):
        return call
    function = call.get("function")
    if isinstance(function, Mapping):
        return {**call, "function": _with_first_name(function, _ARGUMENTS)}
    if "arguments" in call or not isinstance(call.get("name"), str):
        return call
    function_fields = _with_first_name(call, _ARGUMENTS)
    if "arguments" not in function_fields:
        return call
    around = {name: call[name] for name in ("id", "index") if call.get(name) is not None}
    return {**around, "type": "function", "function": {name: function_fields[name] for name in ("name", "arguments")}}


def schema_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool schema in OpenAI's form."""
    function = schema.get("function")
    if isinstance(function, Mapping):
        return {**schema, "function": _with_first_name(function, _PARAMETERS)}
    if not isinstance(schema.get("name"), str):
        return dict(schema)
    function_fields = _with_first_name(schema, _PARAMETERS)
    return {"type": "function", "function": {name: value for name, value in function_fields.items() if name != "type"}}


def _with_first_name(item: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return an object with the first of some names in place of the only one that it has."""
    names_present = [name for name in names if item.get(name) is not None]
    if len(names_present) > 1:
        raise UnreadableRowError(f"{' and '.join(names_present)} mean the same")
    if not names_present or names_present[0] == names[0]:
        return dict(item)
    return {names[0] if name == names_present[0] else name: value for name, value in item.items() if name != names[0]}


def untrained_turns(
    turns: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]], row_flags: Mapping[str, Any]
) -> frozenset[int]:
    """Return the positions of answers that a flag of the turn, or of the whole row, excludes from training.

    Raises:
        UnreadableRowError: a flag says neither yes nor no.
    """
    positions = set()
    for index, (turn, message) in enumerate(zip(turns, messages, strict=True)):
        if message["role"] == ASSISTANT:
            flags = {**row_flags, **{name: value for name, value in turn.items() if is_flag(name)}}
            if not all(_says_train(name, value) for name, value in flags.items() if not is_blank(value)):
                positions.add(index)
    return frozenset(positions)


def is_flag(name: str) -> bool:
    """Return whether a field is about training: `weight`, `Loss-Mask`."""
    return name.lower().replace("-", "_").replace(" ", "_") in FLAGS


def _says_train(name: str, value: Any) -> bool:
    flag = value.strip().lower() if isinstance(value, str) else value
    if name.lower() == "mask" and (isinstance(flag, bool) or flag in ("true", "false")):
        raise UnreadableRowError("mask is true or false, which may mean either")
    if flag in _TRAINED or flag in _UNTRAINED:
        return (flag in _TRAINED) != (name.lower() in _NEGATED)
    raise UnreadableRowError(f"{name} of a turn is neither 0 nor 1")
