"""`auto`: the form in which each chat template shows content, calls and arguments, and the text that comes of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridgepack.api import prove
from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.repack import plan_repack
from bridgepack.data.sequences.chat import chat_encoder
from bridgepack.data.templates.forms import AS_GIVEN, Forms, forms_of
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import ConfigError, RowError
from bridgepack.planning.preview import preview_recipe
from bridgepack.records import LostKind
from bridgepack.reporting.results.previews import preview_blocks
from bridgepack.reporting.screen import screen
from tests.support.read_rows import given_row, read_row
from tests.support.small_builds import AS_HOST, build, small_recipe, write_json_lines
from tests.zoo.families import FAMILIES, write_tokenizer

BY_NAME = {family.name: family for family in FAMILIES}
BERN = {"city": "Bern"}
QUESTION, SUNNY = {"role": "user", "content": "Bern?"}, {"role": "assistant", "content": "Sunny."}
SCHEMA = {
    "type": "function",
    "function": {"name": "other", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}},
}
TEXT = dict.fromkeys(("system", "user", "assistant", "tool"), "text")

#: Null content becomes "None"; a result's parts are written as Python dicts; arguments are walked through.
GLM = """\
{%- macro visible(content) -%}
  {%- if content is string -%}{{- content -}}
  {%- elif content is iterable and content is not mapping -%}
    {%- for part in content -%}{{- part.text if part.type == 'text' else part -}}{%- endfor -%}
  {%- else -%}{{- content -}}{%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- '<|assistant|>\\n' + visible(message.content) | trim -}}
    {%- for call in message.tool_calls or [] -%}
      {%- set call = call.function or call -%}
      {{- '\\n<tool_call>' + call.name -}}
      {%- for key, value in call.arguments.items() -%}
        {{- '\\n<arg_key>' + key + '</arg_key>\\n<arg_value>' -}}
        {{- (value if value is string else value | tojson) + '</arg_value>' -}}
      {%- endfor -%}
      {{- '\\n</tool_call>' -}}
    {%- endfor -%}
  {%- elif message.role == 'tool' -%}
    {{- '<|observation|>' if loop.previtem.role != 'tool' -}}
    {%- for result in ([message.content] if message.content is string else message.content) -%}
      {{- '\\n<tool_response>\\n' -}}{{- result.output or result -}}{{- '\\n</tool_response>' -}}
    {%- endfor -%}
  {%- else -%}
    {{- '<|' + message.role + '|>\\n' + visible(message.content) -}}
  {%- endif -%}
{%- endfor -%}
"""
#: An empty answer stands before a call whose content is not null; calls are written only where schemas are.
WRITES_EMPTY_ANSWERS = """\
{%- for message in messages -%}
  {%- for call in message.tool_calls or [] -%}
    {%- if tools -%}{{- '<call>' + call.function.name + call.function.arguments | tojson + '</call>' -}}{%- endif -%}
  {%- endfor -%}
  {%- if message.content is not none -%}{{- '<' + message.role + '>' + message.content + '<end>' -}}{%- endif -%}
{%- endfor -%}
"""
#: Loops over the parts of every content, so that a text leaves nothing; writes null as JSON does.
WANTS_PARTS = """\
{%- for message in messages -%}
  {{- '<' + message.role + '>' -}}
  {%- for part in (message.content if message.content is not string else []) or [] -%}
    {{- part.text if part.type == 'text' -}}
  {%- endfor -%}
  {%- for call in message.tool_calls or [] -%}
    {{- '<call>' + {'name': call.function.name, 'arguments': call.function.arguments} | tojson -}}
    {{- '<content>' + message.content | tojson -}}
  {%- endfor -%}
  {{- '<end>' -}}
{%- endfor -%}
"""
#: Writes the id of a call in place of its name, like Kimi K2's.
WRITES_IDS = """\
{%- for message in messages -%}
  {{- '<' + message.role + '>' + (message.content or '') -}}
  {%- for call in message.tool_calls or [] -%}{{- call.id + ' ' + call.function.arguments | string -}}{%- endfor -%}
{%- endfor -%}
"""
NO_CALLS = "{%- for message in messages -%}{{- message.content + '<end>' -}}{%- endfor -%}"
NO_CALLS_ANY_CONTENT = "{%- for message in messages -%}{{- message.content -}}<end>{%- endfor -%}"
REFUSES = "{{- raise_exception('never') -}}"
OWN = {
    "GLM": GLM,
    "writes empty answers": WRITES_EMPTY_ANSWERS,
    "wants parts": WANTS_PARTS,
    "writes ids": WRITES_IDS,
    "no calls": NO_CALLS,
    "no calls, any content": NO_CALLS_ANY_CONTENT,
    "refuses": REFUSES,
}


def loaded(folder: Path, name: str) -> ChatTokenizer:
    family = BY_NAME.get(name) or replace(BY_NAME["Qwen2.5"], template=OWN[name])
    path = str(write_tokenizer(folder / "tokenizer", family))
    return load_tokenizer(TokenizerConfig(name_or_path=path, template_date="2025-06-30"))


def call(arguments: Any = BERN, **more: Any) -> dict[str, Any]:
    return {"id": "call00001", "type": "function", "function": {"name": "lookup", "arguments": arguments}, **more}


def called(content: Any, *calls: Any, result: Any = "sunny") -> list[dict[str, Any]]:
    answer = {"role": "assistant", "content": content, "tool_calls": list(calls)}
    return [QUESTION, answer, {"role": "tool", "tool_call_id": "call00001", "content": result}, SUNNY]


#: OpenAI's own form, and the same said otherwise.
SAME_CALLS: Mapping[str, Any] = {
    "OpenAI's": {"messages": called(None, call('{"city": "Bern"}'))},
    "an object": {"messages": called(None, call(BERN))},
    "empty content": {"messages": called("", call('{"city": "Bern"}'))},
    "no content": {"messages": [{k: v for k, v in turn.items() if v is not None} for turn in called(None, call())]},
    "empty parts": {"messages": called([], call())},
    "parts of a result": {"messages": called(None, call(), result=[{"type": "text", "text": "sunny"}])},
    "values of a result": {"messages": called(None, call(), result=[{"type": "text", "value": "sun"}, "ny"])},
    "parts that say nothing": {
        "messages": called([{"type": "text", "text": None}], call(), result=[None, {"type": "text"}, "sunny"])
    },
    "ShareGPT's": {
        "conversations": [
            {"from": "human", "value": "Bern?"},
            {"from": "function_call", "value": '{"name": "lookup", "arguments": {"city": "Bern"}}'},
            {"from": "observation", "value": "sunny"},
            {"from": "gpt", "value": "Sunny."},
        ]
    },
}


def text_of(tokenizer: ChatTokenizer, row: Any, **settings: Any) -> str:
    encoder = chat_encoder(tokenizer, ChatPreprocessing(loss_mode="full", **settings))
    columns = row if isinstance(row, Mapping) else {"messages": row}
    text: str = encoder.prepare(read_row(columns)).value.text
    return text


def losses_of(tokenizer: ChatTokenizer, turns: Sequence[Any], **settings: Any) -> set[str]:
    encoder = chat_encoder(tokenizer, ChatPreprocessing(loss_mode="full", **settings))
    return {loss.kind for loss in encoder.prepare(given_row({"messages": turns})).losses} - {LostKind.NO_SCHEMAS}


@pytest.mark.parametrize(
    ("name", "beside_calls", "alone", "arguments", "parts"),
    [
        ("Llama 3.1", "null", "empty", "object", {**TEXT, "developer": "text"}),
        ("Qwen3", "null", "empty", "object", TEXT),
        ("Qwen2.5", "null", "empty", "object", TEXT),
        ("Gemma 3", "given", "empty", "given", {**TEXT, "tool": "given"}),
        ("Mistral", "null", "empty", "object", TEXT),
        ("DeepSeek-V3", "null", "empty", "text", TEXT),
        ("gpt-oss", "null", "empty", "object", {**TEXT, "developer": "text"}),
        ("Nemotron", "null", "empty", "object", {**TEXT, "developer": "text"}),
        ("GLM", "empty", "empty", "object", {**TEXT, "developer": "text"}),
        ("writes empty answers", "null", "empty", "object", {**TEXT, "developer": "text"}),
        ("writes ids", "null", "empty", "text", {**TEXT, "developer": "text"}),
        ("no calls", "given", "empty", "given", {**TEXT, "developer": "text"}),
        ("no calls, any content", "empty", "empty", "given", {**TEXT, "developer": "text"}),
        ("refuses", "given", "given", "given", dict.fromkeys(TEXT, "given")),
    ],
)
def test_forms_are_those_that_the_template_shows(
    tmp_path: Path, name: str, beside_calls: Any, alone: Any, arguments: Any, parts: Mapping[str, Any]
) -> None:
    found = forms_of(loaded(tmp_path, name))

    parts = {"developer": "given", **parts}
    assert found == Forms(beside_calls=beside_calls, alone=alone, arguments=arguments, parts=parts)


TEXTS = {
    "Llama 3.1": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nBern?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    '{"name": "lookup", "parameters": {"city": "Bern"}}<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n'
    '"sunny"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nSunny.<|eot_id|>',
    "Qwen2.5": '<|im_start|>user\nBern?<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{"name": "lookup", "arguments": '
    '{"city": "Bern"}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nsunny\n</tool_response><|im_end|>\n'
    "<|im_start|>assistant\nSunny.<|im_end|>\n",
    "DeepSeek-V3": "<｜begin▁of▁sentence｜><｜User｜>Bern?<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
    'function<｜tool▁sep｜>lookup\n```json\n{"city": "Bern"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    "<｜end▁of▁sentence｜><｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>sunny<｜tool▁output▁end｜><｜tool▁outputs▁end｜>Sunny."
    "<｜end▁of▁sentence｜>",
    "gpt-oss": "<|start|>system<|message|>Current date: 2025-06-30<|end|><|start|>user<|message|>Bern?<|end|><|start|>"
    'assistant to=functions.lookup<|channel|>commentary json<|message|>{"city": "Bern"}<|call|><|start|>'
    'functions.lookup to=assistant<|channel|>commentary<|message|>"sunny"<|end|><|start|>assistant<|channel|>final'
    "<|message|>Sunny.<|return|>",
    "Nemotron": "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nBern?<|im_end|>\n<|im_start|>assistant\n"
    "<think></think>\n<tool_call>\n<function=lookup>\n<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call>"
    "<|im_end|>\n<|im_start|>user\n<tool_response>\nsunny\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    "<think></think>Sunny.<|im_end|>\n",
    "GLM": "<|user|>\nBern?<|assistant|>\n\n<tool_call>lookup\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n"
    "</tool_call><|observation|>\n<tool_response>\nsunny\n</tool_response><|assistant|>\nSunny.",
}


@pytest.mark.parametrize("name", TEXTS)
def test_calls_are_the_same_text_however_they_are_said(tmp_path: Path, name: str) -> None:
    tokenizer = loaded(tmp_path, name)

    for how, row in SAME_CALLS.items():
        assert text_of(tokenizer, row) == TEXTS[name], how
    assert len(SAME_CALLS) > 0


def test_mistral_gets_ids_from_the_row(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path, "Mistral")
    text = (
        '<s>[INST] Bern?[/INST][TOOL_CALLS] [{"name": "lookup", "arguments": {"city": "Bern"}, "id": "call00001"}]</s>'
        '[TOOL_RESULTS] {"content": "sunny", "call_id": "call00001"}[/TOOL_RESULTS] Sunny.</s>'
    )

    for how, row in SAME_CALLS.items():
        if how != "ShareGPT's":  # has no ids, which the template demands
            assert text_of(tokenizer, row) == text, how


@pytest.mark.parametrize("name", [*TEXTS, "Mistral", "writes ids"])
def test_ids_stand_in_the_text_as_the_row_has_them_or_not_at_all(tmp_path: Path, name: str) -> None:
    """Mistral's templates take ids of nine letters and digits alone; others write them as they are, or none."""
    tokenizer = loaded(tmp_path, name)

    def row(call_id: str) -> Any:
        return json.loads(json.dumps(called(None, call())).replace("call00001", call_id))

    short = text_of(tokenizer, row("TX92Jm8Zi"))
    assert ("TX92Jm8Zi" in short) == (name in ("Mistral", "writes ids"))
    if name == "Mistral":
        with pytest.raises(RowError, match="alphanumeric strings with length 9"):
            text_of(tokenizer, row("call_wKHAuVEDWr3W"))
    else:
        assert text_of(tokenizer, row("call_wKHAuVEDWr3W")) == short.replace("TX92Jm8Zi", "call_wKHAuVEDWr3W")


def test_a_result_with_the_markers_of_the_template_is_named(tmp_path: Path) -> None:
    """Hermes' data have them around results, and Qwen's templates write them, too."""
    result = "<tool_response>\nsunny\n</tool_response>"
    assert losses_of(loaded(tmp_path, "Qwen3"), called(None, call(), result=result)) == {LostKind.DOUBLED_TOKEN}


@pytest.mark.parametrize("name", ["Llama 3.1", "Qwen3", "DeepSeek-V3", "gpt-oss"])
def test_an_older_call_is_the_text_of_a_call(tmp_path: Path, name: str) -> None:
    """OpenAI's `function_call`, where a template shows calls and does not know it; the host gives it as it is."""
    tokenizer, function = loaded(tmp_path, name), call()["function"]
    result, older = {"role": "function", "name": "lookup", "content": "sunny"}, {"role": "assistant", "content": None}
    turns = [QUESTION, {**older, "function_call": {**function, "arguments": json.dumps(BERN)}}, result, SUNNY]

    text = text_of(tokenizer, turns)

    assert text == text_of(tokenizer, [QUESTION, {**older, "tool_calls": [call()]}, {**result, "role": "tool"}, SUNNY])
    assert "lookup" in text
    assert losses_of(tokenizer, turns) == set()
    if name == "gpt-oss":  # as the host gives it, there is neither a content nor a call
        with pytest.raises(RowError, match="NoneType"):
            losses_of(tokenizer, turns, **AS_HOST)
    else:
        assert LostKind.TOOL_CALL in losses_of(tokenizer, turns, **AS_HOST)


QWEN_3 = (
    "<|im_start|>user\nBern?<|im_end|>\n<|im_start|>assistant\n{}<tool_call>\n"
    '{{"name": "lookup", "arguments": {}}}\n</tool_call><|im_end|>\n'
    "<|im_start|>user\n<tool_response>\nsunny\n</tool_response><|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\nSunny.<|im_end|>\n"
)
DEEPSEEK_V3 = (
    "<｜begin▁of▁sentence｜><｜User｜>Bern?<｜Assistant｜>{}<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>lookup\n"
    "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>sunny<｜tool▁output▁end｜>"
    "<｜tool▁outputs▁end｜>Sunny.<｜end▁of▁sentence｜>"
)
REAL = {"qwen3": QWEN_3, "deepseek_v3": DEEPSEEK_V3}


@pytest.fixture(scope="module", params=REAL)
def real(request: pytest.FixtureRequest, reference_data: Path) -> tuple[ChatTokenizer, str]:
    """A real tokenizer, and the text of a call: the content beside it and its arguments are put in."""
    folder = reference_data / "tokenizers" / request.param
    return load_tokenizer(TokenizerConfig(name_or_path=str(folder))), REAL[request.param]


@pytest.mark.reference_data
def test_real_templates_show_calls_however_they_are_said(real: tuple[ChatTokenizer, str]) -> None:
    tokenizer, text = real

    for how, row in SAME_CALLS.items():
        assert text_of(tokenizer, row) == text.format("", '{"city": "Bern"}'), how
    assert losses_of(tokenizer, SAME_CALLS["OpenAI's"]["messages"]) == set()


@pytest.mark.reference_data
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("", "{}"),
        (" \n", "{}"),
        ("{}", "{}"),
        ({}, "{}"),
        (None, "{}"),
        ('{"at": {"city": ["Bern", null]}, "n": 1}', '{"at": {"city": ["Bern", null]}, "n": 1}'),
        ({"at": {"city": ["Bé", True]}}, '{"at": {"city": ["Bé", true]}}'),
        ("Bern, please", "Bern, please"),
        ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        ("[1]", "[1]"),
    ],
)
def test_arguments_of_real_templates(real: tuple[ChatTokenizer, str], arguments: Any, shown: str) -> None:
    tokenizer, text = real

    assert text_of(tokenizer, called(None, call(arguments))) == text.format("", shown)
    assert text_of(tokenizer, called("", call(arguments))) == text.format("", shown)
    is_object = shown.startswith("{")
    assert losses_of(tokenizer, called(None, call(arguments))) == (set() if is_object else {"tool_arguments"})


@pytest.mark.reference_data
def test_a_call_without_arguments_has_none(real: tuple[ChatTokenizer, str]) -> None:
    tokenizer, text = real
    bare = {"id": "call00001", "type": "function", "function": {"name": "lookup", "description": None}}

    assert text_of(tokenizer, called(None, bare)) == text.format("", "{}")
    bare["function"]["parameters"] = {}
    assert text_of(tokenizer, called(None, bare)) == text.format("", "{}")
    bare["function"]["values"] = BERN  # perhaps its arguments: never replaced by none
    del bare["function"]["parameters"]
    with pytest.raises(RowError, match="rejects the row"):
        text_of(tokenizer, called(None, bare))


@pytest.mark.reference_data
def test_null_without_a_call_is_an_empty_answer(real: tuple[ChatTokenizer, str]) -> None:
    tokenizer, _ = real
    turns = [QUESTION, {"role": "assistant", "content": None}, QUESTION, SUNNY]
    empty = [QUESTION, {"role": "assistant", "content": ""}, QUESTION, SUNNY]

    assert text_of(tokenizer, turns) == text_of(tokenizer, empty, **AS_HOST)


@pytest.mark.reference_data
def test_text_beside_a_call_stays_or_its_loss_is_told(real: tuple[ChatTokenizer, str]) -> None:
    tokenizer, text = real
    turns = called("I look.", call('{"city": "Bern"}'))

    if text == QWEN_3:
        assert text_of(tokenizer, turns) == text.format("I look.\n", '{"city": "Bern"}')
        assert losses_of(tokenizer, turns) == set()
    else:  # its template writes content or calls, not both
        assert losses_of(tokenizer, turns) == {"tool_call"}


@pytest.mark.reference_data
def test_keep_is_what_the_row_says(real: tuple[ChatTokenizer, str]) -> None:
    tokenizer, text = real
    row = called(None, call('{"city": "Bern"}'))

    if text == QWEN_3:
        with pytest.raises(RowError, match=r"content is null: preprocessing.null_content: auto may help$"):
            text_of(tokenizer, row, **AS_HOST)
    else:
        assert text_of(tokenizer, row, **AS_HOST) == text.format("", '{"city": "Bern"}')
        assert losses_of(tokenizer, called("", call('{"city": "Bern"}')), **AS_HOST) == {"tool_call"}


@pytest.mark.parametrize(
    ("kind", "cure"),
    [
        ("thinking", "write .* as reasoning_content of the turn"),
        ("image_url", "remove such parts"),
    ],
)
def test_parts_that_are_no_text_are_named_where_the_template_rejects_them(tmp_path: Path, kind: str, cure: str) -> None:
    parts = [
        {"type": "text", "text": "I look."},
        {"type": "text", "text": None},
        {"type": kind, "id": "1", "input": {"city": "Bern"}},
    ]
    turns = [QUESTION, {"role": "assistant", "content": parts}]

    with pytest.raises(RowError, match=rf"rejects the row: .*; turn 2 .* type '{kind}': {cure}$"):
        text_of(loaded(tmp_path, "no calls"), turns)
    parts[2]["type"] = "tool_use"
    with pytest.raises(RowError, match="has no name"):
        text_of(loaded(tmp_path / "again", "no calls"), turns)


def test_null_is_not_written_and_an_empty_answer_not_trained(tmp_path: Path) -> None:
    glm, writer = loaded(tmp_path / "glm", "GLM"), loaded(tmp_path / "other", "writes empty answers")
    turns = [{"role": "system", "content": None}, QUESTION, {"role": "assistant", "content": None}]

    assert text_of(glm, turns) == "<|system|>\n<|user|>\nBern?<|assistant|>\n"
    row = {"messages": called("", call('{"city": "Bern"}')), "tools": [SCHEMA]}
    shown = '<user>Bern?<end><call>lookup{"city": "Bern"}</call><tool>sunny<end><assistant>Sunny.<end>'
    assert text_of(writer, row) == shown
    assert "<assistant><end>" in text_of(writer, row, null_content="empty")


def test_parts_are_given_as_parts_where_texts_leave_nothing(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path, "wants parts")
    parts = [{"type": "input_text", "value": "Be"}, "rn?", {"text": "!"}]

    assert forms_of(tokenizer).parts == dict.fromkeys((*TEXT, "developer"), "parts")
    turns = [{"role": "user", "content": parts}, {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]}]
    assert text_of(tokenizer, turns) == "<user>Bern?!<end><assistant>Yes.<end>"


def test_other_parts_stay_and_are_told(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path, "Gemma 3")
    image = {"type": "image", "image": "a.png"}
    turns = [{"role": "user", "content": [image, {"type": "text", "text": "Bern?"}]}, SUNNY]

    user, model = "<bos><start_of_turn>user\n<start_of_image>Bern?<end_of_turn>\n", "<start_of_turn>model\nSunny."
    assert text_of(tokenizer, turns) == f"{user}{model}<end_of_turn>\n"
    assert losses_of(tokenizer, turns) == {"media"}


def test_calls_that_no_template_shows_stay_and_are_told(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path, "no calls")
    turns = called("", call('{"city": "Bern"}'))

    assert text_of(tokenizer, turns) == "Bern?<end><end>sunny<end>Sunny.<end>"
    assert losses_of(tokenizer, turns) == {"tool_call"}
    with pytest.raises(RowError, match=r"rejects the row: .*is null, .* template .* the turn's calls"):
        text_of(tokenizer, called(None, call()))


def test_forms_follow_the_template_and_its_variables(tmp_path: Path) -> None:
    family = replace(
        BY_NAME["Qwen2.5"],
        template="{%- for message in messages -%}{{- message.content if has_text else message.content + '' -}}"
        "{%- for call in message.tool_calls or [] -%}{{- call.function.name -}}"
        "{{- call.function.arguments if has_text else call.function.arguments | tojson -}}{%- endfor -%}{%- endfor -%}",
    )
    folder = str(write_tokenizer(tmp_path / "tokenizer", family))
    plain = forms_of(load_tokenizer(TokenizerConfig(name_or_path=folder)))
    other = forms_of(load_tokenizer(TokenizerConfig(name_or_path=folder, chat_template_kwargs={"has_text": True})))

    assert (plain.arguments, plain.beside_calls) == ("object", "empty")
    assert (other.arguments, other.beside_calls) == ("text", "empty")
    assert plain == forms_of(load_tokenizer(TokenizerConfig(name_or_path=folder)))


def test_decisions_are_plain_values_for_the_fields_that_ask() -> None:
    forms = Forms(beside_calls="null", alone="empty", arguments="text", parts={"user": "text"})

    assert forms.decisions(["tool_arguments"]) == {"tool_arguments": "text"}
    every = forms.decisions(ChatPreprocessing().fields_on_auto)
    assert json.loads(json.dumps(every)) == {
        "null_content": {"beside_calls": "null", "alone": "empty"},
        "tool_arguments": "text",
        "content_parts": {"user": "text"},
    }
    assert AS_GIVEN.decisions(["tool_arguments"]) == {"tool_arguments": "given"}
    assert ChatPreprocessing(**AS_HOST).fields_on_auto == ()


def _recipe(folder: Path, tokenizer: Path, **changes: Any) -> SFTRecipe:
    """Return a recipe of calls with a template that shows them only beside null content."""
    (folder / "template.jinja").write_text(BY_NAME["DeepSeek-V3"].template)
    rows = write_json_lines(folder / "rows.jsonl", [row for row in SAME_CALLS.values() for _ in range(40)])
    preprocessing = {"kind": "chat", "loss_mode": "full", **changes}
    packing = {"packed_sequence_size": 1024}
    recipe = small_recipe(rows, tokenizer, preprocessing=preprocessing, packing=packing)
    return recipe.override({"tokenizer.chat_template": str(folder / "template.jinja")})


def test_manifest_and_preview_have_what_was_decided(tmp_path: Path, chatml_tokenizer: Path) -> None:
    recipe = _recipe(tmp_path, chatml_tokenizer)
    decided = {
        "null_content": {"beside_calls": "null", "alone": "empty"},
        "tool_arguments": "text",
        "content_parts": {**TEXT, "developer": "given"},
    }

    assert build(recipe, tmp_path / "out").manifest.tokenizer["forms"] == decided
    preview = preview_recipe(recipe)
    assert preview.to_dict()["forms"] == decided
    text = screen(preview_blocks(preview))
    assert "  null_content        null (beside calls); empty (alone)\n" in text
    assert "  tool_arguments      text\n" in text
    assert "  content_parts       text (system, user, assistant, tool); given (developer)" in text
    assert prove.sources(tmp_path / "out", num_packs=None).outcome == "same"


def test_manifest_says_nothing_where_nothing_is_decided(tmp_path: Path, chatml_tokenizer: Path) -> None:
    recipe = _recipe(tmp_path, chatml_tokenizer, **AS_HOST)

    assert "forms" not in build(recipe, tmp_path / "out").manifest.tokenizer
    assert preview_recipe(recipe).forms == {}
    assert "forms that" not in screen(preview_blocks(preview_recipe(recipe)))
    one = build(recipe.override({"preprocessing.null_content": "auto"}), tmp_path / "one").manifest
    assert list(one.tokenizer["forms"]) == ["null_content"]


def test_workers_decide_the_same(tmp_path: Path, chatml_tokenizer: Path) -> None:
    recipe = _recipe(tmp_path, chatml_tokenizer)
    made = [
        build(recipe, tmp_path / str(number), store=tmp_path / f"store {number}", num_workers=number)
        for number in (0, 2)
    ]

    assert made[0].manifest.splits == made[1].manifest.splits
    assert made[0].manifest.splits[0].drops == {}
    num_sizes = sum(count > 0 for _, count in made[0].manifest.splits[0].statistics.length_histogram)
    assert num_sizes == 1  # all say the same


def test_the_host_decides_where_it_reads_the_data(tmp_path: Path, chatml_tokenizer: Path) -> None:
    recipe = _recipe(tmp_path, chatml_tokenizer).override({"packing.mode": "in_batch"})

    preview = preview_recipe(recipe)
    assert preview.forms == {}
    assert {drop.kind for drop in preview.sources[0].drops} == {"template_error"}  # parts and objects, as with keep


def test_repacking_for_the_host_to_read_is_refused(tmp_path: Path, chatml_tokenizer: Path) -> None:
    build(_recipe(tmp_path, chatml_tokenizer), tmp_path / "out")

    with pytest.raises(ConfigError, match=r"packing\.mode .* changes the tokens"):
        plan_repack(tmp_path / "out", {"packing.mode": "none"})
    build(_recipe(tmp_path, chatml_tokenizer, **AS_HOST), tmp_path / "host")
    assert plan_repack(tmp_path / "host", {"packing.mode": "none"}).spec.resolved.recipe.packing.mode == "none"
