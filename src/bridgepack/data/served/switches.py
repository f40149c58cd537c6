"""Finds the template's own switch that shows answers in training as they are served, by trying its variables."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from bridgepack.data.sequences.masks import RenderedChat
from bridgepack.data.served.compare import ServedAnswer
from bridgepack.data.served.rows import ServedRows, chat_of
from bridgepack.data.tokenizers.templates import TimeLimit, variables_of
from bridgepack.errors import RowError
from bridgepack.records import SWITCHED_KINDS

#: Variables that every server and tokenizer sets.
_STANDARD = frozenset({"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"})
#: Maximum variables to try.
_MOST = 32

#: (name of a variable, its value); the name is empty if there is none.
Switch = tuple[str, bool]
NO_SWITCH: Switch = ("", False)


def find_switch(rows: ServedRows, columns: Mapping[str, Any]) -> Switch:
    """Return the switch that makes a row's answers the same in training and serving when it is set in both.

    Answers may still differ at the boundary, and no trained token may get lost. Of several switches, the one with the
    most equal answers counts, then the first by name.
    """
    tokenizer = rows.stage.tokenizer
    names = sorted(variables_of(tokenizer.chat_template or "") - _STANDARD - tokenizer.special_tokens.keys())
    with TimeLimit() as limit:
        try:
            chat = chat_of(limit(rows.stage.encoder.prepare, columns).value)
            if chat is None:
                return NO_SWITCH
            before = _answers(rows, chat)
        except RowError:
            return NO_SWITCH
        found = [
            (-sum(answer.kind == "equal" for answer in answers), name, value)
            for name, value, answers in _try_all(rows, chat, names[:_MOST], limit)
            if _is_cured(before, answers)
        ]
    return min(found)[1:] if found else NO_SWITCH


def _try_all(
    rows: ServedRows, chat: RenderedChat, names: list[str], limit: TimeLimit
) -> Iterator[tuple[str, bool, list[ServedAnswer]]]:
    """Yield each variable and value with the answers that it gives; skips what the template or the masks reject."""
    for name, value in product(names, (True, False)):
        conversation = chat.conversation
        kwargs = {**conversation.template_kwargs, name: value}
        changed = chat._replace(conversation=conversation._replace(template_kwargs=kwargs, is_plain=False))
        try:
            yield name, value, limit(lambda one: _answers(rows, _rendered(rows, one)), changed)
        except RowError:
            continue


def _rendered(rows: ServedRows, chat: RenderedChat) -> RenderedChat:
    conversation, tokenizer = chat.conversation, rows.stage.tokenizer
    inputs = conversation.messages, conversation.tools, conversation.template_kwargs
    if tokenizer.has_generation_blocks:
        text, spans = tokenizer.render_marked(*inputs)
        return chat._replace(text=text, spans=spans)
    return chat._replace(text=tokenizer.render_text(*inputs))


def _answers(rows: ServedRows, chat: RenderedChat) -> list[ServedAnswer]:
    """Return the answers of a conversation; raises RowError if it gives no sequence."""
    (found,) = rows.compare_chats([chat])
    if isinstance(found, RowError):
        raise found
    return found


def _is_cured(before: list[ServedAnswer], after: list[ServedAnswer]) -> bool:
    """Return whether contexts and answers are as served now, and as many tokens are trained."""
    num_before, num_after = (sum(answer.num_trained_tokens for answer in one) for one in (before, after))
    return num_after >= num_before and not any(answer.kind in SWITCHED_KINDS for answer in after)
