"""Which runs may save into a folder of checkpoints, by the file that names its owner."""

import json
import multiprocessing
import os
import signal
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from bridgepack.data.owners import Owner
from bridgepack.errors import ConfigError
from bridgepack.running import owning
from bridgepack.running.owning import OWNER_FILE, claim_folder, release_folder, work_of
from tests.support.small_builds import conversations_recipe

FORK = multiprocessing.get_context("fork")
PACKS = "f" * 64


def _left(folder: Path, **changes: Any) -> Owner:
    """Leave the file of another owner in a folder: of a machine that is not this one."""
    owner = replace(
        Owner.this_process(work="mine, settings 1", fingerprint=PACKS), host="node7", machine="another", pid=42
    )
    owner = replace(owner, **changes)
    (folder / OWNER_FILE).write_text(json.dumps(asdict(owner)))
    return owner


def _owner_in(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / OWNER_FILE).read_text()))


def test_a_run_owns_its_folder_until_it_ends(tmp_path: Path) -> None:
    file = claim_folder(tmp_path / "new", work="mine", fingerprint=PACKS)

    assert file == tmp_path / "new" / OWNER_FILE
    owner = _owner_in(tmp_path / "new")
    assert (owner["pid"], owner["work"], owner["fingerprint"]) == (os.getpid(), "mine", PACKS)
    assert claim_folder(tmp_path / "new", work="the guard of it", fingerprint="") == file
    assert _owner_in(tmp_path / "new") == owner
    release_folder(file)
    assert not file.exists()


def test_what_is_not_saved_into_a_local_folder_has_no_owner(tmp_path: Path) -> None:
    assert claim_folder(None, work="mine", fingerprint="") is None
    assert claim_folder("msc://bucket/checkpoints", work="mine", fingerprint="") is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("changes", [{"work": "mine, settings 2"}, {"fingerprint": "e" * 64}, {"work": ""}])
def test_another_run_of_another_machine_is_refused_by_name(tmp_path: Path, changes: dict[str, str]) -> None:
    owner = _left(tmp_path, **changes)

    with pytest.raises(ConfigError) as refusal:
        claim_folder(tmp_path, work="mine, settings 1", fingerprint=PACKS)
    for word in ("checkpoint.folder", str(tmp_path / OWNER_FILE), "node7", "42", owner.work, owner.fingerprint[:12]):
        assert word in str(refusal.value)
    assert _owner_in(tmp_path) == asdict(owner)

    (tmp_path / OWNER_FILE).unlink()  # what it says to do
    assert claim_folder(tmp_path, work="mine, settings 1", fingerprint=PACKS) is not None


def test_the_same_run_goes_on_where_another_machine_left_it(tmp_path: Path) -> None:
    _left(tmp_path)

    assert claim_folder(tmp_path, work="mine, settings 1", fingerprint=PACKS) is not None
    assert _owner_in(tmp_path)["pid"] == os.getpid()


def test_a_living_process_of_this_machine_keeps_even_the_same_run_out(tmp_path: Path) -> None:
    parent = Owner.this_process(work="mine, settings 1", fingerprint=PACKS)
    (tmp_path / OWNER_FILE).write_text(json.dumps(asdict(parent)))

    def claim_again() -> None:
        try:
            claim_folder(tmp_path, work="mine, settings 1", fingerprint=PACKS)
        except ConfigError:
            os._exit(2)

    process = FORK.Process(target=claim_again)
    process.start()
    process.join()
    assert process.exitcode == 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_is_taken_over(tmp_path: Path, number: signal.Signals) -> None:
    """Of SIGTERM the file goes; of SIGKILL the process is seen to be gone, also where nobody has asked how it ended."""

    def own_and_wait() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # commands that ran in this process before may have set another
        owning.release_when_terminated(claim_folder(tmp_path, work="other", fingerprint="other"))
        (tmp_path / "ready").touch()
        time.sleep(60)

    process = FORK.Process(target=own_and_wait)
    process.start()
    while not (tmp_path / "ready").exists():
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, number)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie

    assert (tmp_path / OWNER_FILE).exists() == (number == signal.SIGKILL)
    assert claim_folder(tmp_path, work="mine", fingerprint=PACKS) is not None
    process.join()
    assert process.exitcode == -number


def test_every_setting_tells_one_run_from_another(tmp_path: Path) -> None:
    recipe = conversations_recipe(tmp_path)
    works = {work_of(recipe), work_of(recipe.override({"optimizer.lr": 3e-5}))}

    assert len(works) == 2
    assert work_of(recipe) == work_of(conversations_recipe(tmp_path))
    assert all(recipe.name in work for work in works)
