"""Disks without room are found before the work starts, or as soon as it is known."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridgepack.data import forecast
from bridgepack.data.forecast import SpaceWatch
from bridgepack.data.reading.inputs import JSON_LINES, InputFile
from bridgepack.errors import ArtifactError, StoreError
from tests.support.small_builds import build, tokenized_recipe, tokenized_row, write_json_lines


def _free(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=num_bytes))


def test_build_that_is_hopeless_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"x" * 1_000_000)
    file = InputFile(path=tmp_path / "a.jsonl", label="a.jsonl", kind=JSON_LINES)
    watch = SpaceWatch(tmp_path / "out", tmp_path / "store", [file])

    _free(monkeypatch, 160_000)
    watch.refuse_full_disks()
    _free(monkeypatch, 140_000)
    with pytest.raises(ArtifactError, match=r"has 0.1 MB free; this build needs at least 0.2 MB more there"):
        watch.refuse_full_disks()


def test_first_ranges_tell_the_space(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = write_json_lines(tmp_path / "a.jsonl", [tokenized_row(*range(10, 300)) for _ in range(4000)])
    recipe = tokenized_recipe(train, chatml_tokenizer, packing__packed_sequence_size=512)
    monkeypatch.setattr(forecast, "_SURE_BYTES", 1 << 20)
    _free(monkeypatch, 2_000_000)

    with pytest.raises(ArtifactError, match=r"this build needs about .* MB more there. Finished work is kept."):
        build(recipe, tmp_path / "out")

    assert list((tmp_path / ".bridgepack").rglob("*.tokens"))
    assert not (tmp_path / "out").exists()
    monkeypatch.undo()
    assert build(recipe, tmp_path / "out").kept.num_ranges_found >= 1


def test_build_says_so_before_it_looks_at_its_inputs(tmp_path: Path, chatml_tokenizer: Path) -> None:
    recipe = tokenized_recipe(tmp_path / "no-such-file.jsonl", chatml_tokenizer)

    with pytest.raises(ArtifactError, match=r"output is '/proc/none/out'; '/proc' cannot be written: .* --output"):
        build(recipe, Path("/proc/none/out"))
    with pytest.raises(StoreError, match=r"the token store is '/proc/none'; '/proc' cannot be written: .*--store"):
        build(recipe, tmp_path / "out", store=Path("/proc/none"))
