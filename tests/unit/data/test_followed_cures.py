"""What `new` and a build say to do is done to the letter on the rows that they say it of, and builds."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridgepack.api import new_recipe
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.detected import data_for, preprocessing_for
from bridgepack.config.layouts.detect import Detection, detect
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.planning.detecting import detect_data, detect_data_or_files
from bridgepack.records import LOSS_CURES, SplitRecord
from tests.support.read_rows import reader_for
from tests.support.small_builds import Command, build, small_recipe, write_json_lines
from tests.zoo.families import FAMILIES, write_tokenizer

Row = dict[str, Any]
ASKED, SAID = {"role": "user", "content": "How deep is it?"}, {"role": "assistant", "content": "It is 200 m deep."}
CHAT = {"messages": [ASKED, SAID]}
CALL = '{"thought": "I look it up in the atlas.", "name": "depth", "parameters": {"lake": "Uri"}}'
TOOL = {"name": "depth", "description": "Depth of a lake.", "inputSchema": {"type": "object", "properties": {}}}
INLINE = "<|begin_of_thought|>\n\nOne more.\n\n<|end_of_thought|>\n\n<|begin_of_solution|>\n\n4<|end_of_solution|>"
#: Name -> rows of which `new`, or the build, says what to do.
ROWS: Mapping[str, list[Row]] = {
    "thought of a call": [
        {
            "conversations": [
                {"from": "human", "value": "How deep is it?"},
                {"from": "function_call", "value": CALL},
                {"from": "observation", "value": "200"},
                {"from": "gpt", "value": "It is 200 m deep."},
            ],
            "tools": [TOOL],
        }
    ],
    "preference": [{"prompt": "How deep is it?", "chosen": "It is 200 m deep.", "rejected": "No idea, to be frank."}],
    "openai preference": [
        {
            "input": {"messages": [ASKED], "tools": [], "parallel_tool_calls": True},
            "preferred_output": [SAID],
            "non_preferred_output": [{"role": "assistant", "content": "No idea, to be frank."}],
        }
    ],
    "unread column": [{**CHAT, "critique": "This answer could say a lot more."}],
    "media": [{"messages": [{**ASKED, "content": "<image>Which?"}, SAID], "images": ["a.jpg"]}, CHAT],
    "empty answers": [{"messages": [ASKED, {**SAID, "content": ""}]}, CHAT],
    "inline thoughts": [{"messages": [ASKED, {**SAID, "content": INLINE}]}],
    "weights": [{"messages": [ASKED, {**SAID, "ignore_loss": True}, ASKED, SAID]}, CHAT],
    "mixed": [{"messages": None, "prompt": "How deep is it?", "completion": "200 m."}, CHAT] * 2,
    "history": [{"instruction": "So?", "input": "", "output": "So.", "history": [["How deep is it?", "200 m."]]}],
    "pairs": [{"conversation": [{"input": "How deep is it?", "output": "200 m."}]}],
    "preference after turns": [
        {"messages": [ASKED], "chosen": SAID, "rejected": {"role": "assistant", "content": "No idea, to be frank."}}
    ],
    "preference of ms-swift": [{**CHAT, "rejected_response": "No idea, to be frank."}],
    "image parts": [
        {"messages": [{**ASKED, "content": [{"type": "image_url", "image_url": {"url": "a"}}]}, SAID]},
        CHAT,
    ],
    "a place for an image": [{"messages": [{**ASKED, "content": "<image>\nWhich?"}, SAID]}, CHAT],
    "thoughts of Magistral": [{"messages": [ASKED, {**SAID, "content": "[THINK]Hm, Uri.[/THINK]200 m."}]}],
    "masked answers": [{"messages": [ASKED, {**SAID, "mask_loss": True}, ASKED, SAID]}],
    "lists of a role and a text": [{"messages": [["user", "How deep is it?"], ["assistant", "It is 200 m deep."]]}],
    "an answer beside turns": [{"messages": [ASKED], "response": "200 m."}, {**CHAT, "response": None}],
}
SHORT = {"packed_sequence_size": 128}
_LAYOUT, _SETTING = re.compile(r"--layout (\w+)"), re.compile(r"(?:set )?preprocessing\.(\w+) to (\w+)")


def _detected(path: Path) -> Detection:
    """Return the layout of the rows, by what the error says if they are refused."""
    try:
        found, _ = detect_data_or_files(str(path))
    except ConfigError as error:
        found = detect_data(str(path), next(name for name in _LAYOUT.findall(str(error)) if name != "none"))
    assert found is not None
    return found


def _split(recipe: SFTRecipe, folder: Path) -> SplitRecord:
    return build(recipe, folder).manifest.splits[0]


def _recipe(path: Path, found: Detection, tokenizer: Path, changes: Mapping[str, Any], ignored: list[str]) -> SFTRecipe:
    data = data_for(str(path), found, {})
    for layout in data["layout"] if isinstance(data["layout"], list) else [data["layout"]]:
        layout["ignore"] = [*layout.get("ignore", ()), *ignored]
    preprocessing = {**preprocessing_for(found, {}, {"kind": "chat"}), **changes}
    return small_recipe("", tokenizer, data=data, preprocessing=preprocessing, packing={"packed_sequence_size": 512})


def _follow(path: Path, tokenizer: Path, folder: Path) -> None:
    found = _detected(path)
    changes: dict[str, Any] = {}
    ignored: list[str] = []
    for number in range(4):  # a cure may show the next finding
        split = _split(_recipe(path, found, tokenizer, changes, ignored), folder / str(number))
        unread = [field.name for field in split.unread if field.holds != "identifier"]
        told = {
            kind: LOSS_CURES[kind] for kind in split.lost_content if kind not in {"no_schemas", "earlier_reasoning"}
        }
        if not told and not unread:
            assert split.statistics.num_rows_packed > 0
            return
        settings = [_SETTING.search(cure) for kind, cure in told.items() if kind != "unread"]
        changes |= {setting[1]: setting[2] for setting in settings if setting}
        ignored += [name for name in unread if "media" not in told and name not in ignored]
    raise AssertionError(f"what is said does not help: {told}, {unread}")


LONG = {"messages": [ASKED, SAID] * 12}
PAIR = {"prompt": "How deep is it?", "completion": "It is 200 m deep. " * 40}
LATE = {"prompt": "How deep is it? " * 40, "completion": "200 m."}
#: Code of a rule on dropped or cut rows -> the rows, and the settings under which it finds them.
DROPPED: Mapping[str, tuple[list[Row], Row]] = {
    "BP543 over_long": ([LONG, CHAT, CHAT], {"over_long": "drop"}),
    "BP543 truncate": ([LONG, CHAT, CHAT], {"over_long": "drop", "loss_mode": "last_turn"}),
    "BP511": ([PAIR] * 100, {"kind": "prompt_completion", "over_long": "truncate", "ends_cut_completions": True}),
    "BP514": ([LATE] * 100, {"kind": "prompt_completion", "over_long": "truncate", "truncation_method": "right"}),
}


@pytest.mark.parametrize("name", DROPPED)
def test_the_fix_of_a_rule_on_dropped_and_cut_rows_is_followed(tmp_path: Path, tokenizer: Path, name: str) -> None:
    """About 8 builds: that the setting which a fix names makes the finding go, on the rows that it is printed for."""
    rows, settings = DROPPED[name]
    path = write_json_lines(tmp_path / "rows.jsonl", rows)
    code = name.partition(" ")[0]

    def found(changes: Row) -> list[str]:
        recipe = small_recipe(
            str(path), tokenizer, preprocessing={"kind": "chat", **settings, **changes}, packing=SHORT
        )
        packs = build(recipe, tmp_path / str(len(changes)))
        report = check_target(packs.output, CheckOptions(select=(code,)))
        return [finding.fix for finding in report.findings]

    (fix,) = found({})
    field, value = _SETTING.findall(fix.replace("Set ", "set "))[0]
    assert found({field: value if value not in {"true", "false"} else value == "true"}) == []


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    family = next(one for one in FAMILIES if one.name == "Qwen3")
    return write_tokenizer(tmp_path_factory.mktemp("tokenizers") / "qwen3", family)


#: Refused layout -> its rows, and the rows that the refusal says to write.
REWRITTEN: Mapping[str, tuple[Row, list[Row]]] = {
    "unpaired_turns": ({**CHAT, "label": True}, [CHAT]),
    "preference_texts": (
        dict.fromkeys(("chosen", "rejected"), "\n\nHuman: How deep is it?\n\nAssistant: It is 200 m deep."),
        [CHAT],
    ),
    "scored_answers": (
        {"prompt": "How deep is it?", "responses": ["It is 200 m deep.", "No idea."], "scores": [4, 1]},
        [{"prompt": "How deep is it?", "answer": "It is 200 m deep."}],
    ),
    "multiple_choice": ({"question": "How deep?", "choices": ["3 m", "200 m"], "answer": 1}, [CHAT]),
    "listed_conversations": ({"conversations": [CHAT["messages"]] * 2}, [CHAT, CHAT]),
    "listed_rows": ({"data": [CHAT, CHAT]}, [CHAT, CHAT]),
    "listed_columns": (
        {"question": ["How deep?", "How long?"], "answer": ["200 m", "11 km"]},
        [{"question": "How deep?", "answer": "200 m"}, {"question": "How long?", "answer": "11 km"}],
    ),
    "listed_texts": ({"data": ["How deep is it?", "It is 200 m deep."]}, [CHAT]),
    "text_of_rows": ({"text": json.dumps(CHAT)}, [CHAT]),
    "wrapped_row": ({"row": CHAT}, [CHAT]),
    "object_answer": (
        {"instruction": "How deep is it?", "output": {"m": 200}},
        [{"instruction": "How deep is it?", "output": json.dumps({"m": 200})}],
    ),
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_rows_that_a_refusal_says_to_write_are_read(name: str) -> None:
    row, rows = REWRITTEN[name]

    with pytest.raises(ConfigError) as refused:
        detect([row] * 2)

    assert f"look like {name} (" in str(refused.value)
    assert detect(rows).unread == ()


def test_the_path_that_a_refusal_names_is_read() -> None:
    reader = reader_for(layout={"kind": "chat", "messages": [{"from_column": "row.messages"}]})

    assert reader.read({"row": CHAT}).columns["messages"] == CHAT["messages"]


#: Export -> a row that no layout reads, and the paths by which it is read, as `new` says.
PATHS: Mapping[str, tuple[Row, list[Row]]] = {
    "Label Studio": (
        {
            **{"id": 1, "data": {"prompt": ASKED["content"]}, "predictions": []},
            "annotations": [{"result": [{"type": "textarea", "value": {"text": [SAID["content"]]}}]}],
        },
        [
            {"role": "user", "content": "{data.prompt}"},
            {"role": "assistant", "content": "{annotations.0.result.0.value.text.0}"},
        ],
    ),
    "Argilla": (
        {
            **{"fields": {"instruction": ASKED["content"]}, "status": "completed", "suggestions": {}},
            "responses": {"answer": [{"value": SAID["content"], "user_id": "u"}]},
        },
        [
            {"role": "user", "content": "{fields.instruction}"},
            {"role": "assistant", "content": "{responses.answer.0.value}"},
        ],
    ),
    "LangSmith": (
        {"inputs": {"messages": [ASKED]}, "outputs": {"message": SAID}},
        [{"from_column": "inputs.messages"}, {"from_column": "outputs.message"}],
    ),
    "stored completions": (
        {"id": "c", "input": [ASKED], "choices": [{"message": SAID}], "object": "chat.completion"},
        [{"from_column": "input"}, {"from_column": "choices.0.message"}],
    ),
    "an answer and its aliases": (
        {"question": ASKED["content"], "answer": {"value": SAID["content"], "aliases": []}},
        [{"role": "user", "content": "{question}"}, {"role": "assistant", "content": "{answer.value}"}],
    ),
}


@pytest.mark.parametrize("name", PATHS)
def test_what_is_inside_columns_is_read_by_paths(name: str) -> None:
    row, messages = PATHS[name]

    with pytest.raises(ConfigError, match=r"path, such as|their path|the path of"):
        detect([row] * 2)

    read = reader_for(layout={"kind": "chat", "messages": messages}).read(row)
    assert read.columns["messages"] == CHAT["messages"]


@pytest.mark.parametrize(
    "data",
    [
        {"choose": "chosen"},
        {"ranking": True},
        {"layout": "preference_chosen"},
        {"layout": {"kind": "preference", "choose": "chosen"}},
        {"layout": {"kind": "preference"}},
        {"train": [{"path": "rows.jsonl", "choose": "chosen"}]},
    ],
    ids=str,
)
def test_who_asks_for_an_answer_of_pairs_gets_the_layout_that_reads_it(data: Row) -> None:
    with pytest.raises(ValueError, match="preference_chosen") as refused:
        reader_for(**data)
    (layout,) = re.findall(r"layout: (\{.*\});", str(refused.value))

    row = reader_for(layout=yaml.safe_load(layout)).read(ROWS["preference"][0])

    assert row.columns["messages"] == CHAT["messages"]
    assert not row.unread or set(row.unread) == {"rejected"}


@pytest.mark.parametrize("name", ["preference after turns", "mixed"])
def test_the_command_that_new_prints_writes_a_recipe_that_builds(
    tmp_path: Path, tokenizer: Path, command: Command, name: str
) -> None:
    path = write_json_lines(tmp_path / "rows.jsonl", ROWS[name] * 6)
    wish: dict[str, Any] = {"model": "Qwen/Qwen3-8B", "num_gpus": 4, "seq_length": 512}
    wish |= {"data": str(path), "tokenizer": str(tokenizer)}
    try:
        made = new_recipe("mine", **wish)
    except ConfigError as error:
        layout = next(layout for layout in _LAYOUT.findall(str(error)) if layout != "none")
        made = new_recipe("mine", **wish, layout=layout)

    ran = command(*shlex.split(made.command)[1:], "--output", tmp_path / "mine.yaml")

    assert (ran.code, (tmp_path / "mine.yaml").read_text()) == (0, made.text)
    split = _split(load_recipe(tmp_path / "mine.yaml"), tmp_path / "out")
    assert (split.drops, dict(split.lost_content)) == ({}, {})


@pytest.mark.parametrize("name", ROWS)
def test_what_is_said_of_rows_is_done_and_builds(tmp_path: Path, tokenizer: Path, name: str) -> None:
    _follow(write_json_lines(tmp_path / "rows.jsonl", ROWS[name]), tokenizer, tmp_path)


@pytest.mark.reference_data
def test_what_is_said_of_reported_rows_is_done_and_builds(
    tmp_path: Path, tokenizer: Path, reference_data: Path
) -> None:
    folder = reference_data / "cases" / "rows4"
    if not folder.is_dir():
        pytest.skip("the reported rows are not there")
    files = sorted(folder.glob("*.jsonl"))
    for path in files:
        _follow(path, tokenizer, tmp_path / path.stem)
    assert files
