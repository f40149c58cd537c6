"""The order of packs, kept beside checkpoints."""

from pathlib import Path

import pytest

from bridgepack.errors import ConfigError
from bridgepack.records.guarded import DataOrder
from bridgepack.running.starting import ORDER_FILE, read_order, write_order

ORDER = DataOrder(
    fingerprint="3f2a", artifact="packed", global_batch_size=32, data_parallel_size=8, seed=1234, num_packs=900
)


def test_an_order_comes_back(tmp_path: Path) -> None:
    write_order(tmp_path / "checkpoints", ORDER)

    assert read_order(tmp_path / "checkpoints") == ORDER
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [ORDER_FILE]


def test_the_order_of_one_checkpoint_is_that_of_its_run(tmp_path: Path) -> None:
    write_order(tmp_path, ORDER)
    (tmp_path / "iter_0000500").mkdir()

    assert read_order(tmp_path / "iter_0000500") == ORDER


def test_checkpoints_of_other_tools_have_none(tmp_path: Path) -> None:
    assert read_order(tmp_path / "checkpoints") is None


@pytest.mark.parametrize("text", ["{", "[]", '{"format_version": 2}', '{"format_version": 1}'])
def test_a_file_that_is_no_order_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / ORDER_FILE).write_text(text)

    with pytest.raises(ConfigError, match=ORDER_FILE):
        read_order(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="nothing can be written there"):
        write_order(tmp_path / "file" / "checkpoints", ORDER)
