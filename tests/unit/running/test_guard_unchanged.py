"""A shard that changes after the check stops the run: replaced, rewritten in place, or gone; an equal copy does not."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridgepack.config.recipe.training import GuardConfig
from bridgepack.running.guard.unchanged import CheckedFiles, FilesCallback, FilesChangedError
from tests.support.small_builds import build, tokenized_recipe, tokenized_row, write_json_lines


@pytest.fixture
def packs(tmp_path: Path, chatml_tokenizer: Path) -> Path:
    """Return an artifact of four short rows."""
    rows = [tokenized_row(*range(20 + index, 30 + index)) for index in range(4)]
    recipe = tokenized_recipe(write_json_lines(tmp_path / "rows.jsonl", rows), chatml_tokenizer)
    return build(recipe, tmp_path / "packs").output


def _shard(packs: Path) -> Path:
    (shard,) = (packs / "training").glob("*.parquet")
    return shard


def _flip(shard: Path) -> None:
    """Change one byte and keep size and time of the content."""
    times = shard.stat()
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(bytes(content))
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))


def _replace(shard: Path) -> None:
    other = shard.with_name("other")
    shutil.copy2(shard, other)
    _flip(other)
    other.replace(shard)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [(_flip, "its sha256 is"), (_replace, "its sha256 is"), (Path.unlink, "it is missing")],
)
def test_a_changed_shard_is_named(packs: Path, damage: Callable[[Path], None], problem: str) -> None:
    files = CheckedFiles(packs)
    files.refuse_changed()
    damage(_shard(packs))

    with pytest.raises(FilesChangedError, match=rf"changed after .*: training/.*parquet: {problem}"):
        files.refuse_changed()


def test_an_equal_copy_is_no_change(packs: Path) -> None:
    files = CheckedFiles(packs)
    shard = _shard(packs)
    shutil.copy(shard, shard.with_name("copy"))
    shard.with_name("copy").replace(shard)

    assert list(files.problems()) == []


def _context(step: int) -> Any:
    return SimpleNamespace(state=SimpleNamespace(train_state=SimpleNamespace(step=step - 1)))


def test_the_files_are_compared_when_training_starts_and_after_steps_that_are_checked(packs: Path) -> None:
    told: list[FilesChangedError] = []
    settings = GuardConfig(first_steps=2, every_steps=None)
    callback = FilesCallback(CheckedFiles(packs), settings, on_change=told.append)
    callback.on_train_start(_context(1))
    _flip(_shard(packs))
    callback.on_train_step_start(_context(3))
    callback.on_train_step_end(_context(3))
    assert told == []

    callback.on_train_step_start(_context(2))
    with pytest.raises(FilesChangedError):
        callback.on_train_step_end(_context(2))
    with pytest.raises(FilesChangedError):
        callback.on_train_start(_context(1))
    assert len(told) == 2
