"""Configurations that the host's validate() accepts and that fail or train wrongly: families and environment."""

from __future__ import annotations

from typing import Any

import pytest

from bridgepack.rules.engine.judge import judge_run
from bridgepack.rules.engine.rule import Severity
from bridgepack.rules.registry import RUN_RULES
from tests.unit.rules.run_cases import subject_of

SPECS = "dataset.offline_packing_specs"
PACKED_BY_HOST = {f"{SPECS}.packed_train_data_path": None, f"{SPECS}.packed_val_data_path": None}
HYBRID = {
    "model._target_": "megatron.bridge.models.hybrid.hybrid_provider.HybridModelProvider",
    "model.hf_model_id": "nvidia/Nemotron-H-8B-Base-8K",
    "model.hybrid_layer_pattern": "M-M-M*-M-",
}
OWN_ATTENTION = {"_name_": "local", "_target_": "megatron.core.transformer.enums.AttnBackend"}


def _found(case: dict[str, Any]) -> set[str]:
    findings = judge_run(subject_of(case), RUN_RULES).findings
    return {finding.code for finding in findings if finding.severity != Severity.ADVICE}


def test_case_24_hybrid_model_not_declared() -> None:
    assert "BP905" in _found({"set": {**HYBRID, "model.is_hybrid_model": False}})
    assert "BP905" not in _found({"set": {**HYBRID, "model.is_hybrid_model": True}})


def test_case_30_gemma_2_packed() -> None:
    assert "BP903" in _found(
        {"set": {"model._target_": "megatron.bridge.models.gemma.gemma2_provider.Gemma2ModelProvider"}}
    )
    recipe = {"dataset.enable_offline_packing": True, "model.hf_model_id": "google/gemma-2-9b"}
    assert "BP903" in _found({"recipe": True, "set": recipe})


def test_case_30_falcon_h1_packed() -> None:
    falcon = "megatron.bridge.models.falcon_h1.falconh1_provider.FalconH1ModelProvider"
    assert {"BP905", "BP916"} <= _found({"set": {"model._target_": falcon, "model.transformer_impl": "local"}})


def test_case_30_local_attention_packed() -> None:
    assert "BP904" in _found({"set": {"model.attention_backend": OWN_ATTENTION}})
    assert "BP916" in _found({"set": {"model.transformer_impl": "local"}})


@pytest.mark.parametrize(
    "model_id", ["Qwen/Qwen3-Next-80B-A3B-Instruct", "zai-org/GLM-4.5", "deepseek-ai/DeepSeek-V4-Flash"]
)
def test_case_31_family_packed_against_its_recipe(model_id: str) -> None:
    assert "BP901" in _found({"set": {"model.hf_model_id": model_id}})


def test_case_40_pyarrow_missing() -> None:
    versions = {"megatron-bridge": "0.6.2", "megatron-core": "0.19.2"}
    assert "BP964" in _found({"environment": {"versions": versions}})
    assert "BP964" not in _found({"environment": {"versions": {**versions, "pyarrow": "19.0.1"}}})


@pytest.mark.parametrize(("core", "code"), [("0.17.1", "BP980"), ("0.18.0rc0", "BP980"), ("0.18.0", "BP981")])
def test_case_40_old_core(core: str, code: str) -> None:
    assert code in _found({"environment": {"versions": {"megatron-bridge": "0.6.2", "megatron-core": core}}})


def test_case_41_packing_outlasts_the_timeout() -> None:
    case = {"set": PACKED_BY_HOST, "files": {"/data/chats/training.jsonl": 3_000_000}}
    assert "BP961" in _found(case)
    assert "BP961" not in _found({**case, "files": {"/data/chats/training.jsonl": 50_000}})


def test_case_41_packs_on_one_node() -> None:
    case = {"set": {**PACKED_BY_HOST, "dataset.dataset_root": "/dev/shm/chats"}, "world_size": 16}
    assert "BP962" in _found(case)
    assert "BP962" not in _found({**case, "world_size": 8})
