"""FLOPs and memory of the plan against the host's own formulas, on models of every kind that these know."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.nn.functional

from bridgepack.bridge.bases import base_of
from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.bridge.writing.write import to_bridge
from bridgepack.host import TARGET
from bridgepack.planning.estimate import cost_of
from bridgepack.planning.layout import Layout, gpu_by_name, memory_of
from bridgepack.planning.shape import shape_of
from bridgepack.planning.states import states_of
from tests.support.bridge_recipes import quiet_host
from tests.support.gpu_host import pretend_gpu_host
from tests.support.shipped_plans import shipped, shipped_recipe

pytestmark = pytest.mark.bridge

#: Dense with and without tied embeddings, mixtures, latent attention, windows, gated delta nets, Mamba.
MODELS = (
    *("meta-llama/Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-70B", "meta-llama/Llama-3.2-1B", "Qwen/Qwen2.5-7B"),
    *("Qwen/Qwen3-8B", "Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-Next-80B-A3B-Instruct"),
    *("deepseek-ai/DeepSeek-V3", "moonshotai/Moonlight-16B-A3B", "openai/gpt-oss-20b", "zai-org/GLM-4.5-Air"),
)


def _config(values: dict[str, Any], **others: Any) -> Any:
    made = {"activation_func": torch.nn.functional.silu, "mtp_num_layers": None}  # the latter: packed rows train none
    head = {"kv_channels": values["kv_channels"] or values["hidden_size"] // values["num_attention_heads"]}
    return SimpleNamespace(model=SimpleNamespace(**{**values, **made, **head, **others}))


def _settings(name: str) -> dict[str, Any]:
    values = TARGET.facts.model_by_name(name)
    assert values is not None
    return values


@pytest.mark.parametrize("name", [*MODELS, "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"])
@pytest.mark.parametrize("length", [1024, 4096, 32768])
def test_operations_are_the_hosts(name: str, length: int) -> None:
    from megatron.bridge.training.utils.flop_utils import num_floating_point_operations

    values = _settings(name)
    if "Nemotron" in name:  # the host takes no other number of heads
        values = {**values, "mamba_num_heads": 2 * values["hidden_size"] // values["mamba_head_dim"]}
    expected = num_floating_point_operations(_config(values, seq_length=length))

    found = cost_of(shape_of(values)).sequence_flops(length)

    assert float(found) == pytest.approx(expected, rel=0.01)


def test_operations_of_a_pack_are_those_of_its_sequences() -> None:
    from megatron.bridge.training.utils.flop_utils import num_floating_point_operations

    values, lengths = _settings("Qwen/Qwen3-8B"), [3000, 1000, 96]
    expected = num_floating_point_operations(
        _config(values), 1, seqlen_sum=sum(lengths), seqlen_squared_sum=sum(one**2 for one in lengths)
    )

    assert float(cost_of(shape_of(values)).sequence_flops(lengths).sum()) == pytest.approx(expected, rel=0.01)


#: Latent attention is left out: the host counts its weights as those of full attention. Of mixtures and gated
#: feed-forward parts it knows SiLU alone.
@pytest.mark.parametrize("name", [name for name in MODELS if "deepseek" not in name and "moonshot" not in name])
@pytest.mark.parametrize(
    "sizes", [{"tensor": 2}, {"tensor": 4, "pipeline": 2}, {"tensor": 2, "context": 2}, {"tensor": 2, "expert": 8}]
)
def test_memory_is_the_hosts(name: str, sizes: dict[str, int]) -> None:
    from megatron.bridge.training.utils.theoretical_memory_utils import estimate_training_memory

    values = _settings(name)
    shape = shape_of(values)
    layout = Layout(num_gpus=64, **{**sizes, **({} if shape.num_experts else {"expert": 1})})
    config = _config(
        values,
        seq_length=4096,
        tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        context_parallel_size=layout.context,
        expert_model_parallel_size=layout.expert,
        expert_tensor_parallel_size=1,
    )
    config.optimizer = SimpleNamespace(use_distributed_optimizer=True)
    config.train = SimpleNamespace(micro_batch_size=1)
    config.data_parallel_size = layout.data
    expected = estimate_training_memory(config, 8)

    found = memory_of(shape, layout, pack_tokens=4096, num_micro=8)

    assert found.states_gb * 1e9 == pytest.approx(expected.weight_and_optimizer_bytes, rel=0.1)
    assert found.total_gb * 1e9 == pytest.approx(expected.total_memory_bytes, rel=0.1)


@pytest.mark.parametrize(
    "name",
    [
        *("glm45_air_106b_sft_32gpu_h100_bf16_config", "llama31_8b_sft_2gpu_h100_bf16_config"),
        *("llama3_8b_sft_2gpu_h100_bf16_config", "minimax_m3_sft_128gpu_h100_bf16_config"),
    ],
)
def test_shipped_layouts_that_do_not_fit_here_do_not_by_the_hosts_report(name: str) -> None:
    from megatron.bridge.training.utils.theoretical_memory_utils import estimate_training_memory

    recipe = shipped_recipe(name)
    values = base_of(recipe)["model"]
    config = _config(values)
    config.optimizer = SimpleNamespace(use_distributed_optimizer=True)
    config.train = SimpleNamespace(micro_batch_size=1)
    layout = shipped(name).layout
    config.data_parallel_size = layout.data

    expected = estimate_training_memory(config, recipe.batch.global_batch_size // layout.data)

    assert expected.total_memory_bytes / 1e9 > gpu_by_name("h100").budget_gb


@pytest.mark.parametrize(
    "name",
    [
        *("llama31_8b_sft_2gpu_h100_bf16_config", "moonlight_16b_sft_8gpu_h100_bf16_8k_config"),
        *("nemotron_3_super_sft_16gpu_h100_bf16_config", "qwen3_8b_sft_4gpu_h100_bf16_config"),
    ],
)
def test_bytes_of_a_weight_are_those_of_the_config_that_the_host_runs(host: None, tmp_path: Path, name: str) -> None:
    from megatron.bridge.training.config import runtime_config_update

    recipe = shipped_recipe(name).override({"checkpoint.pretrained": str(tmp_path)})
    with quiet_host(), pretend_gpu_host("h100"), pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORLD_SIZE", str(recipe.parallelism.num_gpus))
        config = to_bridge(recipe)
        runtime_config_update(config)
    optimizer, kept = config.optimizer, 4 if config.ddp.grad_reduce_in_fp32 else 2
    formats = (optimizer.main_params_dtype, optimizer.exp_avg_dtype, optimizer.exp_avg_sq_dtype)

    found = states_of(config_of_recipe(recipe).values, recipe.release.facts)

    assert optimizer.use_distributed_optimizer
    assert found.own == 2 + kept
    assert found.shared == sum(one.itemsize for one in formats)
