"""Rules on what Megatron-Bridge refuses from 0.7 on, compared with it; other hosts have nothing to compare."""

from itertools import chain, combinations
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from bridgepack.bridge.container import config_of_container
from bridgepack.bridge.live import copy_of
from bridgepack.host import BRIDGE
from bridgepack.rules.judging.environment import target_versions
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.registry import RUN_RULES
from bridgepack.rules.run.kernels.graphs import router_graph_over_packed_padding
from tests.support.gpu_host import pretend_gpu_host
from tests.support.installed_host import host_version
from tests.support.upstream_recipes import (
    RecipeFunction,
    findings_of,
    load_recipe_config,
    silence,
    validate,
)
from tests.unit.rules.run_cases import subject_of

pytestmark = [
    pytest.mark.bridge,
    pytest.mark.skipif(
        Version(Version(host_version()).base_version) < Version("0.7"), reason="the host at hand is older than 0.7"
    ),
]
BASE = "qwen25_vl_3b_sft_1gpu_h100_bf16_config"
#: Setting -> value that Energon's own packing does not go with.
FAULTS: dict[str, Any] = {
    "train.micro_batch_size": 2,
    "model.calculate_per_token_loss": False,
    "ddp.average_in_collective": True,
    "dataset.enable_in_batch_packing": True,
    "dataset.defer_in_batch_packing_to_step": True,
    "model.mtp_num_layers": 1,
    "model.cuda_graph_impl": "transformer_engine",
    "model.pipeline_model_parallel_size": 2,
}


@pytest.fixture(scope="module")
def packed_by_energon(host: None, upstream_recipes: dict[str, RecipeFunction]) -> Any:
    from megatron.bridge.data.builders.energon import EnergonDatasetConfig, QwenVLEnergonTaskEncoderConfig

    [function] = [function for name, function in upstream_recipes.items() if name.endswith(f".{BASE}")]
    config = load_recipe_config(function)
    config.dataset = EnergonDatasetConfig(
        path="/data/energon",
        seq_length=config.model.seq_length,
        micro_batch_size=1,
        packing_buffer_size=100,
        task_encoder=QwenVLEnergonTaskEncoderConfig(hf_processor_path="Qwen/Qwen2.5-VL-3B-Instruct"),
    )
    config.train.micro_batch_size, config.train.global_batch_size = 1, 8
    config.model.calculate_per_token_loss, config.ddp.average_in_collective = True, False
    return config


@pytest.mark.parametrize("path", [None, *FAULTS])
def test_energon_packs_with_what_validate_accepts(packed_by_energon: Any, path: str | None) -> None:
    config = copy_of(packed_by_energon)
    if path is not None:
        section, _, name = path.partition(".")
        setattr(getattr(config, section), name, FAULTS[path])
    num_gpus = 2
    with pretend_gpu_host(), silence():
        verdict = validate(config, num_gpus)
        found = {finding.where: finding for finding in findings_of(config, BASE, num_gpus)}
    assert (verdict is not None) == (path is not None), verdict
    reported = {where for where, finding in found.items() if finding.code == "BP045"}
    assert reported == ({path} if path else set())


(SHARDED,) = (rule for rule in RUN_RULES if rule.code == "BP838")
#: Setting -> value that Megatron-FSDP of version 2 does not go with.
FAULTS_OF_VERSION_2: dict[str, Any] = {
    "model.tensor_model_parallel_size": 2,
    "model.pipeline_model_parallel_size": 2,
    "model.context_parallel_size": 2,
    "dist.use_tp_pp_dp_mapping": True,
    "rng.data_parallel_random_init": True,
    "ddp.num_distributed_optimizer_instances": 2,
    "ddp.outer_dp_sharding_strategy": "optim",
    "checkpoint.save": "/experiment/checkpoints",
    "checkpoint.load": "/experiment/checkpoints",
    "checkpoint.pretrained_checkpoint": "/checkpoints/model",
    "optimizer.clip_grad": 1.0,
    "optimizer.use_precision_aware_optimizer": True,
    "optimizer.optimizer_cpu_offload": True,
    "model.calculate_per_token_loss": True,
    "model.cuda_graph_impl": "local",
}


@pytest.fixture(scope="module")
def sharded(host: None, upstream_recipes: dict[str, RecipeFunction]) -> Any:
    [function] = [
        function
        for name, function in upstream_recipes.items()
        if name.endswith(".qwen3_600m_sft_1gpu_h100_bf16_config")
    ]
    config = load_recipe_config(function)
    config.dist.use_megatron_fsdp, config.ddp.megatron_fsdp_version = True, 2
    config.checkpoint.save = config.checkpoint.load = config.checkpoint.pretrained_checkpoint = None
    config.optimizer.clip_grad, config.optimizer.use_precision_aware_optimizer = 0.0, False
    config.model.calculate_per_token_loss = False
    return config


@pytest.mark.parametrize("path", [None, *FAULTS_OF_VERSION_2])
def test_version_2_of_sharding_takes_what_validate_accepts(sharded: Any, path: str | None) -> None:
    config = copy_of(sharded)
    if path is not None:
        section, _, name = path.partition(".")
        setattr(getattr(config, section), name, FAULTS_OF_VERSION_2[path])
    with pretend_gpu_host(), silence():
        verdict = validate(config, 4)
    run = Run(
        config=config_of_container(config, place="sharded"),
        versions=target_versions(host_version()),
        world_size_given=4,
    )
    reported = {finding.where for finding in judge_run(run, [SHARDED]).findings}
    assert (verdict is not None) == (path is not None), verdict
    assert reported == ({path} if path else set())


@pytest.mark.parametrize("recipe", ["qwen3_600m_sft_1gpu_h100_bf16_config", "qwen3_30b_a3b_sft_8gpu_h100_bf16_config"])
@pytest.mark.parametrize("clamp", [None, 7.0, 0.0, -1.0])
def test_clamps_of_swiglu_are_refused_as_by_validate(
    host: None, upstream_recipes: dict[str, RecipeFunction], recipe: str, clamp: float | None
) -> None:
    [function] = [function for name, function in upstream_recipes.items() if name.endswith(f".{recipe}")]
    config = load_recipe_config(function)
    config.model.activation_func_clamp_value = clamp
    config.checkpoint.pretrained_checkpoint = None
    with pretend_gpu_host(), silence():
        verdict = validate(config, 8)
        found = {finding.where for finding in findings_of(config, recipe, 8) if finding.code == "BP887"}
    assert ("activation_func_clamp_value" in str(verdict)) == ("model.activation_func_clamp_value" in found)
    assert bool(found) == (clamp is not None and (clamp <= 0 or "a3b" not in recipe))


MODULES = ("attn", "mlp", "moe", "moe_router", "moe_preprocess")


@pytest.mark.parametrize("experts", [None, 8])
def test_router_graphs_are_refused_as_by_the_forward_step(host: None, experts: int | None) -> None:
    from megatron.bridge.training.gpt_step import _validate_packed_moe_cuda_graph

    num_refused = num_accepted = 0
    for modules in chain.from_iterable(combinations(MODULES, size) for size in range(len(MODULES) + 1)):
        model = {
            "cuda_graph_impl": "transformer_engine",
            "cuda_graph_modules": list(modules),
            "num_moe_experts": experts,
        }
        settings = {f"model.{name}": value for name, value in model.items()} | {"model.cuda_graph_scope": None}
        try:
            _validate_packed_moe_cuda_graph(SimpleNamespace(**model))
            is_refused = False
        except ValueError:
            is_refused = True
        found = list(
            router_graph_over_packed_padding.violations(
                subject_of({"set": settings, "versions": {BRIDGE: host_version()}})
            )
        )
        assert bool(found) == is_refused, modules
        num_refused, num_accepted = num_refused + is_refused, num_accepted + (not is_refused)
    assert num_accepted > 0
    assert bool(num_refused) == (experts is not None)
