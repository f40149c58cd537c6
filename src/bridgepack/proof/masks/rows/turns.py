"""Turns of OpenAI's API and of ShareGPT's files -> messages, and the turns whose flag says that they are not trained.

Source of the names: OpenAI, API reference of chat completions, and its guide to supervised fine-tuning (`weight`);
LLaMA-Factory, data/README.md (`from`, `value`, `function_call`, `observation`); Axolotl, docs/dataset-formats
(`train`, `training`, `weight`); ms-swift, docs of custom data sets (`loss`, `loss_scale`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bridgepack.proof.masks.rows.columns import is_blank, of_json
from bridgepack.proof.masks.rows.conversation import ASSISTANT, UnreadableRowError

_ROLES = ("system", "developer", "user", ASSISTANT, "tool")
#: ShareGPT's names of speakers.
_SPEAKERS = {"human": "user", "gpt": ASSISTANT, "observation": "tool", "function_response": "tool"}
_CALLER = "function_call"
#: Fields of a turn, or columns of a row, that say whether it is trained.
FLAGS = frozenset(
    {"weight", "loss_weight", "loss", "loss_mask", "loss_scale", "train", "training", "trainable", "mask"}
)
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
        fields["tool_calls"] = calls
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
    return {"role": role, "content": content, **other_fields}


def _role_of(speaker: Any, aliases: Mapping[str, str]) -> str:
    name = str(speaker)
    alias = aliases.get(name.lower(), name)
    role = _SPEAKERS.get(alias, alias)
    if role not in (*_ROLES, _CALLER):
        raise UnreadableRowError(f"{role!r} is no role of OpenAI's API or of ShareGPT's files")
    return role


def _calls_of(value: Any) -> list[dict[str, Any]]:
    """Return the calls that a turn of ShareGPT's `function_call` holds, one or a list, as objects or JSON text."""
    calls = of_json(value, "the value of a function_call")
    calls = calls if isinstance(calls, list) else [calls]
    if not calls or not all(isinstance(call, Mapping) and isinstance(call.get("name"), str) for call in calls):
        raise UnreadableRowError("the value of a function_call is no call with a name")
    return [
        {"type": "function", "function": {"name": call["name"], "arguments": call.get("arguments", {})}}
        for call in calls
    ]


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
        return flag in _TRAINED
    raise UnreadableRowError(f"{name} of a turn is neither 0 nor 1")
