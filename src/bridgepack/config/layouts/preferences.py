"""Entries of preference pairs of which the chosen answer is trained; only `--layout preference_chosen` chooses them."""

from collections.abc import Mapping
from typing import Any

from bridgepack.config.layouts.entry import PublicLayout, Slot, slot
from bridgepack.config.layouts.forms import Form
from bridgepack.config.layouts.parts import ASSISTANT, CHOSEN, REJECTED, TRL, USER, chat

#: Name of the layouts that train the chosen answer.
PREFERENCE_CHOSEN = "preference_chosen"
_QUESTION = ("prompt", "question", "instruction", "query", "input")
_OPEN = (*_QUESTION, "messages", "conversations", "conversation")
_TURNS = (Form.OPENAI, Form.SHAREGPT)


def _preference(title: str, slots: Mapping[str, Slot], layout: Mapping[str, Any]) -> PublicLayout:
    return PublicLayout(
        name=PREFERENCE_CHOSEN,
        title=f"preference pairs of which the chosen answer is trained: {title}",
        url=TRL,
        slots=slots,
        layout=layout,
        ignores=(*REJECTED, "score_chosen", "score_rejected"),
        is_detected=False,
    )


CHOSEN_ANSWERS: tuple[PublicLayout, ...] = (
    _preference(
        "the text of a question and of each answer",
        {"question": slot(*_QUESTION), "answer": slot(*CHOSEN)},
        chat(USER, ASSISTANT),
    ),
    _preference(
        "a conversation for each answer", {"turns": slot(*CHOSEN, form=_TURNS)}, chat({"from_column": "turns"})
    ),
    _preference(
        "turns before the answers, whose turns are lists of their own",
        {"turns": slot(*_OPEN, form=Form.OPEN_TURNS), "answer": slot(*CHOSEN, form=Form.ANSWER_TURNS)},
        chat({"from_column": "turns"}, {"from_column": "answer"}),
    ),
    _preference(
        "turns before the text of each answer",
        {"turns": slot(*_OPEN, form=Form.OPEN_TURNS), "answer": slot(*CHOSEN)},
        chat({"from_column": "turns"}, ASSISTANT),
    ),
    _preference(
        "a conversation, and the rejected answer beside it",
        {"turns": slot("messages", "conversations", "conversation", form=_TURNS)},
        chat({"from_column": "turns"}),
    ),
    _preference(
        "the text of a question, and turns that begin with the answer",
        {"question": slot(*_QUESTION), "answer": slot(*CHOSEN, form=Form.ANSWER_TURNS)},
        chat(USER, {"from_column": "answer"}),
    ),
    _preference(
        "OpenAI's input with its messages",
        {"request": slot("input", form=Form.VARIABLES), "answer": slot(*CHOSEN, form=Form.ANSWER_TURNS)},
        {**chat({"from_column": "request.messages"}, {"from_column": "answer"}), "tools": "request.tools"},
    ),
)
