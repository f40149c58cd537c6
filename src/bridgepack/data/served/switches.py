"""Finds the template's own switch that shows answers in training as they are served, by trying its variables."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from bridgepack.data.sequences.masks import RenderedChat
from bridgepack.data.served.compare import ServedAnswer
from bridgepack.data.served.rows import ServedRows, chat_of
from bridgepack.data.tokenizers.limits import STOPPED, TimeLimit
from bridgepack.data.tokenizers.variables import settable
from bridgepack.errors import RowError
from bridgepack.records import SWITCHED_KINDS

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
    names = sorted(settable(rows.stage.tokenizer))
    with TimeLimit() as limit:
        try:
            prepared = limit(rows.stage.encoder.prepare, columns)
            pieces = [chat for value in prepared.values if (chat := chat_of(value)) is not None]
            before = _answers(rows, pieces) if pieces else []
        except RowError:
            return NO_SWITCH
        if not before:
            return NO_SWITCH
        found = [
            (-sum(answer.kind == "equal" for answer in answers), name, value)
            for name, value, answers in _try_all(rows, pieces, names[:_MOST], limit)
            if _is_cured(before, answers)
        ]
    return min(found)[1:] if found else NO_SWITCH


def _try_all(
    rows: ServedRows, pieces: Sequence[RenderedChat], names: list[str], limit: TimeLimit
) -> Iterator[tuple[str, bool, list[ServedAnswer]]]:
    """Yield each variable and value with the answers that it gives; skips what the template or the masks reject.

    Ends at the first that takes too much time or memory.
    """
    for name, value in product(names, (True, False)):
        changed = [_with_variable(chat, name, value) for chat in pieces]
        try:
            yield name, value, limit(lambda some: _answers(rows, [_rendered(rows, one) for one in some]), changed)
        except RowError as error:
            if error.reason in STOPPED:
                return


def _with_variable(chat: RenderedChat, name: str, value: bool) -> RenderedChat:
    conversation = chat.conversation
    kwargs = {**conversation.template_kwargs, name: value}
    return chat._replace(conversation=conversation._replace(template_kwargs=kwargs, is_plain=False))


def _rendered(rows: ServedRows, chat: RenderedChat) -> RenderedChat:
    conversation, tokenizer = chat.conversation, rows.stage.tokenizer
    inputs = conversation.messages, conversation.tools, conversation.template_kwargs
    if tokenizer.has_generation_blocks:
        text, spans = tokenizer.render_marked(*inputs)
        return chat._replace(text=text, spans=spans, ends=None)
    return chat._replace(text=tokenizer.render_text(*inputs), ends=None)


def _answers(rows: ServedRows, pieces: Sequence[RenderedChat]) -> list[ServedAnswer]:
    """Return the answers of a row's pieces; raises RowError if none gives a sequence."""
    compared = rows.compare_chats(pieces)
    errors = [found for found in compared if isinstance(found, RowError)]
    if len(errors) == len(compared) and errors:
        raise errors[0]
    return [answer for found in compared if not isinstance(found, RowError) for answer in found]


def _is_cured(before: list[ServedAnswer], after: list[ServedAnswer]) -> bool:
    """Return whether contexts and answers are as served now, and as many tokens are trained."""
    num_before, num_after = (sum(answer.num_trained_tokens for answer in one) for one in (before, after))
    return num_after >= num_before and not any(answer.kind in SWITCHED_KINDS for answer in after)
