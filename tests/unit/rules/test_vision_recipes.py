"""Recipes that pack text for models with vision or sound, by the model's name alone: what is refused, and what runs."""

from typing import Any

import pytest

from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.recipe.recipe import SFTRecipe

ONE: dict[str, Any] = {"num_gpus": 8}
CONTEXT = {**ONE, "context_parallel_size": 2}
SPLIT = {**ONE, "tensor_model_parallel_size": 2, "sequence_parallel": True}
WHOLE = {**ONE, "tensor_model_parallel_size": 2, "sequence_parallel": False}
STAGES = {**ONE, "pipeline_model_parallel_size": 2}


def _found(model: str, parallelism: dict[str, Any], batch: int, severity: str, **fields: Any) -> dict[str, str]:
    """Return code -> field of what `check` finds in a recipe, of a severity."""
    recipe = SFTRecipe.from_mapping(
        {
            "name": "mine",
            "data": {"train": "chats.jsonl", "validation_fraction": 0.02},
            "tokenizer": {"name_or_path": "Qwen/Qwen3-8B"},
            "preprocessing": {"kind": "chat"},
            "packing": {"packed_sequence_size": 8192},
            "model": {"name": model},
            "method": {"kind": "full"},
            "batch": {"global_batch_size": batch},
            "parallelism": parallelism,
            "schedule": {"num_epochs": 1},
            "checkpoint": {"pretrained": "checkpoints/model", "folder": "runs/mine"},
            **fields,
        }
    )
    findings = check_target(recipe, CheckOptions(looks_at_files=False)).findings
    return {one.code: one.where for one in findings if one.severity == severity}


@pytest.mark.parametrize(
    "model",
    [
        *("Qwen/Qwen3.5-9B", "Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3-VL-8B-Instruct", "Qwen/Qwen2.5-VL-7B-Instruct"),
        *("mistralai/Ministral-3-8B-Instruct-2512", "LGAI-EXAONE/EXAONE-4.5-33B", "MiniMaxAI/MiniMax-M3"),
        *("google/gemma-4-26B-A4B-it", "Qwen/Qwen3-VL-4B-Instruct", "moonshotai/Kimi-K2.5"),
    ],
)
def test_context_parallelism_is_refused(model: str) -> None:
    assert _found(model, CONTEXT, 4, "error")["BP944"] == "parallelism.context_parallel_size"


@pytest.mark.parametrize("model", ["Qwen/Qwen3.5-9B", "Qwen/Qwen3-VL-8B-Instruct", "Qwen/Qwen2.5-VL-7B-Instruct"])
@pytest.mark.parametrize(("parallelism", "batch"), [(ONE, 8), (WHOLE, 4), (STAGES, 4)])
def test_whole_unpadded_packs_run(model: str, parallelism: dict[str, Any], batch: int) -> None:
    assert not _found(model, parallelism, batch, "error")
    assert not _found(model, parallelism, batch, "warning")


@pytest.mark.parametrize("model", ["Qwen/Qwen3.5-9B", "Qwen/Qwen3-VL-8B-Instruct", "Qwen/Qwen2.5-VL-7B-Instruct"])
def test_padded_packs_are_refused_and_several_for_a_rank_are_a_risk(model: str) -> None:
    assert _found(model, SPLIT, 4, "error") == {"BP945": "packing.pad_seq_to_mult"}
    assert _found(model, ONE, 32, "warning") == {"BP947": "batch.global_batch_size"}


@pytest.mark.parametrize("model", ["mistralai/Ministral-3-8B-Instruct-2512", "LGAI-EXAONE/EXAONE-4.5-33B"])
@pytest.mark.parametrize("parallelism", [ONE, SPLIT, STAGES])
def test_classes_that_take_any_sequence_run_on_one_context_rank(model: str, parallelism: dict[str, Any]) -> None:
    assert not _found(model, parallelism, 32, "error")
    assert not _found(model, parallelism, 32, "warning")


@pytest.mark.parametrize(
    "model",
    [
        *("zai-org/GLM-4.5V", "google/gemma-3-12b-it", "Qwen/Qwen3-Omni-30B-A3B-Instruct", "Qwen/Qwen2.5-Omni-7B"),
        *("Qwen/Qwen3-ASR-1.7B", "baidu/ERNIE-4.5-VL-28B-A3B-PT", "nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16"),
    ],
)
def test_classes_without_packs_of_text_are_refused(model: str) -> None:
    assert _found(model, ONE, 32, "error") == {"BP943": "packing.mode"}


@pytest.mark.parametrize("mode", ["none", "in_batch"])
def test_rows_that_are_not_packed_before_are_not_judged(mode: str) -> None:
    found = _found("zai-org/GLM-4.5V", ONE, 32, "error", packing={"packed_sequence_size": 8192, "mode": mode})
    assert not {code for code in found if code.startswith("BP94")}


def test_sound_needs_whole_rows() -> None:
    assert _found("Qwen/Qwen2-Audio-7B-Instruct", SPLIT, 32, "error") == {"BP946": "parallelism.sequence_parallel"}
    assert not _found("Qwen/Qwen2-Audio-7B-Instruct", CONTEXT, 32, "error")


def test_large_heads_take_no_padding_and_no_context_ranks() -> None:
    model = "google/gemma-4-26B-A4B-it"
    assert (
        _found(model, {**CONTEXT, "cp_comm_type": "a2a"}, 32, "error")["BP730"] == "parallelism.context_parallel_size"
    )
    assert not _found(model, ONE, 32, "error")
    assert set(_found(model, ONE, 32, "warning")) == {"BP731", "BP949"}
