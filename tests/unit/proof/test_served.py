"""Comparisons of whole data with what is served: counts, shares, the first findings, and what the command prints."""

from pathlib import Path
from typing import Any

import pytest
from scripts.quirks.served_rows import SETS

import bridgepack
from bridgepack.errors import ConfigError
from tests.support.messages import mentions
from tests.support.small_builds import Command, build, small_recipe, write_json_lines, write_recipe
from tests.zoo.families import write_tokenizer
from tests.zoo.served import SERVED_FAMILIES

QWEN_3 = next(family for family in SERVED_FAMILIES if family.name == "Qwen3")
#: Tokens of `Answer 1.` with its end, and those of the thought before it; two line ends are one token.
SHORT, THOUGHT = 10, 28
CURE = "set preprocessing.split_conversations to when_context_differs, or preprocessing.loss_mode to last_turn"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a recipe and its artifact: three rows of thoughts, and one that is no conversation."""
    folder = tmp_path_factory.mktemp("served")
    tokenizer = write_tokenizer(folder / "tokenizer", QWEN_3)
    rows: list[Any] = [SETS["thoughts"], {"text": "nothing"}, SETS["thoughts"], SETS["thoughts"]]
    train = write_json_lines(folder / "rows.jsonl", rows)
    recipe = small_recipe(train, tokenizer, preprocessing={"kind": "chat"}, packing={"packed_sequence_size": 256})
    write_recipe(folder / "mine.yaml", recipe)
    build(recipe, folder / "packed")
    return folder


@pytest.mark.parametrize("name", ["mine.yaml", "packed"])
def test_shares_of_answers_and_tokens(folder: Path, name: str) -> None:
    report = bridgepack.prove.served(folder / name, num_rows=None, limit=2)

    counts = [(count.kind, count.num_answers, count.num_trained_tokens) for count in report.record.counts]
    assert counts == [("equal", 3, 3 * (SHORT + THOUGHT)), ("answer-differs", 3, 3 * SHORT)]
    assert report.record.share("equal") == 0.5
    assert report.outcome == "differs"
    assert report.drops == {"missing_field": 1}
    assert report.cures == {"answer-differs": CURE}
    assert [(finding.row, finding.turn) for finding in report.findings] == [(1, 2), (3, 2)]
    assert (report.num_rows, report.num_rows_read) == (4, 4)


def test_a_sample_and_another_system_prompt(folder: Path) -> None:
    report = bridgepack.prove.served(folder / "packed", num_rows=2, overrides={"serving.system": "Be kind."})
    assert (report.mode, report.seed, report.num_rows, report.num_rows_read) == ("sample", 0, 4, 2)
    assert {count.kind for count in report.record.counts} == {"context-differs"}
    assert mentions(report.cures["context-differs"], "in serving", "train with the same")
    with pytest.raises(ConfigError, match=r"packing\.seed.* location of its sources"):
        bridgepack.prove.served(folder / "packed", overrides={"packing.seed": 3})


def test_a_recipe_without_a_difference(folder: Path, command: Command) -> None:
    ran = command("prove", "served", folder / "mine.yaml", "--set", "preprocessing.loss_mode=last_turn")
    assert ran.code == 0
    assert ran.output.splitlines()[-1].startswith("all 3 answers are trained ")


def test_rows_without_conversations(folder: Path, command: Command) -> None:
    ran = command("prove", "served", folder / "mine.yaml", "--set", "preprocessing={kind: prompt_completion}")
    assert ran.code == 2
    assert "preprocessing.kind is prompt_completion" in ran.errors
