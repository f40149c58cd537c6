"""File systems without flock: one build at a time, by a file that names its process."""

import errno
import fcntl
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridgepack.data.output import staging, staging_folder
from bridgepack.data.owners import Owner, claim
from bridgepack.data.store.store import opened_store
from bridgepack.data.store.upkeep import prune_store
from bridgepack.errors import ArtifactError, StoreError
from tests.support.messages import mentions

pytestmark = pytest.mark.on_disk

ERRORS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP)
CLAIMED = "owner.json"


def _without_flock(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.fixture(params=ERRORS, ids=errno.errorcode.get)
def _flockless(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Have flock say what it says on a file system that has none."""
    _without_flock(monkeypatch, request.param)


@pytest.mark.usefixtures("_flockless")
def test_one_build_at_a_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    output = tmp_path / "packed"
    with caplog.at_level(logging.WARNING), staging(output) as folder:
        assert json.loads((folder / CLAIMED).read_text())["pid"] == os.getpid()
        with pytest.raises(ArtifactError) as refused, staging(output):
            pass
    assert mentions(str(refused.value), f"process {os.getpid()} on ", CLAIMED, "no flock")
    assert [record.name for record in caplog.records] == ["bridgepack.data.output"]
    assert list(tmp_path.iterdir()) == []
    with staging(output):
        pass


@pytest.mark.usefixtures("_flockless")
def test_a_killed_build_of_this_machine_goes_on_and_one_of_another_never(tmp_path: Path) -> None:
    code = (
        "import sys, os; from pathlib import Path; from bridgepack.data.owners import claim; claim(Path(sys.argv[1]))"
    )
    folder = staging_folder(tmp_path / "packed")
    folder.mkdir()
    subprocess.run([sys.executable, "-c", code, folder / CLAIMED], check=True)
    killed = json.loads((folder / CLAIMED).read_text())
    (folder / CLAIMED).write_text(json.dumps({**killed, "host": "node7", "machine": "another boot"}))
    with pytest.raises(ArtifactError, match=f"process {killed['pid']} on node7"), staging(tmp_path / "packed"):
        pass
    (folder / CLAIMED).write_text("")  # its process was killed as it wrote, or is about to write
    with pytest.raises(ArtifactError, match="an unknown machine"), staging(tmp_path / "packed"):
        pass
    (folder / CLAIMED).write_text(json.dumps(killed))
    with staging(tmp_path / "packed"):
        assert json.loads((folder / CLAIMED).read_text())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_another_process_with_the_id_of_a_killed_one_owns_nothing(tmp_path: Path) -> None:
    me = Owner.this_process()
    assert not me.is_gone
    other = {name: getattr(me, name) for name in ("host", "machine", "pid", "since")}
    (tmp_path / CLAIMED).write_text(json.dumps({**other, "started": "1"}))
    assert claim(tmp_path / CLAIMED) is None
    assert claim(tmp_path / CLAIMED) is not None


def test_a_pipe_in_place_of_an_owner_s_file_is_an_unknown_owner(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / CLAIMED)
    owner = claim(tmp_path / CLAIMED)
    assert owner is not None
    assert owner.host == "an unknown machine"


@pytest.mark.usefixtures("_flockless")
def test_the_store_works_unlocked_and_prune_refuses(tmp_path: Path) -> None:
    with opened_store(tmp_path / "store") as store, opened_store(tmp_path / "store"):
        (store.folder / "kept").write_text("")
    with pytest.raises(StoreError, match="without flock"):
        prune_store(tmp_path / "store", older_than_s=0.0)
    assert (tmp_path / "store" / "kept").exists()


def test_nothing_is_left_where_a_lock_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _without_flock(monkeypatch, errno.EIO)
    with pytest.raises(ArtifactError, match="cannot be written: Input/output error"), staging(tmp_path / "packed"):
        pass
    assert list(tmp_path.iterdir()) == []
