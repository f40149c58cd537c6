"""The number of packs before a build: from bytes, and never without saying so."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.forecast import BYTES_PER_ID, BYTES_PER_TOKEN, FILL_FRACTION, forecast_packs

SIZE = 1000


def _recipe(**data: Any) -> SFTRecipe:
    packing = {"packed_sequence_size": SIZE}
    return SFTRecipe.from_mapping(
        {"name": "small", "data": data, "tokenizer": {"name_or_path": "tokenizer"}, "packing": packing}
    )


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Return a file with the bytes of ten full packs."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"x" * int(10 * SIZE * FILL_FRACTION * BYTES_PER_TOKEN))
    return path


@pytest.mark.parametrize(
    ("sources", "changes", "packs"),
    [
        (1, {}, {"training": 10}),
        (1, {"preprocessing.kind": "tokenized"}, {"training": -(-10 * 44 // round(BYTES_PER_ID * 10))}),
        (2, {"data.validation": "{rows}"}, {"training": 20, "validation": 10}),
        (1, {"data.validation_fraction": 0.5}, {"training": 5, "validation": 5}),
    ],
)
def test_bytes_become_packs(rows: Path, sources: int, changes: dict[str, Any], packs: dict[str, int]) -> None:
    values = {name: str(rows) if value == "{rows}" else value for name, value in changes.items()}

    forecast = forecast_packs(_recipe(train=[str(rows)] * sources).override(values))

    assert forecast.num_packs == packs
    assert changes or forecast.because == (
        "forecast: 0.0 MB as JSON, 4.4 bytes per token, packs filled to 98%; the build counts exactly"
    )


def test_compressed_files_hold_more(rows: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(rows.read_bytes()) + b"\0" * 10_000)

    assert forecast_packs(_recipe(train=str(path))).num_packs["training"] >= 8


@pytest.mark.parametrize(
    ("data", "because"),
    [
        ({"train": "none.jsonl"}, "no forecast: data.train is 'none.jsonl'; there is no such file or folder."),
        ({"train": {"dataset": "org/name"}}, "no forecast: the size of data on the hub is unknown before a build"),
    ],
)
def test_without_data_there_is_none(data: dict[str, Any], because: str) -> None:
    forecast = forecast_packs(_recipe(**data))

    assert forecast.num_packs == {}
    assert forecast.because.startswith(because)
