"""Formats of rows that need no layout, as their documents describe them: which columns are turns, questions, answers.

Rows of another shape are not judged; a layout in the recipe says how they are read.

Source: OpenAI, guide to supervised fine-tuning (`messages`, `tools`); LLaMA-Factory, data/README.md (`conversations`,
`system`, `tools`; `instruction`, `input`, `output`); TRL, docs of dataset formats (`prompt` and `completion`, as texts
or turns); docs/data.md of this project for the pairs and the blank line between an instruction and its input.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridgepack.config.recipe.layout import (
    AnyLayout,
    ChatLayout,
    PromptCompletionLayout,
    TextLayout,
    TokenizedLayout,
)
from bridgepack.proof.masks.rows.columns import is_blank, of_json
from bridgepack.proof.masks.rows.conversation import UnreadableRowError

_CONVERSATIONS = ("messages", "conversations", "conversation")
#: Columns of a question and its answer; of pieces, the second may be empty.
_PAIRS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("prompt",), "completion"),
    (("instruction", "input"), "output"),
    (("instruction",), "output"),
    (("question",), "answer"),
    (("prompt",), "response"),
    (("instruction",), "response"),
    (("query",), "response"),
    (("input",), "output"),
)
#: Columns beside a conversation that are part of it.
_BESIDE = ("system", "tools", "chat_template_kwargs")


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """A layout that a row's columns show."""

    layout: AnyLayout
    columns: frozenset[str]  #: columns that it reads


def format_of(row: Mapping[str, Any], kind: str) -> Format:
    """Return the format of a row of a kind; raises UnreadableRowError if no document describes its columns."""
    if kind == "tokenized":
        names = ("input_ids", "loss_mask", "labels", "attention_mask", "position_ids")
        return Format(layout=TokenizedLayout(kind="tokenized"), columns=frozenset(names))
    if kind == "text":
        if not isinstance(row.get("text"), str):
            raise UnreadableRowError("the row has no text in a column of that name, and its recipe has no layout")
        return Format(layout=TextLayout(kind="text"), columns=frozenset({"text"}))
    return _chat_format(row) if kind == "chat" else _pair_format(row)


def other_columns(row: Mapping[str, Any], read: frozenset[str]) -> list[str]:
    """Return columns that a format does not read, and that may say something: texts, lists, objects, truth values."""
    return sorted(
        name
        for name, value in row.items()
        if name not in read and isinstance(value, (str, list, dict, bool)) and not is_blank(value)
    )


def _chat_format(row: Mapping[str, Any]) -> Format:
    for name in _CONVERSATIONS:
        if _holds_turns(row.get(name)):
            return _of_turns([{"from_column": name}], {name}, row)
    prompt, completion = row.get("prompt"), row.get("completion")
    if _holds_turns(prompt) and _holds_turns(completion):
        return _of_turns([{"from_column": "prompt"}, {"from_column": "completion"}], {"prompt", "completion"}, row)
    questions, answer = _pair(row)
    content = [f"{{{name}}}" for name in questions]
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": content if len(content) > 1 else content[0]},
        {"role": "assistant", "content": f"{{{answer}}}"},
    ]
    return _of_turns(turns, {*questions, answer}, row)


def _of_turns(turns: list[dict[str, Any]], columns: set[str], row: Mapping[str, Any]) -> Format:
    fields: dict[str, Any] = {"kind": "chat"}
    system = [{"role": "system", "content": "{system}"}] if row.get("system") else []
    if "tools" in row:
        fields["tools"] = "tools"
    if "chat_template_kwargs" in row:
        fields["chat_template_kwargs"] = "chat_template_kwargs"
    layout = ChatLayout.model_validate({**fields, "messages": [*system, *turns]})
    return Format(layout=layout, columns=frozenset({*columns, *_BESIDE}))


def _pair_format(row: Mapping[str, Any]) -> Format:
    questions, answer = _pair(row)
    pieces = [f"{{{name}}}" for name in questions]
    layout = PromptCompletionLayout.model_validate(
        {
            "kind": "prompt_completion",
            "prompt": pieces if len(pieces) > 1 else pieces[0],
            "completion": f"{{{answer}}}",
        }
    )
    return Format(layout=layout, columns=frozenset({*questions, answer}))


def _pair(row: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    for questions, answer in _PAIRS:
        has_texts = isinstance(row.get(questions[0]), str) and isinstance(row.get(answer), str)
        if has_texts and all(name in row for name in questions):
            return questions, answer
    raise UnreadableRowError("no document describes a row of these columns; write data.layout into the recipe")


def _holds_turns(value: Any) -> bool:
    if isinstance(value, str) and value.lstrip()[:1] != "[":
        return False
    try:
        turns = of_json(value, "")
    except UnreadableRowError:
        return False
    return isinstance(turns, list) and bool(turns) and all(isinstance(turn, Mapping) for turn in turns)
