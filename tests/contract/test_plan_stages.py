"""Plans with uneven stages are accepted by the real host, which builds the layers that the estimate counted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgepack.bridge.writing.write import to_bridge
from bridgepack.planning.candidate import Candidate
from bridgepack.planning.layout import gpu_by_name
from bridgepack.planning.lengths import Lengths
from bridgepack.planning.plan import plan_recipe
from tests.support.bridge_recipes import quiet_host, recipe_of
from tests.support.gpu_host import pretend_gpu_host
from tests.support.upstream_recipes import validate

pytestmark = pytest.mark.bridge

LENGTHS = Lengths(runtime=np.full(1 << 14, 512), share=1.0, origin="made up")
#: Model, GPUs -> layers that its stages cannot share evenly.
MODELS = [
    ("llama31_405b_sft_128gpu_h100_bf16_config", 128),
    ("meta-llama/Meta-Llama-3.1-405B", 128),
    ("qwen3_235b_a22b_sft_64gpu_h100_bf16_config", 64),
    ("deepseek-ai/DeepSeek-V3", 512),
    ("deepseek-ai/DeepSeek-V3", 1024),
    ("glm45_355b_sft_128gpu_h100_bf16_config", 128),
    ("moonlight_16b_sft_8gpu_h100_bf16_config", 8),
    ("nemotronh_47b_sft_16gpu_h100_bf16_config", 16),
]


def _built(model: Any) -> list[int]:
    """Return the layers that the host builds for each virtual stage, in the model's order."""
    from megatron.core.transformer.enums import LayerType
    from megatron.core.transformer.transformer_block import get_num_layers_to_build

    pipeline, virtual = model.pipeline_model_parallel_size, model.virtual_pipeline_model_parallel_size
    layout, pattern = model.pipeline_model_parallel_layout, getattr(model, "hybrid_layer_pattern", None)
    if pattern:
        parts = pattern.partition("/")[0].split("|")
        return [len(part) for part in parts] if len(parts) > 1 else [len(pattern) // pipeline] * pipeline
    found = []
    for stage in range(virtual or 1):
        for rank in range(pipeline):
            if layout is not None:
                found.append(layout.layout[rank][stage].count(LayerType.decoder))
            else:
                chunk = stage if virtual else None
                found.append(get_num_layers_to_build(model, vp_stage=chunk, pp_rank=rank))
    return found


@pytest.mark.parametrize(("model", "num_gpus"), MODELS, ids=[f"{name}-{num_gpus}" for name, num_gpus in MODELS])
def test_the_host_builds_the_stages_of_a_plan(host: None, tmp_path: Path, model: str, num_gpus: int) -> None:
    recipe = recipe_of(model, batch={"global_batch_size": 128}, checkpoint__pretrained=str(tmp_path))

    plan = plan_recipe(recipe, LENGTHS, gpu=gpu_by_name("h100"), num_gpus=num_gpus, sizes=(2048,))
    candidates: list[Candidate] = [one for one in plan.candidates if one.layout.pipeline > 1]

    for one in candidates:
        with quiet_host(), pretend_gpu_host("h100"):
            config = to_bridge(recipe.override(one.changes))
            assert validate(config, num_gpus) is None
            config.model.finalize()
        assert _built(config.model) == list(one.layout.layers)
    assert candidates or model.startswith("moonlight")
