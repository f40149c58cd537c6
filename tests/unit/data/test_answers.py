"""Where answers are in a render: templates that quote, lose, cut or change what turns say."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.data.answers.finder import AnswerFinder
from bridgepack.data.answers.marking import Calls, Marking, free_letters, pieces_of
from bridgepack.data.answers.regions import UnplaceableError
from bridgepack.data.templates.markers import TurnTexts
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.records import DropReason
from tests.zoo.tokenizers import CHATML, loaded_tokenizer

Turns = Sequence[Mapping[str, Any]]
AROUND = TurnTexts(headers=("<bot>",), ends=("<stop>",), openers=("<bot>", "<user>", "<tool>", "<sys>"))
CUT_AT_COMMA, CUT_AT_THOUGHTS = re.compile(","), re.compile("</?think>")
NAMES = "{%- set names = {'user': '<user>', 'assistant': '<bot>', 'tool': '<tool>', 'system': '<sys>'} -%}"


@pytest.fixture(scope="module")
def finder_for(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[AnswerFinder, ChatTokenizer]]:
    """A function that returns what finds answers in the renders of a template, which writes each turn by `BODY`."""
    base = loaded_tokenizer(Path(tmp_path_factory.mktemp("tokenizer")), CHATML)
    config = TokenizerConfig(name_or_path="mine")

    def make(template: str) -> tuple[AnswerFinder, ChatTokenizer]:
        tokenizer = ChatTokenizer(base._tokenizer, config, template)
        return AnswerFinder(tokenizer, AROUND), tokenizer

    return make


def each(body: str, *, before: str = "", behind: str = "") -> str:
    """Return a template that writes each message m as header, body and end."""
    loop = f"{{%- for m in messages -%}}{{{{- names[m.role] -}}}}{body}{{{{- '<stop>' -}}}}{{%- endfor -%}}"
    return NAMES + before + loop + behind


def behind_result(end: str, before: str = "") -> str:
    """Return a template that writes an answer right behind a tool's result, which ends with `end`."""
    header = "{{- names[m.role] if (loop.previtem or m).role != 'tool' or m.role == 'tool' -}}{{- m.content -}}"
    calls = "{%- for c in m.tool_calls or [] -%}{{- c.function.name -}}{%- endfor -%}"
    stop = f"{{%- if m.role == 'tool' -%}}{end}{{%- else -%}}{{{{- '<stop>' -}}}}{{%- endif -%}}"
    return f"{NAMES}{before}{{%- for m in messages -%}}{header}{calls}{stop}{{%- endfor -%}}"


def asked(text: str = "q") -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: Any, *calls: tuple[str, Any], **fields: Any) -> dict[str, Any]:
    listed = [{"type": "function", "function": {"name": name, "arguments": values}} for name, values in calls]
    return {"role": "assistant", "content": text, **({"tool_calls": listed} if listed else {}), **fields}


def result(text: str = "r") -> dict[str, Any]:
    return {"role": "tool", "content": text}


CONTENT = "{{- m.content -}}"
CALL = "{%- for c in m.tool_calls or [] -%}{{- c.function.name + c.function.arguments | tojson -}}{%- endfor -%}"
QUOTES_CALL = "{%- if m.role == 'tool' -%}{{- loop.previtem.tool_calls[0].function.name + ':' -}}{%- endif -%}"
NAME_TWICE = CALL.replace("c.function.name +", "c.function.name + '>' + c.function.name +")
CALL_BEHIND = (
    "{%- for c in m.tool_calls or [] -%}{{- '<stop>\\n<call>' + c.function.name + c.function.arguments | tojson -}}"
    "{%- endfor -%}"
)
#: A field of results, each call's own result, and the end of a call where its result follows in the turn.
RESULTS = "{%- for r in m.tool_responses or [] -%}{{- '<res>' + r.name + r.response + '</res>' -}}{%- endfor -%}"
CALL_WITH_RESULT = CALL.replace("tojson", "tojson + ('<res>' + c.result + '</res>' if c.result else '')")
END_OF_CALL = "{{- '<stop>' if m.tool_responses -}}"
FOUND = {"tool_responses": [{"name": "find", "response": "r"}]}
#: Template, conversation, and the text of each answer with its end; None where no answer may be placed.
CASES: dict[str, tuple[str, Turns, list[str] | None]] = {
    "a lost call, quoted at its result": (
        each(QUOTES_CALL + CONTENT),
        [asked(), said("I look.", ("find", {"x": "y"})), result(), said("Yes.")],
        ["I look.<stop>", "Yes.<stop>"],
    ),
    "a lost call without text, quoted at its result": (
        each(QUOTES_CALL + CONTENT),
        [asked(), said("", ("find", {"x": "y"})), result(), said("Yes.")],
        ["<stop>", "Yes.<stop>"],
    ),
    "a call, and its name at its result": (
        each(QUOTES_CALL + CONTENT + CALL),
        [asked(), said("", ("find", {"x": "y"})), result(), said("Yes.")],
        ['find{"x": "y"}<stop>', "Yes.<stop>"],
    ),
    "a call behind the end of its turn's text": (
        each(CONTENT + CALL_BEHIND),
        [asked(), said("I look.", ("find", {"x": "y"})), result(), said("", ("find", {})), result(), said("Yes.")],
        ['I look.<stop>\n<call>find{"x": "y"}<stop>', "<stop>\n<call>find{}<stop>", "Yes.<stop>"],
    ),
    "a text behind an end, in a turn that looks otherwise at the chat's end": (
        each(CONTENT + "{{- '!' if loop.last -}}" + CALL_BEHIND),
        [asked(), said("I look.", ("find", {"x": "y"})), result(), said("Yes.")],
        None,
    ),
    "a lost call, quoted where a result follows that nothing opens": (
        each(CONTENT + "{%- if (loop.nextitem or {}).role == 'tool' -%}" + CALL_BEHIND + "{%- endif -%}"),
        [asked(), said("I look.", ("find", {"x": "y"})), result(), said("Yes.")],
        ["I look.<stop>", "Yes.<stop>"],
    ),
    "a result under the header of an answer": (
        each("{{- '<bot>' if m.role == 'tool' -}}" + CONTENT).replace("'<tool>'", "''"),
        [asked(), said("I look.", ("find", {"x": "y"})), result(), said("Yes.")],
        ["I look.<stop>", "Yes.<stop>"],
    ),
    "an answer without text, and its result under the header of one": (
        each("{{- '<bot>' if m.role == 'tool' -}}" + CONTENT).replace("'<tool>'", "''"),
        [asked(), said("", ("find", {"x": "y"})), result(), result("s"), said(""), asked(), said("Yes.")],
        ["<stop>", "<stop>", "Yes.<stop>"],
    ),
    "a name that is written twice": (
        each(CONTENT + NAME_TWICE),
        [asked(), said("I look.", ("find", {"x": "y"}), ("add", {})), result(), said("Yes.")],
        ['I look.find>find{"x": "y"}add>add{}<stop>', "Yes.<stop>"],
    ),
    "a name that is written twice behind a thought with a header of its own": (
        each("{{- m.reasoning_content + '<on><bot>' if m.reasoning_content -}}" + CONTENT + NAME_TWICE),
        [asked(), said("", ("find", {}), reasoning_content="Hm."), result(), said("Yes.")],
        ["Hm.<on><bot>find>find{}<stop>", "Yes.<stop>"],
    ),
    "a blank text behind a thought with a header of its own": (
        each("{{- m.reasoning_content + '<on><bot>' if m.reasoning_content -}}" + CONTENT),
        [asked(), said(" ", reasoning_content="Hm."), asked(), said("", reasoning_content="So."), said("Yes.")],
        ["Hm.<on><bot> <stop>", "So.<on><bot><stop>", "Yes.<stop>"],
    ),
    "an answer that is written twice, the second time as a turn of its own": (
        each(CONTENT + "{{- '<stop><bot>' + m.content if m.role == 'assistant' -}}"),
        [asked(), said("Yes.")],
        None,
    ),
    "the question again at the end": (
        each(CONTENT, behind="{{- '<sys>' + messages[0].content -}}"),
        [asked("one"), said("Yes.")],
        ["Yes.<stop>"],
    ),
    "an answer that is quoted before": (
        each(CONTENT, before="{{- '<sys>' + messages[1].content + '<stop>' -}}"),
        [asked(), said("Say it.")],
        ["Say it.<stop>"],
    ),
    "an answer that is quoted in a question": (
        each(CONTENT + "{%- if loop.nextitem and m.role == 'user' -%}{{- loop.nextitem.content -}}{%- endif -%}"),
        [asked(), said("Say it.")],
        ["Say it.<stop>"],
    ),
    "the first letter in upper case": (
        each("{{- m.content[:1] | upper + m.content[1:] -}}"),
        [asked(), said("say")],
        None,
    ),
    "the first word in upper case": (each("{{- m.content | capitalize -}}"), [asked(), said("say This")], None),
    "the first characters alone": (each("{{- m.content[:8] -}}"), [asked(), said("say this now")], None),
    "its length": (each("{{- m.content | length -}}{{- m.content -}}"), [asked(), said("say")], None),
    "each word in upper case": (each("{{- m.content | title -}}"), [asked(), said("say it")], None),
    "as JSON in ASCII": (each("{{- m.content | tojson(ensure_ascii=True) -}}"), [asked(), said("say")], None),
    "as Python": (each("{{- {'c': m.content} -}}"), [asked(), said("say")], ["{'c': 'say'}<stop>"]),
    "words joined by spaces": (
        each("{{- m.content.split() | join(' ') -}}"),
        [asked(), said(" say  this\nnow ")],
        ["say this now<stop>"],
    ),
    "an answer like the turn before it is left out": (
        NAMES
        + "{%- for m in messages -%}{%- if not loop.previtem or m.content != loop.previtem.content -%}"
        + "{{- names[m.role] + m.content + '<stop>' -}}{%- endif -%}{%- endfor -%}",
        [asked("same"), said("same"), asked("b"), said("c")],
        None,
    ),
    "a certain answer is marked": (
        each("{%- if m.content == 'yes' -%}{{- 'yes<sure>' -}}{%- else -%}{{- m.content -}}{%- endif -%}"),
        [asked(), said("yes")],
        ["yes<sure><stop>"],
    ),
    "certain answers are written": (
        each("{%- if m.content in ['yes', 'no'] -%}{{- m.content -}}{%- endif -%}"),
        [asked(), said("yes")],
        ["yes<stop>"],
    ),
    "the first letter decides": (
        each("{%- if m.content[0] == '{' -%}{{- 'json:' -}}{%- endif -%}" + CONTENT),
        [asked(), said('{"a": 1}')],
        None,
    ),
    "an error for long texts": (
        each("{%- if m.content | length > 5 -%}{{- raise_exception('too long') -}}{%- endif -%}" + CONTENT),
        [asked(), said("say")],
        None,
    ),
    "an error for a second answer": (
        each("{%- if loop.index > 3 -%}{{- raise_exception('too many') -}}{%- endif -%}" + CONTENT),
        [asked(), said("say"), asked()],
        ["say<stop>"],
    ),
    "the number of turns, and variables that nobody gives": (
        each("{{- messages | length -}}{{- mood.name if mood else voice -}}" + CONTENT),
        [asked(), said("say")],
        ["2say<stop>"],
    ),
    "two answers that are compared": (
        each("{{- 'again' if loop.index > 2 and m.content == messages[1].content else m.content -}}"),
        [asked(), said("say"), asked(), said("say")],
        None,
    ),
    "arguments by the order of their keys": (
        each(
            CONTENT + "{%- for c in m.tool_calls or [] -%}{{- c.function.name + ':' -}}"
            "{%- for k, v in c.function.arguments | dictsort -%}{{- k + '=' + v + ';' -}}{%- endfor -%}{%- endfor -%}"
        ),
        [asked(), said("", ("f", {"b": "1", "a": "2"}))],
        ["f:a=2;b=1;<stop>"],
    ),
    "arguments by the names of a schema": (
        each(
            CONTENT
            + "{%- for c in m.tool_calls or [] -%}{{- c.function.name + c.function.arguments.city -}}{%- endfor -%}"
        ),
        [asked(), said("", ("f", {"city": "Bern"}))],
        ["fBern<stop>"],
    ),
    "parts of a content": (
        each(
            "{%- if m.content is string -%}{{- m.content -}}{%- else -%}{%- for p in m.content -%}{{- p.text -}}"
            "{%- endfor -%}{%- endif -%}"
        ),
        [asked(), said([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}])],
        ["one two<stop>"],
    ),
    "cut at a marker of turns": (
        each("{{- m.content.split('<stop>')[0] -}}"),
        [asked(), said("say<stop>lost"), asked(), said("b")],
        ["say<stop>", "b<stop>"],
    ),
    "markers in every text": (
        each(CONTENT + CALL),
        [asked("<bot>x<stop>"), said("<stop><bot>", ("f", {"k": "<bot>"})), result("<stop>"), said("a<stop>b")],
        ['<stop><bot>f{"k": "<bot>"}<stop>', "a<stop>b<stop>"],
    ),
    "an answer without a header": (
        NAMES
        + "{%- for m in messages -%}{{- names[m.role] if not loop.first -}}{{- m.content + '<stop>' -}}{%- endfor -%}",
        [said("a"), asked(), said("b")],
        None,
    ),
    "an empty answer and two headers": (
        each("{%- if m.role == 'assistant' -%}{{- 'draft<stop><bot>' -}}{%- endif -%}" + CONTENT),
        [asked(), said(""), asked(), said("b")],
        None,
    ),
    "the first of two answers in a row again in the second": (
        each("{{- loop.previtem.content if (loop.previtem or {}).role == m.role else '' -}}" + CONTENT),
        [asked(), said("a"), said("b")],
        None,
    ),
    "a result inside an answer, behind an end": (
        each(CALL + END_OF_CALL + RESULTS + CONTENT),
        [asked(), said("Yes.", ("find", {"x": "y"}), **FOUND), asked(), said("b")],
        ['find{"x": "y"}<stop>', "Yes.<stop>", "b<stop>"],
    ),
    "a result inside an answer, without an end": (
        each("<think>{{- m.reasoning_content -}}</think>" + CALL + RESULTS + CONTENT),
        [asked(), said(" Yes.", ("find", {"x": "y"}), **FOUND, reasoning_content="hm")],
        ['<think>hm</think>find{"x": "y"}', " Yes.<stop>"],
    ),
    "a result behind the text of its answer": (
        each(CONTENT + CALL + RESULTS),
        [asked(), said("I look.", ("find", {"x": "y"}), **FOUND), said("Yes.")],
        ['I look.find{"x": "y"}', "Yes.<stop>"],
    ),
    "a result inside an empty answer, and its answer in the same turn": (
        NAMES
        + "{%- for m in messages -%}{{- names[m.role] if (loop.previtem or {}).role != m.role -}}"
        + f"{CALL}{END_OF_CALL}{RESULTS}{CONTENT}"
        + "{{- '<stop>' if not m.tool_responses -}}{%- endfor -%}",
        [asked(), said("", ("find", {"x": "y"}), **FOUND), said("Yes.")],
        ['find{"x": "y"}<stop>', "Yes.<stop>"],
    ),
    "results beside their calls": (
        each(CALL_WITH_RESULT + CONTENT),
        [asked(), {**said("Yes."), "tool_calls": [{"result": "r", "function": {"name": "f", "arguments": {}}}]}],
        ["f{}", "Yes.<stop>"],
    ),
    "a result between two calls": (
        each(CALL_WITH_RESULT + CONTENT),
        [
            asked(),
            {
                **said("Yes."),
                "tool_calls": [
                    {"result": "r", "function": {"name": "f", "arguments": {}}},
                    {"function": {"name": "g", "arguments": {}}},
                ],
            },
        ],
        None,
    ),
    "a result that is no text": (
        each(CALL + "{{- m.tool_responses or [] -}}" + CONTENT),
        [asked(), said("Yes.", ("find", {"x": "y"}), tool_responses=[{"t": 3}])],
        None,
    ),
    "a result that the template does not write": (
        each(CALL + CONTENT),
        [asked(), said("Yes.", ("find", {"x": "y"}), **FOUND)],
        ['find{"x": "y"}Yes.<stop>'],
    ),
    "an answer behind its result without a header": (
        behind_result("</tool>"),
        [asked(), said("", ("f", {})), result(), said("b")],
        ["f<stop>", "b<stop>"],
    ),
    "an answer behind its result, and other white space without it": (
        behind_result("{{- '  </tool>' if loop.nextitem is defined else '</tool>\n' -}}"),
        [asked(), said("", ("f", {})), result(), said(" b")],
        ["f<stop>", " b<stop>"],
    ),
    "an answer behind its result, and a line end with and without it": (
        behind_result("{{- '  </tool>\n' if loop.nextitem is defined else '</tool>\n' -}}"),
        [asked(), said("", ("f", {})), result(), said("b")],
        ["f<stop>", "b<stop>"],
    ),
    "an answer behind its result, and schemas before the last question": (
        behind_result(
            "</tool>", "{%- set u = messages | selectattr('role', 'equalto', 'user') | list | last -%}"
        ).replace("{{- m.content", "{{- '<tools>' if m == u -}}{{- m.content"),
        [asked(), said("", ("f", {})), result(), said("b"), asked("more"), said("c")],
        ["f<stop>", "b<stop>", "c<stop>"],
    ),
    "an answer behind its result and words that the turns before lack": (
        behind_result("{{- ' </tool>Note: ' if loop.nextitem is defined else '</tool>' -}}"),
        [asked(), said("", ("f", {})), result(), said("b")],
        ["f<stop>", "Note: b<stop>"],
    ),
    "a call behind a result, and other white space without it": (
        behind_result("{{- '  </tool>' if loop.nextitem is defined else '</tool>\n' -}}"),
        [asked(), said("", ("f", {})), result(), said("x", ("g", {})), result("s"), said("b")],
        ["f<stop>", "xg<stop>", "b<stop>"],
    ),
    "an answer behind its result that begins with a line end": (
        behind_result("{{- '  </tool>' if loop.nextitem is defined else '</tool>\\n\\n' -}}"),
        [asked(), said("", ("f", {})), result(), said("\nb")],
        ["f<stop>", "\nb<stop>"],
    ),
    "an answer behind its result that loses its line end": (
        behind_result("{{- '  </tool>\\n' if loop.nextitem is defined else '</tool>\\n' -}}").replace(
            "{{- m.content -}}", "{{- m.content | trim -}}"
        ),
        [asked(), said("", ("f", {})), result(), said("\nb")],
        ["f<stop>", "b<stop>"],
    ),
    "a call that ends otherwise, quoted in the header of its result": (
        NAMES
        + "{%- for m in messages -%}{{- names[m.role] -}}"
        + f"{QUOTES_CALL}{CONTENT}{CALL}{{{{- '<calls>' if m.tool_calls else '<stop>' -}}}}{{%- endfor -%}}",
        [asked(), said("", ("f", {"x": "y"})), result(), said("b")],
        ['f{"x": "y"}<calls>', "b<stop>"],
    ),
    "a call that ends otherwise, and schemas before the last question": (
        NAMES
        + "{%- set u = messages | selectattr('role', 'equalto', 'user') | list | last -%}"
        + "{%- for m in messages -%}{{- names[m.role] -}}{{- '<tools>' if m == u -}}"
        + f"{CONTENT}{CALL}{{{{- '<calls>' if m.tool_calls else '<stop>' -}}}}{{%- endfor -%}}",
        [asked(), said("", ("f", {"x": "y"})), result(), said("b"), asked("more"), said("c")],
        ['f{"x": "y"}<calls>', "b<stop>", "c<stop>"],
    ),
    "an answer behind an empty result, and other white space without it": (
        behind_result("{{- '  </tool>' if loop.nextitem is defined else '</tool>\\n' -}}"),
        [asked(), said("", ("f", {})), result(" "), said("b")],
        ["f<stop>", "b<stop>"],
    ),
    "an answer behind its result and other words than the turns before have": (
        behind_result("{{- '</tools>' if loop.nextitem is defined else '</tool>' -}}"),
        [asked(), said("", ("f", {})), result(), said("b")],
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_answers_are_where_the_template_writes_them(
    name: str, finder_for: Callable[[str], tuple[AnswerFinder, ChatTokenizer]]
) -> None:
    template, turns, texts = CASES[name]
    finder, tokenizer = finder_for(template)
    render = tokenizer.render_text(turns, None)

    if texts is None:
        with pytest.raises(UnplaceableError):
            finder.regions(turns, None, {}, render)
        return
    regions = finder.regions(turns, None, {}, render)
    assert [render[region.start : region.stop] for region in regions] == texts
    answers = [index for index, turn in enumerate(turns) if turn["role"] == "assistant"]
    assert sorted({region.message for region in regions}) == answers


def test_marks_that_take_too_much_memory(
    finder_for: Callable[[str], tuple[AnswerFinder, ChatTokenizer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A render with marks out of proportion is no text that differs: the row is dropped for its memory."""
    finder, tokenizer = finder_for(each("{{- m.content * (1 if m.content | length < 3 else 900) -}}"))
    turns = [asked(), said("yo")]
    render = tokenizer.render_text(turns, None)
    monkeypatch.setattr("bridgepack.data.tokenizers.limits._MAX_CHARACTERS", 100)

    with pytest.raises(RowError) as caught:
        finder.regions(turns, None, {}, render)
    assert caught.value.reason == DropReason.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("between", "expected"), [("", [(2, "ab<stop>")]), ("\n", [(2, "a\nb<stop>")]), ("Bot: ", None)]
)
def test_answers_in_a_row_that_are_one(
    between: str, expected: Any, finder_for: Callable[[str], tuple[AnswerFinder, ChatTokenizer]]
) -> None:
    """They are joined where nothing stands between them; a header that is not known is not trained."""
    is_first = "{%- if (loop.previtem or {}).role != m.role -%}"
    is_last = is_first.replace("previtem", "nextitem")
    header = f"{is_first}{{{{- names[m.role] -}}}}{{%- else -%}}{{{{- {between!r} -}}}}{{%- endif -%}}"
    end = is_last + "{{- '<stop>' -}}{%- endif -%}"
    finder, tokenizer = finder_for(f"{NAMES}{{%- for m in messages -%}}{header}{CONTENT}{end}{{%- endfor -%}}")
    turns = [asked(), said("a"), said("b"), asked(), said("c")]
    render = tokenizer.render_text(turns, None)

    if expected is None:
        with pytest.raises(UnplaceableError):
            finder.regions(turns, None, {}, render)
        return
    regions = finder.regions(turns, None, {}, render)
    assert [(region.message, render[region.start : region.stop]) for region in regions] == [*expected, (4, "c<stop>")]


def test_markers_in_tools_and_variables(
    finder_for: Callable[[str], tuple[AnswerFinder, ChatTokenizer]],
) -> None:
    finder, tokenizer = finder_for(each(CONTENT, before="{{- tools | tojson + (name or '') -}}"))
    turns, tools = [asked(), said("")], [{"type": "function", "function": {"name": "f", "description": "<bot> it"}}]

    for inputs in ((tools, {}), (None, {"name": "say<stop>"})):
        render = tokenizer.render_text(turns, *inputs)
        (region,) = finder.regions(turns, *inputs, render)
        assert render[region.header : region.stop] == "<bot><stop>"
    keyed = (None, {"name": {"<bot>": "a"}})
    with pytest.raises(UnplaceableError):
        finder.regions(turns, *keyed, tokenizer.render_text(turns, None, {"name": "a"}))


def test_ten_thousand_pieces() -> None:
    marking = Marking(cuts=CUT_AT_COMMA, calls=Calls.DEEP)
    (turn,) = marking.messages([said(",".join(map(str, range(10_000))))])

    plain, spots = marking.spots(turn["content"]) or ("", [])
    assert plain == ",".join(map(str, range(10_000)))
    assert len(spots) == 10_000
    assert plain[spots[-1].start : spots[-1].stop] == "9999"
    assert marking.spots(turn["content"][1:]) is None


def test_letters_of_texts_mark_nothing() -> None:
    letters = free_letters(["\U00017000 and \U00017002"])

    assert letters[0] == "\U00017001"
    assert len(letters) == len(free_letters(["a"])) - 2
    assert not free_letters(["".join(map(chr, range(0x17000, 0x187F8)))])
    marking = Marking(cuts=CUT_AT_COMMA, calls=Calls.DEEP, letters=letters)
    (turn,) = marking.messages([said("\U00017000")])
    assert marking.spots(f"\U00017002{turn['content']}") == ("\U00017002\U00017000", [(1, 2, 0, 0)])


def test_pieces_are_inside_white_space() -> None:
    text = " <think>Hm. </think>Yes"

    assert [text[start:stop] for start, stop in pieces_of(text, CUT_AT_THOUGHTS)] == ["Hm.", "Yes"]
    assert list(pieces_of(" \n", CUT_AT_THOUGHTS)) == []
