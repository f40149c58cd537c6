"""The commands on stored tokens, with every option and every mistake that one can make with them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.support.messages import mentions
from tests.support.small_builds import Command, build, file_bytes, tokenized_recipe, tokenized_row, write_json_lines
from tests.support.traced_artifacts import change_manifest, restate

ROWS = [tokenized_row(*([10 + index] * (2 + index % 9))) for index in range(50)]


@pytest.fixture
def folder(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with an artifact `artifacts/out` and its store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BRIDGEPACK_STORE", raising=False)
    write_json_lines(tmp_path / "a.jsonl", ROWS)
    build(tokenized_recipe(tmp_path / "a.jsonl", chatml_tokenizer), tmp_path / "artifacts" / "out")
    return tmp_path


def test_repack(folder: Path, command: Command) -> None:
    size = "packing.packed_sequence_size=64"
    before = file_bytes(folder)
    code, output, _ = command("repack", "artifacts/out", "--set", size, "--dry-run")
    assert code == 0
    assert mentions(output.splitlines()[0], "would do: pack ", " artifacts/out again")
    assert json.loads(command("repack", "artifacts/out", "--set", size, "--dry-run", "--json")[1])["is_built"] is False
    assert file_bytes(folder) == before

    code, output, errors = command("repack", "artifacts/out", "--set", size, "--output", "artifacts/64")

    assert (code, errors) == (0, "")
    assert output.startswith("Built artifacts/64\n")
    assert "1 of 1 input ranges " in output
    code, output, _ = command("repack", "artifacts/out", "--set", size, "--output", "artifacts/64", "--json")
    assert json.loads(output)["was_built_before"] is True


def test_store_commands(folder: Path, command: Command) -> None:
    code, output, _ = command("store", "list")
    assert (code, "1 range, 50 sequences" in output, "(exists): 1 range" in output) == (0, True, True)
    assert json.loads(command("store", "list", "--json")[1])["tokenizations"][0]["num_sequences"] == 50
    code, output, _ = command("store", "verify", "--num-workers", "1")
    assert (code, "2 files verified, 0 broken" in output) == (0, True)
    code, output, _ = command("store", "prune", "--max-size", "0K", "--dry-run")
    assert (code, output.startswith("would remove 1 file")) == (0, True)
    assert len(list(folder.rglob("*.tokens"))) == 1
    code, output, _ = command("store", "prune", "--unused", "--older-than", "1d", "--json")
    assert (code, json.loads(output)["removed"]) == (0, [])


def test_broken_file_is_a_finding_until_it_is_removed(folder: Path, command: Command) -> None:
    (path,) = folder.rglob("*.tokens")
    path.write_bytes(path.read_bytes()[:-1])

    code, output, _ = command("store", "verify", "--num-workers", "1")
    assert (code, "it is truncated, " in output, path.exists()) == (1, True, True)
    code, output, _ = command("store", "verify", "--remove", "--num-workers", "1")
    assert (code, "They were removed" in output, path.exists()) == (1, True, False)
    assert command("store", "verify", "--num-workers", "1")[0] == 0


def test_folder_in_place_of_a_file_is_named_and_removed(folder: Path, command: Command) -> None:
    (tokens,), (record,) = (
        folder.rglob("*.tokens"),
        (folder / "artifacts" / ".bridgepack" / "tokens" / "builds").iterdir(),
    )
    for path in (tokens, record):
        path.unlink()
        (path / "mine").mkdir(parents=True)

    code, output, _ = command("store", "prune", "--max-size", "0K")
    assert (code, tokens.is_dir(), record.is_dir()) == (0, True, True)
    code, output, _ = command("store", "verify", "--num-workers", "1")
    assert (code, "2 files verified, 2 broken" in output, f"'{tokens}' cannot be used: " in output) == (
        1,
        True,
        True,
    )
    code, output, _ = command("store", "verify", "--remove", "--num-workers", "1")
    assert (code, "They were removed" in output, tokens.exists(), record.exists()) == (1, True, False, False)
    assert command("store", "verify", "--num-workers", "1")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("store", "prune"), "no selection given; use --unused, --older-than or --max-size."),
        (("store", "prune", "--older-than", "soon"), "'soon' is not a time"),
        (("store", "prune", "--older-than", "٣d"), "'٣d' is not a time"),
        (("store", "prune", "--older-than", "3\u017f"), "not a time span"),
        (("store", "prune", "--max-size", "much"), "--max-size is 'much'"),
        (("store", "list", "--store", "nowhere"), "'nowhere' does not exist. Name the folder with --store"),
        (("store", "list", "--store", "s3://b/x"), "'s3://b/x' is a URL"),
        (("repack", "gs://b/x"), "'gs://b/x' is a URL"),
        (("repack", "artifacts/out", "--memory", "1K"), "--memory is '1K'; allowed: at least 448M."),
        (("repack", "nowhere"), "'nowhere' does not exist."),
    ],
)
def test_mistakes(folder: Path, command: Command, arguments: tuple[str, ...], message: str) -> None:
    code, output, errors = command(*arguments)

    assert (code, output) == (2, "")
    assert errors.startswith("error: ")
    assert message in errors
    assert errors.count("\n") == 1


def test_store_named_by_the_environment(folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIDGEPACK_STORE", str(folder / "shared"))
    code, _, errors = command("store", "list")
    assert (code, "shared' does not exist" in errors) == (2, True)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> Path:
    folder = tmp_path_factory.mktemp("source")
    rows = [tokenized_row(10 + index, 5, 6, 7) for index in range(20)]
    return build(tokenized_recipe(write_json_lines(folder / "a.jsonl", rows), chatml_tokenizer), folder / "out").output


def test_readers_of_parquet_alone_refuse_an_artifact_of_npy(tmp_path: Path, artifact: Path, command: Command) -> None:
    export, name = shutil.copytree(artifact, tmp_path / "out"), "training/training_16.npy"
    (shard,) = (export / "training").iterdir()
    np.save(export / name, np.array(pq.read_table(shard).to_pylist(), dtype=object))
    shard.unlink()
    change_manifest(export, splits__0__shards__0__path=name)
    restate(export)
    assert command("check", export).code == 0
    for arguments in (
        ("inspect", export, "--pack", "0"),
        ("trace", export, "--pack", "0"),
        ("prove", "sources", export, "--all"),
        ("diff", artifact, export),
    ):
        ran = command(*arguments)
        assert (ran.code, ran.output) == (2, "")
        assert "holds .npy files, " in ran.errors.splitlines()[-1]
