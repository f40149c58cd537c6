"""Layouts of the recipes that megatron-bridge ships: by the estimate they fit, and none is faster than the plan's best.

They are what NVIDIA's engineers chose for a model and a number of GPUs; the plan has the same GPUs, length, batch and
precision. `BRIDGEPACK_REGENERATE=1` writes the table anew.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bridgepack.errors import ConfigError
from bridgepack.planning.layout import gpu_by_name
from tests.support.golden import renewed_by
from tests.support.shipped_plans import described, shipped, text_recipes

FILE = Path(__file__).parents[2] / "golden" / "shipped_layouts.json"
NAMES = text_recipes()
#: Layouts that fit without activations, but not with them by the estimate. The host's own report says the same of the
#: first four (tests/contract/test_plan_costs.py); it knows no hybrid models.
TOO_MANY_ACTIVATIONS = {
    "glm45_air_106b_sft_32gpu_h100_bf16_config": "and its 46 layers do not divide by its 4 stages",
    "llama31_8b_sft_2gpu_h100_bf16_config": "18 bytes for each of 8 billion weights are 72 GB on each of 2 GPUs",
    "llama3_8b_sft_2gpu_h100_bf16_config": "as Llama 3.1",
    "minimax_m3_sft_128gpu_h100_bf16_config": "4 packs in flight, of 15 layers each",
    "nemotron_3_5_lightning_sft_openmathinstruct2_packed_tp1_config": "52 layers of Mamba and experts, none recomputed",
    "nemotron_3_nano_4b_sft_8gpu_h100_bf16_32k_config": "16,384 tokens on a GPU",
    "nemotron_3_ultra_sft_192gpu_h100_bf16_openmathinstruct2_packed_config": "6 packs in flight, Mamba not recomputed",
    "nemotronh_47b_peft_4gpu_h100_bf16_config": "98 layers without sequence parallelism, 1 GB too much",
    "nemotronh_56b_peft_4gpu_h100_bf16_config": "118 layers without sequence parallelism",
    "nemotronh_8b_sft_2gpu_h100_bf16_config": "18 bytes for each of 8 billion weights are 73 GB on each of 2 GPUs",
}
#: Speed of a plan's best over the shipped layout's: of two that are as fast, the simpler one is taken.
AS_FAST = 0.95


def _row(name: str) -> dict[str, Any]:
    try:
        found = shipped(name)
    except ConfigError as error:
        return {"unknown": str(error).partition(";")[0]}
    memory, best = found.memory, found.best
    row = {
        "shipped": described(found.layout),
        "states_gb": round(memory.states_gb),
        "total_gb": round(memory.total_gb),
        "fits": memory.total_gb <= found.gpu.budget_gb,
    }
    if isinstance(best, str):
        return {**row, "none": best.partition(" of each")[0].partition("allowed")[0].strip("; ")}
    is_same = described(best.layout) == row["shipped"]
    why = {} if is_same else {"speed": round(found.ratio, 2), "less": found.gained}
    return {**row, "best": described(best.layout), "best_gb": round(best.memory.total_gb), **why}


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_the_table_is_that_of_the_plans(name: str) -> None:
    row = _row(name)

    table = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        table = dict(sorted({**table, name: row}.items()))
        lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in table.items())
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    assert row == table.get(name), renewed_by(__file__)


def _table() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return table


def test_shipped_layouts_fit_and_exceptions_are_arithmetic() -> None:
    """Weights, gradients and optimiser alone fill the GPU, or the estimate says what else does."""
    table, h100 = _table(), gpu_by_name("h100")
    too_large = {name: row["states_gb"] for name, row in table.items() if row.get("fits") is False}

    assert sorted(table) == sorted(NAMES)
    filled = {name for name, states in too_large.items() if states > h100.easy_gb}
    assert set(too_large) - filled == set(TOO_MANY_ACTIVATIONS)
    assert len(filled) == 9


def test_no_shipped_layout_that_fits_is_faster_than_the_best() -> None:
    table = _table()
    slower = {name: row["speed"] for name, row in table.items() if row.get("speed", 1.0) < AS_FAST and row["fits"]}
    without = {name for name, row in table.items() if "none" in row and row["fits"]}

    assert slower == {}
    assert all("gemma2" in name for name in without)
    assert sum(row.get("best") == row.get("shipped") for row in table.values()) > 40
