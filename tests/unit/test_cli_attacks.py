"""A built artifact in which something was damaged: every command that reads it refuses it, and names the file."""

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Timer

import pytest

from tests.support.small_builds import Command, tokenized_row
from tests.support.traced_artifacts import build_traced, change_manifest, write_source

COMMANDS = (
    ("check",),
    ("trace", "--pack", "0"),
    ("trace", "--source", "rows.jsonl:1"),
    ("prove sources", "--num-packs", "2"),
    ("inspect",),
    ("inspect", "--pack", "0"),
    ("repack", "--set", "packing.packed_sequence_size=32", "--dry-run"),
)
Attack = Callable[[Path, str], object]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> Path:
    folder = tmp_path_factory.mktemp("attacked")
    held_out = write_source(folder / "held-out.jsonl", [tokenized_row(9, 5, 6, 7, 8, 2) for _ in range(12)])
    return build_traced(folder, chatml_tokenizer, data__validation=str(held_out))


@pytest.fixture
def artifact(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(built, tmp_path / "artifact")


def _assert_refused(artifact: Path, name: str, command: Command, commands: Sequence[Sequence[str]] = COMMANDS) -> None:
    for words, *options in commands:
        ran = command(*words.split(), artifact, *options)
        assert ran.code in (1, 2), (words, name, ran)
        assert name in ran.output + ran.errors, (words, name, ran)


def _commands(name: str, number: int) -> tuple[tuple[str, ...], ...]:
    """Return the commands that are asked of the attack of a number on a file: of a shard every second one.

    The two shards share out the commands, as opening a damaged one takes a process.
    """
    folder, _, _ = name.partition("/")
    if folder not in ("training", "validation"):
        return COMMANDS
    return COMMANDS[(number + (folder == "validation")) % 2 :: 2]


def _names(artifact: Path) -> list[str]:
    """Return every file that holds something; there is no content lost, so that ledger is empty."""
    files = (path for path in artifact.rglob("*") if path.is_file() and path.stat().st_size)
    return sorted(path.relative_to(artifact).as_posix() for path in files)


def _flip(part: float) -> Attack:
    def flip(artifact: Path, name: str) -> None:
        content = bytearray((artifact / name).read_bytes())
        content[int(part * (len(content) - 1))] ^= 1
        (artifact / name).write_bytes(content)

    return flip


ATTACKS: dict[str, Attack] = {
    **{f"flipped at {part}": _flip(part) for part in (0.0, 0.3, 0.6, 0.9, 1.0)},
    "cut off": lambda artifact, name: (artifact / name).write_bytes((artifact / name).read_bytes()[:-1]),
    "emptied": lambda artifact, name: (artifact / name).write_bytes(b""),
    "garbage": lambda artifact, name: (artifact / name).write_bytes(b"\x00\xff garbage \n"),
    "deleted": lambda artifact, name: (artifact / name).unlink(),
    "a line more": lambda artifact, name: (artifact / name).write_bytes((artifact / name).read_bytes() + b"{}\n"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_every_file_is_protected(artifact: Path, attack: str, command: Command) -> None:
    for name in (names := _names(artifact)):
        before = (artifact / name).read_bytes()
        ATTACKS[attack](artifact, name)
        _assert_refused(artifact, name, command, _commands(name, list(ATTACKS).index(attack)))
        (artifact / name).write_bytes(before)

    assert len(names) == 9


def test_links_out_of_the_artifact_are_refused(artifact: Path, command: Command) -> None:
    elsewhere = artifact.parent / "elsewhere"
    for name in (names := [name for name in _names(artifact) if name != "manifest.json"]):
        (artifact / name).rename(elsewhere)
        (artifact / name).symlink_to(elsewhere)
        _assert_refused(artifact, name, command)
        elsewhere.rename(artifact / name)  # replaces the link

    assert len(names) == 8


@pytest.mark.parametrize(
    "path", ["/etc/hostname", "../outside.parquet", "training/../../outside.parquet"], ids=["absolute", "up", "inside"]
)
def test_paths_out_of_the_artifact_are_refused(artifact: Path, path: str, command: Command) -> None:
    shutil.copy(next((artifact / "training").iterdir()), artifact.parent / "outside.parquet")
    change_manifest(artifact, splits__0__shards__0__path=path)

    _assert_refused(artifact, path, command)


@pytest.mark.parametrize("name", ["training/extra.txt", "plan/more.parquet", "validation/deeper/x.npy", "notes.md"])
def test_files_that_were_added_are_refused(artifact: Path, name: str, command: Command) -> None:
    (artifact / name).parent.mkdir(exist_ok=True)
    (artifact / name).write_text("x")

    _assert_refused(artifact, name, command)


def _end_readers(pipe: Path) -> None:
    """Let those who wait for a pipe's content read that it is empty."""
    if pipe.exists():
        os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))


def test_pipes_are_refused_at_once(artifact: Path, built: Path, command: Command) -> None:
    others = (("report", artifact), ("diff", artifact, built), ("diff", built, artifact))
    for name in (names := _names(artifact)):
        pipe = artifact / name
        kept = pipe.rename(artifact.parent / "kept")
        os.mkfifo(pipe)
        waiting = Timer(20, _end_readers, [pipe])
        waiting.start()
        started_s = time.monotonic()
        _assert_refused(artifact, name, command)
        assert all(command(*words).code in (1, 2) for words in others)
        took_s = time.monotonic() - started_s
        waiting.cancel()
        kept.rename(pipe)
        assert took_s < 20, name

    assert len(names) == 9


def test_links_to_devices_are_refused(artifact: Path, command: Command) -> None:
    for name in (names := _names(artifact)):
        kept = (artifact / name).rename(artifact.parent / "kept")
        (artifact / name).symlink_to("/dev/zero")
        _assert_refused(artifact, name, command)
        kept.rename(artifact / name)

    assert len(names) == 9


def test_what_may_be_there_is_accepted(artifact: Path, command: Command) -> None:
    (artifact / "report.html").write_text("<p>")
    (artifact / "training" / ".DS_Store").write_text("x")
    metadata = artifact / "bridge_metadata.json"
    entries = json.loads(metadata.read_text())
    metadata.write_text(json.dumps([*entries, entries[0]]))  # as the host appends

    ran = {words: command(*words.split(), artifact, *options) for words, *options in COMMANDS}

    codes = {**dict.fromkeys(("check", "trace", "inspect", "repack"), 0), "prove sources": 1}
    assert {word: one.code for word, one in ran.items()} == codes
    assert "BP408" in ran["check"].output
    assert "3 splits; the manifest has 2" in ran["prove sources"].output


def test_output_that_is_a_link_to_itself_is_an_error(artifact: Path, command: Command) -> None:
    (artifact.parent / "loop").symlink_to("loop")

    ran = command("repack", artifact, "--set", "packing.packed_sequence_size=32", "--output", "loop")

    assert ran.code == 2
    assert ran.output == ""
    assert ran.errors.startswith("error: ")
    assert "loop" in ran.errors
