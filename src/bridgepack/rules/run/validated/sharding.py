"""A rule on fully sharded data parallelism of version 2, which Megatron-Bridge supports from 0.7 on."""

from collections.abc import Iterator
from typing import Any

from bridgepack.rules.judging.environment import BRIDGE
from bridgepack.rules.judging.rule import ERROR, VALIDATE, Found, rule, wrong
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.run.reading import switches_on
from bridgepack.rules.run.validated.precision import quantisation

VERSION = "ddp.megatron_fsdp_version"
_SWITCHES = ("dist.use_megatron_fsdp", "ddp.use_megatron_fsdp")
_PRECISION = "mixed_precision"
#: Setting -> the value that version 2 needs. `mixed_precision` writes over optimizer.loss_scale.
_NEEDED: dict[str, Any] = {
    **dict.fromkeys(
        (
            *("model.tensor_model_parallel_size", "model.pipeline_model_parallel_size", "model.context_parallel_size"),
            *("model.expert_model_parallel_size", "ddp.num_distributed_optimizer_instances"),
        ),
        1,
    ),
    **dict.fromkeys(
        (
            *("dist.use_tp_pp_dp_mapping", "rng.data_parallel_random_init", "model.calculate_per_token_loss"),
            *("optimizer.use_precision_aware_optimizer", "optimizer.optimizer_cpu_offload"),
            *("optimizer.use_layer_wise_distributed_optimizer", "optimizer.optimizer_cuda_graph"),
            *("ddp.megatron_fsdp_cuda_graph_mode",),
        ),
        False,
    ),
    **dict.fromkeys(
        (
            *("model.num_moe_experts", "model.virtual_pipeline_model_parallel_size"),
            *("checkpoint.save", "checkpoint.load", "checkpoint.pretrained_checkpoint"),
        )
    ),
    "optimizer.clip_grad": 0.0,
    "ddp.outer_dp_sharding_strategy": "no_shard",
    "model.cuda_graph_impl": "none",
}


def is_second_version(run: Run) -> bool:
    """Return whether Megatron-FSDP of version 2 is on."""
    return run.stated_value(VERSION) == 2 and bool(switches_on(run, *_SWITCHES))


@rule("BP838", ERROR, when=is_second_version, versions={BRIDGE: ">=0.7"}, noticed=VALIDATE)
def sharded_parameters_of_version_2_unfit(run: Run) -> Found:
    """Fully sharded data parallelism of version 2 is on with settings that it does not support.

    Why: Crash at start: it neither reads nor writes checkpoints, and cannot sum the loss by tokens, which packs
        need; it is for data-parallel training in bf16 alone.
    Bad: use_megatron_fsdp true, megatron_fsdp_version 2, checkpoint.pretrained_checkpoint set. Good: version 1.
    Fix: Set {ddp.megatron_fsdp_version} to 1 for fine-tuning, or the named settings to what is allowed.
    Evidence: executed with main of 2026-08-22.
    Source: bridge/training/config.py (_validate_and_apply_megatron_fsdp_v2_configs) of 0.7
    """
    for path, actual, allowed_values in _unfit(run):
        yield wrong(path, f"{actual} with megatron_fsdp_version 2", allowed_values, group=path)


def _unfit(run: Run) -> Iterator[tuple[str, str, str]]:
    """Yield (setting, value, what is allowed)."""
    for path, requirement in _NEEDED.items():
        value = run.stated_value(path)
        if value != requirement and not (value is None and requirement in (1, False, "none", "no_shard", 0.0)):
            yield path, _words(value), _words(requirement)
    precision = run.stated_value(_PRECISION)
    kind = quantisation(run)
    if kind is not None or (isinstance(precision, str) and not precision.startswith("bf16")):
        yield _PRECISION, kind or str(precision), "bf16_mixed"


def _words(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
