"""The ConfigContainer of one step: of the recipe what the step's arithmetic depends on."""

import copy
from typing import Any

import torch

from bridgepack.canary.records import RunRequest
from bridgepack.canary.tiny_model import WITHOUT_KERNELS, assign_known

_DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


def step_config(config: Any, request: RunRequest) -> Any:
    """Return the ConfigContainer of a step, made of that of the recipe with its tiny model, which is changed."""
    from megatron.bridge.training import config as host

    assign_known(config.model, _model_values(request))
    return host.ConfigContainer(
        model=config.model,
        dataset=_dataset(config.dataset, request),
        train=host.TrainingConfig(train_iters=1, micro_batch_size=1, global_batch_size=request.num_rows),
        validation=host.ValidationConfig(eval_interval=None, eval_iters=0),
        optimizer=host.OptimizerConfig(
            optimizer="adam", lr=1e-3, clip_grad=0.0, bf16=False, use_distributed_optimizer=False
        ),
        scheduler=host.SchedulerConfig(lr_decay_style="constant"),
        ddp=host.DistributedDataParallelConfig(
            use_distributed_optimizer=False,
            overlap_grad_reduce=False,
            overlap_param_gather=False,
            average_in_collective=bool(config.ddp.average_in_collective) and request.is_packed,
            grad_reduce_in_fp32=request.precision == "bfloat16",
        ),
        logger=host.LoggerConfig(log_interval=1),
        tokenizer=host.TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=request.vocab_size),
        checkpoint=host.CheckpointConfig(async_save=False),
        dist=host.DistributedInitConfig(distributed_backend="gloo" if request.kernel == "reference" else "nccl"),
        rng=host.RNGConfig(seed=1),
    )


def _model_values(request: RunRequest) -> dict[str, Any]:
    layout, dtype = request.layout, _DTYPES[request.precision]
    values: dict[str, Any] = {
        "tensor_model_parallel_size": layout.tensor,
        "pipeline_model_parallel_size": layout.pipeline,
        "context_parallel_size": layout.context,
        "sequence_parallel": layout.sequence_parallel,
        "seq_length": request.packed_sequence_size,
        "vocab_size": request.vocab_size,
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        "bf16": request.precision == "bfloat16",
        "variable_seq_lengths": False,
    }
    if not request.is_packed:
        # What packed steps are measured by is the loss per token, whatever the recipe says.
        values["calculate_per_token_loss"] = True
    if request.kernel != "reference":
        return values
    from bridgepack.canary.cpu.reference_attention import reference_layer_spec

    return {**values, **WITHOUT_KERNELS, "transformer_layer_spec": reference_layer_spec}


def _dataset(dataset: Any, request: RunRequest) -> Any:
    """Return the recipe's dataset config with the sizes of the step's packs."""
    own = copy.copy(dataset)
    assign_known(own, {"seq_length": request.packed_sequence_size, "dataloader_type": "batch", "num_workers": 0})
    specs = copy.copy(own.offline_packing_specs)
    specs.packed_sequence_size = request.packed_sequence_size
    specs.pad_seq_to_mult = request.pad_seq_to_mult
    specs.pad_cu_seqlens = request.pad_cu_seqlens
    own.offline_packing_specs = specs
    return own
