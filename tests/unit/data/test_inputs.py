"""Which files a recipe's sources mean, what is said where they mean none, and how many packs they may give."""

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.data import DataSource
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.forecast import BYTES_PER_ID, BYTES_PER_TOKEN, FILL_FRACTION, forecast_packs
from bridgepack.data.reading.inputs import find_inputs, hash_file
from bridgepack.data.reading.ranges import iter_ranges
from bridgepack.data.reading.rows import read_range
from bridgepack.errors import DataError
from tests.support.catalogue import SMALL
from tests.support.messages import mentions
from tests.support.small_builds import write_json_lines

FORMS = ".jsonl, .json, .csv, .tsv (each also .gz or .zst), .parquet, .arrow"


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def local_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that `load_dataset` reads, with a cache of its own."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "local").mkdir()
    return tmp_path / "local"


def _labels(*sources: str, split: str = "training") -> list[str]:
    return [file.label for file in find_inputs(sources, "data.train", split, Path("scratch"))]


def _message(source: Any, split: str = "training") -> str:
    with pytest.raises(DataError) as raised:
        find_inputs((source,), "data.train", split, Path("scratch"))
    return str(raised.value)


def _touch(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("{}\n")


@pytest.mark.parametrize(
    ("name", "kind", "compression"),
    [
        *((name, "jsonl", None) for name in ("a.ndjson", "a.b.jsonl", "A.JSONL")),
        ("a.jsonl.gz", "jsonl", "gz"),
        *((name, "parquet", None) for name in ("a.idx.parquet", "a.pq")),
    ],
)
def test_kind_is_told_by_the_suffix(name: str, kind: str, compression: str | None) -> None:
    _touch(name)

    (file,) = find_inputs((name,), "data.train", "training", Path("scratch"))

    assert (file.kind, file.compression, file.label, file.num_bytes) == (kind, compression, name, 3)


FOLDER = ["folder/a.jsonl", "folder/a[1].jsonl", "folder/sub/deep/b.jsonl"]


@pytest.mark.parametrize(
    ("sources", "labels"),
    [
        (["many/*.jsonl", "folder", "link.jsonl"], ["many/10.jsonl", "many/2.jsonl", *FOLDER, "link.jsonl"]),
        (["folder/"], FOLDER),
        (["folder/**/b.jsonl"], ["folder/sub/deep/b.jsonl"]),
        (["folder/[a].jsonl"], ["folder/a.jsonl"]),
        (["folder/a[1].jsonl"], ["folder/a[1].jsonl"]),
        (["caf*.jsonl"], ["caf\\xe9.jsonl"]),
        *(([pattern], ["{home}/a.jsonl"]) for pattern in ("~/a.jsonl", "~/*.jsonl")),
    ],
)
def test_files_that_sources_mean(monkeypatch: pytest.MonkeyPatch, sources: list[str], labels: list[str]) -> None:
    """A folder's hidden files, and those of no known kind, are left out."""
    _touch("folder/a.jsonl", "folder/sub/deep/b.jsonl", "folder/a[1].jsonl", os.fsdecode(b"caf\xe9.jsonl"))
    _touch("folder/.b.jsonl", "folder/.hidden/c.jsonl", "folder/README.md", "folder/.git/x", "home/a.jsonl")
    _touch("many/2.jsonl", "many/10.jsonl")
    Path("link.jsonl").symlink_to("folder/a.jsonl")
    monkeypatch.setenv("HOME", str(Path("home").absolute()))

    assert _labels(*sources) == [label.replace("{home}", os.environ["HOME"]) for label in labels]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("elsewhere/0.pq", "Check the path"),
        ("training.jsnol", "Did you mean 'training.jsonl'?"),
        ("data/trian.jsonl", "Did you mean 'data/train.jsonl'?"),
        ("org/name", "Hugging Face hub write {dataset: org/name}."),
        ("none/*.jsonl", "data.train is 'none/*.jsonl'"),
        ("table.xlsx", f"unknown kind. Allowed: {FORMS}. Rename or convert it."),
        ("book.txt", f"Allowed: {FORMS}. Write each text"),
        ("*.xlsx", f"unknown kind. Allowed: {FORMS}."),
        ("rows.gz", "data.train: 'rows.gz' is of an unknown"),
        ("rows.parquet.gz", "data.train: 'rows.parquet.gz' is of an unknown"),
        ("noted", "data.train is 'noted'"),
        ("dangling.jsonl", "data.train: 'dangling.jsonl' is a broken link"),
        ("linked", "data.train: 'linked/dangling.jsonl' is a broken link"),
        ("dang*.jsonl", "data.train: 'dangling.jsonl' is a broken link"),
        ("~no-such-user-anywhere/a.jsonl", "it cannot be accessed"),
        ("a" * 5000, "File name too long. Check the path."),
        ("a\0b", "data.train is 'a\\x00b'"),
        ("training.jsonl/a", "such file or folder."),
        ("pipe.jsonl", "which is neither a"),
    ],
)
def test_source_that_means_no_file(source: str, message: str) -> None:
    _touch(
        "training.jsonl", "data/train.jsonl", "table.xlsx", "book.txt", "rows.gz", "rows.parquet.gz", "noted/README.md"
    )
    os.mkfifo("pipe.jsonl")
    Path("linked").mkdir()
    for name in ("dangling.jsonl", "linked/dangling.jsonl"):
        Path(name).symlink_to("nowhere")

    found = _message(source)

    assert message in found
    assert len(found) < 500


def test_saved_data_sets() -> None:
    from datasets import Dataset, DatasetDict

    rows = Dataset.from_list([{"a": value} for value in range(5)])
    rows.save_to_disk("single", num_shards=2)
    DatasetDict(train=rows, test=rows.select([0])).save_to_disk("several")

    assert _labels("single") == ["single/data-00000-of-00002.arrow", "single/data-00001-of-00002.arrow"]
    assert _labels("several") == ["several/train/data-00000-of-00001.arrow"]
    assert _labels("several", split="validation") == ["several/test/data-00000-of-00001.arrow"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("dataset_dict.json", "{", "is not what datasets.save_to_disk writes"),
        ("dataset_dict.json", "{}", "is not what datasets.save_to_disk writes ('splits'). Save it again."),
        ("dataset_dict.json", '{"splits": ["valid"]}', "DatasetDict with splits valid"),
        ("dataset_dict.json", '{"splits": []}', "DatasetDict with splits none"),
        ("state.json", "[]", "is not what datasets.save_to_disk writes"),
        ("state.json", '{"_data_files": [{"filename": "a.arrow"}]}', "'saved/a.arrow', which 'saved/state.json' lists"),
    ],
)
def test_saved_data_set_that_is_broken(name: str, content: str, message: str) -> None:
    Path("saved").mkdir()
    (Path("saved") / name).write_text(content)

    assert message in _message("saved")


def test_hub_data_set_becomes_parquet(tmp_path: Path, local_data_set: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = [{"messages": [{"role": "user", "content": str(index)}]} for index in range(3)]
    write_json_lines(local_data_set / "train.jsonl", rows)
    source = DataSource(dataset=str(local_data_set), split="train[1:]")

    (file,) = find_inputs((source,), "data.train", "training", tmp_path / "scratch")
    parts = iter_ranges(file, sha256=hash_file(file.path), max_row_bytes=1 << 20)
    found = [item for part in parts for item in read_range(file, part)]

    assert file.label == f"hf:{tmp_path}/local/train[1:]"
    assert file.path.is_relative_to(tmp_path / "scratch")
    assert found == [(1, rows[1]), (2, rows[2])]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("content", "split", "message"),
    [
        ('{"a": 1}\n', "nope", 'Unknown split "nope".'),
        ('{"a": 1}\n{"a\n', "train", "datasets.load_dataset cannot load it: JSON"),
    ],
)
def test_hub_data_set_that_cannot_be_loaded(local_data_set: Path, content: str, split: str, message: str) -> None:
    (local_data_set / "train.jsonl").write_text(content)

    found = _message(DataSource(dataset=str(local_data_set), split=split))

    assert found.startswith(f"data.train is {{dataset: {local_data_set}, split: {split}}}; ")
    assert message in found
    assert "Check dataset, name, split" in found


def test_hub_data_set_that_is_not_in_the_cache() -> None:
    message = _message(DataSource(dataset="nobody/nothing"))
    assert mentions(message, "nobody/nothing", "cannot load it: HF_HUB_OFFLINE is set")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_file_without_permission(tmp_path: Path) -> None:
    _touch("a.jsonl", "folder/a.jsonl")
    Path("a.jsonl").chmod(0)
    Path("folder").chmod(0)
    try:
        with pytest.raises(DataError, match=r"a.jsonl.*: Permission denied"):
            hash_file(Path("a.jsonl"))
        assert mentions(_message("folder/a.jsonl"), "folder/a.jsonl", ": Permission denied")
    finally:
        Path("folder").chmod(0o755)


SIZE = 1000


def _recipe(**data: Any) -> SFTRecipe:
    return SFTRecipe.from_mapping({**SMALL, "data": data, "packing": {"packed_sequence_size": SIZE}})


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Return a file with the bytes of ten full packs."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"x" * int(10 * SIZE * FILL_FRACTION * BYTES_PER_TOKEN))
    return path


@pytest.mark.parametrize(
    ("sources", "changes", "packs"),
    [
        (1, {}, {"training": 10}),
        (1, {"preprocessing.kind": "tokenized"}, {"training": -(-10 * 44 // round(BYTES_PER_ID * 10))}),
        (2, {"data.validation": "{rows}"}, {"training": 20, "validation": 10}),
        (1, {"data.validation_fraction": 0.5}, {"training": 5, "validation": 5}),
    ],
)
def test_bytes_become_packs(rows: Path, sources: int, changes: dict[str, Any], packs: dict[str, int]) -> None:
    values = {name: str(rows) if value == "{rows}" else value for name, value in changes.items()}

    forecast = forecast_packs(_recipe(train=[str(rows)] * sources).override(values))

    assert forecast.num_packs == packs
    assert changes or mentions(forecast.because, "forecast: 0.0 MB", "4.4 bytes per token", "filled to 98%")


def test_compressed_files_hold_more(rows: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(rows.read_bytes()) + b"\0" * 10_000)

    assert forecast_packs(_recipe(train=str(path))).num_packs["training"] >= 8


@pytest.mark.parametrize(
    ("data", "because"),
    [
        ({"train": "none.jsonl"}, "no forecast: data.train is 'none.jsonl'"),
        ({"train": {"dataset": "org/name"}}, "no forecast"),
    ],
)
def test_without_data_there_is_none(data: dict[str, Any], because: str) -> None:
    forecast = forecast_packs(_recipe(**data))

    assert forecast.num_packs == {}
    assert forecast.because.startswith(because)
