"""Kinds of quirky rows, each with what its trained text has to say."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one trained turn has to say, in order; texts count without the white space around them."""

    content: str = ""
    thoughts: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Quirk:
    """One kind of row."""

    what: str
    #: As it stands in the file; INJECTION in a text stands for the family's control tokens.
    row: Mapping[str, Any]
    answers: tuple[Answer, ...]
    #: Texts that must stand in what is not trained.
    context: tuple[str, ...] = ()
    #: Texts that must not stand there.
    absent: tuple[str, ...] = ()
    #: Family -> more of them.
    context_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Rule that tells of it, where it is not the row's but the whole artifact's.
    code: str = ""
    #: What its trained text may have besides.
    optional: tuple[str, ...] = ()
    #: No build can be right, because its text cannot say what the row means.
    is_hopeless: bool = False


INJECTION = "@@"
_TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Looks a city up.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
_BERN = {"city": "Bern"}


def _user(content: Any = "Which river?", **more: Any) -> Message:
    return {"role": "user", "content": content, **more}


def _said(content: Any = "The Aare.", **more: Any) -> Message:
    return {"role": "assistant", "content": content, **more}


def _call(arguments: Any, index: int = 1, name: str = "lookup") -> Message:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call0000{index}", "type": "function", "function": function}


def _called(*calls: Message, content: Any = None, result: str = "sunny", **more: Any) -> list[Message]:
    """Return turns with calls, their results, and a last answer."""
    results = [{"role": "tool", "tool_call_id": call["id"], "content": result, **more} for call in calls]
    return [_user("How is it?"), _said(content, tool_calls=list(calls)), *results, _said("It is sunny.")]


def _calls_row(what: str, turns: Sequence[Message], *calls: Mapping[str, Any], **more: Any) -> Quirk:
    """Return a quirk of turns of `_called` whose calls have some arguments."""
    answer = Answer(calls=tuple(("lookup", arguments) for arguments in calls), content=more.pop("content", ""))
    row = {"messages": list(turns), "tools": [_TOOL], **more.pop("row", {})}
    context = more.pop("context", ("How is it?", "sunny", "lookup"))
    return Quirk(what=what, row=row, answers=(answer, Answer(content="It is sunny.")), context=context, **more)


def _chat(what: str, *messages: Message, answers: Sequence[str | Answer] = ("The Aare.",), **more: Any) -> Quirk:
    said = tuple(Answer(content=item) if isinstance(item, str) else item for item in answers)
    context = more.pop("context", ("Which river?",))
    return Quirk(
        what=what, row={"messages": list(messages), **more.pop("row", {})}, answers=said, context=context, **more
    )


_THINK = ("<think>", "</think>")
_CUT = json.loads('"half \\ud83d"')

QUIRKS = (
    _chat("plain text", _user(), _said()),
    _calls_row("a call with null content", _called(_call(_BERN)), _BERN),
    _calls_row("a call with empty content", _called(_call(_BERN), content=""), _BERN),
    _calls_row("a call with content", _called(_call(_BERN), content="I look."), _BERN, content="I look."),
    _calls_row("arguments as JSON text", _called(_call(json.dumps(_BERN))), _BERN),
    _calls_row("arguments that are empty text", _called(_call("")), {}),
    _calls_row("arguments that are not JSON", _called(_call("Bern, please")), {"": "Bern, please"}, is_hopeless=True),
    _calls_row("arguments nested, with a list", _called(_call({"at": {"city": ["Bern"]}})), {"at": {"city": ["Bern"]}}),
    _calls_row("an argument null", _called(_call({"city": None})), {"city": None}),
    _calls_row("two calls at once", _called(_call(_BERN), _call({"city": "Biel"}, 2)), _BERN, {"city": "Biel"}),
    _calls_row(
        "a result without an id",
        [{key: value for key, value in turn.items() if key != "tool_call_id"} for turn in _called(_call(_BERN))],
        _BERN,
    ),
    _calls_row(
        "a result that is JSON text",
        _called(_call(_BERN), result='{"sky": 1}'),
        _BERN,
        context=("How is it?", "sky", "1"),
    ),
    _calls_row("a call without `function` and `type`", _called({"id": "call00001", **_call(_BERN)["function"]}), _BERN),
    _calls_row(
        "`function_call` in a turn, as OpenAI had it once",
        [
            _user("How is it?"),
            _said(None, function_call=_call(_BERN)["function"]),
            _user("sunny"),
            _said("It is sunny."),
        ],
        _BERN,
    ),
    _calls_row("schemas as JSON text", _called(_call(_BERN)), _BERN, row={"tools": json.dumps([_TOOL])}),
    _calls_row(
        "a result as parts",
        _called(_call(_BERN), result=[{"type": "text", "text": "sunny"}]),
        _BERN,
        absent=("'type'", "output_text"),
    ),
    _calls_row(
        "calls without schemas", _called(_call(_BERN)), _BERN, row={"tools": None}, context=("How is it?", "sunny")
    ),
    *(
        _chat(f"`tools: {shown}`", _user(), _said(), row={"tools": tools}, absent=("ipython",))
        for shown, tools in (("[]", []), ('"[]"', "[]"))
    ),
    _chat("`tool_calls: null` and `[]`", _user(tool_calls=None), _said(tool_calls=[])),
    _chat("other fields that are null", _user(name=None), _said(refusal=None, function_call=None, audio=None)),
    _chat("content null without a call", _user(), _said(None), _user("And then?"), _said(), answers=("", "The Aare.")),
    _chat(
        "content as parts",
        _user([{"type": "text", "text": "Which river?"}]),
        _said([{"type": "text", "text": "The Aare."}]),
    ),
    _chat(
        "parts with `value`, or of type `output_text`",
        _user([{"type": "text", "value": "Which river?"}]),
        _said([{"type": "output_text", "text": "The Aare."}]),
    ),
    _chat("content as a list of strings", _user(["Which river?"]), _said(["The ", "Aare."])),
    _chat(
        "content with an image",
        _user([{"type": "image", "image": "a.png"}, {"type": "text", "text": "Which river?"}]),
        _said(),
        is_hopeless=True,
    ),
    _chat("`refusal` in place of content", _user(), _said(None, refusal="I may not."), answers=("I may not.",)),
    _chat("content that is a number", _user(), _said(42), answers=("42",)),
    _chat("content that is an object", _user(), _said({"river": "Aare"}), answers=("Aare",)),
    _chat(
        "`weight: 0` on an answer",
        *(_user(), _said("Rhine.", weight=0), _user("Sure?"), _said(weight=1)),
        context=("Which river?", "Rhine."),
    ),
    _chat(
        "`train: false` on an answer",
        *(_user(), _said("Rhine.", train=False), _user("Sure?"), _said()),
        context=("Which river?", "Rhine."),
    ),
    *(
        _chat(
            f"`{flag}: {value}` on an answer",
            *(_user(), _said("Rhine.", **{flag: json.loads(value)}), _user("Sure?"), _said()),
            context=("Which river?", "Rhine."),
        )
        for flag, value in (("loss", "false"), ("loss_weight", "0.0"), ("trainable", "false"), ("loss_scale", "0.5"))
    ),
    _chat("white space around texts", _user("  Which river? \n"), _said(" \tThe Aare.\n ")),
    _chat(
        "an earlier answer that begins with a line end",
        *(_user(), _said("\nThe Aare."), _user("And then?"), _said("The Rhine.")),
        answers=("The Aare.", "The Rhine."),
    ),
    _chat("an empty answer at the end", _user(), _said(""), answers=("",)),
    _chat("the assistant begins", _said("Hello."), _user(), _said(), answers=("Hello.", "The Aare.")),
    _chat("two user turns in a row", _user(), _user("In Bern?"), _said(), context=("Which river?", "In Bern?")),
    _chat("two answers in a row", _user(), _said("Wait."), _said(), answers=("Wait.", "The Aare.")),
    _chat("a user turn at the end", _user(), _said(), _user("Thank you")),
    _chat("a system turn", {"role": "system", "content": "Be brief."}, _user(), _said(), context=("Be brief.",)),
    _chat(
        "a system turn in the middle",
        *(_user(), _said(), {"role": "system", "content": "Be brief."}, _user("And then?"), _said("The Rhine.")),
        answers=("The Aare.", "The Rhine."),
        context=("Be brief.",),
    ),
    _chat(
        "two system turns",
        *({"role": "system", "content": "Be brief."}, {"role": "system", "content": "Be kind."}, _user(), _said()),
        context=("Be brief.", "Be kind."),
    ),
    _chat("a developer turn", {"role": "developer", "content": "Be brief."}, _user(), _said(), context=("Be brief.",)),
    _chat("a column `system`", _user(), _said(), row={"system": "Be brief."}, context=("Be brief.",)),
    _chat("no answer", _user(), answers=()),
    _chat("only a system turn", {"role": "system", "content": "Be brief."}, answers=()),
    _chat("an unknown role", _user(), {"role": "critic", "content": "Hm."}, _said(), context=("Which river?", "Hm.")),
    _chat(
        "roles in capitals", {"role": "User", "content": "Which river?"}, {"role": "Assistant", "content": "The Aare."}
    ),
    Quirk(
        what="ShareGPT's `from` and `value`",
        row={"conversations": [{"from": "human", "value": "Which river?"}, {"from": "gpt", "value": "The Aare."}]},
        answers=(Answer(content="The Aare."),),
        context=("Which river?",),
    ),
    Quirk(
        what="ShareGPT's turns with `reasoning_content`",
        row={
            "conversations": [
                {"from": "human", "value": "Which river?"},
                {"from": "gpt", "value": "The Aare.", "reasoning_content": "Swiss."},
            ]
        },
        answers=(Answer(thoughts="Swiss.", content="The Aare."),),
        context=("Which river?",),
    ),
    Quirk(
        what="ShareGPT's turns with `tool_calls`",
        row={
            "tools": [_TOOL],
            "conversations": [
                {"from": "human", "value": "How is it?"},
                {"from": "gpt", "value": "", "tool_calls": [_call(_BERN)]},
                {"from": "tool", "value": "sunny", "tool_call_id": "call00001"},
                {"from": "gpt", "value": "It is sunny."},
            ],
        },
        answers=(Answer(calls=(("lookup", _BERN),)), Answer(content="It is sunny.")),
        context=("How is it?", "sunny", "lookup"),
    ),
    _chat("turns as JSON text", row={"messages": json.dumps([_user(), _said()])}),
    _chat(
        "`reasoning_content`",
        _user(),
        _said(reasoning_content="Swiss."),
        answers=(Answer(thoughts="Swiss.", content="The Aare."),),
    ),
    _chat(
        "`<think>` in the content",
        _user(),
        _said("<think>\nSwiss.\n</think>\n\nThe Aare."),
        optional=_THINK,
        answers=(Answer(thoughts="Swiss.", content="The Aare."),),
    ),
    _chat("an empty `<think>`", _user(), _said("<think>\n\n</think>\n\nThe Aare."), optional=_THINK),
    _chat(
        "`<think>` in an earlier answer",
        *(_user(), _said("<think>\nSwiss.\n</think>\n\nThe Aare."), _user("And then?"), _said("The Rhine.")),
        answers=("The Aare.", "The Rhine."),
        optional=(*_THINK, "Swiss."),
    ),
    _chat(
        "`<think>` in two answers",
        *(_user(), _said("<think>\nSwiss.\n</think>\n\nThe Aare."), _user("And then?")),
        _said("<think>\nNext.\n</think>\n\nThe Rhine."),
        answers=(Answer(thoughts="Swiss.", content="The Aare."), Answer(thoughts="Next.", content="The Rhine.")),
        optional=_THINK,
    ),
    _chat(
        "a marker of plain text in an answer",
        *(_user(), _said("It writes [INST] before and [/INST] after it.")),
        answers=("It writes [INST] before and [/INST] after it.",),
    ),
    _chat("control tokens in a user's text", _user(f"Which river?{INJECTION}Hm."), _said()),
    _chat("control tokens in an answer", _user(), _said(f"The Aare.{INJECTION}And then?"), is_hopeless=True),
    _chat(
        "letters apart from their accents (NFD)",
        _user("Which cafe\u0301?"),
        _said("Cafe\u0301 Aare."),
        answers=("Caf\u00e9 Aare.",),
        context=("Which caf\u00e9?",),
    ),
    _chat("half an emoji (a lone surrogate)", _user(), _said(_CUT), answers=(_CUT,)),
    _chat(
        "emoji of several characters",
        _user("\U0001f469\u200d\U0001f469\u200d\U0001f467?"),
        _said("\U0001f1e8\U0001f1ed\ufe0f"),
        answers=("\U0001f1e8\U0001f1ed\ufe0f",),
        context=("\U0001f469\u200d\U0001f469\u200d\U0001f467?",),
    ),
    _chat("CRLF line ends", _user(), _said("The Aare.\r\nIn Bern."), answers=("The Aare.\r\nIn Bern.",)),
    _chat("a NUL character", _user(), _said("The\x00Aare."), answers=("The\x00Aare.",)),
    _chat("a word of 3,000 letters", _user(), _said("a" * 3000), answers=("a" * 3000,)),
    _chat(
        "an answer that is JSON",
        _user(),
        _said('{"river": {"name": "Aare\\n"}}'),
        answers=('{"river": {"name": "Aare\\n"}}',),
    ),
    _chat(
        "a column `chat_template_kwargs`",
        *(_user(), _said()),
        row={"chat_template_kwargs": {"date_string": "05 May 2019"}},
        context_of={"Llama 3.1": ("05 May 2019",)},
    ),
    _chat("a day that is not today's", _user(), _said(), context_of={"gpt-oss": ("2019-05-05",)}, code="BP545"),
)
