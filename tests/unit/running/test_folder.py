"""The folder of a run and the order beside checkpoints: files that are whole, and mistakes in one message."""

from pathlib import Path

import pytest

from bridgepack.errors import ConfigError
from bridgepack.records.guarded import DataOrder
from bridgepack.running.assignment import RunFolder
from bridgepack.running.starting import ORDER_FILE, read_order, write_order


def test_records_are_counted_by_kind(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    first, second = folder.add_record("check", {"errors": 0}), folder.add_record("check", {"errors": 1})
    other = folder.add_record("guard-violation", {"step": 3})

    names = ["check-001.json", "check-002.json", "guard-violation-001.json"]
    assert [path.name for path in (first, second, other)] == names
    assert folder.records("check") == [first, second]
    assert folder.records("guard") == []
    first.unlink()
    assert folder.add_record("check", {"errors": 2}).name == "check-003.json"
    assert second.is_file()


@pytest.mark.parametrize(
    ("text", "message"),
    [(b"{", "cannot be read"), (b"\xff", "cannot be"), (b"[]", "is not a JSON"), (b'{"path": 3}', "has no path")],
)
def test_a_broken_file_is_named(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "artifact.json").write_bytes(text)

    with pytest.raises(ConfigError, match=rf"artifact\.json.*{message}"):
        RunFolder(tmp_path).read_artifact()


ORDER = DataOrder(
    fingerprint="3f2a", artifact="packed", global_batch_size=32, data_parallel_size=8, seed=1234, num_packs=900
)


def test_the_order_of_one_checkpoint_is_that_of_its_run(tmp_path: Path) -> None:
    write_order(tmp_path, ORDER)
    (tmp_path / "iter_0000500").mkdir()

    assert read_order(tmp_path / "iter_0000500") == ORDER
    assert read_order(tmp_path / "of another tool" / "checkpoints") is None


@pytest.mark.parametrize("text", ["{", "[]", '{"format_version": 2}', '{"format_version": 1}'])
def test_a_file_that_is_no_order_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / ORDER_FILE).write_text(text)

    with pytest.raises(ConfigError, match=ORDER_FILE):
        read_order(tmp_path)


def test_folders_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="cannot be written there"):
        RunFolder(tmp_path / "file" / "run").write("run.json", {})
    with pytest.raises(ConfigError, match="nothing can be written"):
        write_order(tmp_path / "file" / "checkpoints", ORDER)
