"""The table of what each field of a model's config changes over the same weights is what the host computes.

The gate runs the cells of `_IN_GATE`; `scripts/test --exhaustive` all, 80 CPU seconds. `BRIDGEPACK_REGENERATE=1` runs
all and writes the table.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bridgepack.host.model_fields import TABLE
from tests.support.golden import renewed_by
from tests.support.host_forks import asked
from tests.support.installed_host import host_release
from tests.support.model_field_values import CLASSES, NOT_ALTERED, READ, requests_of, why_not_altered
from tests.support.model_fields import FieldRequest
from tests.support.processes import ONE_RANK

pytestmark = [pytest.mark.bridge, pytest.mark.full]

#: One field for each way to be wrong: weights of the norms, rotary embeddings, routers, and those that do not matter.
_IN_GATE = (
    *("rotary_base", "layernorm_epsilon", "activation_func", "qk_layernorm", "num_layers", "normalization"),
    *("share_embeddings_and_output_weights", "moe_router_score_function", "hidden_dropout", "moe_aux_loss_coeff"),
    *("softmax_type", "window_size", "init_method_std"),
)
_REGENERATES = bool(os.environ.get("BRIDGEPACK_REGENERATE"))


@pytest.fixture(scope="module")
def requests() -> list[FieldRequest]:
    is_whole = _REGENERATES or os.environ.get("BRIDGEPACK_ALL_MODEL_FIELDS")
    return [request for request in requests_of(host_release()) if is_whole or request.name in _IN_GATE]


@pytest.fixture(scope="module")
def cells(requests: list[FieldRequest], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return field, with its value where several are tried -> kind of model -> what changes."""
    results = asked("tests.support.model_fields", requests, tmp_path_factory.mktemp("fields"), **ONE_RANK)
    values = Counter((request.kind, request.name) for request in requests)
    cells: dict[str, dict[str, Any]] = {}
    for request, result in zip(requests, results, strict=True):
        assert result["verdict"] != "no base", (request, result)
        if result["verdict"] == "no value":
            continue
        has_others = any(values[kind, request.name] > 1 for kind in ("dense", "experts", "latent", "hybrid"))
        key = f"{request.name}={result['value']}" if has_others else request.name
        cell = cells.setdefault(key, {"value": result["value"]})
        cell[request.kind] = result["verdict"]
        if result["verdict"] == "refused":
            cell.setdefault("because", result["raised"].partition("\n")[0][:120])
    return cells


def test_every_cell_is_as_the_table_has_it(cells: dict[str, dict[str, Any]]) -> None:
    release = host_release().name
    if _REGENERATES:
        _write(release, cells)
    table = json.loads(TABLE.read_text())[release]["fields"]

    for key, cell in cells.items():
        assert cell == table.get(key), (key, renewed_by(__file__))
    assert len(cells) >= len(_IN_GATE)


def test_every_field_of_the_host_is_in_the_table() -> None:
    table = json.loads(TABLE.read_text())[host_release().name]
    names = {key.partition("=")[0] for key in table["fields"]}
    fields = {request.name for request in requests_of(host_release())}

    assert fields <= names
    assert table["not_altered"] == NOT_ALTERED
    assert {name: (cell["effect"], cell["source"]) for name, cell in table["read"].items()} == READ
    assert all(field in fields or why_not_altered(field) for field in _fields_of_classes())


def _fields_of_classes() -> set[str]:
    return {name for model_class in CLASSES.values() for name in host_release().facts.types_of(model_class)}


def _write(release: str, cells: dict[str, dict[str, Any]]) -> None:
    """Write a release's table, a field a line."""
    read = {name: {"effect": effect, "source": source} for name, (effect, source) in READ.items()}
    table = {"fields": cells, "read": read, "not_altered": dict(NOT_ALTERED)}
    tables = {**(json.loads(TABLE.read_text()) if TABLE.exists() else {}), release: table}
    texts = (f" {json.dumps(name)}: {{\n{_parts(tables[name])}\n }}" for name in sorted(tables))
    Path(TABLE).write_text("{\n" + ",\n".join(texts) + "\n}\n")


def _parts(table: dict[str, Any]) -> str:
    return ",\n".join(f"  {json.dumps(part)}: {{\n{_lines(values)}\n  }}" for part, values in table.items())


def _lines(values: dict[str, Any]) -> str:
    return ",\n".join(f"   {json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(values.items()))
