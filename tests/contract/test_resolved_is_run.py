"""What `recipes show --resolved` shows is what the real ConfigContainer has, whatever fields and overrides are set."""

import enum
from typing import Any

import pytest

from bridgepack.bridge.adopting.adopt import as_written
from bridgepack.bridge.plain import value_at
from bridgepack.bridge.shipped import named_precision
from bridgepack.bridge.writing.write import to_bridge
from bridgepack.config.recipe.quantities import SAME
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.planning.resolved import resolved_view
from tests.support.bridge_recipes import DENSE, quiet_host, recipe_of

pytestmark = pytest.mark.bridge

WITH_PREDICTION = "deepseek_v3_sft_256gpu_h100_bf16_config"
#: Path -> values: every field with a setting of the host, and overrides of the same quantities.
CHANGES: dict[str, tuple[Any, ...]] = {
    "parallelism.tensor_model_parallel_size": (1, 4),
    "parallelism.pipeline_model_parallel_size": (1, 2),
    "parallelism.context_parallel_size": (2,),
    "parallelism.num_gpus": (16,),
    "parallelism.sequence_parallel": (True,),
    "parallelism.cp_comm_type": ("a2a",),
    "parallelism.expert_tensor_parallel_size": (1,),
    "batch.global_batch_size": (16,),
    "batch.tokens_per_step": (65536,),
    "batch.micro_batch_size": (2,),
    "batch.eval_global_batch_size": (4,),
    "schedule.num_epochs": (2.0,),
    "schedule.train_iters": (7,),
    "schedule.warmup_fraction": (0.5,),
    "schedule.lr_decay_style": ("linear",),
    "schedule.eval_interval": (3,),
    "schedule.eval_iters": (0, 2),
    "optimizer.lr": (1e-3,),
    "optimizer.weight_decay": (0.0,),
    "precision.recipe": ("fp16_mixed", "bf16_with_mxfp8_mixed"),
    "cuda_graphs": ({"implementation": "full_iteration"},),
    "model.recompute": ("none", "selective", "full"),
    "model.attention_backend": ("flash",),
    "method": ({"kind": "lora", "dim": 8},),
    "packing.seed": (7,),
    "packing.packed_sequence_size": (4096,),
    "packing.pad_seq_to_mult": (64,),
    "packing.pad_cu_seqlens": (True,),
    "data.validation": ("validation.jsonl",),
    "data.validation_fraction": (0.1,),
    "checkpoint.folder": ("runs/a",),
    "checkpoint.save_interval": (5,),
    "logging.log_interval": (5,),
    "logging.wandb_project": ("project",),
    "environment.NCCL_DEBUG": ("WARN",),
    "bridge_overrides.model.tensor_model_parallel_size": (2,),
    "bridge_overrides.model.context_parallel_size": (2,),
    "bridge_overrides.model.sequence_parallel": (True,),
    "bridge_overrides.model.cuda_graph_impl": ("local",),
    "bridge_overrides.model.mtp_num_layers": (1,),
    "bridge_overrides.model.seq_length": (4096,),
    "bridge_overrides.train.global_batch_size": (8,),
    "bridge_overrides.train.train_iters": (9,),
    "bridge_overrides.train.num_epochs": (3,),
    "bridge_overrides.train.train_samples": (64,),
    "bridge_overrides.scheduler.lr_warmup_iters": (0, 4),
    "bridge_overrides.scheduler.lr_warmup_fraction": (0.2,),
    "bridge_overrides.scheduler.lr_decay_iters": (6,),
    "bridge_overrides.validation.eval_iters": (4,),
    "bridge_overrides.optimizer.lr": (2e-3,),
    "bridge_overrides.mixed_precision": ("fp16_mixed",),
    "bridge_overrides.checkpoint.load": ("runs/b",),
    "bridge_overrides.dataset.seed": (5,),
    "bridge_overrides.logger.wandb_project": ("other",),
    "bridge_overrides.env_vars.NCCL_DEBUG": ("INFO",),
}


def test_every_shown_value_is_the_run_s(host: None) -> None:
    num_shown, wrong = 0, {}
    for model in (DENSE, WITH_PREDICTION):
        base = recipe_of(model, parallelism__num_gpus=8)
        singles = [{path: value} for path, values in CHANGES.items() for value in values]
        pairs = [first | second for first, second in zip(singles, singles[7:], strict=False)]
        for changes in (*singles, *pairs) if model == DENSE else singles[:4]:
            shown, unlike = _shown_and_unlike(base, changes)
            num_shown += shown
            wrong |= {f"{model} {changes}": unlike} if unlike else {}

    assert not wrong
    assert num_shown > 3000


def _shown_and_unlike(base: SFTRecipe, changes: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return how many values of a recipe are shown, 0 of one that is refused, and those that are not the run's."""
    try:
        recipe = base.override(changes)
        with quiet_host():
            config = to_bridge(recipe)
        view = resolved_view(recipe)
    except ConfigError:
        return 0, {}
    shown = {setting.path: setting.value for setting in view.settings if not setting.path.endswith(".preprocessing")}
    fields = {field.field: field.value for field in view.fields}
    wrong = {
        path: (value, _in_run(config, path))
        for path, value in shown.items()
        if _in_run(config, path) != as_written(value)
    }
    wrong |= {
        field: (fields[field], _in_run(config, path))
        for path, field in SAME.items()
        if fields.get(field) is not None and path in shown and path != "checkpoint.save"
        if _plain(field, _in_run(config, path)) not in (fields[field], None)
    }
    return len(shown), wrong


def _in_run(config: Any, path: str) -> Any:
    if path == "mixed_precision":
        return next((name for name in NAMES if named_precision(name) == config.mixed_precision), config.mixed_precision)
    value = value_at(config, path)
    return value.name if isinstance(value, enum.Enum) else as_written(value)


def _plain(field: str, value: Any) -> Any:
    return "none" if field == "model.recompute" and value is None else value


NAMES = ("bf16_mixed", "fp16_mixed", "bf16_with_mxfp8_mixed")
