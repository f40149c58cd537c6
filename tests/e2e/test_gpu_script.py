"""`scripts/gpu` on a CPU: packs give the loss and gradients of their sequences, and every figure is measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full
SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu"


def test_packed_equals_unpacked_and_each_table_has_its_figures(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--output", str(tmp_path / "gpu.json")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)

    result = json.loads((tmp_path / "gpu.json").read_text())
    sizes = [512, 1024]
    assert [[one["pack_size"] for one in result[name]] for name in ("equality", "steps", "waiting")] == [sizes] * 3
    for one in result["equality"]:
        assert one["num_sequences"] > 1
        assert max(one["packed_from_unpacked"].values()) < 1e-5
        assert one["packed_from_unpacked"]["gradient"] > 0  # two ways, not one twice
    for one in result["waiting"]:
        assert 1 <= one["balanced"]["formula"] <= one["unbalanced"]["formula"]
        assert one["unbalanced"]["measured"] >= 1
    assert "nothing of a GPU" in ran.stdout
    assert "tokens/s packed" in ran.stdout
