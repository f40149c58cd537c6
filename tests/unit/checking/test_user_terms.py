"""Findings name settings as the user does, and nothing else in them changes."""

import json
from pathlib import Path
from typing import Any

import pytest

from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.records import Finding
from tests.unit.rules.run_cases import RECIPE


def findings_on(recipe: dict[str, Any], folder: Path) -> dict[str, Finding]:
    file = folder / "mine.yaml"
    file.write_text(json.dumps(recipe), encoding="utf-8")
    return {finding.code: finding for finding in check_target(file, CheckOptions()).findings}


def test_a_file_with_the_name_of_a_setting_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/model.seq_length").touch()
    finding = findings_on({**RECIPE, "data": {"train": ["data/model.seq_length"]}}, tmp_path)["BP854"]
    assert finding.where == "data.train"
    assert finding.found.startswith("data/model.seq_length;")


@pytest.mark.parametrize(
    ("sizes", "field"),
    [
        ({"tensor": 3}, "tensor_model_parallel_size"),
        ({"pipeline": 3}, "pipeline_model_parallel_size"),
        ({"context": 3}, "context_parallel_size"),
        ({"tensor": 2, "pipeline": 3}, "pipeline_model_parallel_size"),
        ({"tensor": 2, "pipeline": 8}, "pipeline_model_parallel_size"),  # each divides the GPUs, their product does not
    ],
    ids=str,
)
def test_gpus_that_do_not_divide_are_at_the_size_in_the_way(sizes: dict[str, int], field: str, tmp_path: Path) -> None:
    names = {"tensor": "tensor_model", "pipeline": "pipeline_model", "context": "context"}
    topology = {f"{names[name]}_parallel_size": size for name, size in sizes.items()}
    finding = findings_on({**RECIPE, "parallelism": {"num_gpus": 8, **topology}}, tmp_path)["BP619"]

    assert (finding.severity, finding.where, finding.line) == ("error", f"parallelism.{field}", 1)
    assert finding.found.startswith("8 GPUs with ")


def test_a_key_with_a_comma_is_on_its_own_line(tmp_path: Path) -> None:
    model = {"name": "qwen3_8b_sft_config"}
    recipe = {**RECIPE, "model": model, "bridge_overrides": {"model": {"num_layers": 3, "a, b": 1}}}
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps(recipe, indent=1), encoding="utf-8")
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if '"a, b"' in text)

    (finding,) = (item for item in check_target(file, CheckOptions()).findings if "a, b" in item.where)

    assert (finding.where, finding.line) == ("bridge_overrides.model.a, b", line)
