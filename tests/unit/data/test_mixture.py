"""Sources with columns, limits, epochs and weights: what is packed of each, and what every command says of it."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import iter_plan_columns
from bridgepack.data.repack import repack_artifact
from bridgepack.data.results import BuildOptions
from bridgepack.errors import ConfigError, DataError
from bridgepack.records import SplitRecord
from tests.support import small_builds as small

Sources = list[dict[str, Any]]


def _rows(path: Path, num_rows: int, length: int, first: int = 10) -> str:
    """Write rows of ids, each of `length` runtime tokens, and return the path."""
    rows = (small.tokenized_row(*range(first + row, first + row + length + 1)) for row in range(num_rows))
    return str(small.write_json_lines(path, rows))


def _split(recipe: SFTRecipe, output: Path, name: str = "training") -> SplitRecord:
    split = small.build(recipe, output).manifest.split(name)
    assert split is not None
    return split


def _uses(folder: Path, split: str = "training") -> Counter[tuple[int, int]]:
    """Return (file, row) -> how often its sequence is packed."""
    found: Counter[tuple[int, int]] = Counter()
    for files, rows in iter_plan_columns(Artifact(folder), split, ("file_index", "row")):
        found.update(zip(files.tolist(), rows.tolist(), strict=True))
    return found


@pytest.fixture
def two(tmp_path: Path) -> Sources:
    """Return two sources: 40 sequences of 4 tokens, and 10 of 6."""
    return [{"path": _rows(tmp_path / "a.jsonl", 40, 4)}, {"path": _rows(tmp_path / "b.jsonl", 10, 6, 70)}]


def test_a_data_set_of_questions_stands_beside_chats(tmp_path: Path, chatml_tokenizer: Path) -> None:
    chats = small.write_json_lines(
        tmp_path / "chats.jsonl", [small.chat_row("What is 2 + 2?", "4."), small.chat_row("Hello", "Yes.")]
    )
    sums = [{"question": "What is 3 + 4?", "answer": "7.", "messages": "of no use"}]
    questions = small.write_json_lines(tmp_path / "sums.jsonl", sums)
    alike = small.write_json_lines(tmp_path / "alike.jsonl", [small.chat_row("What is 3 + 4?", "7.")])
    texts = [{"role": "user", "content": "{question}"}, {"role": "assistant", "content": "{answer}"}]
    section = {"path": str(questions), "layout": {"kind": "chat", "messages": texts}}
    packing = {"packed_sequence_size": 64}
    turns = [{"role": "system", "content": "{rules}"}, {"from_column": "messages"}]
    without_tools = {"path": str(chats), "layout": {"kind": "chat", "messages": turns, "tools": "functions"}}
    mixed = small.build(
        small.small_recipe([without_tools, section], chatml_tokenizer, packing=packing), tmp_path / "mixed"
    )
    plain = small.build(
        small.small_recipe([str(chats), str(alike)], chatml_tokenizer, packing=packing), tmp_path / "plain"
    )
    assert small.data_bytes(mixed.output) == small.data_bytes(plain.output)
    assert mixed.manifest.fingerprint != plain.manifest.fingerprint


def test_the_same_file_seen_in_two_ways_has_tokens_of_each(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = [{"one": [5, 6, 7], "other": [8, 9, 10, 11], "labels": [-100, 6, 7]}]
    path = str(small.write_json_lines(tmp_path / "rows.jsonl", rows))
    sources = [{"path": path, "layout": {"kind": "tokenized", "input_ids": name}} for name in ("one", "other")]
    split = _split(small.tokenized_recipe(sources, chatml_tokenizer), tmp_path / "out")
    assert split.statistics.num_sequences == 1  # labels fit the first alone
    assert split.drop_examples[0].detail.startswith("labels[1] is 6; it must be input_ids[1], 9")


def test_rows_without_the_named_columns_are_drops_that_name_them(tmp_path: Path, chatml_tokenizer: Path) -> None:
    sources = [{"path": _rows(tmp_path / "a.jsonl", 2, 4), "layout": {"kind": "tokenized", "input_ids": "ids"}}]
    with pytest.raises(DataError, match=r"ids is missing; .*: input_ids, labels"):
        small.build(small.tokenized_recipe(sources, chatml_tokenizer), tmp_path / "out")


def test_max_rows_counts_rows_set_aside(tmp_path: Path, chatml_tokenizer: Path, two: Sources) -> None:
    sources = [{**two[0], "max_rows": 10, "weight": 1}, {**two[1], "weight": 1}]
    recipe = small.tokenized_recipe(sources, chatml_tokenizer, data__validation_fraction=0.3)
    result = small.build(recipe, tmp_path / "out")
    training, validation = result.manifest.splits
    assert training.sources[0].num_sequences <= 7
    assert validation.sources[0].num_sequences == 3
    assert validation.statistics.num_repeated == 0


def test_an_inner_mixture_has_its_own_shares(tmp_path: Path, chatml_tokenizer: Path, two: Sources) -> None:
    inner = [{**two[0], "name": "a", "weight": 1}, {**two[1], "name": "b", "weight": 3}]
    other = {"path": _rows(tmp_path / "c.jsonl", 100, 2, 30), "weight": 1}
    sources = [{"name": "math", "weight": 4, "sources": inner}, other]
    split = _split(small.tokenized_recipe(sources, chatml_tokenizer), tmp_path / "out")
    assert [source.name for source in split.sources[:2]] == [("math", "a"), ("math", "b")]
    assert [source.num_tokens for source in split.sources] == [20, 60, 20]
    assert [source.share_asked for source in split.sources] == pytest.approx([0.2, 0.6, 0.2])


def test_mixture_of_workers_and_of_the_store(tmp_path: Path, chatml_tokenizer: Path, two: Sources) -> None:
    plain = small.tokenized_recipe(two, chatml_tokenizer)
    sources = [{**two[0], "weight": 1}, {**two[1], "weight": 2}]
    recipe = small.tokenized_recipe(sources, chatml_tokenizer, data__mixture__total=300)
    one, other = (small.build(recipe, tmp_path / f"w{number}", num_workers=number) for number in (0, 2))
    assert small.data_bytes(one.output) == small.data_bytes(other.output)
    first = small.build(plain, tmp_path / "plain")
    changes = {"data.train": sources, "data.mixture.total": 300}
    again = repack_artifact(first.output, changes, output=tmp_path / "again", options=BuildOptions(num_workers=0))
    assert small.data_bytes(again.output) == small.data_bytes(one.output)


def test_every_command_takes_mixtures(
    tmp_path: Path, chatml_tokenizer: Path, two: Sources, command: small.Command
) -> None:
    sources = [{"name": "both", "epochs": 1.5, "sources": [two[0], {**two[1], "name": "b"}]}]
    out = small.build(small.tokenized_recipe(sources, chatml_tokenizer), tmp_path / "out").output
    tree = command("inspect", out).output.partition("sources ")[2].splitlines()[1:4]
    assert [line.split()[1:3] for line in tree] == [["50", "75"], ["40", "60"], ["10", "15"]]
    assert [line.index(line.strip()) for line in tree] == [4, 6, 6]
    assert command("check", out).code == 0
    assert command("prove", "sources", out).code == 0
    assert command("prove", "sources", out, "--all", "--num-workers", 1).code == 0
    assert command("diff", out, out).code == 0
    twice = next(row for (file, row), count in _uses(out).items() if file == 1 and count == 2)
    traced = command("trace", out, "--source", f"{two[1]['path']}:{twice}", "--json")
    assert len(json.loads(traced.output)["placements"]) == 2


def test_left_out_row_is_explained(
    tmp_path: Path, chatml_tokenizer: Path, two: Sources, command: small.Command
) -> None:
    recipe = small.tokenized_recipe([{**two[0], "max_rows": 39}], chatml_tokenizer)
    out = small.build(recipe, tmp_path / "out").output
    (left_out,) = set(range(1, 41)) - {row for _, row in _uses(out)}
    traced = command("trace", out, "--source", f"{two[0]['path']}:{left_out}")
    assert "not_sampled" in traced.output
    assert (out / "plan/dropped.jsonl").read_text() == ""
    assert "40 rows, 39 sequences (0 repeated), 156 tokens" in traced.output


@pytest.mark.parametrize(
    ("sources", "problem"),
    [
        ([{"path": "a", "weight": 1}, {"path": "b"}], "data.train.1 has neither weight nor"),
        ([{"path": "a", "weight": 1}, "b"], "data.train.1 has neither weight nor"),
        ([{"path": "a", "weight": 0}], "data.train.0.weight is 0; allowed: more than 0"),
        ([{"path": "a", "weight": 1, "epochs": 1}], "only one can be"),
        ([{"path": "a", "dataset": "b"}], "exactly one"),
        ([{"name": "a"}], "none of path"),
        ([{"sources": [{"path": "a", "weight": 1}, "b"]}], "sources.1 has no weight"),
        ([{"sources": ["a"], "layout": {"kind": "tokenized"}}], "layout is set"),
        ([{"path": "a", "max_rows": 0}], "data.train.0.max_rows is 0; allowed: at least 1"),
    ],
)
def test_what_cannot_be_is_refused(chatml_tokenizer: Path, sources: list[Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        small.tokenized_recipe(sources, chatml_tokenizer)


def test_sources_that_give_nothing_are_refused(tmp_path: Path, chatml_tokenizer: Path, two: Sources) -> None:
    few = [{**two[0], "weight": 1000}, {**two[1], "name": "few", "weight": 1}]
    with pytest.raises(DataError, match=r"the source 'few' \(weight 1.0\) gives no sequences"):
        small.build(small.tokenized_recipe(few, chatml_tokenizer), tmp_path / "out")
    bad = str(small.write_json_lines(tmp_path / "bad.jsonl", [{"text": "no ids"}]))
    sources = [
        {"name": "good", "weight": 1, "sources": two},
        {"name": "none", "weight": 1, "sources": [{"path": bad, "layout": {"kind": "tokenized"}}]},
    ]
    with pytest.raises(DataError, match=r"the source 'none' \(weight 1.0\) has no sequences: .* row 1: "):
        small.build(small.tokenized_recipe(sources, chatml_tokenizer), tmp_path / "out")
    limited = small.tokenized_recipe([{**two[0], "max_rows": 1}], chatml_tokenizer, data__validation_fraction=0.3)
    with pytest.raises(DataError, match=r"validation split .*no sequences left"):
        small.build(limited, tmp_path / "out")


def test_an_absurd_total_is_refused(tmp_path: Path, chatml_tokenizer: Path, two: Sources) -> None:
    recipe = small.tokenized_recipe([{**two[0], "weight": 1}], chatml_tokenizer, data__mixture__total=10**15)
    with pytest.raises(DataError, match=r"would have 250,000,000,000,000 sequences.*Lower data.mixture.total"):
        small.build(recipe, tmp_path / "out")
