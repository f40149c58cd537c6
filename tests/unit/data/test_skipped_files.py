"""Files of a data folder that are not read: counted and named by build, inspect, dry run and preview."""

import json
from pathlib import Path

import pytest

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.reading.inputs import find_inputs
from bridgepack.data.reading.skipped import FilesBelow
from bridgepack.data.repack import repack_artifact
from bridgepack.records import SkippedFiles
from tests.support import small_builds as small
from tests.support.messages import mentions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with one data file, four files of other kinds, a linked folder and two hidden files."""
    data = tmp_path / "data"
    small.write_json_lines(data / "a.jsonl", [small.tokenized_row(5, 6, 7)])
    for name in ("notes.txt", "README.md", "deep/er/scan.pdf", "old.jsonl.bz2", ".hidden.jsonl", ".cache/x.lock"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text('{"input_ids": [1, 2]}\n')
    small.write_json_lines(tmp_path / "elsewhere" / "more.jsonl", [small.tokenized_row(8, 9)])
    (data / "linked").symlink_to(tmp_path / "elsewhere")
    return data


def test_files_of_other_kinds_are_counted_and_named(folder: Path) -> None:
    below = FilesBelow()
    sources = (str(folder), str(folder / "deep" / ".." / "*.jsonl"))
    files = find_inputs(sources, "data.train", "training", folder, below=below)
    assert [Path(file.path).name for file in files] == ["a.jsonl", "a.jsonl"]
    assert below.without([file.path for file in files]) == SkippedFiles(
        num_other=5, num_hidden=2, examples=("README.md", "deep/er/scan.pdf", "linked/")
    )


def test_a_file_that_another_source_names_is_read(folder: Path) -> None:
    below = FilesBelow()
    files = find_inputs((str(folder), str(folder / ".hidden.jsonl")), "data.train", "training", folder, below=below)
    skipped = below.without([file.path for file in files])
    assert skipped is not None
    assert (skipped.num_other, skipped.num_hidden) == (5, 1)


@pytest.mark.parametrize(
    ("skipped", "expected"),
    [
        (SkippedFiles(num_other=1, num_hidden=0, examples=("a.txt",)), ["1 file of other kinds", ": a.txt"]),
        (
            SkippedFiles(num_other=4, num_hidden=1, examples=("a.txt", "b.md", "c.gz")),
            ["4 files of other kinds", "1 hidden file", ": a.txt, b.md, c.gz, ..."],
        ),
        (SkippedFiles(num_other=0, num_hidden=2, examples=(".a", ".b")), ["2 hidden files", ": .a, .b"]),
    ],
)
def test_words(skipped: SkippedFiles, expected: list[str]) -> None:
    assert mentions(skipped.describe(), *expected)


def test_commands_say_what_is_not_read(
    folder: Path, chatml_tokenizer: Path, tmp_path: Path, command: small.Command
) -> None:
    recipe = small.write_recipe(tmp_path / "r.yaml", small.tokenized_recipe(folder, chatml_tokenizer))
    said = "5 files of other kinds and 2 hidden files were not read: README.md, deep/er/scan.pdf, linked/, ..."
    output = tmp_path / "out"

    assert said in command("build", recipe, "--output", output, "--dry-run").output
    assert said in command("preview", recipe).output
    assert said in command("build", recipe, "--output", output, "--num-workers", 1).output
    assert said in command("inspect", output).output
    checked = json.loads(command("check", output, "--select", "BP329", "--json").output)
    assert [(one["code"], one["severity"], one["found"]) for one in checked["findings"]] == [("BP329", "advice", said)]
    repack_artifact(output, {"packing.seed": 7}, output=tmp_path / "again")
    assert Artifact(tmp_path / "again").manifest.split("training") == Artifact(output).manifest.split("training")


def test_manifest_without_such_files_has_no_field_for_them(tmp_path: Path, chatml_tokenizer: Path) -> None:
    data = tmp_path / "data"
    small.write_json_lines(data / "a.jsonl", [small.tokenized_row(5, 6, 7)])
    small.build(small.tokenized_recipe(data, chatml_tokenizer), tmp_path / "out")

    (split,) = json.loads((tmp_path / "out" / "manifest.json").read_text())["splits"]
    assert "skipped_files" not in split
    assert split["unread"] == []
    (record,) = Artifact(tmp_path / "out").manifest.splits
    assert record.skipped_files is None
