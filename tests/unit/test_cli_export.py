"""`bridgepack export`: what it says, its exit codes, and that a dry run writes nothing."""

import json
from pathlib import Path

import pytest

from tests.support.small_builds import Command, build, tokenized_recipe, tokenized_row, write_json_lines


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> Path:
    folder = tmp_path_factory.mktemp("source")
    rows = [tokenized_row(10 + index, 5, 6, 7) for index in range(20)]
    return build(tokenized_recipe(write_json_lines(folder / "a.jsonl", rows), chatml_tokenizer), folder / "out").output


def test_export_says_what_it_wrote(tmp_path: Path, artifact: Path, command: Command) -> None:
    ran = command("export", artifact, "--bridge-version", "0.3.1", "--output", tmp_path / "out")
    assert ran.code == 0
    output = ran.output
    assert output.startswith(f"Exported {artifact} to {tmp_path / 'out'}\n")
    assert "megatron-bridge 0.3.1: one .npy file for each split" in output
    assert "packs in 1 file" in output
    assert (tmp_path / "out" / "training" / "training_16.npy").is_file()
    ran = command("check", tmp_path / "out")
    assert ran.code == 0


def test_dry_run_writes_nothing_and_json_tells(tmp_path: Path, artifact: Path, command: Command) -> None:
    ran = command("export", artifact, "--bridge-version", "0.3.1", "--output", tmp_path / "out", "--dry-run")
    assert (ran.code, ran.output.startswith("Would export ")) == (0, True)
    assert list(tmp_path.iterdir()) == []

    ran = command("export", artifact, "--bridge-version", "0.5.1", "--output", tmp_path / "out", "--json")
    summary = json.loads(ran.output)
    assert (ran.code, summary["pack_format"], summary["is_written"]) == (0, "parquet", True)
    assert summary["manifest"]["fingerprint"] == summary["source_fingerprint"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bridge-version", "0.2.0", "--output", "out"], "--bridge-version is 0.2.0; allowed: 0.3 and newer"),
        (["--bridge-version", "0.3.1"], "Missing option '--output'"),
        (["--output", "out"], "Missing option '--bridge-version'"),
    ],
)
def test_mistakes_are_one_message(artifact: Path, arguments: list[str], message: str, command: Command) -> None:
    ran = command("export", artifact, *arguments)
    assert ran.code == 2
    assert message in ran.errors


def test_readers_of_parquet_alone_say_that_an_export_is_none(tmp_path: Path, artifact: Path, command: Command) -> None:
    export = tmp_path / "out"
    assert command("export", artifact, "--bridge-version", "0.3.1", "--output", export).code == 0
    for arguments in (
        ("inspect", export, "--row", "0"),
        ("trace", export, "--pack", "0"),
        ("verify", export, "--all"),
        ("diff", artifact, export),
    ):
        ran = command(*arguments)
        assert (ran.code, ran.output) == (2, "")
        assert "holds .npy files, an export for an older Megatron-Bridge" in ran.errors.splitlines()[-1]
