"""Packed files that other tools wrote: where they are, which split they are, and what names tell."""

import json
from pathlib import Path
from typing import Any

import pytest

from bridgepack.data.artifact.checking import ArtifactOnDisk
from bridgepack.data.artifact.discovery import find_shards
from bridgepack.errors import ArtifactError

BUILDER = "tok_pad_seq_to_mult8_sft_0f1e"


def _touched(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["b.parquet", "a.pq", "c.txt", ".d.parquet"], {"training": ("a.pq", "b.parquet")}),
        (
            ["validation_16.idx.parquet", "training_16.idx.parquet", "16_metadata.jsonl"],
            {"training": ("training_16.idx.parquet",), "validation": ("validation_16.idx.parquet",)},
        ),
        (
            ["train-00000-of-00001.parquet", "val_0.parquet", "valid_0.parquet", "test.parquet", "value.parquet"],
            {
                "training": ("train-00000-of-00001.parquet", "value.parquet"),
                "validation": ("val_0.parquet", "valid_0.parquet"),
                "test": ("test.parquet",),
            },
        ),
        (["training/x.idx.parquet", "stray.parquet"], {"training": ("training/x.idx.parquet",)}),
        (
            ["splits/train/shard_000000.parquet", "splits/valid/shard_000001.parquet", "runs/0f/shard_000000.parquet"],
            {"training": ("splits/train/shard_000000.parquet",), "validation": ("splits/valid/shard_000001.parquet",)},
        ),
        (
            ["training_16.npy", "training_16.idx.parquet", "validation_16.npy"],
            {"training": ("training_16.idx.parquet",), "validation": ("validation_16.npy",)},
        ),
        (["notes.txt", "deep/er/x.parquet"], {}),
    ],
)
def test_splits_of_a_folder(tmp_path: Path, names: list[str], splits: dict[str, Any]) -> None:
    found = find_shards(_touched(tmp_path, *names))

    assert (found.splits, list(found.splits)) == (splits, list(splits))
    assert (found.folder, found.is_whole) == (tmp_path, True)


def test_folder_of_a_split_and_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    _touched(tmp_path, "valid/a.parquet", "data")
    (tmp_path / "valid" / "b.parquet").symlink_to(tmp_path / "gone.parquet")
    (tmp_path / "valid" / "c.parquet").mkdir()

    assert find_shards(tmp_path / "valid").splits == {"validation": ("a.parquet", "b.parquet")}


@pytest.mark.parametrize(
    ("target", "folder", "splits"),
    [
        ("a/training_16.idx.parquet", "a", {"training": ("training_16.idx.parquet",)}),
        ("a/validation_16.npy", "a", {"validation": ("validation_16.npy",)}),
        ("valid/shard_0.parquet", "valid", {"validation": ("shard_0.parquet",)}),
        ("a/notes.txt", "a", {}),
        ("a/none.parquet", "a", {}),
        ("a/training_*.parquet", "a", {"training": ("training_16.idx.parquet", "training_32.idx.parquet")}),
        ("a/training_1?.*", "a", {"training": ("training_16.idx.parquet",)}),
        ("**/shard_?.parquet", ".", {"validation": ("valid/shard_0.parquet",)}),
        ("*/none*", ".", {}),
    ],
)
def test_single_files_and_patterns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, folder: str, splits: dict[str, Any]
) -> None:
    names = ("training_16.idx.parquet", "training_32.idx.parquet", "validation_16.npy", "notes.txt")
    _touched(tmp_path, *(f"a/{name}" for name in names), "valid/shard_0.parquet", "valid/deeper/shard_1.parquet")

    absolute = find_shards(tmp_path / target)
    monkeypatch.chdir(tmp_path)
    relative = find_shards(Path(target))

    assert (absolute.folder, absolute.splits) == (tmp_path / folder, splits)
    assert (relative.folder, relative.splits) == (Path(folder), splits)


@pytest.mark.parametrize(
    ("names", "hints"),
    [
        (
            [f"{BUILDER}/training_4096.npy", f"{BUILDER}/validation_4096.npy"],
            {"packed_sequence_size": 4096, "pad_seq_to_mult": 8},
        ),
        (["tok_pad_seq_to_multNone_sft_0f/training_64.idx.pq"], {"packed_sequence_size": 64, "pad_seq_to_mult": 1}),
        (["tok_pad_seq_to_mult16/training_64.npy"], {"packed_sequence_size": 64, "pad_seq_to_mult": 16}),
        ([f"{BUILDER}/training_64.idx.parquet", f"{BUILDER}/training_32.idx.parquet"], {"pad_seq_to_mult": 8}),
        (["packed/training_4096_v2.parquet"], {}),
        (["packed/shard-00000-of-00001.idx.parquet"], {}),
    ],
)
def test_name_hints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], hints: dict[str, int]) -> None:
    folder = (_touched(tmp_path, *names) / names[0]).parent

    assert find_shards(folder).name_hints() == hints
    assert ArtifactOnDisk(folder).name_hints == hints
    monkeypatch.chdir(folder)
    assert find_shards(Path()).name_hints() == hints


@pytest.mark.parametrize(
    ("target", "names", "metadata"),
    [
        (".", ["training_16.npy", "validation_16.npy", "16_metadata.jsonl"], "16_metadata.jsonl"),
        (".", ["training_16.npy", "32_metadata.jsonl"], None),
        (".", ["training_16.npy", "16_metadata.jsonl", "bridge_metadata.json"], "bridge_metadata.json"),
        (".", ["mine.parquet", "16_metadata.jsonl"], "16_metadata.jsonl"),
        (".", ["mine.parquet", "16_metadata.jsonl", "32_metadata.jsonl"], None),
        (".", ["mine.parquet", "old_metadata.jsonl"], None),
        ("training_16.npy", ["training_16.npy", "16_metadata.jsonl"], "16_metadata.jsonl"),
        ("training_16.npy", ["training_16.npy", "validation_16.npy", "16_metadata.jsonl"], None),
        ("training_*", ["training_16.npy", "validation_16.npy", "bridge_metadata.json"], None),
        ("*_16.npy", ["training_16.npy", "validation_16.npy", "16_metadata.jsonl"], "16_metadata.jsonl"),
    ],
)
def test_metadata_belongs_to_whole_folders(tmp_path: Path, target: str, names: list[str], metadata: str | None) -> None:
    _touched(tmp_path, *names)
    for name in names:
        if "metadata" in name:
            (tmp_path / name).write_text(json.dumps([{"name": name}]))

    facts = ArtifactOnDisk(tmp_path / target).metadata_facts()

    assert facts.exists == (metadata is not None)
    assert facts.path == (metadata or "bridge_metadata.json")
    assert facts.content == ([{"name": metadata}] if metadata else None)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("none*.parquet", r"'.*none\*.parquet' matches no .parquet, .pq or .npy file"),
        ("[ab].parquet", "does not exist"),
        ("empty", "has no manifest.json"),
    ],
)
def test_targets_that_hold_nothing(tmp_path: Path, target: str, message: str) -> None:
    _touched(tmp_path, "notes.txt", "a.parquet")
    (tmp_path / "empty").mkdir()

    with pytest.raises(ArtifactError, match=message):
        ArtifactOnDisk(tmp_path / target)
