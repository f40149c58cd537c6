"""Entries of answers that are judged, by a rejected one, a label or a score: these rows are refused.

Of pairs, the chosen answer is trained with `--layout preference_chosen`, which only its name chooses.
"""

from collections.abc import Mapping
from typing import Any

from bridgepack.config.layouts.entry import DataSet, PublicLayout, Slot, slot
from bridgepack.config.layouts.forms import Form
from bridgepack.config.layouts.parts import ANY, ASSISTANT, CHOSEN, HUB, QUESTIONS, REJECTED, TRL, USER, chat

#: Name of the layouts that train the chosen answer.
PREFERENCE_CHOSEN = "preference_chosen"
_QUESTION = ("prompt", "question", "instruction", "query", "input")
_OPEN = (*_QUESTION, "messages", "conversations", "conversation")
_TURNS = (Form.OPENAI, Form.SHAREGPT)
_COLUMNS_OF_TURNS = ("messages", "conversations", "conversation")
_PAIRS = (
    "they are preference pairs for DPO; supervised training would ignore the rejected answer. To train the chosen "
    "answers alone, write the recipe with `bridgepack new --layout preference_chosen`"
)
#: Names of the column that tells good rows from bad ones.
_LABELS = ("label", "kto_tag", "desirable", "is_desirable")
_LABELLED = (
    "label marks bad completions, and supervised training would train them, too. Keep only the rows whose label is "
    "true, and drop the column label"
)


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
        "the text of an instruction, its input, earlier turns, and the text of each answer, as LLaMA-Factory's",
        {
            "history": slot("history", form=(Form.PAIRS, *_TURNS), needs="optional"),
            "question": slot("instruction", "query", "prompt", "question"),
            "input": slot("input", needs="optional"),
            "answer": slot(*CHOSEN),
        },
        chat({"from_column": "history"}, {"role": "user", "content": ["{question}", "{input}"]}, ASSISTANT),
    ),
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
#: Rows with judged answers, which are not read.
JUDGED: tuple[PublicLayout, ...] = (
    PublicLayout(
        name="preference",
        title="a chosen and a rejected answer, as TRL's preference format",
        url=TRL,
        slots={
            "prompt": slot("prompt", "question", "instruction", "input", "query", form=ANY, needs="optional"),
            "turns": slot(*_COLUMNS_OF_TURNS, form=ANY, needs="optional"),
            "chosen": slot(*CHOSEN, form=ANY),
            "rejected": slot(*REJECTED, form=ANY),
        },
        layout=None,
        refusal=_PAIRS,
        before=("*",),
        covers_all=True,
    ),
    PublicLayout(
        name="unpaired_preference",
        title="completions with a label, good or bad, as TRL's unpaired preference (KTO)",
        url=TRL,
        slots={
            "prompt": slot("prompt", "question", "messages", form=ANY, needs="optional"),
            "completion": slot("completion", "response", "answer", form=ANY),
            "label": slot(*_LABELS, form=Form.SWITCH),
        },
        layout=None,
        refusal=_LABELLED,
        before=("*",),
    ),
    PublicLayout(
        name="unpaired_turns",
        title="conversations with a label, good or bad, as LLaMA-Factory's and ms-swift's for KTO",
        url="https://github.com/hiyouga/LLaMA-Factory/blob/main/data/README.md",
        slots={
            "turns": slot(*_COLUMNS_OF_TURNS, form=(Form.OPENAI, Form.SHAREGPT)),
            "label": slot(*_LABELS, form=Form.SWITCH),
        },
        layout=None,
        refusal=_LABELLED,
        before=("*",),
    ),
    PublicLayout(
        name="preference_turns",
        title="a conversation, and a rejected answer beside it, as ms-swift's for DPO",
        url="https://swift.readthedocs.io/en/latest/Customization/Custom-dataset.html",
        slots={
            "turns": slot(*_COLUMNS_OF_TURNS, form=(Form.OPENAI, Form.SHAREGPT)),
            "rejected": slot(*REJECTED, form=ANY),
        },
        layout=None,
        refusal=_PAIRS,
        before=("*",),
        covers_all=True,
    ),
    PublicLayout(
        name="preference_texts",
        title="a chosen and a rejected conversation, each in one text, as HH-RLHF's",
        url=f"{HUB}/Anthropic/hh-rlhf",
        slots={"chosen": slot(*CHOSEN, form=Form.MARKED_TEXT), "rejected": slot(*REJECTED, form=Form.MARKED_TEXT)},
        layout=None,
        refusal="they are preference pairs for DPO. To train the chosen answers alone, split chosen at the names of "
        "the speakers, such as Human: and Assistant:, into a column named messages, and drop both columns",
        before=("*", "preference"),
        covers_all=True,
    ),
    PublicLayout(
        name="scored_answers",
        title="several answers of each question, and their scores, as UltraFeedback's",
        url=f"{HUB}/openbmb/UltraFeedback",
        slots={
            "question": slot(*QUESTIONS, form=ANY),
            "answers": slot(
                "responses", "completions", "answers", "outputs", "generations", form=(Form.TEXTS, Form.LIST)
            ),
            "scores": slot("scores", "ranks", "rankings", "ratings", "rewards", "models", form=ANY),
        },
        layout=None,
        refusal="they rank answers for training a reward model. Write the best answer of each row to a column named "
        "answer, and drop the others",
        before=("*",),
    ),
    PublicLayout(
        name="stepwise",
        title="steps, and a label for each, as TRL's stepwise supervision",
        url=TRL,
        slots={
            "prompt": slot("prompt", form=ANY),
            "steps": slot("completions", form=ANY),
            "labels": slot("labels", form=ANY),
        },
        layout=None,
        refusal="labels judge each step, for training a reward model. Keep prompt and completion of the good ones",
        before=("*",),
    ),
    PublicLayout(
        name="arena",
        title="the conversations of two models, and the winner",
        url=f"{HUB}/lmsys/chatbot_arena_conversations",
        slots={
            "first": slot("conversation_a", "response_a", "answer_a", form=ANY),
            "second": slot("conversation_b", "response_b", "answer_b", form=ANY),
            "prompt": slot("prompt", "question", "instruction", form=ANY, needs="optional"),
        },
        layout=None,
        refusal="they compare two models. Write the winner's conversation to a column named messages",
        before=("*",),
        data_sets=(DataSet(name="lmsys_arena", title="Chatbot Arena", url=f"{HUB}/lmsys/chatbot_arena_conversations"),),
    ),
)
