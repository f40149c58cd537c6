"""Training settings: model, method, schedule, optimiser, precision, CUDA graphs, checkpoints, logging, guard."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bridgepack.config.recipe.packing import PositiveInt
from bridgepack.config.section import Flag, Section

NotNegativeInt = Annotated[int, Field(ge=0, strict=True)]
Text = Annotated[str, Field(min_length=1)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0, strict=True)]


class ModelConfig(Section):
    """Model to train."""

    name: Text
    """Recipe of Megatron-Bridge, e.g. `qwen3_8b_sft_4gpu_h100_bf16_config`, whose model, optimiser and kernels are the
    base of the run; or an id on the Hugging Face hub or a folder, e.g. `Qwen/Qwen3-8B`."""
    revision: Text | None = None
    """Commit, tag or branch of a model on the hub; Megatron-Bridge's recipes set their own."""
    trust_remote_code: Flag = False
    """Run Python code that comes with the model. Only for models whose code you have read."""
    attention_backend: Literal["auto", "fused", "flash", "unfused"] | None = None
    """Attention kernel; by default as in the base recipe. `auto` chooses one that supports packed rows."""
    recompute: Literal["none", "selective", "full"] | None = None
    """Activations to recompute in the backward pass: none, those of attention, or whole layers; by default as in the
    base recipe."""


class FullMethod(Section):
    """Trains all weights."""

    kind: Literal["full"] = "full"


class AdapterMethod(Section):
    """Trains low-rank adapters; the weights are frozen."""

    kind: Literal["lora", "dora"]
    """`lora` (arXiv 2106.09685) or `dora` (arXiv 2402.09353)"""
    target_modules: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None
    """Linear layers with an adapter, in Megatron's names; `*` matches any text. By default those that the base recipe
    chose for such adapters, else those of the model's attention, Mamba or linear attention, and MLPs: linear_qkv,
    linear_proj, linear_fc1 and linear_fc2 in a plain transformer. DoRA cannot wrap experts."""
    dim: PositiveInt = 32
    """Rank of the adapters."""
    alpha: PositiveInt = 32
    """Scale of the adapters; their output is multiplied by `alpha / dim`."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0, strict=True)] = 0.0
    """Dropout on the adapters' input."""


Method = Annotated[FullMethod | AdapterMethod, Field(discriminator="kind")]


class ScheduleConfig(Section):
    """Length of the run and learning rate schedule."""

    num_epochs: Annotated[float, Field(gt=0.0, strict=True)] | None = None
    """Passes over the training packs; 1 by default. `train_iters` follows from the number of packs."""
    train_iters: PositiveInt | None = None
    """Optimiser steps, instead of `num_epochs`."""
    warmup_fraction: Annotated[float, Field(ge=0.0, lt=1.0, strict=True)] = 0.05
    """Fraction (0-1) of the steps for learning rate warmup."""
    lr_decay_style: Literal["constant", "linear", "cosine", "inverse-square-root", "WSD"] = "cosine"
    """Learning rate decay after the warmup."""
    eval_interval: PositiveInt | None = None
    """Steps between evaluations; by default a tenth of the run."""
    eval_iters: NotNegativeInt | None = None
    """Steps per evaluation, 0 for no evaluation; by default as many as the validation packs fill."""

    @model_validator(mode="after")
    def _check_one_length(self) -> Self:
        if self.num_epochs is not None and self.train_iters is not None:
            raise ValueError(
                f"num_epochs is {self.num_epochs} and train_iters is {self.train_iters}; only one of them can be set. "
                "Remove one."
            )
        return self


class OptimizerConfig(Section):
    """Optimiser."""

    lr: Annotated[float, Field(gt=0.0, strict=True)] | None = None
    """Peak learning rate; by default 5e-6 for full training and 1e-4 for adapters, as in Megatron-Bridge's own
    recipes."""
    min_lr: Annotated[float, Field(ge=0.0, strict=True)] = 0.0
    """Final learning rate."""
    weight_decay: Annotated[float, Field(ge=0.0, strict=True)] = 0.1
    """Weight decay."""
    adam_beta1: Fraction = 0.9
    """Decay of Adam's first moment."""
    adam_beta2: Fraction = 0.98
    """Decay of Adam's second moment."""
    clip_grad: Annotated[float, Field(ge=0.0, strict=True)] = 1.0
    """Maximum gradient norm; 0 disables clipping."""

    @model_validator(mode="after")
    def _check_min_lr(self) -> Self:
        if self.lr is not None and self.min_lr > self.lr:
            raise ValueError(f"min_lr is {self.min_lr}; allowed: 0 to lr, {self.lr}. Lower it.")
        return self


class PrecisionConfig(Section):
    """Number formats."""

    recipe: Literal[
        "bf16_mixed",
        "fp16_mixed",
        "bf16_with_fp8_delayed_scaling_mixed",
        "bf16_with_fp8_current_scaling_mixed",
        "bf16_with_fp8_subchannel_scaling_mixed",
        "bf16_with_mxfp8_mixed",
        "bf16_with_nvfp4_mixed",
    ] = "bf16_mixed"
    """Mixed-precision recipe, in Megatron-Bridge's names. FP8 needs layer widths per rank in multiples of 16, MXFP8 and
    NVFP4 of 32."""


class CudaGraphConfig(Section):
    """CUDA graphs."""

    implementation: Literal["none", "transformer_engine", "full_iteration"] = "none"
    """`none`, parts of layers by TransformerEngine, or the whole iteration."""
    modules: tuple[Literal["mlp", "moe", "moe_router", "moe_preprocess", "mamba"], ...] = ()
    """Modules that TransformerEngine captures; attention over packed rows cannot be captured."""

    @model_validator(mode="after")
    def _check_modules(self) -> Self:
        if bool(self.modules) != (self.implementation == "transformer_engine"):
            raise ValueError(
                f"modules is {list(self.modules)} and implementation is {self.implementation}; modules are for "
                "transformer_engine, which needs at least one. Set both or none."
            )
        return self


class CheckpointConfig(Section):
    """Checkpoints."""

    pretrained: Text | None = None
    """Folder of the pretrained weights, in Megatron's format; required for fine-tuning."""
    folder: Text | None = None
    """Folder to save this run's checkpoints to and resume from; by default as in the base recipe."""
    save_interval: PositiveInt | None = None
    """Steps between checkpoints; by default as between evaluations."""


class LoggingConfig(Section):
    """Where the run logs its metrics."""

    log_interval: PositiveInt = 1
    """Steps between log lines."""
    tensorboard_dir: Text | None = None
    """Folder of the TensorBoard logs; by default as in the base recipe."""
    wandb_project: Text | None = None
    """Project in Weights & Biases; none by default."""
    wandb_exp_name: Text | None = None
    """Name of the run in Weights & Biases; by default the recipe's."""
    mlflow_experiment: Text | None = None
    """Experiment in MLflow; none by default."""
    mlflow_run_name: Text | None = None
    """Name of the run in MLflow; by default the recipe's."""


class GuardConfig(Section):
    """Checks during training; they stop the run if packed rows are not computed as packed."""

    enabled: Flag = True
    """Check runs started by `scripts/train.py`."""
    first_steps: NotNegativeInt = 5
    """Number of steps to check at the start of every job, including resumed ones."""
    every_steps: PositiveInt | None = 100
    """After that, check every step that is a multiple of this; null for none."""

    @model_validator(mode="after")
    def _check_watches_something(self) -> Self:
        if self.enabled and self.first_steps == 0 and self.every_steps is None:
            raise ValueError(
                "first_steps is 0 and every_steps is null, so no step is checked; allowed: at least one of them. "
                "Set enabled to false to check nothing."
            )
        return self

    def watches(self, step: int, *, first_step: int) -> bool:
        """Return whether the guard checks a step.

        Args:
            step: as Megatron-Bridge logs it, from 1.
            first_step: first step of this job.
        """
        is_early = step - first_step < self.first_steps
        return self.enabled and (is_early or (self.every_steps is not None and step % self.every_steps == 0))


class LossesConfig(Section):
    """Losses by source, from the packs as they are; they change nothing in training."""

    by_source: Flag | None = None
    """Follow the loss of each source; null does where the packs have two or more sources and it can work."""
    by_row: Flag = False
    """Also write the loss of each row at each step, about 6 bytes a row and epoch."""
    every_steps: PositiveInt | None = None
    """Steps between reports; null for the interval at which Megatron-Bridge logs."""
