"""Rules on the types of values: strings, numbers and switches of the wrong type."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bridgepack.rules.judging.environment import BRIDGE
from bridgepack.rules.judging.rule import ERROR, WARNING, Found, change, fixable_rule, rule, wrong
from bridgepack.rules.judging.subject import SPECS, Run
from bridgepack.rules.run.reading import FINETUNING_DATASETS, PRETRAINING_DATASETS


@rule("BP043", ERROR, "bridge/recipes/__init__.py", versions={BRIDGE: ">=0.6"}, noticed="training's config")
def no_recipe_of_the_host(run: Run) -> Found:
    """model.name is not a recipe of Megatron-Bridge, a model on the hub or a folder.

    Why: Crash before training, when packs are built: no ConfigContainer can be made, rules on the model are skipped.
    Bad: model.name qwen3_8b_sft_4gpus_h100_bf16. Good: qwen3_8b_sft_4gpu_h100_bf16_config, Qwen/Qwen3-8B, ./weights.
    Fix: Set the name of a recipe, the model's id on the hub with its organisation, or a folder with a slash.
    Evidence: executed with the real 0.6.2.
    """
    if run.config.no_recipe is not None:
        name, hint = run.config.no_recipe
        yield wrong(
            "model.name",
            name,
            f"a recipe of megatron-bridge {run.release.bridge}, org/name on the hub, or a folder",
            fix=hint,
        )


class Kind(StrEnum):
    """The type of a setting; null is allowed as well, except for `_NEVER_NULL`."""

    WHOLE = "a whole number"
    NUMBER = "a number"
    SWITCH = "true or false"
    TEXT = "a text"
    MAPPING = "a mapping"


_WHOLE = (
    "train.micro_batch_size train.global_batch_size train.train_iters train.train_samples train.eval_iters "
    "train.eval_interval validation.eval_micro_batch_size validation.eval_global_batch_size validation.eval_iters "
    "validation.eval_interval dataset.seq_length dataset.max_train_samples dataset.num_workers dataset.seed "
    "model.seq_length model.tensor_model_parallel_size model.pipeline_model_parallel_size model.context_parallel_size "
    "model.virtual_pipeline_model_parallel_size model.expert_model_parallel_size model.expert_tensor_parallel_size "
    "model.num_moe_experts model.mtp_num_layers model.vocab_size dist.eval_context_parallel_size scheduler.max_steps "
    "scheduler.lr_decay_iters scheduler.lr_decay_samples scheduler.lr_warmup_iters scheduler.lr_warmup_samples"
)
_SPEC_WHOLE = "packed_sequence_size max_single_sequence_length num_tokenizer_workers pad_seq_to_mult"
_SWITCHES = (
    "dataset.enable_offline_packing dataset.enable_in_batch_packing dataset.do_validation dataset.do_test "
    "dataset.hf_rewrite dataset.drop_last model.sequence_parallel model.calculate_per_token_loss "
    "model.hybrid_context_parallel model.apply_rope_fusion model.tp_comm_overlap ddp.average_in_collective "
    "ddp.use_megatron_fsdp ddp.use_distributed_optimizer dist.use_decentralized_pg dist.use_megatron_fsdp "
    "validation.skip_train rerun_state_machine.check_for_nan_in_loss scheduler.override_opt_param_scheduler"
)
_NUMBERS = (
    "train.num_epochs dataset.hf_validation_proportion scheduler.lr_warmup_fraction scheduler.start_weight_decay"
    " scheduler.end_weight_decay optimizer.lr optimizer.min_lr"
)
#: Setting -> its type.
KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(_WHOLE.split(), Kind.WHOLE),
    **{f"{SPECS}.{name}": Kind.WHOLE for name in _SPEC_WHOLE.split()},
    **dict.fromkeys((*_SWITCHES.split(), f"{SPECS}.pad_cu_seqlens"), Kind.SWITCH),
    **dict.fromkeys(_NUMBERS.split(), Kind.NUMBER),
    **dict.fromkeys(("dataset.dataloader_type", f"{SPECS}.tokenizer_model_name"), Kind.TEXT),
    **dict.fromkeys(("dataset.dataset_kwargs", SPECS, "dataset.hf_dataset"), Kind.MAPPING),
}
#: Settings that the host computes with without a look for None.
_NEVER_NULL = frozenset(
    {
        *(f"model.{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "context", "expert_model")),
        *("scheduler.lr_warmup_iters", f"{SPECS}.packed_sequence_size"),
    }
)
#: Settings that every class of dataset has. Source: megatron/bridge/data/base.py:28.
_ANY_DATASET = frozenset({"dataset.dataloader_type", "dataset.num_workers", "dataset.drop_last"})
_TYPES: Mapping[Kind, TypeAdapter[Any]] = {
    Kind.WHOLE: TypeAdapter(int),
    Kind.NUMBER: TypeAdapter(float),
    Kind.SWITCH: TypeAdapter(bool),
    Kind.TEXT: TypeAdapter(str),
    Kind.MAPPING: TypeAdapter(Mapping[Any, Any]),
}


def _convert(value: Any, kind: Kind, *, strict: bool = False) -> Any:
    """Return the value converted to the kind, or None: (4096.0, WHOLE) -> 4096, ("True", SWITCH) -> True."""
    try:
        return _TYPES[kind].validate_python(value, strict=strict)
    except ValidationError:
        return None


def _wrong_kinds(run: Run) -> Iterator[tuple[str, Any, Kind, Any]]:
    """Yield (path, value, expected kind, converted value or None) of settings of the wrong kind or wrongly null."""
    hosts = FINETUNING_DATASETS | PRETRAINING_DATASETS
    is_own = run.is_stated("dataset._target_") and run.dataset_kind not in hosts  # its fields may have any type
    for path, kind in KINDS.items():
        if is_own and path.startswith("dataset.") and path not in _ANY_DATASET:
            continue
        value, (holder, _, name) = run.stated_value(path), path.rpartition(".")
        may_be_null = path not in _NEVER_NULL or name not in _fields(run.stated_value(holder))
        if not (value is None and may_be_null) and _convert(value, kind, strict=True) is None:
            yield path, value, kind, _convert(value, kind)


@fixable_rule(
    "BP029",
    ERROR,
    "PSB019, PSB020; bridge/training/config.py:1466",
    noticed="start for numbers, never for switches",
)
def setting_of_wrong_kind(run: Run) -> Found:
    """A setting has a value of the wrong type.

    Why: Crash or silent: a string for a number fails when compared; a string for a switch counts as on, even "false";
        null fails where the host computes with the value.
    Bad: micro_batch_size "1"; enable_offline_packing "false"; packed_sequence_size null. Good: without quotes.
    Fix: Write numbers and true or false without quotes, and a number for null.
    """
    for path, value, kind, right_value in _wrong_kinds(run):
        if right_value is None or isinstance(value, str):
            changes = () if right_value is None else change(path, right_value, f"the setting is {kind}")
            yield wrong(path, repr(value), str(kind), changes=changes)


@fixable_rule(
    "BP030",
    WARNING,
    "PSB020; bridge/training/config.py:1165, data/packing/gpt_sft.py:79",
    noticed="by accident",
)
def setting_of_neighbouring_kind(run: Run) -> Found:
    """A setting holds a number for a switch, a switch for a number, or a fraction for a whole number.

    Why: Silent or crash later: most of the host accepts 1 as true and 4096.0 as 4096, but some places check for the
        literal true, or use the number as a size.
    Bad: enable_offline_packing 1; packed_sequence_size 4096.0. Good: true; 4096.
    Fix: Write the value with the right type.
    """
    for path, value, kind, right_value in _wrong_kinds(run):
        if right_value is not None and not isinstance(value, str):
            yield wrong(path, repr(value), str(kind), to=right_value, because=f"the setting is {kind}")


def _fields(section: object) -> Mapping[str, object]:
    return section if isinstance(section, Mapping) else {}
