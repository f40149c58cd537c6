"""A built artifact in which something was damaged: every command that reads it refuses it, and names the file."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridgepack.cli import main
from tests.support.small_builds import tokenized_row
from tests.support.traced_artifacts import build_traced, change_manifest, write_source

COMMANDS = (
    ("check",),
    ("trace", "--pack", "0"),
    ("trace", "--source", "rows.jsonl:1"),
    ("verify", "--sample", "2"),
    ("inspect",),
    ("inspect", "--row", "0"),
    ("export", "--bridge-version", "0.5.1", "--output", "exported"),
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


def _refusals(artifact: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, int, str]]:
    """Yield command, exit code and everything that it prints."""
    for name, *options in COMMANDS:
        with pytest.raises(SystemExit) as exited:
            main([name, str(artifact), *options])
        yield name, int(exited.value.code or 0), "".join(capsys.readouterr())


def _assert_refused(artifact: Path, name: str, capsys: pytest.CaptureFixture[str]) -> int:
    num_checked = 0
    for command, code, text in _refusals(artifact, capsys):
        assert code in (1, 2), (command, name, text)
        assert name in text, (command, name, text)
        assert "Traceback" not in text
        num_checked += 1
    return num_checked


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


def _link_elsewhere(artifact: Path, name: str) -> None:
    (artifact / name).rename(artifact.parent / "elsewhere")
    (artifact / name).symlink_to(artifact.parent / "elsewhere")


ATTACKS: dict[str, Attack] = {
    **{f"flipped at {part}": _flip(part) for part in (0.0, 0.3, 0.6, 0.9, 1.0)},
    "cut off": lambda artifact, name: (artifact / name).write_bytes((artifact / name).read_bytes()[:-1]),
    "emptied": lambda artifact, name: (artifact / name).write_bytes(b""),
    "garbage": lambda artifact, name: (artifact / name).write_bytes(b"\x00\xff garbage \n"),
    "deleted": lambda artifact, name: (artifact / name).unlink(),
    "a line more": lambda artifact, name: (artifact / name).write_bytes((artifact / name).read_bytes() + b"{}\n"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_every_file_is_protected(artifact: Path, attack: str, capsys: pytest.CaptureFixture[str]) -> None:
    num_checked = 0
    for name in _names(artifact):
        before = (artifact / name).read_bytes()
        ATTACKS[attack](artifact, name)
        num_checked += _assert_refused(artifact, name, capsys)
        (artifact / name).write_bytes(before)

    assert num_checked == 7 * len(COMMANDS)


def test_links_out_of_the_artifact_are_refused(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    num_checked = 0
    for name in _names(artifact):
        if name != "manifest.json":
            _link_elsewhere(artifact, name)
            num_checked += _assert_refused(artifact, name, capsys)
            (artifact / name).unlink()
            (artifact.parent / "elsewhere").rename(artifact / name)

    assert num_checked == 6 * len(COMMANDS)


@pytest.mark.parametrize(
    "path", ["/etc/hostname", "../outside.parquet", "training/../../outside.parquet"], ids=["absolute", "up", "inside"]
)
def test_paths_out_of_the_artifact_are_refused(artifact: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(next((artifact / "training").iterdir()), artifact.parent / "outside.parquet")
    change_manifest(artifact, splits__0__shards__0__path=path)

    assert _assert_refused(artifact, path, capsys) == len(COMMANDS)


@pytest.mark.parametrize("name", ["training/extra.txt", "plan/more.parquet", "validation/deeper/x.npy", "notes.md"])
def test_files_that_were_added_are_refused(artifact: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (artifact / name).parent.mkdir(exist_ok=True)
    (artifact / name).write_text("x")

    assert _assert_refused(artifact, name, capsys) == len(COMMANDS)


def test_what_may_be_there_is_accepted(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (artifact / "report.html").write_text("<p>")
    (artifact / "training" / ".DS_Store").write_text("x")
    metadata = artifact / "bridge_metadata.json"
    entries = json.loads(metadata.read_text())
    metadata.write_text(json.dumps([*entries, entries[0]]))  # as the host appends

    outcomes = {command: (code, text) for command, code, text in _refusals(artifact, capsys)}

    assert {command: code for command, (code, _) in outcomes.items()} == {
        **dict.fromkeys(("check", "trace", "inspect", "export", "repack"), 0),
        "verify": 1,
    }
    assert "BP408" in outcomes["check"][1]
    assert "3 splits; the manifest has 2" in outcomes["verify"][1]
