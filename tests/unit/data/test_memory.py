"""How many workers and how large batches follow from a build's memory."""

from pathlib import Path

import pytest

from bridgepack.data.workers import memory
from bridgepack.data.workers.memory import free_bytes, parse_memory, parse_size, plan_memory
from bridgepack.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "size"), [("8G", 8 << 30), ("512MiB", 512 << 20), ("1.5 t", 3 << 39), ("700mb", 700 << 20), ("64", 64)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text, "--memory") == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "8 elephants", "1e9", "8GG"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ConfigError, match="allowed: a number with K, M, G or T"):
        parse_size(text, "--memory")


def test_too_little_for_any_build() -> None:
    assert parse_memory("448M") == 448 << 20
    with pytest.raises(ConfigError, match="--memory is '447M'; allowed: at least 448M"):
        parse_memory("447M")


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
