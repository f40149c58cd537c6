"""The columns that Megatron-Bridge reads, as a recipe's layout says them, where it reads the data itself."""

from collections.abc import Mapping, Sequence
from typing import Any

from bridgepack.config.recipe.layout import (
    AnyLayout,
    ChatLayout,
    Column,
    PromptCompletionLayout,
    TurnsFromColumn,
    parts_of,
)
from bridgepack.config.recipe.readings import written_layouts
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.records import TRAIN

#: Columns with the turns of a conversation, in the order in which the host looks for them, and the pair without any.
#: Source: megatron-bridge 0.6.2, data/sft_processing.py, normalize_sft_example.
CONVERSATION_COLUMNS = ("messages", "conversation", "conversations")
PAIR = ("prompt", "completion")
#: What a layout must be for the host, in words.
HOST_LAYOUT = (
    "{kind: chat, messages: [{from_column: messages}]} (or conversation, conversations), or one column each for prompt "
    "and completion"
)


def layouts_for_host(recipe: SFTRecipe) -> tuple[AnyLayout, ...]:
    """Return the layouts of a recipe's training data; () if they are not written."""
    return written_layouts(recipe.data, recipe.data.sources_of(TRAIN)[0])


def columns_for_host(layouts: Sequence[AnyLayout]) -> dict[str, Any] | None:
    """Return the fields of the host's preprocessing that name the columns of layouts; None if it has no such fields.

    {kind: prompt_completion, prompt: 'Q: {question}', completion: '{answer}'}
    -> prompt_column question, completion_column answer, prompt_template 'Q: {prompt}'

    Of a chat, the host finds the columns by their names, so nothing is to be said of them. It reads the columns
    `prompt` and `completion` of rows that have none of these, so a second layout may name them.
    """
    if not layouts:
        return None
    if isinstance(layouts[0], ChatLayout):
        return {} if all(isinstance(layout, ChatLayout) and _is_found(layout) for layout in layouts) else None
    fields, *more_fields = [_columns_of_pair(layout) for layout in layouts]
    usual = None if fields is None else fields | dict(zip(("prompt_column", "completion_column"), PAIR, strict=True))
    return fields if more_fields in ([], [usual]) else None


def _columns_of_pair(layout: AnyLayout) -> dict[str, Any] | None:
    if not isinstance(layout, PromptCompletionLayout) or not isinstance(layout.prompt, str):
        return None
    prompt, completion = parts_of(layout.prompt), parts_of(layout.completion)
    columns = [part for part in prompt if isinstance(part, Column)]
    if len(columns) != 1 or len(completion) != 1:
        return None
    template = "".join(
        "{prompt}" if isinstance(part, Column) else part.replace("{", "{{").replace("}", "}}") for part in prompt
    )
    answer = completion[0]
    assert isinstance(answer, Column)
    return {"prompt_column": columns[0].path, "completion_column": answer.path, "prompt_template": template}


def _is_found(layout: ChatLayout) -> bool:
    """Return whether the host finds the columns of a conversation: its turns, or a question and its answer."""
    if layout.tools not in (None, "tools", ("tools",)) or layout.chat_template_kwargs is not None:
        return False
    turns = [turn.model_dump(exclude_defaults=True) for turn in layout.messages]
    pair: list[Mapping[str, Any]] = [
        {"role": role, "content": f"{{{column}}}"} for role, column in zip(("user", "assistant"), PAIR, strict=True)
    ]
    first = layout.messages[0]
    is_column = isinstance(first, TurnsFromColumn) and len(turns) == 1 and first.from_column in CONVERSATION_COLUMNS
    return is_column or turns == pair
