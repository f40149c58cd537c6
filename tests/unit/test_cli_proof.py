"""`bridgepack trace`, `prove sources`, `diff` and `prove masks`: what they print, their exit codes, and mistakes."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support.messages import mentions
from tests.support.small_builds import Command, chat_row, tokenized_recipe, with_changes, write_json_lines, write_recipe
from tests.support.traced_artifacts import build_traced, change_shard, restate
from tests.zoo.tokenizers import TRAINS_USER_TURNS

RECIPE = """\
name: wide
data: {train: rows.jsonl}
tokenizer: {name_or_path: any}
packing: {packed_sequence_size: 16}
parallelism: {num_gpus: 2}
batch: {global_batch_size: 2}
"""
CONFIG = """\
_target_: megatron.bridge.training.config.ConfigContainer
train:
  _target_: megatron.bridge.training.config.TrainingConfig
  train_iters: 3
  micro_batch_size: 1
  global_batch_size: 2
model: {_target_: megatron.bridge.models.gpt_provider.GPTModelProvider, tensor_model_parallel_size: 2}
dataset: {_target_: megatron.bridge.data.builders.gpt_sft.GPTSFTDatasetConfig, dataloader_type: batch, seed: 1234}
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> Path:
    return build_traced(tmp_path_factory.mktemp("traced"), chatml_tokenizer)


def test_trace_of_a_step(artifact: Path, command: Command) -> None:
    ran = command("trace", artifact, "--step", 2, "--rank", 1)
    assert ran.code == 0
    lines = ran.output.splitlines()
    assert lines[0] == "training step 2 of 3, epoch 2, 4 data-parallel ranks on 4 GPUs"
    assert lines[2:4] == ["rank 1: 1 pack, 12 trained tokens", "data-parallel rank 1 (rank 1)"]
    assert lines[4].split()[:5] == ["micro", "batch", "0", "pack", lines[4].split()[4]]
    assert "rows.jsonl row " in lines[5]
    assert lines[5].endswith(", 6 tokens, 6 trained")


def test_trace_of_a_pack_and_of_a_source_row(artifact: Path, command: Command) -> None:
    pack, dropped, blank = (
        command("trace", artifact, *words)
        for words in (("--pack", 3, "--context", 2), ("--source", "rows.jsonl:5"), ("--source", "rows.jsonl:9"))
    )
    assert pack.code == dropped.code == blank.code == 0
    place = "index 3 in training/shard-00000-of-00001.idx.parquet"
    assert pack.output.startswith(f"training pack 3 of {artifact} ({place})\nread ")
    assert "context rank 1: 8 tokens, " in pack.output
    assert "⟦" in pack.output
    assert "dropped from training: over_long: 39 runtime tokens; at most 16" in dropped.output
    assert mentions(blank.output, "not in the artifact: ", "a blank line, ")


def test_trace_of_a_recipe_and_of_a_config(artifact: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "wide.yaml").write_text(RECIPE)
    ran = command("trace", artifact, "--recipe", tmp_path / "wide.yaml", "--step", 3)
    assert ran.code == 0
    assert ran.output.startswith("training step 3 of 3, epoch 1, 2 data-parallel ranks on 2 GPUs")

    (tmp_path / "run.yaml").write_text(CONFIG)
    ran = command("trace", artifact, "--recipe", tmp_path / "run.yaml", "--world-size", 4, "--step", 3)
    assert ran.code == 0
    assert "2 data-parallel ranks on 4 GPUs" in ran.output


def test_verify_says_what_differs_and_why(artifact: Path, tmp_path: Path, command: Command) -> None:
    code, printed, _ = command("prove", "sources", artifact)
    assert code == 0
    assert printed.startswith(f"{artifact}: ")
    assert mentions(printed.splitlines()[0], "sample of packs, seed 0, ", "the sources")
    assert printed.splitlines()[-1].startswith("verified: 6 of 6 packs ")

    shutil.copytree(artifact, tmp_path / "copy")
    change_shard(tmp_path / "copy", 4, "input_ids", 8, 17)
    code, printed, _ = command("prove", "sources", tmp_path / "copy", "--num-packs", 1, "--seed", 3)
    assert code == 1
    place = "(index 4 in training/shard-00000-of-00001.idx.parquet)"
    assert f"first difference: training pack 4 {place}, sequence 1" in printed
    assert "  column   input_ids, token 1 of the sequence\n  artifact 17\n  sources  5\n" in printed
    assert "  cause    artifact changed: training/shard-00000-of-00001.idx.parquet was changed" in printed

    ran = command("prove", "sources", tmp_path / "copy", "--all", "--json", "--num-workers", 1)
    assert ran.code == 1
    found = json.loads(ran.output)
    assert (found["outcome"], found["mode"], found["num_packs_different"]) == ("differs", "all", 1)


def test_verify_without_sources_says_so(tmp_path: Path, chatml_tokenizer: Path, command: Command) -> None:
    artifact = build_traced(tmp_path, chatml_tokenizer)
    (tmp_path / "rows.jsonl").unlink()
    code, printed, _ = command("prove", "sources", artifact)
    assert code == 2
    assert mentions(printed, f"data.train is '{tmp_path / 'rows.jsonl'}'; ", "no such file")
    assert re.match(r"not verified: 0 of 6 packs .* is the same$", printed.splitlines()[-1])


def test_diff(artifact: Path, tmp_path: Path, command: Command) -> None:
    shutil.copytree(artifact, tmp_path / "copy")
    same = command("diff", artifact, tmp_path / "copy")
    assert (same.code, same.output.endswith("\nthe same packs\n")) == (0, True)

    change_shard(tmp_path / "copy", 4, "loss_mask", 0, 0)
    restate(tmp_path / "copy")
    shown, told = (command("diff", artifact, tmp_path / "copy", *more) for more in ((), ("--json", "--limit", 0)))
    assert (shown.code, told.code) == (1, 1)
    assert "    tokens 1-1 no longer trained: " in shown.output
    assert shown.output.endswith("\ndifferent packs\n")
    found = json.loads(told.output)
    (split,) = found["splits"]
    assert (found["is_same"], split["num_masks_moved"], split["differences"]) == (False, 1, [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("trace",), "one of --step N, --pack N and --source FILE:ROW is needed."),
        (("trace", "--source", "a:1", "--step", "1"), "--source and --step contradict each other"),
        (("trace", "--source", "a:1", "--split", "training"), "--split needs --step or --pack"),
        (("trace", "--source", "a:1", "--pack", "1"), "--source and --pack contradict each other"),
        (("trace", "--rank", "1", "--pack", "1"), "--rank needs --step"),
        (("trace", "--step", "0"), "'0' is not a whole"),
        (("trace", "--step", "1_0"), "'1_0' is not a whole"),
        (("trace", "--step", "1", "--world-size", "3"), "batch.global_batch_size is 4; allowed: multiples of"),
        (
            ("trace", "--step", "1", "--set", "batch.global_batch_size=64"),
            "batch.global_batch_size is 64; allowed: ",
        ),
        (
            ("trace", "--step", "1", "--set", "bridge_overrides.dataset.seed=-1"),
            "bridge_overrides.dataset.seed is -1; allowed: 0 to 4294967295",
        ),
        (("trace", "--step", "1", "--bridge-version", "new"), "new"),
        (("trace", "--step", "1", "--set", "batch.size=3"), "batch.size"),
        (("trace", "--step", "1", "--recipe", "no-such.yaml"), "no-such.yaml"),
        (("trace", "--recipe", "{artifact}", "--step", "3"), "allowed: a recipe"),
        (("prove sources", "--all", "--num-packs", "3"), "--all and --num-packs contradict each other"),
        (("prove sources", "--all", "--seed", "3"), "--all and --seed contradict each other"),
        (("prove sources", "--scratch", "x"), "--scratch needs --all"),
        (("prove sources", "--num-workers", "2"), "--num-workers needs --all"),
        (("prove sources", "--num-packs", "0"), "'0' is not a whole"),
        (("diff", "."), "has no manifest.json"),
    ],
)
def test_mistakes(artifact: Path, command: Command, arguments: tuple[str, ...], message: str) -> None:
    name, *rest = (word.format(artifact=artifact) for word in arguments)
    ran = command(*name.split(), artifact, *rest)

    assert (ran.code, ran.output) == (2, "")
    assert message in ran.errors


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path) -> Path:
    train = write_json_lines(
        tmp_path / "chats.jsonl", [chat_row("Who\x1b asks?", f"User {index}.") for index in range(4)]
    )
    chat = with_changes(tokenized_recipe(train, chatml_tokenizer), {"preprocessing": {"kind": "chat"}})
    return write_recipe(tmp_path / "chats.yaml", chat)


def test_masks_that_agree(recipe: Path, command: Command) -> None:
    ran = command("prove", "masks", recipe)
    assert ran.code == 0

    assert ran.output.splitlines() == [
        f"{recipe}: a sample of " + "rows, seed 0, 4 of 4",
        "  4 sequences: 4 judged by 2 derivations",
        "  incremental rendering  judged 4",
        "  boundary markers       judged 4",
        "",
        "masks agree: 4 of 4 sequences",
    ]


def test_masks_that_disagree(recipe: Path, command: Command) -> None:
    (recipe.parent / "wrong.jinja").write_text(TRAINS_USER_TURNS)
    wrong = f"tokenizer.chat_template={recipe.parent / 'wrong.jinja'}"
    ran = command("prove", "masks", recipe, "--all", "--limit", 2, "--set", wrong)
    assert ran.code == 1
    lines = ran.output.splitlines()
    assert lines[0].endswith(": every row, 4 of 4")
    heading = lines.index(f"other-turn-trained: {recipe.parent / 'chats.jsonl'} row 1, message 1 (training)")
    assert "disagreeing: incremental rendering, boundary" in lines[heading + 1]
    assert "⟦Who\N{REPLACEMENT CHARACTER} asks?<|im_end|>⟧" in lines[heading + 2]
    assert "⟦" not in lines[heading + 3].partition("assistant\\n")[0]
    assert "... and 2 more findings (--limit shows more)" in lines
    assert lines[-3].split() == ["other-turn-trained", "4", "sequences"]
    assert lines[-1] == "masks disagree: 4 of 4 sequences with findings"

    report = json.loads(command("prove", "masks", recipe, "--num-rows", 1, "--json", "--set", wrong).output)
    assert (report["outcome"], report["num_rows_read"]) == ("disagree", 1)
    assert report["findings"][0]["finding"]["derivations"] == ["incremental rendering", "boundary markers"]
    assert report["derivations"][0]["name"] == "generation blocks"


def test_nothing_to_judge(recipe: Path, command: Command) -> None:
    write_json_lines(recipe.parent / "chats.jsonl", [{"messages": []}])
    code, output, _ = command("prove", "masks", recipe)
    assert code == 2
    assert "rows dropped: empty_conversation 1" in output
    assert output.endswith("not compared: none of 0 sequences could be judged\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.yaml",), "recipe is 'nowhere.yaml'"),
        (("",), "recipe is ''; allowed: FILE.yaml"),
        ((".",), "has no manifest.json"),
        (("RECIPE", "--all", "--num-rows", "3"), "--all and --num-rows contradict each other"),
        (("RECIPE", "--all", "--seed", "3"), "--all and --seed contradict each other"),
        (("RECIPE", "--num-rows", "0"), "'0' is not a whole"),
        (("RECIPE", "--split", "validation"), "data.validation has no files"),
        (("RECIPE", "--set", "data.train=gone.jsonl"), "data.train is 'gone.jsonl'"),
    ],
)
def test_mistakes_of_masks(
    arguments: tuple[str, ...], message: str, recipe: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recipe.parent)
    ran = command("prove", "masks", *(recipe if argument == "RECIPE" else argument for argument in arguments))

    assert (ran.code, ran.output) == (2, "")
    assert ran.errors.startswith("error: ")
    assert message in ran.errors
