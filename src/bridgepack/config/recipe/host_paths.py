"""Fields of a recipe that say one setting of the host, as one table: `wiring` reads it one way, `recipe_of` the other.

Messages name settings by it, too, so that a fix says what to write into a recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridgepack.config.recipe.recipe import SFTRecipe

SPECS = "dataset.offline_packing_specs"
TRAIN_PATH = f"{SPECS}.packed_train_data_path"
#: Path of the host that a folder of packs decides -> what it is in that folder.
PACK_PATHS = {
    TRAIN_PATH: "training",
    f"{SPECS}.packed_val_data_path": "validation",
    f"{SPECS}.packed_metadata_path": "bridge_metadata.json",
}
#: Path of the host -> field of the recipe with the same value.
TOPOLOGY = {
    f"model.{name}": f"parallelism.{name}"
    for name in (
        *("tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size"),
        *("context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size", "sequence_parallel"),
    )
} | {"dist.eval_context_parallel_size": "parallelism.eval_context_parallel_size"}
#: The same; if the field is null, the base's value stays.
EXCHANGE = {f"model.{name}": f"parallelism.{name}" for name in ("cp_comm_type", "hierarchical_context_parallel_sizes")}
OPTIMIZER = {
    f"optimizer.{name}": f"optimizer.{name}"
    for name in ("lr", "min_lr", "weight_decay", "adam_beta1", "adam_beta2", "clip_grad")
}
ADAPTER = {f"peft.{name}": f"method.{name}" for name in ("target_modules", "dim", "alpha", "dropout")}
BOOKKEEPING = {
    "checkpoint.pretrained_checkpoint": "checkpoint.pretrained",
    "checkpoint.save": "checkpoint.folder",
    "checkpoint.load": "checkpoint.folder",
    "checkpoint.save_interval": "checkpoint.save_interval",
    "logger.log_interval": "logging.log_interval",
    "logger.tensorboard_dir": "logging.tensorboard_dir",
    "logger.wandb_project": "logging.wandb_project",
    "logger.mlflow_experiment": "logging.mlflow_experiment",
}
#: The same for what names the run in a tracker, which is the recipe's name where the field is null.
RUN_NAMES = {f"logger.{name}": f"logging.{name}" for name in ("wandb_exp_name", "mlflow_run_name")}
#: Fields of prompt-completion preprocessing that have the same name and meaning in the host.
PROMPT_COMPLETION = (
    *("separator", "loss_mode", "strip_whitespace", "add_bos", "add_sep", "add_eos", "truncation_method"),
)
#: Path of the host -> field of the recipe that decides it, alone or by default; a section ends with a dot.
FIELDS: Mapping[str, str] = {
    **TOPOLOGY,
    **EXCHANGE,
    **OPTIMIZER,
    **ADAPTER,
    **BOOKKEEPING,
    **RUN_NAMES,
    **{f"dataset.preprocessing.{name}": f"preprocessing.{name}" for name in PROMPT_COMPLETION},
    "dataset.preprocessing": "preprocessing",
    "dataset.seed": "packing.seed",
    "dataset.seq_length": "packing.packed_sequence_size",
    f"{SPECS}.packed_sequence_size": "packing.packed_sequence_size",
    f"{SPECS}.pad_seq_to_mult": "packing.pad_seq_to_mult",
    f"{SPECS}.max_single_sequence_length": "packing.max_sequence_length",
    f"{SPECS}.pad_cu_seqlens": "packing.pad_cu_seqlens",
    "model.seq_length": "packing.packed_sequence_size",
    "model.hf_model_id": "model.name",
    "model.name": "model.name",
    "model.attention_backend": "model.attention_backend",
    "model.recompute_granularity": "model.recompute",
    "model.cuda_graph_impl": "cuda_graphs.implementation",
    "model.cuda_graph_modules": "cuda_graphs.modules",
    "mixed_precision": "precision.recipe",
    "peft": "method.kind",
    "tokenizer.tokenizer_model": "tokenizer.name_or_path",
    "tokenizer.chat_template_path": "tokenizer.chat_template",
    "tokenizer.chat_template": "tokenizer.chat_template",
    "train.micro_batch_size": "batch.micro_batch_size",
    "train.global_batch_size": "batch.global_batch_size",
    "train.num_epochs": "schedule.num_epochs",
    "train.train_iters": "schedule.train_iters",
    "validation.eval_micro_batch_size": "batch.eval_micro_batch_size",
    "validation.eval_global_batch_size": "batch.eval_global_batch_size",
    "validation.eval_interval": "schedule.eval_interval",
    "validation.eval_iters": "schedule.eval_iters",
    "scheduler.lr_warmup_iters": "schedule.warmup_fraction",
    "scheduler.lr_warmup_fraction": "schedule.warmup_fraction",
    "scheduler.lr_decay_style": "schedule.lr_decay_style",
    "env_vars": "environment",
    "env_vars.": "environment",
}


def fields_of(recipe: SFTRecipe) -> Mapping[str, str]:
    """Return path of the host -> field of a recipe, without fields that its kind of preprocessing does not have."""
    fields = type(recipe.preprocessing).model_fields
    section = "preprocessing."
    return {
        path: field
        for path, field in FIELDS.items()
        if not field.startswith(section) or field.removeprefix(section) in fields
    }


def read_fields(table: Mapping[str, str], value_at: Callable[[str], Any]) -> dict[str, Any]:
    """Return name of a field in its section of a recipe -> the host's value, for each path of a table."""
    return {field.rpartition(".")[2]: value_at(path) for path, field in table.items()}
