"""Rows of every public layout, each with what is trained of it; texts can be carried by private-use characters."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .rows import Answer

Row = dict[str, Any]


class Texts:
    """Records which texts a row says the assistant wrote, and which others wrote.

    `is_carried` puts private-use characters in place of letters: of two ranges, so that each letter of a rendered text
    says who wrote it, whatever a template does around it.
    """

    ASSISTANT, OTHERS = 0xE000, 0xF0000

    def __init__(self, *, is_carried: bool) -> None:
        self._is_carried = is_carried
        self.trained: list[str] = []
        self.context: list[str] = []

    def a(self, text: str) -> str:
        """Return a text of the assistant; called in the order in which templates write them."""
        self.trained.append(text)
        return self._carried(text, self.ASSISTANT)

    def o(self, text: str) -> str:
        """Return a text of another role."""
        self.context.append(text)
        return self._carried(text, self.OTHERS)

    def _carried(self, text: str, first: int) -> str:
        return "".join(chr(first + ord(one)) if one.isalpha() and self._is_carried else one for one in text)


def letters_of(text: str, first: int) -> str:
    """Return the letters in a text that were carried by characters of one range."""
    return "".join(chr(ord(one) - first) for one in text if 0 < ord(one) - first < 256)


@dataclass(frozen=True, kw_only=True)
class Format:
    """A row of a public layout."""

    name: str  #: of the layout
    more: str = ""  #: what this row has beside others of the layout
    row: Callable[[Texts], Row]
    answers: tuple[Answer, ...] = ()  #: none for rows that are refused


_URI = {"lake": "Uri"}
_CALLED = Answer(calls=(("depth", _URI),))
_ANSWER = (Answer(content="It is deep."),)
_TWO = (Answer(content="It is deep."), Answer(content="Eleven kilometres."))
_THOUGHT = (Answer(thoughts="Two and two make it.", content="It is four."),)


def _schema(t: Texts) -> Row:
    parameters = {"type": "object", "properties": {"lake": {"type": "string"}}}
    function = {"name": "depth", "description": t.o("Says how far down."), "parameters": parameters}
    return {"type": "function", "function": function}


def _call(t: Texts, *, is_text: bool = False) -> Row:
    arguments = {"lake": t.a("Uri")}
    return {"name": "depth", "arguments": json.dumps(arguments) if is_text else arguments}


def _openai_call(t: Texts) -> Row:
    return {"id": "call00001", "type": "function", "function": _call(t, is_text=True)}


def _talk(t: Texts) -> list[Row]:
    return [
        {"role": "user", "content": t.o("Which lake?")},
        {"role": "assistant", "content": t.a("It is deep.")},
        {"role": "user", "content": t.o("How long is that?")},
        {"role": "assistant", "content": t.a("Eleven kilometres.")},
    ]


def _from(turns: list[Row]) -> list[Row]:
    names = {"user": "human", "assistant": "gpt"}
    return [{"from": names.get(turn["role"], turn["role"]), "value": turn["content"]} for turn in turns]


def _asked(t: Texts) -> list[Row]:
    return [{"role": "user", "content": t.o("Which lake?")}]


def _pair(t: Texts) -> list[Row]:
    return [*_asked(t), {"role": "assistant", "content": t.a("It is deep.")}]


def _with_call(t: Texts) -> Row:
    result = {"role": "tool", "tool_call_id": "call00001", "content": t.o("two hundred")}
    turns = [*_asked(t), {"role": "assistant", "content": None, "tool_calls": [_openai_call(t)]}, result]
    return {"messages": [*turns, {"role": "assistant", "content": t.a("It is deep.")}], "tools": [_schema(t)]}


def _columns(question: str, answer: str, **others: str) -> Callable[[Texts], Row]:
    """Return rows of a question and its answer, with columns of other text between them."""

    def row(t: Texts) -> Row:
        more = {name: t.o(text) for name, text in others.items()}
        return {question: t.o("Which lake do you mean?"), **more, answer: t.a("It is deep.")}

    return row


def _of_turns(**labels: Any) -> Callable[[Texts], Row]:
    return lambda t: {**labels, "messages": _talk(t)}


def _toolbench(t: Texts) -> Row:
    turns = [{"role": "system", "content": t.o("You can use functions.")}, *_asked(t)]
    turns += [
        {"role": "assistant", "content": t.a("Action: depth")},
        {"role": "function", "content": t.o("It says so.")},
    ]
    return {"id": "1", "conversations": _from([*turns, {"role": "assistant", "content": t.a("It is deep.")}])}


def _hermes(t: Texts) -> Row:
    schemas = json.dumps([_schema(Texts(is_carried=False))])
    turns = [{"role": "system", "content": f"{t.o('You may call.')} <tools> {schemas} </tools>"}, *_pair(t)]
    return {"id": "1", "conversations": _from(turns), "tools": schemas, "category": "Lakes", "task": "Depth"}


def _thinking(t: Texts) -> Row:
    return {"question": t.o("What is it?"), "thinking": t.a("Two and two make it."), "answer": t.a("It is four.")}


def _squad(t: Texts) -> Row:
    answers = {"text": [t.a("very deep"), "unused"], "answer_start": [12, 0]}
    return {"id": "1", "title": "Uri", "context": t.o("The lake is that."), "question": t.o("How?"), "answers": answers}


def _xlam(t: Texts) -> Row:
    schemas = json.dumps([_schema(t)["function"]])
    return {"id": 3, "query": t.o("Which lake?"), "answers": json.dumps([_call(t)]), "tools": schemas}


FORMATS = (
    Format(name="messages", row=_of_turns(), answers=_TWO),
    Format(name="messages", more="a call and `tools`", row=_with_call, answers=(_CALLED, *_ANSWER)),
    Format(
        name="messages",
        more="`weight`",
        row=lambda t: {
            "messages": [
                {"role": "user", "content": t.o("Which lake?")},
                {"role": "assistant", "content": t.o("It is flat."), "weight": 0},
                {"role": "user", "content": t.o("Sure?")},
                {"role": "assistant", "content": t.a("It is deep."), "weight": 1},
            ]
        },
        answers=_ANSWER,
    ),
    Format(
        name="messages",
        more="parts with text",
        row=lambda t: {
            "messages": [{**one, "content": [{"type": "text", "text": one["content"]}]} for one in _talk(t)]
        },
        answers=_TWO,
    ),
    Format(name="messages", more="JSON text", row=lambda t: {"messages": json.dumps(_talk(t))}, answers=_TWO),
    Format(name="sharegpt", row=lambda t: {"conversations": _from(_talk(t))}, answers=_TWO),
    Format(
        name="sharegpt",
        more="`function_call`, `observation` and `tools`",
        row=lambda t: {
            "conversations": [
                {"from": "human", "value": t.o("Which lake?")},
                {"from": "function_call", "value": json.dumps(_call(t))},
                {"from": "observation", "value": t.o("two hundred")},
                {"from": "gpt", "value": t.a("It is deep.")},
            ],
            "tools": json.dumps([_schema(t)["function"]]),
        },
        answers=(_CALLED, *_ANSWER),
    ),
    Format(name="messages", more="SmolTalk", row=_of_turns(source="magpie"), answers=_TWO),
    Format(
        name="messages",
        more="UltraChat",
        row=lambda t: {"prompt": t.o("Which lake?"), "prompt_id": "5f3c", "messages": _talk(t)},
        answers=_TWO,
    ),
    Format(
        name="sharegpt",
        more="OpenThoughts",
        row=lambda t: {"system": t.o("You reason first."), "conversations": _from(_pair(t))},
        answers=_ANSWER,
    ),
    Format(
        name="messages",
        more="LMSYS-Chat-1M",
        row=lambda t: {
            **{"conversation_id": "1", "model": "m", "conversation": _talk(t), "turn": 2, "language": "English"},
            **{"openai_moderation": [{"flagged": False}], "redacted": False},
        },
        answers=_TWO,
    ),
    Format(
        name="messages",
        more="WildChat",
        row=lambda t: {
            **{"conversation_hash": "1", "conversation": [{**turn, "toxic": False} for turn in _talk(t)]},
            **{"detoxify_moderation": [{"insult": 0.01}], "toxic": False},
        },
        answers=_TWO,
    ),
    Format(
        name="messages",
        more="Nemotron post-training",
        row=lambda t: {"uuid": "1", "generator": "m", "category": "math", "reasoning": "off", "messages": _pair(t)},
        answers=_ANSWER,
    ),
    Format(name="sharegpt", more="ToolBench", row=_toolbench, answers=(Answer(content="Action: depth"), *_ANSWER)),
    Format(name="tools_in_system", row=_hermes, answers=_ANSWER),
    Format(
        name="turns_and_answer",
        more="Llama-Nemotron",
        row=lambda t: {
            **{"input": _asked(t), "output": t.a("It is deep."), "category": "math", "license": "cc"},
            **{"reasoning": "off", "generator": "m", "system_prompt": t.o("detailed thinking off")},
        },
        answers=_ANSWER,
    ),
    Format(
        name="turns_and_answer",
        row=lambda t: {"prompt": _asked(t), "completion": t.a("It is deep.")},
        answers=_ANSWER,
    ),
    Format(
        name="turns_and_calls",
        row=lambda t: {"messages": _asked(t), "tools": [_schema(t)], "answer": json.dumps([_call(t)])},
        answers=(_CALLED,),
    ),
    Format(
        name="prompt_completion_turns",
        row=lambda t: {"prompt": _asked(t), "completion": _pair(t)[1:]},
        answers=_ANSWER,
    ),
    Format(
        name="question_and_turns",
        row=lambda t: {
            "prompt": t.o("Which lake do you mean?"),
            "completion": [{"role": "assistant", "content": t.a("It is deep.")}],
        },
        answers=_ANSWER,
    ),
    Format(name="alpaca", row=_columns("instruction", "output", input="the one in Uri"), answers=_ANSWER),
    Format(
        name="instruction_context", row=_columns("instruction", "response", context="Uri is a lake."), answers=_ANSWER
    ),
    Format(name="answer_spans", row=_squad, answers=(Answer(content="very deep"),)),
    Format(
        name="question_answers",
        row=lambda t: {"question": t.o("Which lake?"), "answer": [t.a("It is deep."), "It is."]},
        answers=_ANSWER,
    ),
    Format(name="context_question", row=_columns("question", "answer", context="Uri is a lake."), answers=_ANSWER),
    Format(name="question_calls", row=_xlam, answers=(_CALLED,)),
    Format(name="question_thinking_answer", row=_thinking, answers=_THOUGHT),
    Format(name="prompt_completion", row=_columns("prompt", "completion"), answers=_ANSWER),
    Format(name="question_answer", row=_columns("question", "answer"), answers=_ANSWER),
)


def _refused(name: str, **row: Any) -> Format:
    return Format(name=name, row=lambda _: row)


_LONG = "How deep is the lake of Uri?"
#: Layout that is refused -> a row of it.
REFUSED: Mapping[str, Format] = {
    one.name: one
    for one in (
        _refused("preference", prompt=_LONG, chosen="It is 200 m deep.", rejected="It is quite flat there."),
        _refused("unpaired_preference", prompt=_LONG, completion="It is 200 m deep.", label=True),
        _refused("stepwise", prompt=_LONG, completions=["I look.", "200 m."], labels=[True, False]),
        _refused(
            "arena",
            conversation_a=[{"role": "user", "content": _LONG}],
            conversation_b=[{"role": "user", "content": _LONG}],
        ),
        _refused("message_tree", message_id="1", parent_id="0", text=_LONG, role="prompter"),
        _refused("message_rows", role="user", content=_LONG),
        _refused("marked_text", system="SYSTEM: You help.", chat="USER: How deep?\n\nASSISTANT: 200 m."),
        _refused("other_turns", turns=[{"speaker": "a", "utterance": _LONG}]),
        _refused("prompt_only", prompt=_LONG),
        _refused("rendered_chat", text="<|im_start|>user\nHow deep?<|im_end|>\n<|im_start|>assistant\n200 m."),
    )
}
