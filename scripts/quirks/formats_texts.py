"""Texts and turns of which the rows of public layouts are made; texts can be carried by private-use characters."""

import json
from collections.abc import Callable
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


URI = {"lake": "Uri"}
CALLED = Answer(calls=(("depth", URI),))
ANSWER = (Answer(content="It is deep."),)
TWO = (Answer(content="It is deep."), Answer(content="Eleven kilometres."))
EARLIER = (Answer(content="In Uri."), Answer(content="Nobody's."))
THOUGHT = (Answer(thoughts="Two and two make it.", content="It is four."),)


def schema(t: Texts) -> Row:
    parameters = {"type": "object", "properties": {"lake": {"type": "string"}}}
    function = {"name": "depth", "description": t.o("Says how far down."), "parameters": parameters}
    return {"type": "function", "function": function}


def call(t: Texts, *, is_text: bool = False) -> Row:
    arguments = {"lake": t.a("Uri")}
    return {"name": "depth", "arguments": json.dumps(arguments) if is_text else arguments}


def openai_call(t: Texts) -> Row:
    return {"id": "call00001", "type": "function", "function": call(t, is_text=True)}


def talk(t: Texts) -> list[Row]:
    return [
        {"role": "user", "content": t.o("Which lake?")},
        {"role": "assistant", "content": t.a("It is deep.")},
        {"role": "user", "content": t.o("How long is that?")},
        {"role": "assistant", "content": t.a("Eleven kilometres.")},
    ]


def from_turns(turns: list[Row]) -> list[Row]:
    names = {"user": "human", "assistant": "gpt"}
    return [{"from": names.get(turn["role"], turn["role"]), "value": turn["content"]} for turn in turns]


def asked(t: Texts) -> list[Row]:
    return [{"role": "user", "content": t.o("Which lake?")}]


def pair(t: Texts) -> list[Row]:
    return [*asked(t), {"role": "assistant", "content": t.a("It is deep.")}]


def with_call(
    t: Texts,
    made_of: Callable[[Row], Row] | None = None,
    *,
    schema_key: str = "parameters",
    result: Callable[[str], Any] = str,
) -> Row:
    """Return a row with a call, as OpenAI's, or as `made_of` makes of one; `result` makes the result of its text."""
    made = openai_call(t) if made_of is None else made_of(call(t))
    turns = [*asked(t), {"role": "assistant", "content": None, "tool_calls": [made]}]
    turns.append({"role": "tool", "tool_call_id": "call00001", "content": result(t.o("two hundred"))})
    shown = schema(t)
    if schema_key != "parameters":
        function = shown["function"]
        shown = {"name": "depth", "description": function["description"], schema_key: function["parameters"]}
    return {"messages": [*turns, {"role": "assistant", "content": t.a("It is deep.")}], "tools": [shown]}


def history(num_pairs: int) -> Callable[[Texts], Row]:
    """Return rows with earlier questions and answers in a list of pairs."""

    def row(t: Texts) -> Row:
        pairs = [[t.o("Where is it?"), t.a("In Uri.")], [t.o("Whose is that?"), t.a("Nobody's.")]]
        if not num_pairs:
            t.trained.clear()
            t.context.clear()
        now = {"instruction": t.o("Which lake do you mean?"), "input": "", "output": t.a("It is deep.")}
        return {**now, "history": pairs[:num_pairs]}

    return row


def paired(t: Texts, question: str, answer: str) -> list[Row]:
    """Return two questions with their answers, as objects with these keys."""
    texts = [turn["content"] for turn in talk(t)]
    return [{question: texts[0], answer: texts[1]}, {question: texts[2], answer: texts[3]}]


def of_lists(turns: list[Row]) -> Row:
    return {name: [turn[name] for turn in turns] for name in ("role", "content")}


def gemini(t: Texts) -> Row:
    names = {"user": "user", "assistant": "model"}
    system = {"parts": [{"text": t.o("You help.")}]}
    contents = [{"role": names[turn["role"]], "parts": [{"text": turn["content"]}]} for turn in talk(t)]
    return {"systemInstruction": system, "contents": contents}


def logged_answer(t: Texts) -> Row:
    return {"request": {"model": "m", "messages": asked(t)}, "response": pair(t)[1]}


def turns_and_completion(t: Texts) -> Row:
    return {"messages": asked(t), "response": {"choices": [{"message": pair(t)[1]}]}}


def bedrock(t: Texts) -> Row:
    used, function = call(t), schema(t)["function"]
    told = {**function, "inputSchema": {"json": function["parameters"]}}
    del told["parameters"]
    turns = [
        {"role": "user", "content": [{"text": t.o("Which lake?")}]},
        {
            "role": "assistant",
            "content": [{"toolUse": {"toolUseId": "call00001", "name": "depth", "input": used["arguments"]}}],
        },
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "call00001", "content": [{"text": t.o("two hundred")}]}}],
        },
        {"role": "assistant", "content": [{"text": t.a("It is deep.")}]},
    ]
    return {"messages": turns, "toolConfig": {"tools": [{"toolSpec": told}]}}


def responses(t: Texts) -> Row:
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": t.o("Which lake?")}]},
        {"type": "function_call", "call_id": "call00001", **call(t, is_text=True)},
        {"type": "function_call_output", "call_id": "call00001", "output": t.o("two hundred")},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": t.a("It is deep.")}]},
    ]
    return {"input": items, "tools": [{"type": "function", **schema(t)["function"]}]}


def columns(question: str, answer: str, **others: str) -> Callable[[Texts], Row]:
    """Return rows of a question and its answer, with columns of other text between them."""

    def row(t: Texts) -> Row:
        more = {name: t.o(text) for name, text in others.items()}
        return {question: t.o("Which lake do you mean?"), **more, answer: t.a("It is deep.")}

    return row


def of_turns(**labels: Any) -> Callable[[Texts], Row]:
    return lambda t: {**labels, "messages": talk(t)}


def toolbench(t: Texts) -> Row:
    turns = [{"role": "system", "content": t.o("You can use functions.")}, *asked(t)]
    turns += [
        {"role": "assistant", "content": t.a("Action: depth")},
        {"role": "function", "content": t.o("It says so.")},
    ]
    return {"id": "1", "conversations": from_turns([*turns, {"role": "assistant", "content": t.a("It is deep.")}])}


def hermes(t: Texts) -> Row:
    schemas = json.dumps([schema(Texts(is_carried=False))])
    turns = [{"role": "system", "content": f"{t.o('You may call.')} <tools> {schemas} </tools>"}, *pair(t)]
    return {"id": "1", "conversations": from_turns(turns), "tools": schemas, "category": "Lakes", "task": "Depth"}


def thinking(t: Texts) -> Row:
    return {"question": t.o("What is it?"), "thinking": t.a("Two and two make it."), "answer": t.a("It is four.")}


def squad(t: Texts) -> Row:
    answers = {"text": [t.a("very deep"), "unused"], "answer_start": [12, 0]}
    return {"id": "1", "title": "Uri", "context": t.o("The lake is that."), "question": t.o("How?"), "answers": answers}


def xlam(t: Texts) -> Row:
    schemas = json.dumps([schema(t)["function"]])
    return {"id": 3, "query": t.o("Which lake?"), "answers": json.dumps([call(t)]), "tools": schemas}
