"""Rules on where fine-tuning starts: its data source, the options of its dataset, its weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bridgepack.rules.rule import ADVICE, ERROR, Violation
from bridgepack.rules.run.reading import FINETUNING_DATASETS, is_on, is_text
from bridgepack.rules.run_rule import change, rule
from bridgepack.rules.run_subject import SPECS, RunSubject
from bridgepack.rules.versions import BRIDGE

_OPTIONS = "dataset.dataset_kwargs"
_PACK_PATHS = ("packed_train_data_path", "packed_val_data_path", "packed_metadata_path")
#: Options that say what the tokens mean; the host takes them from `preprocessing` now.
#: Source: megatron/bridge/data/builders/gpt_sft.py:59.
_SEMANTIC_NAMES = (
    "add_bos add_eos add_sep answer_only_loss chat chat_loss_mode label_key prompt_completion_config prompt_template"
    " truncation_field truncation_method use_hf_tokenizer_chat_template"
)
_SEMANTIC_OPTIONS = frozenset(_SEMANTIC_NAMES.split())
#: Options that the host's datasets take besides.
#: Source: megatron/bridge/data/builders/gpt_sft.py:468, data/datasets/gpt_sft.py:92.
_OTHER_NAMES = (
    "pad_to_max_length pad_seq_length_to_mult hf_dataset global_sample_mapping index_mapping_dir tool_schemas"
    " get_attention_mask_from_fusion min_seq_length ceil_to_power_2 output_original_text virtual_tokens"
    " tokens_to_generate sep_id special_tokens return_cu_seqlen"
)
_OTHER_OPTIONS = frozenset(_OTHER_NAMES.split())
#: Options that other rules report: BP035 and the rule on chat templates.
_REPORTED_ELSEWHERE = frozenset({"max_num_samples", "chat_template"})
#: Values of the host's base recipe. Source: megatron/bridge/recipes/common.py:163,185.
_BASE_RECIPE = {"dataset.seq_length": 2048, "train.global_batch_size": 128, "train.train_iters": 1000}


@rule("BP017", ERROR, "PSB017; megatron/bridge/data/builders/gpt_sft.py:137", versions={BRIDGE: ">=0.6"})
def data_source_not_exactly_one(subject: RunSubject) -> Iterator[Violation]:
    """The dataset has no source, or two.

    Why: Crash at start: validate() refuses it, also where explicit packs make the source unnecessary.
    Bad: dataset_root null and hf_dataset null, with packed_train_data_path set.
    Good: dataset_root /data/my_sft next to the packed paths.
    Fix: Set dataset_root, to any folder where packs are explicit, or hf_dataset; not both.
    Noticed: validate().
    Evidence: executed with the real 0.6.2.
    """
    if not is_text(subject):
        return
    root, source = subject.settings.value("dataset.dataset_root"), subject.settings.value("dataset.hf_dataset")
    if (root is None) == (source is None):
        found = "neither dataset_root nor hf_dataset" if root is None else "dataset_root and hf_dataset"
        yield Violation(where="dataset.dataset_root", found=found, allowed="exactly one of them")
    elif root is not None and not str(root).strip():
        yield Violation(where="dataset.dataset_root", found=repr(root), allowed="a folder")


@rule("BP018", ERROR, "PSB018; megatron/bridge/data/builders/gpt_sft.py:200", noticed="validate()")
def rewrite_of_explicit_packs(subject: RunSubject) -> Iterator[Violation]:
    """The source is to be written anew and the packs are files that were named.

    Why: Crash at start: validate() refuses it, because it would overwrite them.
    Bad: hf_rewrite true with packed_train_data_path set.
    Good: hf_rewrite false with packed_train_data_path set.
    Fix: Set hf_rewrite to false, or leave the packed paths out.
    """
    if not subject.has_specs or not is_on(subject, "dataset.hf_rewrite"):
        return
    named = [name for name in _PACK_PATHS if subject.settings.value(f"{SPECS}.{name}") is not None]
    if named:
        yield Violation(
            where="dataset.hf_rewrite",
            found=f"true with {', '.join(named)}",
            allowed="false where packs are named",
            changes=change("dataset.hf_rewrite", False, "named packs are not rewritten"),
        )


@rule(
    "BP019",
    ERROR,
    "PSB019; megatron/bridge/data/builders/gpt_sft.py:468, data/datasets/gpt_sft.py:92",
    versions={BRIDGE: ">=0.6"},
)
def dataset_option_unknown(subject: RunSubject) -> Iterator[Violation]:
    """dataset_kwargs holds an option that no dataset of the host takes.

    Why: Crash at dataset build: TypeError, unexpected keyword argument.
    Bad: dataset.dataset_kwargs.pad_to_max_len true.
    Good: dataset.dataset_kwargs.pad_to_max_length true.
    Fix: Remove the option, or spell it as allowed.
    Noticed: dataset build.
    Evidence: executed with the real 0.6.2.
    """
    if not is_text(subject):
        return
    allowed = _SEMANTIC_OPTIONS | _OTHER_OPTIONS
    for option in subject.dataset_kwargs:
        if option not in allowed | _REPORTED_ELSEWHERE:
            yield Violation(where=f"{_OPTIONS}.{option}", found="set", allowed=", ".join(sorted(allowed)))


@rule(
    "BP035", ERROR, "PSB019; megatron/bridge/data/builders/gpt_sft.py:210, data/base.py:102", versions={BRIDGE: ">=0.6"}
)
def dataset_option_refused(subject: RunSubject) -> Iterator[Violation]:
    """dataset_kwargs holds an option that has another place, or something else than plain values.

    Why: Crash at start: validate() refuses max_num_samples, options that say what preprocessing says, and objects.
    Bad: preprocessing set and dataset.dataset_kwargs.answer_only_loss true.
    Good: preprocessing set, with its own loss_mode.
    Fix: Use max_train_samples and preprocessing instead.
    Noticed: validate().
    """
    if not is_text(subject) or not subject.dataset_kwargs:
        return
    options = subject.dataset_kwargs
    if "max_num_samples" in options:
        yield Violation(where=f"{_OPTIONS}.max_num_samples", found="set", allowed="dataset.max_train_samples")
    for option in sorted(_SEMANTIC_OPTIONS & set(options)):
        if subject.settings.value("dataset.preprocessing") is not None:
            yield Violation(
                where=f"{_OPTIONS}.{option}", found="set beside preprocessing", allowed="preprocessing alone"
            )
    for option, value in options.items():
        if _holds_object(value) or not isinstance(option, str):
            yield Violation(where=f"{_OPTIONS}.{option}", found="an object", allowed="plain values under names")


def _holds_object(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "_target_" in value or any(_holds_object(item) for item in value.values())
    return isinstance(value, (list, tuple)) and any(_holds_object(item) for item in value)


@rule("BP023", ADVICE, "PSB023; megatron/bridge/recipes/common.py:163")
def base_recipe_values_with_own_data(subject: RunSubject) -> Iterator[Violation]:
    """Own data is trained with the lengths, batch and steps of the host's base recipe, which are for SQuAD.

    Why: Silent: examples are cut at 2048 tokens, and 1000 steps of 128 packs are many epochs over a small set.
    Bad: own dataset_root with seq_length 2048, global_batch_size 128 and train_iters 1000.
    Good: own dataset_root with values chosen for it.
    Fix: Choose seq_length, packed_sequence_size, global_batch_size and train_iters for the data.
    """
    if not is_text(subject) or subject.settings.value("dataset.dataset_root") is None:
        return
    if all(subject.settings.value(path) == value for path, value in _BASE_RECIPE.items()):
        yield Violation(
            where="dataset.dataset_root",
            found="own data with seq_length 2048, global_batch_size 128, train_iters 1000",
            allowed="values chosen for the data",
        )


@rule("BP024", ERROR, "PSB024; megatron/bridge/training/config.py:1488", noticed="validate()")
def adapter_without_pretrained_weights(subject: RunSubject) -> Iterator[Violation]:
    """An adapter is trained and no pretrained checkpoint is named.

    Why: Crash at start: validate() refuses it. The host's recipes leave it open, it must be filled in.
    Bad: peft LoRA with checkpoint.pretrained_checkpoint null.
    Good: peft LoRA with checkpoint.pretrained_checkpoint /checkpoints/llama-3.2-1b.
    Fix: Set checkpoint.pretrained_checkpoint.
    """
    if not subject.settings.is_stated("peft") or subject.settings.value("peft") is None:
        return
    if subject.settings.value("checkpoint.pretrained_checkpoint") is None:
        yield Violation(where="checkpoint.pretrained_checkpoint", found="none", allowed="the checkpoint to adapt")


@rule("BP034", ADVICE, "PSB024; megatron/bridge/training/finetune.py:50", noticed="finetune(), or never")
def no_weights_to_start_from(subject: RunSubject) -> Iterator[Violation]:
    """The run fine-tunes and names no checkpoint.

    Why: Crash or silent: finetune() refuses it; pretrain() with the same config trains from random weights.
    Bad: checkpoint.pretrained_checkpoint null and checkpoint.load null.
    Good: checkpoint.pretrained_checkpoint /checkpoints/llama-3.2-1b.
    Fix: Set checkpoint.pretrained_checkpoint.
    """
    if subject.dataset_kind not in FINETUNING_DATASETS or subject.settings.value("peft") is not None:
        return
    paths = ("checkpoint.pretrained_checkpoint", "checkpoint.load")
    if all(subject.settings.value(path) is None for path in paths):
        yield Violation(where=paths[0], found="none, and checkpoint.load is none", allowed="a checkpoint")
