"""The table of places where the host's adapters compute what one rank would is what the host does, place by place.

The whole table runs in one fork of the host's server, in two gloo ranks: a second. `BRIDGEPACK_REGENERATE=1` writes it.
"""

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from bridgepack.host.adapter_placements import TABLE, ExpertAdapters, Kind, Placement
from tests.support.golden import renewed_by
from tests.support.host_forks import asked
from tests.support.installed_host import host_release
from tests.support.processes import ONE_RANK

pytestmark = [pytest.mark.bridge, pytest.mark.full]

_KINDS = get_args(Kind.__value__)
_TENSOR = [
    Placement(kind=kind, tensor=2, is_sequence_parallel=is_split)
    for kind, is_split in itertools.product(_KINDS, (False, True))
    if not kind.startswith("expert") and (is_split or not kind.startswith("shared"))
]
_EXPERT = [
    Placement(kind=kind, experts=experts, **sizes)
    for kind in _KINDS
    if kind.startswith("expert")
    for experts in get_args(ExpertAdapters.__value__)
    for sizes in (
        {"tensor": 2, "expert_tensor": 2, "is_sequence_parallel": True},
        {"expert": 2},
        *([] if experts == "each" else [{"expert": 2, "is_fused": True}]),
    )
]
#: Settings that change nothing: their places are those without.
_SAME = [
    *(replace(it, is_fused=True) for it in _TENSOR if it.kind in ("column", "row", "copied")),
    *(replace(it, is_fused=True) for it in _EXPERT if it.expert_tensor > 1 and it.experts != "each"),
    *(replace(it, tensor=2, is_sequence_parallel=True) for it in _EXPERT if it.expert == 2),
]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Placement, dict[str, float]]]:
    placements = [*_TENSOR, *_EXPERT, *_SAME]
    folder = tmp_path_factory.mktemp("placements")
    results = asked("tests.support.adapter_placements", placements, folder, **ONE_RANK)
    return list(zip(placements, results, strict=True))


def test_every_place_is_as_the_table_has_it(measured: list[tuple[Placement, dict[str, float]]]) -> None:
    release = host_release().name
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        _write(release, {placement.place: values for placement, values in measured[: len(_TENSOR) + len(_EXPERT)]})
    table: dict[str, dict[str, float]] = json.loads(TABLE.read_text())[release]

    assert set(table) == {placement.place for placement, _ in measured}
    for placement, values in measured:
        assert values == pytest.approx(table[placement.place], abs=1e-3), (placement, renewed_by(__file__))


def _write(release: str, table: dict[str, Any]) -> None:
    """Write a release's table, a place a line."""
    tables = {**(json.loads(TABLE.read_text()) if TABLE.exists() else {}), release: table}
    texts = (f" {json.dumps(name)}: {{\n{_places(tables[name])}\n }}" for name in sorted(tables))
    Path(TABLE).write_text("{\n" + ",\n".join(texts) + "\n}\n")


def _places(table: dict[str, Any]) -> str:
    return ",\n".join(f"  {json.dumps(place)}: {json.dumps(values)}" for place, values in table.items())
