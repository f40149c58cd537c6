"""Splits of folders and saved data: what is held out is validated on, and never trained on in silence."""

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict

from bridgepack.config.recipe.data import DataSource
from bridgepack.data.reading.inputs import find_inputs
from bridgepack.data.reading.splits import Splits, splits_of
from bridgepack.errors import DataError
from tests.support.messages import mentions
from tests.support.small_builds import chat_row, write_json_lines


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _touch(*names: str) -> None:
    for name in names:
        write_json_lines(Path("F") / name, [chat_row("Q", "A")])


def _labels(*sources: str, split: str = "training") -> list[str]:
    found = find_inputs(sources, f"data.{split}", split, Path("scratch"))
    return [file.label.removeprefix("F/") for file in found]


@pytest.mark.parametrize(
    ("files", "train", "validation", "name", "unused"),
    [
        ("train.jsonl validation.jsonl", ["F/train.jsonl"], ["F/validation.jsonl"], "validation", []),
        ("training.csv test.parquet README.md", ["F/training.csv"], ["F/test.parquet"], "test", []),
        (
            "train-00000-of-00002.parquet train-00001-of-00002.parquet test-00000-of-00001.parquet",
            ["F/train-0000*-of-00002.parquet"],
            ["F/test-00000-of-00001.parquet"],
            "test",
            [],
        ),
        ("train/a.jsonl train/b/c.jsonl test/a.jsonl", ["F/train"], ["F/test/a.jsonl"], "test", []),
        (
            "data/train-0.jsonl.gz data/train-1.jsonl.gz data/dev-0.jsonl.gz data/dev-1.jsonl.gz data/test.jsonl.gz",
            ["F/data/train-*.jsonl.gz"],
            ["F/data/dev-*.jsonl.gz"],
            "dev",
            ["test"],
        ),
        ("Train.jsonl Test.jsonl Valid.jsonl", ["F/Train.jsonl"], ["F/Valid.jsonl"], "valid", ["test"]),
        ("train_sft.jsonl eval_sft.jsonl", ["F/train_sft.jsonl"], ["F/eval_sft.jsonl"], "eval", []),
        ("gsm8k_train.jsonl gsm8k_test.jsonl", ["F/gsm8k_train.jsonl"], ["F/gsm8k_test.jsonl"], "test", []),
        ("chats.jsonl test.jsonl", ["F/chats.jsonl"], ["F/test.jsonl"], "test", []),
        ("chats.jsonl more.csv val1.jsonl", ["F/chats.jsonl", "F/more.csv"], ["F/val1.jsonl"], "val", []),
        ("train.jsonl more.jsonl test.jsonl", ["F/more.jsonl", "F/train.jsonl"], ["F/test.jsonl"], "test", []),
        ("train[1].jsonl train[2].jsonl test.jsonl", ["F/train[[]*].jsonl"], ["F/test.jsonl"], "test", []),
        ("train/test_cases.jsonl dev/cases.jsonl", ["F/train/test_cases.jsonl"], ["F/dev/cases.jsonl"], "dev", []),
        (
            "en/train.jsonl en/test.csv de/train.jsonl de/test.csv de/test.jsonl",
            ["F/**/train.jsonl"],
            ["F/**/test.*"],
            "test",
            [],
        ),
        ("en/train-1.csv de/train-2.jsonl a/test.csv", ["F/**/train-*"], ["F/a/test.csv"], "test", []),
        ("dev/train.jsonl dev/test.jsonl", ["F/dev/train.jsonl"], ["F/dev/test.jsonl"], "test", []),
    ],
)
def test_folder_with_splits(files: str, train: list[str], validation: list[str], name: str, unused: list[str]) -> None:
    names = files.split()
    _touch(*names)

    found = splits_of("F", "--data")

    assert found == Splits(train=tuple(train), validation=tuple(validation), name=name, unused=tuple(unused))
    read = [*_labels(*found.train), *_labels(*found.validation, split="validation")]
    others = {file for file in names if any(Path(file).name.lower().startswith(split) for split in unused)}
    assert sorted(read) == sorted({*names} - others - {"README.md"})
    for field, split in (("data.train", "training"), ("data.validation", "validation")):
        with pytest.raises(DataError) as raised:
            find_inputs(("F",), field, split, Path("scratch"))
        message = str(raised.value)
        assert message.startswith(f"{field} is 'F', ")
        assert "files of several splits (" in message
        assert f"data.validation to those of {name}" in message
        assert len(message) < 700


@pytest.mark.parametrize(
    "files",
    [
        "a.jsonl b/c.parquet",
        "train.jsonl more.jsonl",
        "test.jsonl testing.jsonl",
        "chats.jsonl dev-blog.jsonl test_generation.jsonl",
        "train-stations.jsonl testimonials.jsonl contest.jsonl",
        "shard-00000-of-00002.jsonl shard-00001-of-00002.jsonl",
    ],
)
def test_folder_without_splits_is_read_whole(files: str) -> None:
    _touch(*files.split())

    assert splits_of("F", "--data") is None
    assert sorted(_labels("F")) == sorted(files.split())


def test_patterns_and_lists_read_what_they_say() -> None:
    _touch("train.jsonl", "test.jsonl", "sub/train.jsonl")

    assert sorted(_labels("F/**/*.jsonl")) == ["sub/train.jsonl", "test.jsonl", "train.jsonl"]
    assert _labels("F/test.jsonl", "F/train.jsonl") == ["test.jsonl", "train.jsonl"]
    for data in ("F/train.jsonl", "F/*.jsonl", "none", "s3://bucket/F"):
        assert splits_of(data, "--data") is None


def test_many_files_are_named_in_part() -> None:
    _touch(*(f"train-{index}.jsonl" for index in range(9)), "test.jsonl")

    with pytest.raises(DataError, match=r"\(test: test\.jsonl; train: train-0\.jsonl, .* and 6 more\)"):
        _labels("F")


def _saved(*splits: str) -> None:
    rows = Dataset.from_list([chat_row("Q", "A")])
    DatasetDict(dict.fromkeys(splits, rows)).save_to_disk("F")


@pytest.mark.parametrize(
    ("splits", "train", "validation", "unused"),
    [
        ("train test", "train", "test", []),
        ("train test validation", "train", "validation", ["test"]),
        ("train dev test extra", "train", "dev", ["test", "extra"]),
        ("train_sft test_sft test_gen", "train_sft", "test_sft", ["test_gen"]),
    ],
)
def test_saved_splits(splits: str, train: str, validation: str, unused: list[str]) -> None:
    _saved(*splits.split())

    found = splits_of("F/", "--data")

    assert found == Splits(
        train=(f"F/{train}",), validation=(f"F/{validation}",), name=validation, unused=tuple(unused)
    )
    assert _labels(*found.train) == [f"{train}/data-00000-of-00001.arrow"]
    assert _labels(*found.validation) == [f"{validation}/data-00000-of-00001.arrow"]
    if train == "train":
        assert _labels("F") == _labels(*found.train)
        assert _labels("F", split="validation") == _labels(*found.validation)
    assert splits_of(f"F/{train}", "--data") is None


@pytest.mark.parametrize("splits", ["train_sft train_gen test", "test validation", "first second"])
def test_saved_data_without_one_training_split(splits: str) -> None:
    _saved(*splits.split())

    with pytest.raises(DataError) as raised:
        splits_of("F", "--data")

    named = ", ".join(splits.split())
    assert mentions(raised.value, "--data is 'F', ", f" DatasetDict with splits {named}; ", "allowed: one")


def test_several_splits_of_one_kind_are_used_together() -> None:
    _saved("train", "validation_matched", "validation_mismatched")

    found = splits_of("F", "--data")

    assert found is not None
    assert found.validation == ("F/validation_matched", "F/validation_mismatched")


def test_saved_data_set_has_no_splits() -> None:
    Dataset.from_list([chat_row("Q", "A")]).save_to_disk("F")
    source: Any = DataSource(path="F", split="train")

    assert splits_of("F", "--data") is None
    with pytest.raises(DataError, match=r"data.train.*only a saved DatasetDict"):
        find_inputs((source,), "data.train", "training", Path("scratch"))
