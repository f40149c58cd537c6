"""Where adapters get no gradient, and how far the first pipeline stage goes."""

from typing import Any

import pytest

from bridgepack.records import RunConfig
from bridgepack.rules.judging.environment import target_versions
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.rule import Rule
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.registry import RUN_RULES

RULE: Rule = next(rule for rule in RUN_RULES if rule.code == "BP842")
MODEL: dict[str, Any] = {
    **{"_target_": "bridge.GPTModelProvider", "num_layers": 8, "tensor_model_parallel_size": 1},
    **{"pipeline_model_parallel_size": 1, "recompute_granularity": "selective", "recompute_modules": ["mlp"]},
}
PEFT = {"_target_": "megatron.bridge.peft.lora.LoRA", "target_modules": ["linear_fc1"]}


def found(model: dict[str, Any], peft: dict[str, Any] | None = None, **sections: Any) -> str | None:
    values = {"model": {**MODEL, **model}, "peft": {**PEFT, **(peft or {})}, **sections}
    config = RunConfig(values=values, is_complete=True, place="a run")
    report = judge_run(Run(config=config, versions=target_versions()), [RULE])
    return next((one.found for one in report.findings), None)


@pytest.mark.parametrize(
    ("model", "share"),
    [
        ({}, "layers 0 to 7 (all adapters)"),
        ({"pipeline_model_parallel_size": 4}, "layers 0 to 1 (2 of 8 adapters)"),
        (
            {"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 4},
            "layer 0 (1 of 8 adapters)",
        ),
        (
            {"pipeline_model_parallel_size": 2, "num_layers_in_first_pipeline_stage": 3},
            "layers 0 to 2 (3 of 8 adapters)",
        ),
        (
            {"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "Ett|ttttttL"},
            "layer 0 (1 of 8 adapters)",
        ),
        (
            {
                "_target_": "bridge.HybridModelProvider",
                "hybrid_layer_pattern": "--|M-",
                "pipeline_model_parallel_size": 2,
            },
            "layers 0 to 1 (2 of 3 adapters)",
        ),
    ],
)
def test_only_the_first_stage_receives_what_requires_no_gradient(model: dict[str, Any], share: str) -> None:
    text = found(model)
    assert text is not None
    assert share in text


@pytest.mark.parametrize(
    ("model", "peft"),
    [
        ({"recompute_method": "uniform"}, {}),
        ({"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 2}, {}),
        ({"recompute_granularity": None}, {}),
        ({"recompute_modules": None}, {}),
        ({}, {"target_modules": ["linear_proj", "linear_fc1"]}),
        ({"cuda_graph_impl": "full_iteration"}, {}),
        ({}, {"_target_": "megatron.bridge.peft.lora.VLMLoRA", "freeze_language_model": False}),
    ],
)
def test_runs_in_which_all_get_one(model: dict[str, Any], peft: dict[str, Any]) -> None:
    assert found(model, peft) is None


def test_images_may_require_a_gradient() -> None:
    vision = {"_target_": "bridge.Qwen3VLModelProvider"}
    assert found(vision, dataset={"_target_": "bridge.DirectHFSFTDatasetConfig"}) is None
    assert found(vision, dataset={"_target_": "bridge.GPTSFTDatasetConfig"}) is not None
