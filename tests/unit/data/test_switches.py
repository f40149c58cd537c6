"""Switches of chat templates that make training and serving the same: found by trying the template's variables."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripts.quirks.served_rows import SETS

from bridgepack.data.artifact.manifest import read_manifest
from bridgepack.data.sequences.loading import load_stage
from bridgepack.data.served.rows import ServedRows
from bridgepack.data.served.switches import SwitchRows, find_prompt_switch, find_switch
from bridgepack.data.tokenizers.templates import variables_of
from bridgepack.errors import RowError
from bridgepack.records import ServedKind, ServedRecord
from bridgepack.records.served import served_cure
from tests.support.messages import mentions
from tests.support.read_rows import given_row, read_row
from tests.support.small_builds import build, small_recipe, write_json_lines
from tests.zoo.families import write_tokenizer
from tests.zoo.served import SERVED_FAMILIES

BY_NAME = {family.name: family for family in SERVED_FAMILIES}
Row = dict[str, Any]
#: Like EXAONE-4's: unless the server asks for thoughts, the prompt has an empty one; earlier thoughts are kept.
EMPTY_FIRST = """\
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' -}}
  {%- if message.role == 'assistant' -%}{{- '<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n' -}}
  {%- endif -%}
  {{- message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n<think>\\n' + ('' if enable_thinking else '\\n</think>\\n') -}}
{%- endif -%}
"""
#: Like Laguna's: the prompt begins a thought, or says that there is none; a turn shows what it has.
OPEN_FIRST = """\
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' -}}
  {%- if message.role == 'assistant' -%}
    {{- ('<think>\\n' + message.reasoning_content + '\\n' if message.reasoning_content else '') + '</think>\\n' -}}
  {%- endif -%}
  {{- message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' + ('</think>\\n' if enable_thinking is false else '<think>\\n') -}}
{%- endif -%}
"""


def _rows(folder: Path, name: str, template: str = "", **preprocessing: Any) -> ServedRows:
    family = BY_NAME[name]
    tokenizer = write_tokenizer(folder / "tokenizer", family)
    if template:
        (tokenizer / "chat_template.jinja").write_text(template)
    chat = {"kind": "chat", **family.preprocessing, **preprocessing}
    recipe = small_recipe("rows.jsonl", tokenizer, packing={"packed_sequence_size": 512}, preprocessing=chat)
    return ServedRows.of(load_stage(recipe.model_dump_json()))


def _found(rows: ServedRows, *given: Row) -> tuple[str, bool, bool]:
    """Return the switch that is found with some rows: (name, value, whether it is partial)."""
    kept = SwitchRows()
    read = [read_row(row, rows.stage.recipe.preprocessing).columns for row in given]
    columns = [given_row({**columns, **_variables(row)}) for columns, row in zip(read, given, strict=True)]
    for one, answers in zip(columns, rows.answers(columns), strict=True):
        assert not isinstance(answers, RowError)
        kept.add(one, answers)
    return find_switch(rows, kept)


def _variables(row: Row) -> Row:
    return {"chat_template_kwargs": row["chat_template_kwargs"]} if "chat_template_kwargs" in row else {}


def _chat(*thoughts: str, **columns: Any) -> Row:
    messages: list[Row] = []
    for thought in thoughts:
        thoughts_of = {"reasoning_content": thought} if thought else {}
        messages += [{"role": "user", "content": "Two?"}, {"role": "assistant", "content": "Four.", **thoughts_of}]
    return {"messages": messages, **columns}


@pytest.mark.parametrize(
    ("name", "row", "switch"),
    [
        ("Qwen3.5", "thoughts", ("preserve_thinking", True)),
        ("Qwen3.5", "agents", ("preserve_thinking", True)),
        ("Nemotron", "thoughts", ("truncate_history_thinking", False)),
        ("Nemotron", "plain", ("enable_thinking", False)),
        ("Qwen3", "thoughts", ("", False)),
        ("MiniMax-M2", "thoughts", ("", False)),
    ],
)
def test_the_switch_of_a_template(tmp_path: Path, name: str, row: str, switch: tuple[str, bool]) -> None:
    assert _found(_rows(tmp_path, name), SETS[row]) == (*switch, False)


def test_a_switch_that_loses_thoughts_is_no_cure(tmp_path: Path) -> None:
    """`plain: true` strips every thought, so that all answers are as served, and no thought is trained."""
    template = BY_NAME["Qwen3"].template.replace(
        "loop.index0 > seen.last and", "not plain and loop.index0 > seen.last and"
    )
    assert template != BY_NAME["Qwen3"].template
    assert _found(_rows(tmp_path, "Qwen3", template), SETS["thoughts"]) == ("", False, False)


def test_a_switch_is_looked_for_in_every_piece_of_a_conversation(tmp_path: Path) -> None:
    """What the server sends before the second answer has a hint in front, unless `hides_hint`; the first is equal."""
    hint = (
        "{%- if messages[-1].role == 'user' and messages | length > 2 and not hides_hint -%}{{- 'Hm.' -}}{%- endif -%}"
    )
    rows = _rows(tmp_path, "Qwen3", hint + BY_NAME["Qwen3"].template, split_conversations="when_context_differs")
    columns = read_row(SETS["thoughts"], rows.stage.recipe.preprocessing)

    assert len(rows.stage.encoder.prepare(columns).values) == 2
    (answers,) = rows.answers([columns])
    assert not isinstance(answers, RowError)
    assert [answer.kind for answer in answers] == ["equal", "context-differs"]
    assert _found(rows, SETS["thoughts"]) == ("hides_hint", True, False)


@pytest.mark.parametrize("masks_prompts", [False, True])
def test_what_the_server_then_writes_is_no_loss(tmp_path: Path, masks_prompts: bool) -> None:
    """With the switch the prompt begins the thought, so that `<think>` is trained no longer."""
    rows = _rows(tmp_path, "Qwen3", EMPTY_FIRST, mask_generation_prompt=masks_prompts)
    assert _found(rows, _chat("Hm.", "So.")) == ("enable_thinking", True, False)


QUICK, SLOW = _chat("", ""), _chat("Hm.", "So.")


@pytest.mark.parametrize(
    ("rows", "switch"),
    [
        ([QUICK], ("enable_thinking", False, False)),
        ([SLOW], ("", False, False)),
        ([QUICK, SLOW], ("enable_thinking", False, True)),
        ([SLOW, SLOW, QUICK], ("enable_thinking", False, True)),
        # its own value stays, whatever the recipe says
        ([_chat("", "", chat_template_kwargs={"enable_thinking": True})], ("", False, False)),
    ],
)
def test_a_switch_that_harms_other_rows_is_partial(
    tmp_path: Path, rows: list[Row], switch: tuple[str, bool, bool]
) -> None:
    assert _found(_rows(tmp_path, "Qwen3", OPEN_FIRST), *rows) == switch


def test_a_switch_for_all_rows_counts_before_one_for_some(tmp_path: Path) -> None:
    """The first rows differ for want of a switch that harms the last, which wants one that harms none."""
    template = OPEN_FIRST.replace("{%- for", "{{- 'Hm.' if messages | length > 2 and not hides_hint -}}{%- for", 1)
    rows = _rows(tmp_path, "Qwen3", template)
    assert _found(rows, *[_chat("")] * 5, SLOW) == ("hides_hint", True, False)


def test_what_is_said_of_a_partial_switch() -> None:
    record = ServedRecord(num_rows=2, counts=(), switch="think", switch_value=False, is_switch_partial=True)
    cure = record.cure(ServedKind.CONTEXT)
    assert mentions(cure, '{"think": false} in a column', "data.layout.chat_template_kwargs", "preprocessing.split_")
    assert mentions(cure, "for all rows, it")


def test_variables_of_a_template() -> None:
    source = "{% set own = 1 %}{{ messages }}{{ own }}{{ think | default(true) }}{{ raise_exception('') }}"
    assert variables_of(source) == {"messages", "think"}


def _found_for_prompt(rows: ServedRows, *given: Row) -> tuple[str, bool, bool]:
    """Return the switch that is found for the prompt of some rows: (name, value, whether it is partial)."""
    kept = SwitchRows()
    columns = [read_row(row, rows.stage.recipe.preprocessing) for row in given]
    for one, answers in zip(columns, rows.answers(columns), strict=True):
        assert not isinstance(answers, RowError)
        kept.add(one, answers)
    return find_prompt_switch(rows, kept)


@pytest.mark.parametrize(
    ("name", "rows", "switch"),
    [
        # `<think>` and an empty line is one token more than the prompt, which may write all of the empty thought
        ("Qwen3.5", [QUICK], ("enable_thinking", False, False)),
        ("Qwen3.5", [_chat("")], ("enable_thinking", False, False)),
        ("Qwen3.5", [SLOW], ("", False, False)),
        ("Qwen3.5", [QUICK, SLOW], ("enable_thinking", False, True)),
        ("EXAONE-4, thinking", [QUICK], ("enable_thinking", False, False)),
        ("EXAONE-4, thinking", [SETS["agents"]], ("", False, False)),  # the call has no thought, the answers have
        ("Step-3.5", [QUICK], ("", False, False)),  # no variable changes its prompt
    ],
)
def test_the_switch_of_a_prompt(tmp_path: Path, name: str, rows: list[Row], switch: tuple[str, bool, bool]) -> None:
    assert _found_for_prompt(_rows(tmp_path, name), *rows) == switch


def test_what_is_said_of_a_switch_of_the_prompt() -> None:
    record = ServedRecord(num_rows=2, counts=(), prompt_switch="think", num_rows_tried=2, num_rows_dropped=1)
    cure = record.cure(ServedKind.BOUNDARY)
    assert cure.startswith("set tokenizer.chat_template_kwargs.think to false ")
    assert mentions(cure, 'in requests "chat_template_kwargs": {"think": false}, ')
    assert mentions(cure, """vllm serve --default-chat-template-kwargs '{"think": false}'; """)
    assert mentions(cure, "then set preprocessing.mask_generation_prompt to true, ", "drop 1 of 2 rows")
    assert cure.endswith("set preprocessing.masks_control_tokens to false")
    assert record.cure(ServedKind.CONTEXT) == served_cure(ServedKind.CONTEXT, {})


def test_both_switches_are_proposed_and_cure(tmp_path: Path) -> None:
    """Each is for other answers of the same rows: with both and the mask, none is dropped and all are equal."""
    family = BY_NAME["Qwen3.5"]
    tokenizer = write_tokenizer(tmp_path / "tokenizer", family)
    train = write_json_lines(tmp_path / "rows.jsonl", [QUICK] * 3)
    chat = {"kind": "chat", **family.preprocessing}
    recipe = small_recipe(train, tokenizer, packing={"packed_sequence_size": 512}, preprocessing=chat)

    served = build(recipe, tmp_path / "packed").manifest.served
    assert served is not None
    assert (served.switch, served.switch_value) == ("preserve_thinking", True)
    assert (served.prompt_switch, served.prompt_switch_value) == ("enable_thinking", False)
    assert (served.num_rows_tried, served.num_rows_dropped) == (3, 3)
    assert read_manifest(tmp_path / "packed").served == served

    kwargs = {served.switch: served.switch_value, served.prompt_switch: served.prompt_switch_value}
    cured = recipe.override({"tokenizer.chat_template_kwargs": kwargs, "preprocessing.mask_generation_prompt": True})
    manifest = build(cured, tmp_path / "cured").manifest
    assert manifest.served is not None
    assert (manifest.served.share(ServedKind.EQUAL), manifest.served.num_answers) == (1, 6)
    assert sum(manifest.splits[0].drops.values()) == 0
    assert "prompt_switch" not in json.loads((tmp_path / "cured" / "manifest.json").read_text())["served"]
