"""Any recipe that a check finds nothing wrong with becomes a config that the real `validate()` accepts."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from bridgepack.bridge.writing.write import to_bridge
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from tests.support.bridge_recipes import DENSE, quiet_host
from tests.support.recipe_is_run import ONE_SIDED, found_in_one_alone, unlike_its_run
from tests.support.upstream_recipes import validate

pytestmark = pytest.mark.bridge

NUM_EXAMPLES = 2 * settings.default.max_examples
TEXT = (
    *(DENSE, "qwen3_8b_sft_4gpu_h100_bf16_config", "qwen3_8b_peft_1gpu_h100_bf16_config", "Qwen/Qwen3-8B"),
    "nemotronh_4b_sft_1gpu_h100_bf16_config",
)
WITH_EXPERTS = (
    *("qwen3_30b_a3b_sft_8gpu_h100_bf16_config", "gpt_oss_20b_sft_8gpu_h100_bf16_config"),
    "moonlight_16b_sft_8gpu_h100_bf16_8k_config",
)
VISION = ("qwen25_vl_3b_sft_1gpu_h100_bf16_config",)
FP8 = ("fp8_delayed_scaling", "fp8_current_scaling", "mxfp8")
PRECISIONS = ("bf16_mixed", "fp16_mixed", *(f"bf16_with_{one}_mixed" for one in FP8))
GRAPHS = [{"implementation": "transformer_engine", "modules": [part]} for part in ("mlp", "moe_router")]


@st.composite
def recipes(draw: st.DrawFn) -> dict[str, Any]:
    """Return the values of a recipe: most are sensible, some are not."""
    model = draw(st.sampled_from(TEXT + WITH_EXPERTS + VISION))
    mode = draw(st.sampled_from(["in_batch", "none"] if model in VISION else ["offline"] * 6 + ["in_batch", "none"]))
    tensor, pipeline, context, data = (
        draw(st.sampled_from(sizes)) for sizes in ([1, 2, 4], [1, 1, 2], [1, 2, 4], [1, 2])
    )
    micro = draw(st.sampled_from([2, 4])) if mode == "in_batch" else 1
    return {
        "name": "drawn",
        "data": {"train": "train.jsonl"} | draw(st.sampled_from([{}, {"validation": "validation.jsonl"}])),
        "tokenizer": {"name_or_path": "Qwen/Qwen3-8B"},
        "packing": {
            "mode": mode,
            "packed_sequence_size": draw(st.sampled_from([1024, 2048, 8192, 6000])),
            "pad_seq_to_mult": draw(st.sampled_from([None, None, 16, 64])),
            "pad_cu_seqlens": draw(st.booleans()),
            "balance": {"kind": draw(st.sampled_from(["none", "none", "within_batch"]))} if mode == "offline" else {},
        },
        "parallelism": {
            "tensor_model_parallel_size": tensor,
            "pipeline_model_parallel_size": pipeline,
            "context_parallel_size": context,
            "expert_model_parallel_size": draw(st.sampled_from([1, 2])) if model in WITH_EXPERTS else 1,
            "sequence_parallel": tensor > 1 and draw(st.sampled_from([True, True, False])),
            "cp_comm_type": draw(st.sampled_from([None, None, "p2p", "a2a"])),
            "eval_context_parallel_size": draw(st.sampled_from([None, None, 2])),
            "num_gpus": tensor * pipeline * context * data,
        },
        "batch": {
            "micro_batch_size": micro,
            "eval_micro_batch_size": micro,
            "global_batch_size": draw(st.integers(1, 4)) * micro * draw(st.sampled_from([data, data, 1])),
        },
        "model": {
            "name": model,
            "attention_backend": draw(st.sampled_from([None, None, "auto", "fused", "flash"])),
            "recompute": draw(st.sampled_from([None, "none", "selective", "full"])),
        },
        "method": {"kind": draw(st.sampled_from(["full", "lora", "dora"]))},
        "schedule": draw(schedules()),
        "precision": {"recipe": draw(st.sampled_from(PRECISIONS))},
        "cuda_graphs": draw(st.sampled_from([{}] * 4 + [{"implementation": "full_iteration"}] + GRAPHS)),
    }


@st.composite
def schedules(draw: st.DrawFn) -> dict[str, Any]:
    """Return how long a run is."""
    lengths = [{"train_iters": 1}, {"train_iters": 10}, {"train_iters": 500}, {"num_epochs": 0.5}, {}]
    return draw(st.sampled_from(lengths)) | {
        "warmup_fraction": draw(st.floats(0, 0.99)),
        "lr_decay_style": draw(st.sampled_from(["constant", "linear", "cosine", "inverse-square-root", "WSD"])),
        "eval_interval": draw(st.sampled_from([None, 5])),
        "eval_iters": draw(st.sampled_from([None, 0, 3])),
    }


def test_recipes_that_check_clean_are_accepted(h100_host: None, tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()

    @settings(
        max_examples=NUM_EXAMPLES,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(values=recipes())
    def run(values: dict[str, Any]) -> None:
        with quiet_host():
            outcome = _outcome(values | {"checkpoint": {"pretrained": str(tmp_path)}})
        outcomes[outcome] += 1
        assert outcome in ("accepted", "reported"), values
        assume(outcome == "accepted")

    run()
    assert outcomes["accepted"] == NUM_EXAMPLES
    assert outcomes["reported"] > 0


def _outcome(values: dict[str, Any]) -> str:
    """Return what becomes of a recipe: reported by us, accepted by the host, or what the host says against it."""
    try:
        recipe = SFTRecipe.from_mapping(values)
        if recipe.packing.mode == "offline":
            recipe.resolve()
        config = to_bridge(recipe)
    except ConfigError as error:
        return "reported" if _is_reported(values) else f"{error}, and check finds nothing"
    assert unlike_its_run(recipe, config) == {}
    assert found_in_one_alone(recipe, config) <= set(ONE_SIDED)
    num_gpus = recipe.parallelism.num_gpus
    assert num_gpus is not None
    if check_target(config, CheckOptions(world_size=num_gpus, looks_at_files=False)).has_errors:
        return "reported"
    return validate(config, num_gpus) or "accepted"


def _is_reported(values: dict[str, Any]) -> bool:
    try:
        return check_target(SFTRecipe.from_mapping(values), CheckOptions(looks_at_files=False)).has_errors
    except ConfigError:
        return True
