"""How many workers and how large batches memory allows; disks without room are found before the work."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridgepack.data import forecast
from bridgepack.data.forecast import SpaceWatch
from bridgepack.data.reading.inputs import JSON_LINES, InputFile
from bridgepack.data.workers import memory
from bridgepack.data.workers.memory import free_bytes, parse_memory, parse_size, plan_memory
from bridgepack.errors import ArtifactError, ConfigError, StoreError
from tests.support.small_builds import build, tokenized_recipe, tokenized_row, write_json_lines


@pytest.mark.parametrize(
    ("text", "size"), [("8G", 8 << 30), ("512MiB", 512 << 20), ("1.5 t", 3 << 39), ("700mb", 700 << 20), ("64", 64)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text, "--memory") == size


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        *((text, "a number with K") for text in ("", "G", "-1G", "8 tons", "1e9", "8GG", "٨G", "999\u212a")),
        ("447M", "at least 448M"),
    ],
)
def test_what_is_no_size_or_too_little_for_any_build(text: str, allowed: str) -> None:
    assert parse_memory("448M") == 448 << 20
    with pytest.raises(ConfigError, match=f"--memory is {text!r}; allowed: {allowed}"):
        parse_memory(text)


def test_little_memory_means_few_workers_and_small_batches() -> None:
    plans = [plan_memory(size << 20, 64) for size in (448, 1024, 8192, 262_144)]

    assert [plan.num_workers for plan in plans] == [1, 4, 37, 64]
    assert [plan.text_bytes >> 20 for plan in plans] == [2, 2, 2, 4]
    assert plan_memory(8 << 30, 2).num_workers == 2
    assert all(plan.num_workers * (192 << 20) <= plan.workers_bytes for plan in plans)


def test_limit_of_a_control_group_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "max").write_text("2000000000\n")
    (tmp_path / "current").write_text("500000000\n")
    (tmp_path / "unlimited").write_text("max\n")
    files = [(str(tmp_path / name), str(tmp_path / "current")) for name in ("max", "unlimited", "none")]
    monkeypatch.setattr(memory, "_CGROUP_LIMITS", files)

    assert free_bytes() == 1_500_000_000
    assert plan_memory(None, 64).workers_bytes < 1_200_000_000


def _free(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=num_bytes))


def test_build_that_is_hopeless_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"x" * 1_000_000)
    file = InputFile(path=tmp_path / "a.jsonl", label="a.jsonl", kind=JSON_LINES)
    watch = SpaceWatch(tmp_path / "out", tmp_path / "store", [file])

    _free(monkeypatch, 160_000)
    watch.refuse_full_disks()
    _free(monkeypatch, 140_000)
    with pytest.raises(ArtifactError, match=r"has 0.1 MB free; .* at least 0.2 MB more"):
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
