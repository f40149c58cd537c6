"""Fields in whose place a `layout` stands: each is refused with the layout to write."""

import string
from collections.abc import Mapping
from typing import Any

#: Kind of `preprocessing` -> fields that named its columns.
_COLUMNS = {
    "chat": (
        *("conversation_column", "prompt_column", "completion_column", "tools_column"),
        "chat_template_kwargs_column",
    ),
    "prompt_completion": ("prompt_column", "completion_column", "prompt_template"),
    "tokenized": ("input_ids_column", "loss_mask_column", "labels_column"),
}
#: Fields of a source.
_OF_SOURCE = ("columns", "kind")
_IDS = ("input_ids", "loss_mask", "labels")
_HOW = "the layout says how rows are read"
#: Fields of other tools that choose an answer of preference pairs.
_OF_PAIRS = ("choose", "ranking")
CHOICE_OF_PAIRS = (
    "To train one answer of preference pairs, name its columns, such as layout: {kind: chat, messages: [{role: user, "
    "content: '{prompt}'}, {role: assistant, content: '{chosen}'}], ignore: [rejected]}; `bridgepack new --layout "
    "preference_chosen` writes it for your data"
)


def refuse_choice(values: Any) -> None:
    """Refuse a field that would choose an answer of preference pairs.

    Raises:
        ValueError: one is there; names the layout that says the same.
    """
    names = [name for name in _OF_PAIRS if isinstance(values, Mapping) and name in values]
    if names:
        raise ValueError(_message(names, values, CHOICE_OF_PAIRS))


def refuse_columns(kind: str, values: Any) -> None:
    """Refuse the fields of `preprocessing` that named columns.

    Raises:
        ValueError: one is there; names the layout that says the same.
    """
    fields = values if isinstance(values, Mapping) else {}
    names = [name for name in _COLUMNS.get(kind, ()) if name in fields]
    if not names:
        return
    columns = {name.removesuffix("_column"): fields[name] for name in names if fields[name]}
    layout = {"chat": _chats, "prompt_completion": _pair, "tokenized": _tokens}[kind](columns)
    raise ValueError(_message(names, fields, f"Write data.layout, or layout on a source: {_flow(layout)}"))


def refuse_fields_of_source(values: Any) -> None:
    """Refuse the fields of a source that said how its rows are read.

    Raises:
        ValueError: one is there; names the layout that says the same.
    """
    fields = values if isinstance(values, Mapping) else {}
    names = [name for name in _OF_SOURCE if fields.get(name) is not None]
    if not names:
        return
    columns = fields.get("columns")
    columns = {str(name): column for name, column in columns.items()} if isinstance(columns, Mapping) else {}
    if columns.keys() & {*_IDS}:
        cure = f"Write layout: {_flow(_tokens(columns))}"
    elif not columns and fields.get("kind") == "chat":
        cure = "The turns of a chat are detected"
    elif fields.get("kind") == "prompt_completion" or columns.keys() & {"prompt", "completion"}:
        turns = {name: column for name, column in columns.items() if name != "messages"}
        chat, pair = _flow(_chats({"prompt": "prompt", **turns})), _flow(_pair(columns))
        cure = f"Write layout: {chat}, or with preprocessing.kind prompt_completion layout: {pair}"
    else:
        cure = f"Write layout: {_flow(_chats(columns))}"
    raise ValueError(_message(names, fields, cure))


def _message(names: list[str], fields: Mapping[str, Any], cure: str) -> str:
    more_names = f", with {', '.join(names[1:])}" if names[1:] else ""
    return f"{names[0]} is {fields[names[0]]!r}{more_names}; {_HOW}. {cure}. Remove {', '.join(names)}."


def _chats(columns: Mapping[str, Any]) -> Any:
    """Return the layout of conversations, or a list where both turns and a pair were named."""
    common_fields: dict[str, Any] = {"tools": columns.get("tools", "tools")}
    variables = columns.get("chat_template_kwargs")
    common_fields |= {"chat_template_kwargs": variables} if variables else {}
    system = {"role": "system", "content": _in_braces(columns.get("system", "system"))}
    conversation = columns.get("conversation") or columns.get("messages")
    user = {"role": "user", "content": _in_braces(columns.get("prompt", "prompt"))}
    assistant = {"role": "assistant", "content": _in_braces(columns.get("completion", "completion"))}
    is_pair = bool(columns.keys() & {"prompt", "completion"})
    turns = [[{"from_column": conversation or "messages"}]] if conversation or not is_pair else []
    turns += [[user, assistant]] if is_pair else []
    layouts = [{"kind": "chat", "messages": [system, *parts], **common_fields} for parts in turns]
    return layouts[0] if len(layouts) == 1 else layouts


def _pair(columns: Mapping[str, Any]) -> Any:
    column, template = columns.get("prompt", "prompt"), columns.get("prompt_template", "{prompt}")
    return {
        "kind": "prompt_completion",
        "prompt": filled_template(str(template), str(column)),
        "completion": _in_braces(columns.get("completion", "completion")),
    }


def _tokens(columns: Mapping[str, Any]) -> Any:
    masks = [name for name in _IDS[1:] if columns.get(name)][:1]
    return {"kind": "tokenized", **{name: columns.get(name, name) for name in ("input_ids", *masks)}}


def filled_template(template: str, column: str) -> str:
    """Return a layout's text for a template whose only placeholder is `{prompt}`."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError:
        return _in_braces(column)
    prompt = "".join(
        text.replace("{", "{{").replace("}", "}}") + (_in_braces(column) if name == "prompt" else "")
        for text, name, _, _ in parts
    )
    return prompt if any(name == "prompt" for _, name, _, _ in parts) else prompt + _in_braces(column)


def _in_braces(column: Any) -> str:
    return f"{{{column}}}"


def _flow(layout: Any) -> str:
    from bridgepack.config.editing.yaml_text import flow  # imports ruamel.yaml, which a recipe without errors spares

    return flow(layout)
