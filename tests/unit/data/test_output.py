"""The working folder beside an output, what a build refuses to replace, and what it says when it cannot write."""

import errno
import json
import multiprocessing
import os
import re
from multiprocessing import reduction
from pathlib import Path

import pytest

from bridgepack.data.artifact.manifest import is_manifest
from bridgepack.data.files import replaced_when_whole
from bridgepack.data.output import (
    WORK,
    move_into_place,
    refuse_foreign_folder,
    refuse_unwritable,
    remove_leftovers,
    staging,
    staging_folder,
)
from bridgepack.data.results import Kept
from bridgepack.data.workplace import kept_on_errors
from bridgepack.errors import ArtifactError, StoreError
from tests.support.small_builds import file_bytes

pytestmark = pytest.mark.on_disk

MANIFEST = json.dumps({"format_version": 1, "fingerprint": "f"})


def _artifact(folder: Path, content: str = "old") -> Path:
    (folder / "training").mkdir(parents=True)
    (folder / "training" / "shard").write_text(content)
    (folder / "manifest.json").write_text(MANIFEST)
    return folder


def _assert_refused(output: Path, message: str) -> None:
    with pytest.raises(ArtifactError, match=message), staging(output):
        pass


def _take_turns(output: Path, num_turns: int) -> None:
    for _ in range(num_turns):
        try:
            with staging(output) as folder:
                (folder / "mine").mkdir()
        except ArtifactError as error:
            assert "another build is writing" in str(error)  # noqa: PT017 (in a process of its own)


def test_folder_is_never_shared(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=_take_turns, args=(tmp_path / "a", 300)) for _ in range(3)]
    for process in others:
        process.start()
    for process in others:
        process.join()

    assert [process.exitcode for process in others] == [0, 0, 0]
    assert list(tmp_path.iterdir()) == []


def test_output_that_is_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk/a")
    _artifact(tmp_path / "disk" / "a")

    with staging(tmp_path / "link") as folder:
        assert folder == tmp_path / "disk" / ".a.building"
        move_into_place(_artifact(folder / "artifact", "new"), tmp_path / "link")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "a" / "training" / "shard").read_text() == "new"
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == ["a"]


def test_nothing_and_empty_folders_and_artifacts_may_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    for output in (tmp_path / "none", tmp_path / "empty", _artifact(tmp_path / "artifact")):
        refuse_foreign_folder(output)
        with staging(output):
            pass


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", "{", '{"name": "web app", "icons": []}', '{"format_version": 1}', "\xff", "[" * 100_000]
)
def test_folder_with_another_manifest_is_not_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "manifest.json").write_text(content, encoding="latin-1")

    assert not is_manifest(tmp_path / "web" / "manifest.json")
    with pytest.raises(ArtifactError, match=r"web.* not an artifact"):
        refuse_foreign_folder(tmp_path / "web")


def test_folder_with_a_pipe_in_place_of_a_manifest_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "manifest.json")

    with pytest.raises(ArtifactError, match=r"out.* not an artifact"):
        refuse_foreign_folder(tmp_path / "out")


def test_a_pipe_in_place_of_a_working_folder_s_entry_is_not_waited_for(tmp_path: Path) -> None:
    output = _artifact(tmp_path / "a")
    staging_folder(output).mkdir()
    os.mkfifo(staging_folder(output) / WORK)
    os.mkfifo(staging_folder(output).with_name(".a.old"))
    with staging(output) as folder:
        assert not (folder / WORK).exists()
    remove_leftovers(output)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_artifact_with_other_things_in_it_is_not_replaced(tmp_path: Path) -> None:
    output = _artifact(tmp_path / "a")
    (output / "notes.txt").write_text("mine")

    _assert_refused(output, r"also contains other files, which would be lost: notes.txt")

    assert (output / "notes.txt").read_text() == "mine"
    assert not staging_folder(output).exists()


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("../file", r"which is a file. Choose a folder."),
        *((folder, "the current folder or") for folder in (".", "..", "/", "../inside")),
    ],
)
def test_file_and_current_folder_are_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, message: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")

    for path in (Path(output), Path(output).absolute()):
        with pytest.raises(ArtifactError, match=message):
            refuse_foreign_folder(path)


def _leave(output: Path, identity: str, *, with_receipt: bool) -> None:
    """End a build in the middle."""
    with staging(output, identity) as folder:
        (folder / "artifact" / "training").mkdir(parents=True)
        (folder / "artifact" / "training" / "shard").write_text("x")
        (folder / "artifact" / "training" / ".shard.tmp").write_text("x")
        (folder / "work").mkdir()
        (folder / "work" / "a.cut").touch()
        if with_receipt:
            (folder / "receipts" / "training").mkdir(parents=True)
            (folder / "receipts" / "training" / "shard.json").write_text("{}")
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("identity", "with_receipt", "kept"),
    [
        ("one", True, ["artifact/training/shard", "identity", "lock", "receipts/training/shard.json"]),
        ("two", True, ["identity", "lock"]),
        (None, True, ["lock"]),
        ("one", False, ["identity", "lock"]),
    ],
)
def test_finished_shards_wait_for_the_same_build(
    tmp_path: Path, identity: str | None, with_receipt: bool, kept: list[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        _leave(tmp_path / "a", "one", with_receipt=with_receipt)
    assert staging_folder(tmp_path / "a").exists() == with_receipt

    with staging(tmp_path / "a", identity) as folder:
        assert list(file_bytes(folder)) == kept
    assert list(tmp_path.iterdir()) == []


def test_links_of_a_working_folder_are_not_followed(tmp_path: Path) -> None:
    _artifact(tmp_path / "mine")
    staging_folder(tmp_path / "a").symlink_to(tmp_path / "mine")
    staging_folder(tmp_path / "b").mkdir()
    (staging_folder(tmp_path / "b") / "artifact").symlink_to(tmp_path / "mine")

    _assert_refused(tmp_path / "a", "is a link; the build would empty its target")
    with staging(tmp_path / "b", "one") as folder:
        assert not (folder / "artifact").exists()
    assert (tmp_path / "mine" / "training" / "shard").exists()


def test_artifact_that_was_moved_away_by_a_build_that_was_ended_comes_back(tmp_path: Path) -> None:
    _artifact(tmp_path / ".a.old")

    with staging(tmp_path / "a", "one"):
        assert (tmp_path / "a" / "training" / "shard").read_text() == "old"

    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_leftovers_of_a_build_that_was_ended_at_its_very_end_go(tmp_path: Path) -> None:
    _artifact(tmp_path / "a", "new")
    _artifact(tmp_path / ".a.old")
    (tmp_path / ".a.building").mkdir()

    remove_leftovers(tmp_path / "a")

    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a" / "training" / "shard").read_text() == "new"


@pytest.mark.parametrize("full", ["store", "out"])
def test_place_that_is_full_is_named(tmp_path: Path, full: str) -> None:
    """A worker that fails to write to an open file sends an error that must know the file."""
    kept = Kept(output=str(tmp_path / "out"), store=str(tmp_path / "store"))
    folder = tmp_path / full
    folder.mkdir()

    with pytest.raises(OSError, match="No space") as caught, replaced_when_whole(folder / "a.tokens"):
        raise OSError(errno.ENOSPC, "No space left on device")
    sent = reduction.ForkingPickler.loads(reduction.ForkingPickler.dumps(caught.value))
    with (
        pytest.raises(ArtifactError, match=f"^{re.escape(repr(str(folder)))} cannot be written: .*space.*a.tokens"),
        kept_on_errors(kept),
    ):
        raise sent

    assert list(folder.iterdir()) == []


def test_name_that_is_not_utf_8_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    output = tmp_path / "caf\udce9" / "out"
    for refuse in (lambda: refuse_foreign_folder(output), lambda: refuse_unwritable(output, tmp_path / "tokens")):
        with pytest.raises(ArtifactError, match="name is not UTF-8"):
            refuse()
    with pytest.raises(StoreError, match=r"the token store is .* name is not UTF-8"):
        refuse_unwritable(tmp_path / "out", output)
    assert list(tmp_path.iterdir()) == []
