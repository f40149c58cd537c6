"""An artifact packed anew from the store has the bytes of a build, without inputs and without a tokenizer."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.reading import lines as line_blocks
from bridgepack.data.repack import repack_artifact
from bridgepack.data.results import BuildOptions, BuildResult
from bridgepack.data.store.store import default_store
from bridgepack.data.store.upkeep import prune_store, verify_store
from bridgepack.errors import ArtifactError, ConfigError, StoreError
from tests.support.small_builds import Command, build, file_bytes, tokenized_recipe, tokenized_row, write_json_lines

ROWS = [tokenized_row(*([10 + index % 200] * (2 + index % 30))) for index in range(300)]


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> SFTRecipe:
    """Return a recipe with two files and validation rows, which has been built."""
    monkeypatch.setattr(line_blocks, "MIN_BLOCK_BYTES", 2000)
    for name, rows in (("a", ROWS), ("b", [*ROWS[:50], {}])):
        write_json_lines(tmp_path / f"{name}.jsonl", rows)
    shutil.copytree(chatml_tokenizer, tmp_path / "tokenizer")
    sources = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    recipe = tokenized_recipe(sources, tmp_path / "tokenizer", data__validation_fraction=0.2)
    build(recipe, tmp_path / "out")
    return recipe


def _repack(artifact: Path, output: Path | None = None, *, store: Path | None = None, **changes: Any) -> BuildResult:
    paths = {path.replace("__", "."): value for path, value in changes.items()}
    return repack_artifact(artifact, paths, output=output, options=BuildOptions(num_workers=0, store=store))


@pytest.mark.parametrize(
    "changes",
    [
        {"packing__packed_sequence_size": 64, "parallelism__context_parallel_size": 4},
        {"preprocessing__over_long": "truncate", "packing__max_sequence_length": 6, "name": "shorter"},
        {"data__validation_fraction": 0.0, "packing__algorithm": "first_fit_shuffle", "packing__seed": 99},
        {"packing__algorithm": "sequential", "preprocessing__over_long": "split", "packing__max_sequence_length": 5},
        {"data__deduplicate": "exact", "preprocessing__over_long": "split", "packing__max_sequence_length": 5},
        {},
    ],
)
def test_the_store_alone_gives_the_bytes_of_a_build(tmp_path: Path, recipe: SFTRecipe, changes: dict[str, Any]) -> None:
    changed = recipe.override({path.replace("__", "."): value for path, value in changes.items()})
    build(changed, tmp_path / "built")
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).unlink()
    shutil.rmtree(tmp_path / "tokenizer")

    result = _repack(tmp_path / "out", tmp_path / "repacked", **changes)

    assert file_bytes(tmp_path / "repacked") == file_bytes(tmp_path / "built")
    assert result.kept.num_ranges_tokenized == 0
    again = _repack(tmp_path / "repacked", tmp_path / "again", packing__packed_sequence_size=128)
    assert again.manifest.packed_sequence_size == 128


def test_default_folder_lies_beside_the_artifact(tmp_path: Path, recipe: SFTRecipe) -> None:
    result = _repack(tmp_path / "out", packing__packed_sequence_size=64)

    assert result.output == tmp_path / f"small-{result.manifest.fingerprint[:12]}"
    assert _repack(tmp_path / "out", packing__packed_sequence_size=64).was_built_before


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("data.train", "other.jsonl"),
        ("data.role_aliases", {"bard": "assistant"}),
        ("tokenizer.chat_template", "other.jinja"),
        ("data.layout", {"kind": "tokenized", "input_ids": "ids"}),
    ],
)
def test_change_that_makes_other_tokens_is_refused(tmp_path: Path, recipe: SFTRecipe, path: str, value: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        repack_artifact(tmp_path / "out", {path: value})

    assert str(raised.value).startswith(f"{path} would be changed, ")
    assert "repack can only change" in str(raised.value)
    assert "Use `bridgepack build`" in str(raised.value)


def test_tokens_that_are_broken_or_not_in_the_store_are_named(tmp_path: Path, recipe: SFTRecipe) -> None:
    path = sorted((tmp_path / ".bridgepack").rglob("*.tokens"))[0]
    path.write_bytes(path.read_bytes()[:-3])

    with pytest.raises(StoreError, match=rf"{re.escape(str(path))}.*truncated.*store verify --remove"):
        _repack(tmp_path / "out", packing__packed_sequence_size=64)
    path.unlink()
    missing = r"lacks the tokens of .*/[ab]\.jsonl from row .*Run `bridgepack build` with the changed recipe instead"
    with pytest.raises(StoreError, match=missing):
        _repack(tmp_path / "out", packing__packed_sequence_size=64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"file": 1}, "not match its checksum"),
        ({"first_row": 2}, "not match its checksum"),
        ({"file": 9}, "not match its checksum"),
        ({"first_row": -1, "sha256": None}, "Use `bridgepack build`"),
    ],
)
def test_record_that_was_changed_is_refused(
    tmp_path: Path, recipe: SFTRecipe, command: Command, changes: dict[str, Any], message: str
) -> None:
    record = next((tmp_path / ".bridgepack").rglob("builds/*.json"))
    content = json.loads(record.read_text())
    content["ranges"]["training"][0] = [
        content["ranges"]["training"][0][0],
        changes.get("file", 0),
        changes.get("first_row", 1),
    ]
    if "sha256" in changes:
        del content["sha256"]
    record.write_text(json.dumps(content))

    ran = command("repack", tmp_path / "out", "--set", "packing.packed_sequence_size=64")

    assert (ran.code, ran.output) == (2, "")
    assert f"error: {str(record)!r}, the store's" in ran.errors
    assert message in ran.errors
    listed = command("store", "verify", "--remove", "--store", record.parents[1])
    assert ("store verify --remove" in ran.errors) == (listed.code == 1), "what the message says is what verify does"
    build(recipe, tmp_path / "again")
    assert _repack(tmp_path / "out", packing__packed_sequence_size=64).kept.num_ranges_tokenized == 0


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"fingerprint": 1}', "[" * 100_000])
def test_record_without_sense_is_refused_and_removed(tmp_path: Path, recipe: SFTRecipe, content: str) -> None:
    store = default_store(tmp_path / "out")
    record = next(store.glob("builds/*.json"))
    record.write_text(content)

    with pytest.raises(StoreError, match=rf"{re.escape(str(record))}.*damaged"):
        _repack(tmp_path / "out", packing__packed_sequence_size=64)
    with pytest.raises(StoreError, match=r"tokens .*count as unused"):
        prune_store(store, is_unused=True)
    assert [Path(path) for path, _ in verify_store(store, removes=True).broken] == [record]
    assert verify_store(store).broken == ()
    with pytest.raises(StoreError, match=r"no record of .*artifact"):
        _repack(tmp_path / "out", packing__packed_sequence_size=64)


def test_store_that_knows_nothing_and_folder_that_is_no_artifact(tmp_path: Path, recipe: SFTRecipe) -> None:
    build(recipe, tmp_path / "other" / "out", store=tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "elsewhere" / "builds")

    with pytest.raises(StoreError, match=r"no record of .*artifact"):
        _repack(tmp_path / "out", store=tmp_path / "elsewhere", packing__seed=4)
    with pytest.raises(StoreError, match="does not exist"):
        _repack(tmp_path / "out", store=tmp_path / "none", packing__seed=4)
    with pytest.raises(ArtifactError, match="does not exist"):
        _repack(tmp_path / "none", packing__seed=4)
