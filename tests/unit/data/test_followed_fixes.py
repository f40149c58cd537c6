"""The fixes that rules print about rows and how they were read are done to the letter, and the findings go."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.recipe.recipe import SFTRecipe
from tests.support.messages import mentions
from tests.support.small_builds import build, write_json_lines
from tests.unit.data.test_forms import WRITES_IDS, loaded, text_of
from tests.zoo.families import FAMILIES, write_tokenizer

Row = dict[str, Any]
ASKED, SAID = {"role": "user", "content": "How deep is it?"}, {"role": "assistant", "content": "It is 200 m deep."}
CHAT = {"messages": [ASKED, SAID]}
LONG = {"messages": [ASKED, SAID] * 30}
BY_NAME = {family.name: family for family in FAMILIES}
MARKERS = BY_NAME["Mistral"].preprocessing["assistant_markers"]
SCHEMA = {"name": "depth", "parameters": {"type": "object", "properties": {"lake": {"type": "string"}}}}
XLAM = {"name": "depth", "description": "Depth of it.", "parameters": {"lake": {"type": "str"}}}
PAIRS = [{"role": "user", "content": "{question}"}, {"role": "assistant", "content": "{answer}"}]
TURNS = {"kind": "chat", "messages": [{"from_column": "messages"}]}
START, END = "<|im_start|>assistant\n", "<|im_end|>"
RENDERED = f"<|im_start|>user\nHow deep?{END}\n{START}200 m{END}\n"
SWITCH = "{%- if enable_thinking is defined and enable_thinking -%}{{- '' -}}{%- endif -%}"
DAYS = """\
{%- if not date_string is defined -%}{%- set date_string = strftime_now('%d %b %Y') -%}{%- endif -%}
{{- '<|im_start|>system\n' + date_string + '<|im_end|>\n' -}}"""


def _called(name: str, tools: Any = None) -> Row:
    """Return a conversation with a call and its result, under an id."""
    call = {"id": name, "type": "function", "function": {"name": "depth", "arguments": {"lake": "Uri"}}}
    result = {"role": "tool", "tool_call_id": name, "content": "200"}
    turns = [ASKED, {"role": "assistant", "content": "", "tool_calls": [call]}, result, SAID]
    return {"messages": turns, **({"tools": tools} if tools else {})}


class Case(NamedTuple):
    """Rows in which a rule finds something, and what its fix says to do."""

    code: str
    says: tuple[str, ...]  #: what the fix must say, of which the change is the literal meaning
    rows: list[Row]
    change: Mapping[str, Any]  #: sections of the recipe after the fix, or `rows`
    sections: Mapping[str, Any] = {}  #: sections of the recipe before it
    family: str = "Qwen3"
    template: str | None = None  #: chat template of the tokenizer


def _chat(**settings: Any) -> Row:
    return {"preprocessing": {"kind": "chat", **settings}}


MANY = [CHAT] * 10
CASES: Mapping[str, Case] = {
    "markers": Case(
        code="BP508",
        says=("preprocessing.assistant_markers",),
        rows=[*MANY, {"messages": [ASKED, SAID] * 2}],
        sections=_chat(assistant_markers={"assistant_start": f"{START}<think>\n\n</think>\n\n", "assistant_end": END}),
        change=_chat(assistant_markers={"assistant_start": START, "assistant_end": END}),
    ),
    "no answer": Case("BP508", ("no assistant turn", "remove the row"), [*MANY, {"messages": [ASKED]}], {"rows": MANY}),
    "over long": Case(
        code="BP510",
        says=("preprocessing.over_long to split_exchanges",),
        rows=[*MANY, LONG],
        sections={**_chat(over_long="drop"), "packing": {"packed_sequence_size": 256}},
        change=_chat(over_long="split_exchanges"),
    ),
    "over long, longer packs": Case(
        code="BP510",
        says=("packing.max_sequence_length",),
        rows=[*MANY, LONG],
        sections={**_chat(over_long="drop"), "packing": {"packed_sequence_size": 4096, "max_sequence_length": 256}},
        change={"packing": {"packed_sequence_size": 4096, "max_sequence_length": 4096}},
    ),
    "another role": Case(
        code="BP519",
        says=("data.role_aliases",),
        rows=[*MANY, {"messages": [{**ASKED, "role": "customer"}, SAID]}],
        sections={"data": {"layout": TURNS}},
        change={"data": {"layout": TURNS, "role_aliases": {"customer": "user"}}},
    ),
    "a role that is a number": Case(
        code="BP519",
        says=("data.role_aliases",),
        rows=[*MANY, {"messages": [{**ASKED, "role": 0}, SAID]}],
        sections={"data": {"layout": TURNS}},
        change={"data": {"layout": TURNS, "role_aliases": {"0": "user"}}},
    ),
    "another shape": Case(
        code="BP519",
        says=("data.layout",),
        rows=[*MANY, {"question": "How long is it?", "answer": "It is 11 km long."}],
        sections={"data": {"layout": TURNS}},
        change={"data": {"layout": [TURNS, {"kind": "chat", "messages": PAIRS}]}},
    ),
    "ids of calls": Case(
        code="BP519",
        says=("names in the rows", "ids of nine letters and digits"),
        rows=[*MANY, _called("call_wKHAuVEDWr3WBkTiSVdPpc")],
        sections=_chat(assistant_markers=MARKERS),
        change={"rows": [*MANY, _called("call00001")]},
        family="Mistral",
    ),
    "an object as answer": Case(
        code="BP519",
        says=("the data or the recipe",),
        rows=[*MANY, {"messages": [ASKED, {**SAID, "content": {"m": 200}}]}],
        change={"rows": [*MANY, {"messages": [ASKED, {**SAID, "content": json.dumps({"m": 200})}]}]},
    ),
    "names of tools": Case(
        code="BP537",
        says=("tokenizer.chat_template", "a template that writes the name"),
        rows=[CHAT],
        change={**_chat(), "template": BY_NAME["Qwen3"].template},
        template=WRITES_IDS,
        sections=_chat(assistant_markers={"assistant_start": "<assistant>", "assistant_end": "<user>"}),
    ),
    "day": Case(
        code="BP545",
        says=("tokenizer.template_date",),
        rows=[CHAT],
        change={"tokenizer": {"template_date": "2025-06-30"}},
        template=DAYS + BY_NAME["Qwen3"].template,
    ),
    "a variable of the day": Case(
        code="BP545",
        says=("tokenizer.chat_template_kwargs",),
        rows=[CHAT],
        change={"tokenizer": {"chat_template_kwargs": {"date_string": "30 Jun 2025"}}},
        template=DAYS + BY_NAME["Qwen3"].template,
    ),
    "turns in an answer": Case(
        code="BP542",
        says=("preprocessing.control_tokens to drop",),
        rows=[*MANY, {"messages": [ASKED, {**SAID, "content": "So.<|im_end|>\n<|im_start|>user\nHm."}]}],
        change=_chat(control_tokens="drop"),
    ),
    "variables": Case(
        code="BP546",
        says=("chat_template_kwargs of data.layout",),
        rows=[{**CHAT, "chat_template_kwargs": {"enable_thinking": False}}],
        sections={"data": {"layout": TURNS}},
        change={"data": {"layout": {**TURNS, "chat_template_kwargs": "chat_template_kwargs"}}},
        template=SWITCH + BY_NAME["Qwen3"].template,
    ),
    "weights": Case(
        code="BP549",
        says=("preprocessing.message_weights to mask",),
        rows=[{"messages": [ASKED, {**SAID, "weight": 0}, ASKED, SAID]}],
        change=_chat(message_weights="mask"),
    ),
    "empty answers": Case(
        code="BP512",
        says=("preprocessing.empty_answers to drop",),
        rows=[*MANY, {"messages": [ASKED, {**SAID, "content": ""}]}],
        change=_chat(empty_answers="drop"),
    ),
    "thoughts of another template": Case(
        code="BP518",
        says=("preprocessing.inline_thoughts to move",),
        rows=[{"messages": [ASKED, {**SAID, "content": "<Thinking>I look it up.</Thinking>200 m."}]}],
        change=_chat(inline_thoughts="move"),
    ),
    "no schemas": Case(
        code="BP553",
        says=("preprocessing.tool_schemas",),
        rows=[_called("call00001")],
        change=_chat(tool_schemas=[{"type": "function", "function": SCHEMA}]),
    ),
    "a column of schemas": Case(
        code="BP553",
        says=("tools of data.layout",),
        rows=[{**_called("call00001"), "skills": [SCHEMA]}],
        sections={"data": {"layout": {**TURNS, "ignore": ["skills"]}}},
        change={"data": {"layout": {**TURNS, "tools": "skills"}}},
    ),
    "parameters": Case(
        code="BP554",
        says=("{type: object, properties: {city: {type: string}}}",),
        rows=[_called("call00001", [XLAM])],
        change={"rows": [_called("call00001", [{**XLAM, "parameters": SCHEMA["parameters"]}])]},
    ),
    "a rendered chat": Case(
        code="BP559",
        says=("a column messages", "a layout of kind chat"),
        rows=[{"text": RENDERED}],
        sections={"preprocessing": {"kind": "text"}, "data": {"layout": {"kind": "text"}}},
        change={"rows": [CHAT], "preprocessing": {"kind": "chat"}, "data": {"layout": TURNS}},
    ),
    "no thoughts": Case(
        code="BP547",
        says=("preprocessing.reasoning_loss to keep",),
        rows=[CHAT],
        sections=_chat(reasoning_loss="mask"),
        change=_chat(reasoning_loss="keep"),
        family="Qwen2.5",
    ),
}


def _findings(case: Case, sections: Mapping[str, Any], folder: Path) -> list[Any]:
    """Return what the case's rule finds in a build; `sections` may have other rows, or another chat template."""
    family, template = BY_NAME[case.family], sections.get("template", case.template)
    tokenizer = write_tokenizer(folder / "tokenizer", replace(family, template=template or family.template))
    path = write_json_lines(folder / "rows.jsonl", sections.get("rows", case.rows))
    values: Row = {"name": "small", "packing": {"packed_sequence_size": 1024}, "preprocessing": {"kind": "chat"}}
    values |= {name: value for name, value in sections.items() if name not in ("rows", "template")}
    values["tokenizer"] = {"name_or_path": str(tokenizer), **values.get("tokenizer", {})}
    values["data"] = {"train": str(path), **values.get("data", {})}
    recipe = SFTRecipe.from_mapping(values)
    report = check_target(build(recipe, folder / "out").output, CheckOptions(select=(case.code,)))
    return list(report.findings)


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_the_fix_of_a_rule_about_rows_is_followed(tmp_path: Path, name: str) -> None:
    """Two builds a case, 44 in all: that what a rule on rows says to do makes its own finding go."""
    case = CASES[name]

    (finding,) = _findings(case, case.sections, tmp_path / "before")
    assert mentions(finding.fix, *case.says)

    sections = {**case.sections, **case.change}
    assert _findings(case, sections, tmp_path / "after") == []


def test_the_names_of_tools_in_ids_are_trained(tmp_path: Path) -> None:
    """A template that writes ids in place of names, with ids that have the names, as the fix of BP537 says."""
    tokenizer = loaded(tmp_path, "writes ids")

    assert "functions.depth:0" in text_of(tokenizer, _called("functions.depth:0"))
    assert "depth" not in text_of(tokenizer, _called("call00001"))
