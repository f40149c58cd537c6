"""Trains a tiny GPT on packed artifacts with megatron-bridge's own pretrain() and finetune(); writes what it saw.

Usage: python -m tests.support.training_run REQUESTS.json RESULTS.json

The requests are a list of `TrainingRequest`, the results a list of {entry point: what `train` saw}. One process
serves them all, because importing megatron-bridge takes longer than training.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRequest:
    """What to train."""

    #: Folder with training/, validation/ and bridge_metadata.json.
    artifact: str
    tokenizer: str
    work: str
    packed_sequence_size: int
    pad_seq_to_mult: int
    pad_cu_seqlens: bool = False
    #: Optimiser steps of pretrain() and of finetune().
    num_steps: int = 24
    num_packs_per_step: int = 4


NUM_LAYERS = 2


def main(requests_path: str, results_path: str) -> None:
    """For each request run pretrain(), then finetune() from its checkpoint."""
    from tests.support.train_on_cpu import import_host

    import_host()
    from bridgepack.canary.cpu.training import run_cuda_calls_on_cpu

    run_cuda_calls_on_cpu()
    requests = [TrainingRequest(**request) for request in json.loads(Path(requests_path).read_text())]
    results = [_pretrain_and_finetune(request) for request in requests]
    Path(results_path).write_text(json.dumps(results))


def _pretrain_and_finetune(request: TrainingRequest) -> dict[str, Any]:
    from megatron.bridge.training.finetune import finetune
    from megatron.bridge.training.gpt_step import forward_step
    from megatron.bridge.training.pretrain import pretrain

    from tests.support.cpu_training import train

    checkpoint = str(Path(request.work, "checkpoint"))
    return {
        "pretrain": train(pretrain, _config(request, save=checkpoint), forward_step)[0],
        "finetune": train(finetune, _config(request, pretrained_checkpoint=checkpoint), forward_step)[0],
    }


def _config(request: TrainingRequest, *, save: str | None = None, pretrained_checkpoint: str | None = None) -> Any:
    from megatron.bridge.training import config as host

    batches = {"global_batch_size": request.num_packs_per_step, "micro_batch_size": 1}
    return host.ConfigContainer(
        model=_model(request),
        dataset=_dataset(request),
        train=host.TrainingConfig(train_iters=request.num_steps, **batches),
        validation=host.ValidationConfig(eval_interval=request.num_steps, eval_iters=1),
        optimizer=host.OptimizerConfig(
            optimizer="adam", lr=1e-2, min_lr=1e-3, clip_grad=1.0, bf16=False, use_distributed_optimizer=False
        ),
        scheduler=host.SchedulerConfig(
            lr_decay_style="cosine", lr_warmup_iters=1, start_weight_decay=0.0, end_weight_decay=0.0
        ),
        ddp=host.DistributedDataParallelConfig(use_distributed_optimizer=False, average_in_collective=False),
        logger=host.LoggerConfig(log_interval=1),
        tokenizer=host.TokenizerConfig(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=request.tokenizer),
        checkpoint=host.CheckpointConfig(
            save=save, save_interval=request.num_steps, pretrained_checkpoint=pretrained_checkpoint, async_save=False
        ),
        dist=host.DistributedInitConfig(distributed_backend="gloo"),
        rng=host.RNGConfig(seed=1),
    )


def _model(request: TrainingRequest) -> Any:
    import torch
    from megatron.bridge.models.gpt_provider import GPTModelProvider

    from tests.support.cpu_training import thd_layer_spec

    return GPTModelProvider(
        num_layers=NUM_LAYERS,
        hidden_size=64,
        ffn_hidden_size=128,
        num_attention_heads=4,
        num_query_groups=2,
        seq_length=request.packed_sequence_size,
        vocab_size=512,
        normalization="RMSNorm",
        position_embedding_type="rope",
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        share_embeddings_and_output_weights=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        calculate_per_token_loss=True,
        transformer_impl="local",
        transformer_layer_spec=thd_layer_spec,
        use_cpu_initialization=True,
        params_dtype=torch.float32,
        gradient_accumulation_fusion=False,
    )


def _dataset(request: TrainingRequest) -> Any:
    from megatron.bridge.data.builders import ChatSFTPreprocessingConfig, GPTSFTDatasetConfig
    from megatron.bridge.data.packing import PackedSequenceSpecs

    artifact = Path(request.artifact)
    return GPTSFTDatasetConfig(
        dataset_root=str(artifact),
        seq_length=request.packed_sequence_size,
        preprocessing=ChatSFTPreprocessingConfig(),
        enable_offline_packing=True,
        offline_packing_specs=PackedSequenceSpecs(
            packed_sequence_size=request.packed_sequence_size,
            pad_seq_to_mult=request.pad_seq_to_mult,
            packed_train_data_path=str(artifact / "training" / "*.idx.parquet"),
            packed_val_data_path=str(artifact / "validation" / "*.idx.parquet"),
            packed_metadata_path=artifact / "bridge_metadata.json",
            pad_cu_seqlens=request.pad_cu_seqlens,
        ),
        dataset_kwargs={"pad_to_max_length": True},
        do_test=False,
        num_workers=0,
        pin_memory=False,
        persistent_workers=False,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
