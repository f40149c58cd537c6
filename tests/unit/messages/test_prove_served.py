"""What `prove served` prints, whole."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripts.quirks.served_rows import SETS

import bridgepack
from tests.support.small_builds import Command, small_recipe, write_json_lines, write_recipe
from tests.zoo.families import write_tokenizer
from tests.zoo.served import SERVED_FAMILIES

CURE = "set preprocessing.split_conversations to when_context_differs, or preprocessing.loss_mode to last_turn"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a recipe of four rows: three with thoughts, and one that is no conversation."""
    folder = tmp_path_factory.mktemp("served")
    family = next(family for family in SERVED_FAMILIES if family.name == "Qwen3")
    tokenizer = write_tokenizer(folder / "tokenizer", family)
    rows: list[Any] = [SETS["thoughts"], {"text": "nothing"}, SETS["thoughts"], SETS["thoughts"]]
    train = write_json_lines(folder / "rows.jsonl", rows)
    recipe = small_recipe(train, tokenizer, preprocessing={"kind": "chat"}, packing={"packed_sequence_size": 256})
    write_recipe(folder / "mine.yaml", recipe)
    return folder


def test_what_the_command_prints(folder: Path, command: Command) -> None:
    ran = command("prove", "served", folder / "mine.yaml", "--all", "--limit", 1)
    assert ran.code == 1
    assert (
        ran.output
        == f"""\
{folder / "mine.yaml"}: all 4 rows
  1 row dropped: missing_field 1

answer-differs: {folder / "rows.jsonl"} row 1, message 2 (training)
  the training text of the answer is not what the model writes when it is served, from token 30 on
  trained: '\\n<|im_start|>assistant\\nAnswer 1.<|im_end|>\\n<|im_start|>'
  served:  '\\n<|im_start|>assistant\\n<think>\\nThou'

... and 2 more answers (--limit shows more)

  equal            3 answers (50.0%), 114 trained tokens (79.2%): trained as the server shows it
  answer-differs   3 answers (50.0%), 30 trained tokens (20.8%): what is trained is not what the model must write

against answer-differs: {CURE}

3 of 6 answers are not trained as they are served
"""
    )
    printed = json.loads(command("prove", "served", folder / "mine.yaml", "--json").output)
    assert printed == bridgepack.prove.served(folder / "mine.yaml").to_dict()


def test_one_answer_is_one(folder: Path, tmp_path: Path, command: Command) -> None:
    train = write_json_lines(tmp_path / "one.jsonl", [{"messages": SETS["plain"]["messages"][:2]}])
    one = ("prove", "served", folder / "mine.yaml", "--set", f"data.train={train}")
    ran = command(*one)
    assert (ran.code, ran.output) == (
        0,
        f"""\
{folder / "mine.yaml"}: a sample of 1 row of 1, seed 0

  equal            1 answer (100.0%), 27 trained tokens (100.0%): trained as the server shows it

the only answer is trained as it is served
""",
    )
    ran = command(*one, "--set", "serving.system=Be kind.")
    assert ran.output.endswith("\n\n1 of 1 answer is not trained as it is served\n")
