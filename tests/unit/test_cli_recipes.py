"""The `recipes` commands: what they print and write, and their exit codes."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bridgepack.config.document import stated_values
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import TOML_HEADER, YAML_HEADER, cluster_schema, recipe_schema
from tests.support.messages import mentions
from tests.support.small_builds import CLI, Command, write_json_lines

NAME = "qwen3_8b_sft_4gpu_h100_bf16_recipe"
NEW = ("new", "mine", "--model", "Qwen/Qwen3-8B", "--num-gpus", "8", "--seq-length", "4096")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _import_weights() -> None:
    folder = Path("checkpoints/Qwen3-8B")
    folder.mkdir(parents=True)
    (folder / "latest_checkpointed_iteration.txt").touch()


def test_list(command: Command) -> None:
    ran = command("recipes", "list", "--family", "qwen3")
    listed = json.loads(command("recipes", "list", "--family", "qwen3", "--json").output)["recipes"]
    entry = next(entry for entry in listed if entry["name"] == NAME)

    assert (ran.code, ran.errors) == (0, "")
    assert max(map(len, ran.output.splitlines())) <= 80
    words = ran.output.split()
    assert "qwen3:" in words
    begin = words.index(NAME)
    assert words[begin : begin + 8] == [NAME, "full", "4", "4096", "1", "4", "1", "1"]
    expected = {"family": "qwen3", "method": "full", "num_gpus": 4, "seq_length": 4096, "context_parallel_size": 1}
    assert {name: entry[name] for name in expected} == expected
    assert {entry["family"] for entry in listed} == {"qwen3"}


def test_layouts_fit_a_narrow_terminal(command: Command) -> None:
    assert max(map(len, command("recipes", "layouts").output.splitlines())) <= 80


def test_the_beginning_of_a_name_suggests_names(command: Command) -> None:
    ran = command("recipes", "show", "qwen3_8b")

    assert ran.code == 2
    assert "Did you mean qwen3_8b_sft_4gpu_h100_bf16_recipe, qwen3_8b_" in ran.errors


def test_list_tells_broken_recipes(command: Command) -> None:
    Path("recipes").mkdir()
    Path("recipes/broken.yaml").write_text("name: 5\n", encoding="utf-8")
    ran = command("recipes", "list", "--family", "broken")

    assert ran.code == 1
    assert "cannot be loaded: broken: 4 fields are wrong:" in ran.output


def test_list_of_the_host_s_recipes_needs_it(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "megatron"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "megatron.bridge", None)
    ran = command("recipes", "list", "--bridge")

    assert (ran.code, ran.output) == (2, "")
    assert "A ConfigContainer needs megatron-bridge" in ran.errors


def test_show_prints_a_file_that_loads(command: Command, tmp_path: Path) -> None:
    for form, header in (("yaml", YAML_HEADER), ("toml", TOML_HEADER)):
        changes = ("--set", "packing.seed=7", "--set", "model.recompute=full")
        ran = command("recipes", "show", NAME, "--format", form, *changes)
        file = tmp_path / f"shown.{form}"
        file.write_text(ran.output, encoding="utf-8")

        assert (ran.code, ran.errors) == (0, "")
        assert ran.output.startswith(f"{header}\n")
        assert load_recipe(file) == load_recipe(NAME, {"packing.seed": 7, "model.recompute": "full"})
    assert SFTRecipe.from_mapping(json.loads(command("recipes", "show", NAME, "--json").output)) == load_recipe(NAME)


def test_show_resolved(command: Command) -> None:
    text = command("recipes", "show", NAME, "--resolved")
    values: dict[str, Any] = json.loads(command("recipes", "show", NAME, "--resolved", "--json").output)
    settings = {setting["path"]: setting for setting in values["settings"]}

    assert (text.code, text.errors) == (0, "")
    assert "set in Megatron-Bridge:" in text.output
    assert list(values) == ["name", "packs", "fields", "derived", "settings", "base_changes", "replacements"]
    assert settings["model.calculate_per_token_loss"]["origin"] == "derived"
    assert {setting["origin"] for setting in values["settings"]} == {"recipe", "default", "derived"}
    assert all(setting["because"] for setting in values["settings"] if setting["origin"] == "derived")


def test_show_says_what_an_override_replaces_and_what_the_base_loses(command: Command) -> None:
    ran = command("recipes", "show", NAME, "--resolved", "--set", "batch.global_batch_size=8")
    of_base = json.loads(
        command("recipes", "show", "deepseek_v3_sft_256gpu_h100_bf16_recipe", "--resolved", "--json").output
    )
    changes = {change["path"]: change for change in of_base["base_changes"]}

    said = "batch.tokens_per_step 524288 is replaced by batch.global_batch_size 8"
    assert (ran.code, ran.errors) == (0, f"{said}\n")
    assert f"overrides:\n  {said}\n" in ran.output
    assert (changes["model.mtp_num_layers"]["base"], changes["model.mtp_num_layers"]["value"]) == (1, None)
    assert changes["model.mtp_num_layers"]["because"]


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        (6, "  tokens_per_step: 64\n  global_batch_size: 8\n"),
        (7, "  micro_batch_size: 3\n  global_batch_size: 8\n"),
        (6, "  foo: 8\n"),
        (7, "  micro_batch_size: 1\n   global_batch_size: 8\n"),
        (8, "  global_batch_size: 8\nbridge_overrides:\n  train: {global_batch_size: 4}\n"),
    ],
)
def test_an_error_of_a_file_has_its_line(command: Command, line: int, rest: str) -> None:
    text = (
        "name: a\ndata: {train: a.jsonl}\ntokenizer: {name_or_path: t}\npacking: {packed_sequence_size: 16}\nbatch:\n"
    )
    Path("a.yaml").write_text(text + rest, encoding="utf-8")

    ran = command("recipes", "show", "a.yaml")
    problem = json.loads(command("check", "a.yaml", "--json").output)["error"]["problems"][0]

    assert ran.errors.startswith(f"error: a.yaml:{line}: ")
    assert (problem["file"], problem["line"]) == ("a.yaml", line)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "qwen3_8b_sft_4gpu_h100_bf61_recipe"], f"Did you mean {NAME}?"),
        (["show", NAME, "--artifact", "none"], "--artifact is 'none'"),
        (["show"], "Missing argument 'NAME'"),
        (["list", "--family", "qwen33"], "error: --family is 'qwen33'; allowed: "),
        (["shwo"], "No such command 'shwo'"),
    ],
    ids=str,
)
def test_mistakes(command: Command, arguments: list[str], message: str) -> None:
    ran = command("recipes", *arguments)

    assert (ran.code, ran.output) == (2, "")
    assert message in ran.errors


def test_new_writes_a_recipe_that_checks_clean(command: Command) -> None:
    ran = command(*NEW)
    early = command("check", "mine.yaml", "--strict")
    write_json_lines(Path("data/chats.jsonl"), [{"messages": []}])
    _import_weights()
    checked = command("check", "mine.yaml", "--strict")

    assert early.code == 1
    assert "error[BP225]: input-not-there\n  --> mine.yaml:7: data.train\n" in early.output
    unfitted = "the batch is not fitted to the data: data/chats.jsonl is not here yet\n"
    assert (ran.code, ran.errors) == (0, "")
    *printed, again = ran.output.splitlines(keepends=True)
    assert "".join(printed) == f"{unfitted}wrote mine.yaml\nnext: bridgepack check mine.yaml\n"
    assert again.removeprefix("the same again: ") == (
        "bridgepack new mine --model Qwen/Qwen3-8B --num-gpus 8 --seq-length 4096 --method full "
        "--tokenizer Qwen/Qwen3-8B\n"
    )
    assert (checked.code, checked.errors) == (0, "")
    assert Path("mine.yaml").read_text(encoding="utf-8").startswith(f"{YAML_HEADER}\n")
    assert load_recipe("mine.yaml").name == "mine"


def test_new_to_another_file(command: Command) -> None:
    write_json_lines(Path("rows.jsonl"), [{"messages": []}])
    ran = command(*NEW, "--output", "sub/other.yaml", "--data", "rows.jsonl", "--method", "lora")
    recipe = load_recipe("sub/other.yaml")

    assert ran.code == 0
    assert (recipe.name, recipe.data.train, recipe.method.kind) == ("mine", "rows.jsonl", "lora")


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["", "dry-run"])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("rowz.jsonl", "--data is 'rowz.jsonl'"),
        ("none/*.jsonl", "--data is 'none/*.jsonl'"),
        ("org/chats", "--data is 'org/chats'"),
        ("empty.jsonl", "--data is 'empty.jsonl'"),
    ],
)
def test_data_that_is_named_and_not_here_writes_nothing(
    command: Command, data: str, message: str, more: tuple[str, ...]
) -> None:
    write_json_lines(Path("rows.jsonl"), [{"messages": []}])
    Path("empty.jsonl").write_text("\n")
    ran = command(*NEW, "--data", data, *more)

    assert (ran.code, ran.output) == (2, "")
    assert message in ran.errors
    assert sorted(path.name for path in Path().iterdir()) == ["empty.jsonl", "rows.jsonl"]
    assert command(*NEW, "--data", "rows.jsonl", *more).code == 0


def test_data_of_another_machine_is_written_unseen(command: Command) -> None:
    ran = command(*NEW, "--data", "s3://bucket/rows.jsonl")

    assert (ran.code, ran.errors) == (0, "")
    assert mentions(ran.output.splitlines()[0], "not fitted to the ", " data.train is not on")
    assert load_recipe("mine.yaml").data.train == "s3://bucket/rows.jsonl"


def test_schema(command: Command) -> None:
    printed = command("recipes", "schema")
    written = command("recipes", "schema", "--output", "schema.json")

    assert json.loads(printed.output) == recipe_schema()
    assert json.loads(command("recipes", "schema", "--cluster").output) == cluster_schema()
    assert (written.code, written.output) == (0, "")
    assert json.loads(Path("schema.json").read_text(encoding="utf-8")) == recipe_schema()


def test_new_asks_in_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}")
    ours, theirs = os.openpty()
    child = subprocess.Popen(
        [*CLI, "new"], cwd=tmp_path, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    os.write(ours, b"Qwen/Qwen3-8B\nrows.jsonl\n\n\n\n")
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    unfitted = "the batch is not fitted to the data: the tokenizer Qwen/Qwen3-8B is not on this machine\n"
    told = output.lstrip(" ")  # click before 8.4 writes a space to standard output for each question
    assert told.startswith(f"{unfitted}wrote qwen3-8b-sft.yaml\nnext: bridgepack check qwen3-8b-sft.yaml\n")
    assert " again: bridgepack new qwen3-8b-sft --model Qwen/Qwen3-8B " in told.splitlines()[-1]
    assert "in the catalogue train" in errors
    assert "  found" in errors
    recipe = load_recipe(str(tmp_path / "qwen3-8b-sft.yaml"))
    assert "rows.jsonl" in recipe.data.train
    assert (tmp_path / "qwen3-8b-sft.yaml").read_text().startswith("# yaml-language-server: $schema=")


def test_a_dry_run_writes_nothing_and_names_no_weights_after_the_tokenizer(command: Command) -> None:
    arguments = ("--model", "Qwen/Qwen3-8B", "--num-gpus", 8, "--seq-length", 8192, "--tokenizer", "my/tokenizer")
    text = command("new", "mine", *arguments, "--dry-run").output
    assert SFTRecipe.from_mapping(YAML(typ="safe", pure=True).load(text)).name == "mine"
    assert list(Path().iterdir()) == []
    assert "pretrained: checkpoints/Qwen3-8B " in text
    assert "name_or_path: my/tokenizer" in text


def test_new_says_what_the_data_is_and_what_stays_unread(command: Command) -> None:
    row = {"instruction": "Name a lake.", "input": "", "output": "Uri", "note": "A lake in the Alps.", "id": 7}
    write_json_lines(Path("rows.jsonl"), [row] * 3)
    ran = command(*NEW, "--data", "rows.jsonl")
    dry = command(*NEW, "--data", "rows.jsonl", "--dry-run")
    _import_weights()
    checked = command("check", "mine.yaml", "--strict")

    said = (
        "layout: alpaca (an instruction, an input that may be empty, and the output)\n"
        "  instruction, input, output fit in 3 rows\n"
        "  unread: note (text) in 3 of 3 rows, e.g. 'A lake in the Alps.'\n"
        "  Name each in data.layout, where it is to be read, or in its ignore.\n"
    )
    assert (ran.code, ran.errors) == (0, "")
    fitted = "the batch is not fitted to the data: the tokenizer Qwen/Qwen3-8B is not on this machine\n"
    assert ran.output.startswith(f"{said}{fitted}wrote mine.yaml\nnext: bridgepack check mine.yaml\n")
    again = shlex.split(ran.output.splitlines()[-1].removeprefix("the same again: bridgepack "))
    assert again[-6:] == ["--data", "rows.jsonl", "--layout", "alpaca", "--tokenizer", "Qwen/Qwen3-8B"]
    assert command(*again, "--output", "again.yaml").code == 0
    assert Path("again.yaml").read_text() == Path("mine.yaml").read_text()
    assert (dry.code, dry.errors, dry.output) == (0, said + fitted, Path("mine.yaml").read_text(encoding="utf-8"))
    assert (checked.code, checked.errors) == (0, "")
    assert "    ignore: [id] # identifiers" in dry.output


def test_new_gives_each_file_its_layout(command: Command) -> None:
    chat = {"messages": [{"role": "user", "content": "Hi"}, {"role": "bot", "content": "Hello"}]}
    write_json_lines(Path("data/chats.jsonl"), [chat] * 3)
    for name in ("a", "b"):
        write_json_lines(Path(f"data/docs/{name}.jsonl"), [{"text": "It rained.", "url": "https://a.org"}] * 3)
    ran = command(*NEW, "--data", "data")
    recipe = load_recipe("mine.yaml")

    assert (ran.code, ran.errors) == (0, "")
    assert "layout of data/chats.jsonl: messages (" in ran.output
    assert re.search(r"layout of data/docs: text \(plain .*\)\n  text fit in 3 rows", ran.output)
    assert stated_values(recipe.data.train) == [
        {
            "path": "data/chats.jsonl",
            "layout": {"kind": "chat", "messages": [{"from_column": "messages"}]},
        },
        {"path": "data/docs", "layout": {"kind": "text", "ignore": ["url"]}},
    ]
    assert recipe.data.role_aliases == {}
    assert recipe.preprocessing.kind == "chat"
    assert [stated_values(one) for one in recipe.preprocessing.others] == [{"kind": "text", "over_long": "split"}]
    assert command("recipes", "show", "mine.yaml").code == 0


def test_new_names_validation_sets(command: Command) -> None:
    chat = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
    write_json_lines(Path("data/chats.jsonl"), [chat] * 3)
    write_json_lines(Path("held-out/chats.jsonl"), [chat])
    write_json_lines(Path("held-out/a=b.jsonl"), [{"question": "2 + 2?", "answer": "4"}])
    sets = ("--validation", "talk=held-out/chats.jsonl", "--validation", "web/sums=held-out/a=b.jsonl")
    ran = command(*NEW, "--data", "data/chats.jsonl", *sets)
    recipe = load_recipe("mine.yaml")

    assert (ran.code, ran.errors) == (0, "")
    assert stated_values(recipe.data.validation) == [
        {"path": "held-out/chats.jsonl", "name": "talk"},
        {
            "path": "held-out/a=b.jsonl",
            "name": "web/sums",
            "layout": {
                "kind": "chat",
                "messages": [{"role": "user", "content": "{question}"}, {"role": "assistant", "content": "{answer}"}],
            },
        },
    ]
    assert recipe.data.has_validation_sets
    assert recipe.data.validation_fraction == 0
    same_again = shlex.split(ran.output.splitlines()[-1].partition(": ")[2])
    assert tuple(same_again[-4:]) == sets
    text = Path("mine.yaml").read_text()
    assert command(*same_again[1:], "--output", "again.yaml").code == 0
    assert Path("again.yaml").read_text() == text
    assert "layout of held-out/a=b.jsonl: question_answer" in ran.output


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (("data/chats.jsonl",), "NAME=FILE"),
        (("a=data/chats.jsonl", "a=data/chats.jsonl"), "'a'"),
        (("a=data/none.jsonl",), "--validation a is 'data/none.jsonl'"),
    ],
)
def test_new_refuses_validation_sets(command: Command, sets: tuple[str, ...], message: str) -> None:
    write_json_lines(
        Path("data/chats.jsonl"),
        [{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}],
    )
    ran = command(*NEW, *(word for value in sets for word in ("--validation", value)))

    assert ran.code == 2
    assert message in ran.errors
    assert not Path("mine.yaml").exists()


def test_new_splits_documents(command: Command) -> None:
    write_json_lines(Path("rows.jsonl"), [{"text": "It rained all night."}])

    assert command(*NEW, "--data", "rows.jsonl").code == 0

    recipe = load_recipe("mine.yaml")
    assert stated_values(recipe.data.layout) == {"kind": "text"}
    assert (recipe.preprocessing.kind, recipe.preprocessing.over_long) == ("text", "split")


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        (
            {"text": "[INST] How deep? [/INST] 200 m"},
            (),
            "--data is 'rows.jsonl'",
        ),
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, (), "its rows look like"),
        (
            {"question": "a", "answer": "b", "response": "c"},
            (),
            "2 layouts fit its rows",
        ),
        ({"question": "a", "answer": "b"}, ("--layout", "question_anwser"), "Did you mean question_answer?"),
        (
            {"question": "a", "answer": "b"},
            ("--layout", "dolly"),
            "--data is 'rows.jsonl', which has question (text)",
        ),
    ],
)
def test_new_guesses_no_layout(command: Command, row: dict[str, Any], options: tuple[str, ...], message: str) -> None:
    write_json_lines(Path("rows.jsonl"), [row])
    ran = command(*NEW, "--data", "rows.jsonl", *options)

    assert (ran.code, ran.output) == (2, "")
    assert message in ran.errors
    assert not Path("mine.yaml").exists()
    without = command(*NEW, "--data", "rows.jsonl", "--layout", "none")
    assert (without.code, load_recipe("mine.yaml").data.layout) == (0, None), without.errors


def test_layouts_are_listed_with_their_columns(command: Command) -> None:
    text = command("recipes", "layouts")
    listed = {one["name"]: one for one in json.loads(command("recipes", "layouts", "--json").output)["layouts"]}

    assert (text.code, text.errors) == (0, "")
    lines = text.output.splitlines()
    assert any(line.startswith("alpaca: an instruction, ") for line in lines)
    assert any(line.startswith("preference (refused): ") for line in lines)
    assert listed["text"]["is_read"] is True
    assert listed["rendered_chat"]["is_read"] is False
    assert listed["answer_spans"]["columns"] == ["context or passage", "question", "answers or answer"]
    assert {"messages", "sharegpt", "instruction_context", "tools_in_system", "tokenized"} <= {*listed}
