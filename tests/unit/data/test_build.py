"""What lies in an artifact, checked by hand; when it is built again, and that its bytes are always the same."""

from pathlib import Path
from typing import Any

import pytest

from bridgepack.cli import building, main
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data import build as build_module
from bridgepack.data import output as staging
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.bridge_metadata import read_bridge_metadata
from bridgepack.data.artifact.checking import ArtifactOnDisk
from bridgepack.data.reading import lines as line_blocks
from bridgepack.data.stages import split as splits
from bridgepack.data.tasks import SilentProgress
from bridgepack.errors import ArtifactError, DataError
from tests.support import small_builds as small
from tests.support.judging import check_artifact
from tests.support.messages import mentions

WORKED_EXAMPLE = [
    {"input_ids": [11, 12, 13, 2], "loss_mask": [0, 0, 1, 1]},
    {"input_ids": [21, 22, 2], "loss_mask": [0, 1, 1]},
]
LABELS = [small.tokenized_row(11, 12, 13, 2, num_prompt=2), small.tokenized_row(21, 22, 2)]
MANY = [small.tokenized_row(*([10 + index % 200] * (2 + index % 9))) for index in range(300)]


def _rows(output: Path, split: str = "training") -> list[tuple[list[int], list[int], list[int]]]:
    rows = [batch.row(index) for batch in Artifact(output).iter_batches(split) for index in range(batch.num_rows)]
    return [(row.input_ids.tolist(), row.loss_mask.tolist(), row.seq_start_id.tolist()) for row in rows]


def _origins(output: Path, split: str) -> list[tuple[int, int]]:
    import pyarrow.parquet as pq

    table = pq.read_table(output / "plan" / f"{split}.parquet").to_pylist()
    return sorted((entry["file_index"], entry["row"]) for entry in table)


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path) -> SFTRecipe:
    """Return a recipe for many small rows, a few of them bad."""
    return small.tokenized_recipe(small.write_json_lines(tmp_path / "a.jsonl", [*MANY, {}, [], {}]), chatml_tokenizer)


@pytest.mark.parametrize("rows", [WORKED_EXAMPLE, LABELS])
def test_worked_example_of_the_design(tmp_path: Path, chatml_tokenizer: Path, rows: list[Any]) -> None:
    train = small.write_json_lines(tmp_path / "a.jsonl", rows)
    recipe = small.tokenized_recipe(train, chatml_tokenizer, packing__packed_sequence_size=6)

    result = small.build(recipe, tmp_path / "out")

    assert _rows(tmp_path / "out") == [([11, 12, 13, 2, 21, 22, 2], [0, 1, 1, 0, 1, 1, 0], [0, 4])]
    numbers = result.manifest.splits[0].statistics
    assert (numbers.num_tokens, numbers.num_trained_tokens, numbers.num_packs) == (5, 4, 1)
    assert (numbers.max_runtime_length, numbers.max_sequences_per_pack, numbers.min_pack_tokens) == (3, 2, 5)
    assert numbers.length_histogram == ((32, 2),)
    assert result.manifest.fill_fraction(result.manifest.splits[0]) == pytest.approx(5 / 6)
    (entry,) = read_bridge_metadata(tmp_path / "out" / "bridge_metadata.json")
    assert list(entry.values()) == [3, 2, 2.0, 83.33, 6, 5]


def test_files_of_an_artifact(tmp_path: Path, recipe: SFTRecipe) -> None:
    result = small.build(small.with_changes(recipe, {"data__validation_fraction": 0.2}), tmp_path / "out")

    assert sorted(small.file_bytes(tmp_path / "out")) == [
        "bridge_metadata.json",
        "manifest.json",
        "plan/dropped.jsonl",
        "plan/lost_content.jsonl",
        "plan/training-digests.parquet",
        "plan/training.parquet",
        "plan/validation-digests.parquet",
        "plan/validation.parquet",
        "training/shard-00000-of-00001.idx.parquet",
        "validation/shard-00000-of-00001.idx.parquet",
    ]
    small.assert_balanced(result.manifest)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".bridgepack", "a.jsonl", "out"]
    assert not check_artifact(ArtifactOnDisk(tmp_path / "out")).has_errors


def test_many_shards_hold_the_rows_of_one(tmp_path: Path, recipe: SFTRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    small.build(recipe, tmp_path / "one")
    monkeypatch.setattr(splits, "_SHARD_TOKENS", 100)
    shards = small.build(recipe, tmp_path / "many").manifest.splits[0].shards

    assert len(shards) == 18
    assert _rows(tmp_path / "many") == _rows(tmp_path / "one")
    assert [shard.path for shard in shards] == sorted(shard.path for shard in shards)
    assert not check_artifact(ArtifactOnDisk(tmp_path / "many")).has_errors


@pytest.mark.parametrize("fraction", [0.05, 0.5, 0.95])
def test_validation_fraction_parts_the_rows(tmp_path: Path, recipe: SFTRecipe, fraction: float) -> None:
    changed = small.with_changes(recipe, {"data__validation_fraction": fraction})

    training, validation = small.build(changed, tmp_path / "out").manifest.splits

    sets = [set(_origins(tmp_path / "out", split)) for split in ("training", "validation")]
    assert sets[0].isdisjoint(sets[1])
    assert sets[0] | sets[1] == {(0, row) for row in range(1, 301)}
    assert abs(len(sets[1]) / 300 - fraction) < 0.1
    assert training.statistics.num_rows_in + validation.statistics.num_rows_in == 303
    assert sum(training.drops.values()) + sum(validation.drops.values()) == 3
    small.build(
        small.with_changes(changed, {"packing__seed": 2, "packing__packed_sequence_size": 32}), tmp_path / "other"
    )
    assert set(_origins(tmp_path / "other", "validation")) != sets[1]


def test_validation_fraction_that_takes_nothing_or_everything(tmp_path: Path, recipe: SFTRecipe) -> None:
    small.write_json_lines(tmp_path / "a.jsonl", MANY[:1])

    for fraction, split, change in ((1e-9, "validation", "raise"), (1 - 1e-9, "training", "lower")):
        with pytest.raises(DataError, match=f"{split} split .*no rows.* {change} data.validation_fraction"):
            small.build(small.with_changes(recipe, {"data__validation_fraction": fraction}), tmp_path / "out")


def test_same_bytes_with_three_workers_and_any_ranges(
    tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats = [small.chat_row(f"Question {index}?", f"Answer {index}. " * (index % 5)) for index in range(200)]
    train = small.write_json_lines(tmp_path / "a.jsonl", chats)
    changes = {"preprocessing__kind": "chat", "packing__packed_sequence_size": 128, "data__validation_fraction": 0.2}
    recipe = small.tokenized_recipe(train, chatml_tokenizer, **changes)
    monkeypatch.setattr(build_module, "_BYTES_PER_WORKER", 1)
    monkeypatch.setattr(splits, "_SHARD_TOKENS", 2000)
    monkeypatch.setenv("PYTHONPATH", small.environment(tmp_path)["PYTHONPATH"])

    small.build(recipe, tmp_path / "one", num_workers=1)
    monkeypatch.setattr(line_blocks, "MIN_BLOCK_BYTES", 3000)
    small.build(recipe, tmp_path / "three", num_workers=3, store=tmp_path / "store")

    assert small.file_bytes(tmp_path / "one") == small.file_bytes(tmp_path / "three")
    assert len(list((tmp_path / "one" / "training").iterdir())) > 1
    assert list(small.leftovers(tmp_path)) == []


def test_second_build_touches_nothing(tmp_path: Path, recipe: SFTRecipe) -> None:
    first = small.build(recipe, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]}

    second = small.build(small.with_changes(recipe, {"name": "renamed"}), tmp_path / "out")

    assert (first.was_built_before, second.was_built_before) == (False, True)
    assert second.replaced_fingerprint is None
    assert {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]} == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda shard: shard.unlink(),
        lambda shard: shard.write_bytes(shard.read_bytes()[:-1]),
        lambda shard: shard.write_bytes(shard.read_bytes()[:-9] + b"another!" + shard.read_bytes()[-1:]),
        lambda shard: (shard.parents[1] / "bridge_metadata.json").unlink(),
        lambda shard: (shard.parents[1] / "plan" / "training.parquet").unlink(),
        lambda shard: (shard.parents[1] / "plan" / "dropped.jsonl").unlink(),
        lambda shard: (shard.parents[1] / "plan" / "lost_content.jsonl").unlink(),
    ],
)
def test_damaged_artifact_is_built_again(tmp_path: Path, recipe: SFTRecipe, damage: Any) -> None:
    first = small.build(recipe, tmp_path / "out")
    before = small.file_bytes(tmp_path / "out")
    damage(tmp_path / "out" / first.manifest.splits[0].shards[0].path)

    second = small.build(recipe, tmp_path / "out")

    assert not second.was_built_before
    assert second.replaced_fingerprint == first.manifest.fingerprint
    assert small.file_bytes(tmp_path / "out") == before


def test_failed_build_keeps_what_is_there(tmp_path: Path, recipe: SFTRecipe) -> None:
    small.build(recipe, tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    before = small.file_bytes(tmp_path / "out"), small.file_bytes(tmp_path / "mine")

    for seed in (7, recipe.packing.seed):  # with its own seed the fingerprint is that of what is there
        with pytest.raises(DataError, match=r"a.jsonl row 301: missing_field: .* set data.on_bad_row to drop.$"):
            small.build(
                small.with_changes(recipe, {"data__on_bad_row": "error", "packing__seed": seed}), tmp_path / "out"
            )
    with pytest.raises(ArtifactError, match=r"mine.* not an artifact"):
        small.build(recipe, tmp_path / "mine")

    assert (small.file_bytes(tmp_path / "out"), small.file_bytes(tmp_path / "mine")) == before
    assert list(small.leftovers(tmp_path)) == []


def test_default_folder_is_by_fingerprint(tmp_path: Path, recipe: SFTRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    result = build_module.build_artifact(recipe)

    assert result.output == Path("artifacts") / f"small-{result.manifest.fingerprint[:12]}"
    assert build_module.build_artifact(recipe).was_built_before


def test_lists_that_are_the_same_are_no_difference(tmp_path: Path, recipe: SFTRecipe) -> None:
    listed = small.with_changes(recipe, {"data__train": [str(tmp_path / "a.jsonl")]})
    small.build(listed, tmp_path / "out")

    with pytest.raises(ArtifactError, match=r"\(what differs: packing.seed 1234 -> 7\)"):
        build_module.build_artifact(small.with_changes(listed, {"packing__seed": 7}), output=tmp_path / "out")


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.write_text("{}\n" * 900)])
def test_input_that_changes_during_the_build(tmp_path: Path, recipe: SFTRecipe, change: Any) -> None:
    class Meddler(SilentProgress):
        def finish(self) -> None:
            if list((tmp_path / ".bridgepack").rglob("*.tokens")):
                change(tmp_path / "a.jsonl")

    with pytest.raises(DataError, match=r"a.jsonl changed during the build. Build again"):
        small.build(recipe, tmp_path / "out", progress=Meddler())

    assert not (tmp_path / "out").exists()
    assert list(small.leftovers(tmp_path)) == []


def _interrupting(function: Any) -> Any:
    """Return what does the same and is then ended by Ctrl-C."""

    def run(*arguments: Any, **named: Any) -> Any:
        function(*arguments, **named)
        raise KeyboardInterrupt

    return run


@pytest.mark.parametrize("moment", ["leaving", "told"])
def test_ctrl_c_behind_the_end_says_that_the_artifact_is_complete(
    tmp_path: Path, recipe: SFTRecipe, moment: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if moment == "leaving":
        monkeypatch.setattr(build_module.TemporaryDirectory, "__exit__", _interrupting(lambda *_: None))
    else:
        monkeypatch.setattr(building, "build_blocks", _interrupting(lambda *_: None))
    path = small.write_recipe(tmp_path / "recipe.yaml", recipe)

    with pytest.raises(SystemExit) as ended:
        main(["build", str(path), "--output", str(tmp_path / "out"), "--num-workers", "1"])

    assert ended.value.code == 130
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert mentions(said, "interrupted; ", "complete", repr(str(tmp_path / "out")))
    monkeypatch.undo()
    assert len(_rows(tmp_path / "out")) > 0


def test_early_ctrl_c_says_what_is_kept(tmp_path: Path, recipe: SFTRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    small.build(recipe, tmp_path / "out")
    monkeypatch.setattr(staging, "move_into_place", _interrupting(lambda *_: None))

    with pytest.raises(KeyboardInterrupt, match="same command resumes"):
        small.build(small.with_changes(recipe, {"packing__seed": 9}), tmp_path / "other")
    assert not (tmp_path / "other").exists()
