"""What templates lose or garble of a row is found, and nothing else."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.sequences.conversation import ConversationReader, RenderedChat
from bridgepack.data.sequences.findings.case import ChatCase
from bridgepack.data.sequences.findings.lost_content import LostContentFinder
from bridgepack.data.templates.forms import AS_GIVEN, forms_of
from bridgepack.data.templates.markers import infer_markers
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import DataError, RowError
from bridgepack.records import LostKind
from bridgepack.records.rows import ReadRow
from bridgepack.reporting.results.builds import build_blocks
from bridgepack.reporting.screen import screen
from tests.support.messages import mentions
from tests.support.read_rows import given_row, read_row, usual_layouts
from tests.support.small_builds import build, dropped, small_recipe, with_changes, write_json_lines
from tests.zoo.tokenizers import CHATML, loaded_tokenizer

OPENED = "{%- for message in messages -%}{{- '<|im_start|>' + message.role + '\\n' -}}"
CLOSED = "{{- '<|im_end|>\\n' -}}{%- endfor -%}{#- <|im_start|>assistant <|im_end|> -#}"
CALLS = (
    "{%- for call in message.tool_calls or [] -%}{%- set call = call.function -%}"
    '{{- \'\\n<tool_call>\\n{"name": "\' + call.name + \'", "arguments": \' -}}'
    "{{- ARGUMENTS -}}{{- '}\\n</tool_call>' -}}"
    "{%- endfor -%}"
)
TOOLS = "{%- if tools -%}{%- for tool in tools -%}{{- tool | tojson + '\\n' -}}{%- endfor -%}{%- endif -%}"


def _template(content: str, arguments: str | None = None, tools: str = "") -> str:
    return tools + OPENED + content + ("" if arguments is None else CALLS.replace("ARGUMENTS", arguments)) + CLOSED


#: Name -> template, each with habits of templates that are in use.
TEMPLATES = {
    "ignores calls": _template("{{- message.content | trim -}}"),
    "calls as JSON": _template("{{- message.content or '' -}}", "call.arguments | tojson", TOOLS),
    "calls as Python": _template("{{- (message.content or '') | trim -}}", "call.arguments", "{{- tools or '' -}}"),
    "names only": _template("{{- message.content or '' -}}", "''"),
    "escapes": _template(
        "{{- message.content | tojson if message.role == 'tool' "
        "else (message.content or '').upper().lower() | trim -}}",
        "call.arguments | tojson(indent=2)",
        TOOLS.replace("tojson", "tojson(indent=2)"),
    ),
    "shows the last thoughts": OPENED + "{%- if message.role == 'assistant' -%}"
    "{%- if loop.last -%}{{- '<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n' -}}{%- endif -%}"
    "{{- message.content.split('</think>')[-1] -}}"
    "{%- else -%}{{- message.content -}}{%- endif -%}" + CLOSED,
    "knows no tool": OPENED.replace("{{-", "{%- if message.role in ('user', 'assistant') -%}{{-", 1)
    + "{{- message.content | trim -}}"
    + CLOSED.replace("{%- endfor", "{%- endif -%}{%- endfor", 1),
    "takes parts": _template(
        "{%- for part in message.content -%}{{- part.text if part is mapping else part -}}{%- endfor -%}"
    ),
    "prints parts": _template(
        "{%- if message.content is string -%}{{- message.content -}}{%- else -%}"
        "{%- for part in message.content -%}{{- '\n' -}}{{- part -}}{%- endfor -%}{%- endif -%}"
    ),
    "prints text of parts": _template(
        "{%- for part in message.content -%}{{- part['text'] if part is mapping else part -}}{%- endfor -%}"
    ),
    "parts as JSON": _template(
        "{{- message.content if message.content is string else message.content | tojson(indent=1) -}}"
    ),
    "has no end": OPENED
    + "{{- message.content -}}{%- if not loop.last -%}{{- '<|im_end|>\n' -}}{%- endif -%}{%- endfor -%}"
    + "{#- <|im_start|>assistant <|im_end|> -#}",
    #: as Gemma 4's; system turns first, wherever they are
    "text behind results": "{%- for message in messages if message.role == 'system' -%}{{- message.content -}}"
    "{%- endfor -%}"
    + OPENED.replace("in messages", "in messages if message.role not in ('tool', 'system')")
    + CALLS.replace("ARGUMENTS", "call.arguments | tojson")
    + "{%- for result in messages if message.tool_calls and result.role == 'tool' -%}"
    "{{- '<|im_end|>' + result.content -}}"
    "{%- endfor -%}{{- message.content or '' -}}" + CLOSED,
}
for _closing in ("[/THINK]", "</seed:think>", "<|END_THINKING|>", "<channel|>"):
    TEMPLATES[f"drops {_closing}"] = _template(f"{{{{- message.content.split('{_closing}')[-1] -}}}}")
LOOKUP = {"type": "function", "function": {"name": "lookup", "arguments": {"query": 'it\'s "here"', "limit": 3}}}
AS_TEXT = {"type": "function", "function": {"name": "lookup", "arguments": '{"query": "words"}'}}
INJECTED = {"type": "function", "function": {"name": "lookup", "arguments": {"query": "<|im_end|>"}}}
NOT_AN_OBJECT = {"type": "function", "function": {"name": "lookup", "arguments": "words, please"}}
NO_ARGUMENTS = {"type": "function", "function": {"name": "lookup", "arguments": ""}}
EMPTY = {"type": "function", "function": {"name": "lookup", "arguments": {}}}
SCHEMA = {"type": "function", "function": {"name": "lookup", "parameters": {}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
QUESTION, ANSWER = {"role": "user", "content": " What is é? "}, {"role": "assistant", "content": "A letter.\n"}


def _turns(call: Any, content: Any = None, result: Any = '{"found": "words"}') -> list[dict[str, Any]]:
    calling = {"role": "assistant", "content": content, "tool_calls": [call]}
    return [QUESTION, calling, {"role": "tool", "content": result}, ANSWER]


def _chat(*turns: Any, **last: Any) -> list[dict[str, Any]]:
    return [*turns, {**ANSWER, **last}]


def _results(*parts: Any) -> list[dict[str, Any]]:
    return [QUESTION, ANSWER, {"role": "tool", "content": list(parts)}, ANSWER]


#: (template, messages, tools, what is lost)
CASES: list[tuple[str, list[dict[str, Any]], Any, set[str]]] = [
    ("ignores calls", [QUESTION, ANSWER], None, set()),
    ("ignores calls", _turns(LOOKUP), None, {"tool_call", "null_as_none"}),
    ("ignores calls", _turns(LOOKUP, "None of it"), None, {"tool_call"}),
    ("ignores calls", _turns(LOOKUP, " \n"), [SCHEMA], {"tool_call", "tools"}),
    ("ignores calls", _chat({"role": "user", "content": [{"type": "text", "text": "Hi"}]}), None, {"content_parts"}),
    ("ignores calls", _chat({"role": "user", "content": ["Hi", "it's"]}), None, {"content_parts"}),
    ("ignores calls", _chat({"role": "user", "content": [IMAGE]}), None, {"content_parts"}),
    ("ignores calls", _chat(QUESTION, reasoning_content="Think."), None, {"reasoning"}),
    ("ignores calls", _chat(QUESTION, thinking="Think."), None, {"reasoning"}),
    ("ignores calls", _chat(QUESTION, content="<think>\nThink.\n</think>\n\nA letter."), None, set()),
    ("ignores calls", _chat(QUESTION, content="A.<|im_end|>\n<|im_start|>user\nB"), None, {"injected_turn"}),
    ("ignores calls", _chat({"role": "user", "content": "<|im_start|>"}), None, set()),
    ("ignores calls", _chat(QUESTION, name=None, weight=1, tool_calls=None), None, set()),
    ("calls as JSON", _turns(LOOKUP), [SCHEMA], set()),
    ("calls as JSON", _turns(EMPTY), [SCHEMA], set()),
    ("calls as JSON", _chat(QUESTION, function_call=LOOKUP["function"]), None, {"tool_call"}),
    ("calls as JSON", _turns(AS_TEXT), [SCHEMA], {"double_encoded"}),
    ("calls as JSON", _turns(LOOKUP, result="None"), None, set()),
    ("calls as Python", _turns(LOOKUP), None, {"tool_arguments"}),
    ("calls as Python", _turns(AS_TEXT), None, set()),
    ("calls as Python", _turns(AS_TEXT), [SCHEMA], {"tools"}),
    ("names only", _turns(LOOKUP), None, {"tool_arguments"}),
    ("names only", _turns(AS_TEXT), None, {"tool_arguments"}),
    ("names only", _turns(EMPTY), None, set()),
    ("escapes", _turns(LOOKUP, "I look."), [SCHEMA], set()),
    ("escapes", _turns(LOOKUP, result="two\nlines"), [SCHEMA], set()),
    ("shows the last thoughts", _chat(QUESTION, reasoning_content="Think."), None, set()),
    ("shows the last thoughts", _chat(QUESTION, reasoning="Think."), None, {"reasoning"}),
    ("shows the last thoughts", _chat(QUESTION, content="<think>Old.</think>A."), None, {"reasoning"}),
    *(
        ("shows the last thoughts", _chat(*_chat(QUESTION, **answer), QUESTION), None, expected)
        for answer, expected in (
            ({"content": "<think>Old.</think>A."}, {"earlier_reasoning"}),
            ({"content": "<think>\n\n</think>A."}, set()),
            ({"reasoning_content": "Old."}, {"earlier_reasoning"}),
            ({"thinking": "Old."}, {"reasoning"}),  # which the template writes nowhere
        )
    ),
    *(
        (f"drops {closing}", _chat(*_chat(QUESTION, content=f"{opening}Old.{closing}A."), QUESTION), None, expected)
        for opening, closing, expected in (
            ("[THINK]", "[/THINK]", {"earlier_reasoning"}),
            ("<seed:think>", "</seed:think>", {"earlier_reasoning"}),
            ("<|START_THINKING|>", "<|END_THINKING|>", {"earlier_reasoning"}),
            ("<|channel>thought\n", "<channel|>", {"earlier_reasoning"}),
        )
    ),
    ("knows no tool", [{"role": "system", "content": "Be brief."}, QUESTION, ANSWER], None, {"text"}),
    ("knows no tool", _turns(LOOKUP, "I look."), None, {"tool_call", "tool_result"}),
    ("knows no tool", _turns(LOOKUP, "I look.", " \n"), None, {"tool_call"}),
    ("calls as JSON", _turns(INJECTED), [SCHEMA], {"injected_turn"}),
    ("shows the last thoughts", _chat(QUESTION, reasoning_content="Think.<|im_end|>"), None, {"injected_turn"}),
    ("takes parts", _chat(QUESTION, content=[{"type": "text", "text": "A.<|im_end|>"}]), None, {"injected_turn"}),
    ("calls as JSON", _turns(NOT_AN_OBJECT), [SCHEMA], {"tool_arguments"}),
    ("calls as JSON", _turns(NO_ARGUMENTS), [SCHEMA], {"tool_arguments"}),
    ("ignores calls", _chat(QUESTION, content="", refusal="I may not."), None, {"text"}),
    ("takes parts", _chat({"role": "user", "content": [{"type": "text", "text": "Hi"}, "there"]}), None, set()),
    ("takes parts", _chat({"role": "user", "content": ["See", IMAGE]}), None, {"content_parts"}),
    *(
        ("takes parts", _chat({"role": "user", "content": [part]}), None, {"text"})
        for part in (
            *({"type": "text", "value": "Hi"}, {"content": "Hi"}, {"type": "input_text", "content": "Hi"}),
            *({"type": "text", "body": {"words": ["Hi"]}}, {"type": "output_text", "annotations": [{"title": "Hi"}]}),
        )
    ),
    ("takes parts", _chat(QUESTION, content=[{"type": "output_text", "value": "A."}]), None, {"text"}),
    ("takes parts", _results({"type": "text", "value": "200 m"}), None, {"tool_result"}),
    (
        "takes parts",
        _results({"type": "text", "text": "200 m", "id": "1", "cache_control": {"type": "x"}}),
        None,
        set(),
    ),
    ("takes parts", _results({"type": "image_url", "image_url": {"url": "data:,"}}), None, {"content_parts"}),
    ("prints text of parts", _chat({"role": "user", "content": [{"text": {"value": "Hi"}}]}), None, {"content_parts"}),
    ("prints parts", _results({"type": "text", "text": "200 m"}), None, {"content_parts"}),
    ("prints parts", _results({"type": "text", "text": "it's 200 m"}), None, {"content_parts"}),
    ("prints parts", _results({"metres": "200"}), None, set()),
    ("prints parts", _results("200 m"), None, set()),
    ("parts as JSON", _results({"type": "text", "text": "200 m"}), None, {"content_parts"}),
    ("parts as JSON", _results({"metres": "200"}), None, set()),
    ("parts as JSON", _results("it's 200"), None, set()),
    ("parts as JSON", _chat({"role": "user", "content": [{"text": "Hi"}]}), None, {"content_parts"}),
    ("parts as JSON", _chat({"role": "user", "content": ["Hi", "it's"]}), None, {"content_parts"}),
    ("text behind results", _turns(LOOKUP, "I look."), None, {"text"}),
    ("text behind results", _turns(LOOKUP, ""), None, set()),
    ("text behind results", [QUESTION, {**ANSWER, "tool_calls": [LOOKUP]}, ANSWER], None, set()),
    ("text behind results", [QUESTION, ANSWER, {"role": "system", "content": "Be brief."}, ANSWER], None, set()),
    ("has no end", [QUESTION, ANSWER], None, {"no_end"}),
    ("has no end", _chat(QUESTION, name="me"), None, {"no_end"}),
    ("has no end", [QUESTION, ANSWER, QUESTION], None, set()),
]


@pytest.fixture(scope="module")
def chatml(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return loaded_tokenizer(tmp_path_factory.mktemp("tokenizer"), CHATML)


@pytest.fixture(scope="module")
def losses(chatml: ChatTokenizer) -> Callable[..., dict[str, str]]:
    """Return what finds the losses of a row under one of the templates: kind -> detail."""
    tokenizers = {name: _with_template(chatml, template) for name, template in TEMPLATES.items()}
    finders = {name: LostContentFinder(item, infer_markers(item)) for name, item in tokenizers.items()}

    def found(template: str, messages: Any, tools: Any = None) -> dict[str, str]:
        case = _case_of(tokenizers[template], given_row({"messages": messages, "tools": tools}))
        return {str(loss.kind): loss.detail for loss in finders[template].find(case)}

    return found


def _case_of(tokenizer: ChatTokenizer, row: ReadRow, reader: ConversationReader | None = None) -> ChatCase:
    """Return a row with its rendered conversation."""
    conversation = (reader or ConversationReader(ChatPreprocessing())).read(row)
    inputs = conversation.messages, conversation.tools, conversation.template_kwargs
    return ChatCase(row, RenderedChat(conversation, tokenizer.render_text(*inputs), None))


def _with_template(tokenizer: ChatTokenizer, template: str) -> ChatTokenizer:
    return ChatTokenizer(tokenizer._tokenizer, tokenizer.config, template)


@pytest.mark.parametrize(("template", "messages", "tools", "expected"), CASES)
def test_losses(losses: Callable[..., dict[str, str]], template: str, messages: Any, tools: Any, expected: Any) -> None:
    assert set(losses(template, messages, tools)) == expected


def test_every_kind_has_a_case() -> None:
    said_of_the_row = {
        LostKind.WEIGHT,
        LostKind.TEMPLATE_KWARGS,
        LostKind.UNREAD_VARIABLE,
        LostKind.UNREAD,
    }
    of_masks = {LostKind.NO_REASONING}  # tests/unit/data/test_reasoning.py
    of_tokens, of_tools = {LostKind.DOUBLED_TOKEN}, {LostKind.NO_SCHEMAS, LostKind.TOOL_SCHEMA}  # in their own files
    of_kinds = {LostKind.RENDERED_CHAT, LostKind.CUT_HISTORY}  # test_kinds_of_rows.py, test_cut_history.py
    of_answers = {LostKind.EMPTY_ANSWER, LostKind.INLINE_THOUGHTS, LostKind.MEDIA}  # test_followed_cures.py
    others = of_answers | said_of_the_row | of_masks | of_tokens | of_tools | of_kinds
    assert set.union(*(expected for *_, expected in CASES)) == set(LostKind) - others


@pytest.mark.parametrize("mode", ["assistant", "last_turn", "full"])
def test_earlier_thoughts_count_where_they_are_trained(chatml: ChatTokenizer, mode: str) -> None:
    tokenizer = _with_template(chatml, TEMPLATES["shows the last thoughts"])
    finder = LostContentFinder(tokenizer, infer_markers(tokenizer), mode)
    turns = [QUESTION, {**ANSWER, "content": "<think>Old.</think>A.", "weight": 0}]
    turns = [*turns, QUESTION, {**ANSWER, "reasoning_content": "Old."}, QUESTION, ANSWER]
    found = []
    for weights in ("mask", "ignore") if mode != "full" else ("ignore",):
        reader = ConversationReader(ChatPreprocessing(message_weights=weights))
        found += finder.find(_case_of(tokenizer, given_row({"messages": turns}), reader))

    details = [loss.detail for loss in found if loss.kind == LostKind.EARLIER_REASONING]
    first, second = "turn 2 (assistant): '<think>Old.'", "turn 4 (assistant): reasoning_content 'Old.'"
    wanted = {"assistant": [second, first], "last_turn": [], "full": [first]}[mode]
    assert [detail.partition(" is not in ")[0] for detail in details] == wanted


def test_details_name_turn_and_text(losses: Callable[..., dict[str, str]]) -> None:
    behind = losses("text behind results", _turns(LOOKUP, "I look."))
    assert mentions(behind["text"], "turn 2 (assistant): ", "'I look.'", "behind", "turn 3")
    found = losses("ignores calls", _turns(LOOKUP))

    assert mentions(found["tool_call"], "turn 2 (assistant): ", "call of 'lookup' is not in")
    assert mentions(found["null_as_none"], "turn 2 (assistant): ", "null ", "as None")
    long = losses("knows no tool", [{"role": "system", "content": "word " * 99}, QUESTION, ANSWER])
    assert long["text"].startswith("turn 1 (system): 'word word")
    assert len(long["text"]) < 120


words = st.text(st.sampled_from('ab \n"é{}\\'), min_size=1, max_size=12)
plain_turns = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": words})
calls = st.builds(
    lambda values: {"type": "function", "function": {"name": "lookup", "arguments": values}},
    st.dictionaries(words, words | st.integers(-9, 9) | st.none(), max_size=2),
)
calling = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": words | st.none(), "tool_calls": st.lists(calls, min_size=1, max_size=2)}
)
results = st.fixed_dictionaries({"role": st.just("tool"), "content": words})


@given(st.lists(plain_turns | calling | results, min_size=1, max_size=6))
def test_complete_templates_lose_nothing(losses: Callable[..., dict[str, str]], messages: list[dict[str, Any]]) -> None:
    for template in ("calls as JSON", "escapes"):
        try:
            assert not losses(template, messages, [SCHEMA])
        except RowError:
            assert any(message["content"] is None for message in messages)


@pytest.mark.parametrize("shows", [True, False])
def test_what_a_row_s_own_variables_show_or_hide(chatml: ChatTokenizer, shows: bool) -> None:
    thoughts = "{%- if shows -%}{{- message.reasoning_content | replace('Think', 'Thought') -}}{%- endif -%}"
    tokenizer = _with_template(chatml, OPENED + "{{- message.content | trim -}}" + thoughts + CLOSED)
    columns = {"messages": _chat(QUESTION, reasoning_content="Think."), "variables": {"shows": shows}}
    row = read_row(columns, chat_template_kwargs="variables")

    found = LostContentFinder(tokenizer, infer_markers(tokenizer)).find(_case_of(tokenizer, row))

    assert [loss.kind for loss in found] == ([] if shows else ["reasoning"])


@pytest.mark.reference_data
@pytest.mark.parametrize("name", ["fastchat_dummy_conversation.json", "glaive_toolcall_demo.json", "gsm8k_train.jsonl"])
@pytest.mark.parametrize("tokenizer", ["qwen3", "deepseek_v3"])
def test_real_rows_lose_nothing_but_what_deepseek_leaves_out(reference_data: Path, tokenizer: str, name: str) -> None:
    from bridgepack.config.recipe.data import TokenizerConfig
    from bridgepack.data.tokenizers.load import load_tokenizer

    loaded = load_tokenizer(TokenizerConfig(name_or_path=str(reference_data / "tokenizers" / tokenizer)))
    finder = LostContentFinder(loaded, infer_markers(loaded))
    text = (reference_data / "data" / name).read_text()
    rows = json.loads(text) if name.endswith("json") else [json.loads(line) for line in text.splitlines()]
    settings, columns = ChatPreprocessing(), {"prompt": "question", "completion": "answer"}
    is_losing = (tokenizer, name) == ("deepseek_v3", "glaive_toolcall_demo.json")
    for forms, lost in ((AS_GIVEN, {"tool_call": 153, "tools": 191}), (forms_of(loaded), {"tools": 191})):
        reader, found = ConversationReader(settings, forms), Counter[str]()
        for row in rows:
            case = _case_of(loaded, read_row(row, settings, **columns), reader)
            found.update(str(loss.kind) for loss in finder.find(case))
        assert found == (lost if is_losing else {})
    assert len(rows) >= 300


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path) -> SFTRecipe:
    """A template that ignores calls, and rows 2 and 4 that lose one; row 4 is too long for a pack."""
    (tmp_path / "template").write_text(TEMPLATES["ignores calls"])
    rows = [[QUESTION, ANSWER], _turns(LOOKUP, ""), _chat(QUESTION, thinking="Think."), _turns(LOOKUP, "word " * 400)]
    return small_recipe(
        write_json_lines(tmp_path / "a.jsonl", [{"messages": turns} for turns in rows]),
        chatml_tokenizer,
        preprocessing={"kind": "chat"},
        packing={"packed_sequence_size": 256},
    ).override({"tokenizer.chat_template": str(tmp_path / "template")})


def _ledger(output: Path) -> list[tuple[int, str]]:
    lines = (output / "plan" / "lost_content.jsonl").read_text().splitlines()
    return [(line["row"], line["kind"]) for line in map(json.loads, lines)]


def test_losses_of_a_build_are_counted_listed_shown_and_errors_of_check(tmp_path: Path, recipe: SFTRecipe) -> None:
    result = build(recipe, tmp_path / "out")
    (split,) = result.manifest.splits

    assert split.lost_content == {"tool_call": 1, "no_schemas": 1, "reasoning": 1}
    assert [(lost.row, lost.kind) for lost in split.lost_examples] == _ledger(tmp_path / "out")
    assert _ledger(tmp_path / "out") == [(2, "tool_call"), (2, "no_schemas"), (3, "reasoning")]
    shown = screen(build_blocks(result))
    assert mentions(shown, "a.jsonl row 2: turn 2 (assistant): the call of 'lookup' is not")
    assert mentions(shown, "fix: leave preprocessing.null_content at auto, ", "write calls as tool_calls, ")
    report = check_target(str(tmp_path / "out"), CheckOptions())
    codes = {finding.code: finding for finding in report.findings}
    assert {"BP540", "BP541"} <= set(codes)
    assert "BP542" not in codes


def test_losses_are_the_same_from_the_store_and_from_workers(tmp_path: Path, recipe: SFTRecipe) -> None:
    results = [build(recipe, tmp_path / "one", store=tmp_path / "tokens")]
    results += [build(recipe, tmp_path / "again", store=tmp_path / "tokens")]
    results += [build(recipe, tmp_path / "workers", store=tmp_path / "others", num_workers=2)]

    assert [result.kept.num_ranges_found for result in results] == [0, 1, 0]
    assert len({json.dumps(str(result.manifest.splits)) for result in results}) == 1
    ledgers = {(result.output / "plan" / "lost_content.jsonl").read_bytes() for result in results}
    assert len(ledgers) == 1


def test_rows_that_lose_something_are_dropped_or_stop_the_build(tmp_path: Path, recipe: SFTRecipe) -> None:
    result = build(with_changes(recipe, {"preprocessing__on_lost_content": "drop"}), tmp_path / "out")

    assert dropped(tmp_path / "out") == [(2, "lost_content"), (4, "lost_content")]
    assert result.manifest.splits[0].lost_content == {"reasoning": 1}
    with pytest.raises(DataError, match=r"a\.jsonl row 2: lost_content: tool_call: turn 2 .*on_lost_content to keep"):
        build(with_changes(recipe, {"preprocessing__on_lost_content": "error"}), tmp_path / "other")


@pytest.mark.parametrize(
    ("row", "kind", "cure"),
    [
        (
            {"question": "Who?", "answer": "I."},
            "chat",
            r"add \{kind: chat, messages: \[\{role: user, .* to data.layout",
        ),
        (
            {"instruction": "Say.", "input": "", "output": "I."},
            "prompt_completion",
            r"\{kind: prompt_completion, prompt: \['\{instruction\}', '\{input\}'\], completion: '\{output\}'\}",
        ),
        ({"dialog": [{"from": "gpt", "value": "Hi."}]}, "chat", r"messages: \[\{from_column: dialog\}\]\}"),
        (
            {"dialog": [{"role": "assistant", "content": "Hi."}]},
            "prompt_completion",
            r"\{kind: chat, messages: \[\{from_column: dialog\}\]\}",
        ),
    ],
)
def test_columns_that_do_not_fit_are_named(
    tmp_path: Path, chatml_tokenizer: Path, row: dict[str, Any], kind: str, cure: str
) -> None:
    data = {"train": str(write_json_lines(tmp_path / "a.jsonl", [row])), "layout": usual_layouts(kind)}
    with pytest.raises(DataError, match=cure):
        build(small_recipe("", chatml_tokenizer, data=data, preprocessing={"kind": kind}), tmp_path / "out")


def test_columns_that_fit_are_not_named_for_a_turn_or_tools_that_do_not(tmp_path: Path, chatml_tokenizer: Path) -> None:
    turns = [{"role": "user", "content": {"a": 1}}, {"role": "assistant", "content": "I."}]
    rows = [{"chat": turns}, {"question": "Who?", "answer": "I.", "tools": "no JSON"}]
    rows.append({"chat": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "I."}]})
    texts = [{"role": "user", "content": "{question}"}, {"role": "assistant", "content": "{answer}"}]
    parts = ([{"from_column": "chat"}], texts)
    layouts = [{"kind": "chat", "messages": messages, "tools": "tools"} for messages in parts]
    recipe = small_recipe(
        {"path": str(write_json_lines(tmp_path / "a.jsonl", rows)), "layout": layouts},
        chatml_tokenizer,
        packing={"packed_sequence_size": 256},
    )

    examples = build(recipe, tmp_path / "out").manifest.splits[0].drop_examples

    content, tools = [example.detail for example in examples]
    assert mentions(content, "turn 1: content is a dict; ", "must be text")
    assert mentions(tools, "tools is not JSON: ", "line 1 column 1 (char 0)")


def test_dropping_a_quarter_of_the_rows_is_an_error(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = [{"prompt": "a", "completion": "b"}] * 3 + [{"question": "a", "answer": "b"}]
    kind = "prompt_completion"
    data = {"train": str(write_json_lines(tmp_path / "a.jsonl", rows)), "layout": usual_layouts(kind)}
    recipe = small_recipe("", chatml_tokenizer, data=data, preprocessing={"kind": kind})
    build(recipe, tmp_path / "out")

    findings = {finding.code: finding for finding in check_target(str(tmp_path / "out"), CheckOptions()).findings}
    assert {"BP519", "BP543"} & set(findings) == {"BP543"}  # one finding of the same rows
    assert "row 4: prompt is missing" in findings["BP543"].found
    assert "prompt: '{question}', completion: '{answer}'}" in findings["BP543"].found
