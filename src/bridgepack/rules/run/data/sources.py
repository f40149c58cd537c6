"""Rules on the data source of fine-tuning, the options of its dataset and its initial weights."""

from collections.abc import Mapping
from typing import Any

from bridgepack.records.messages import say, setting
from bridgepack.rules.judging.rule import ADVICE, ERROR, EXECUTED, VALIDATE, Found, fixable_rule, rule, wrong
from bridgepack.rules.judging.subject import HAS_SPECS, IS_TEXT, SPECS, Run
from bridgepack.rules.run.reading import fine_tunes

_OPTIONS = "dataset.dataset_kwargs"
_PACK_PATHS = ("packed_train_data_path", "packed_val_data_path", "packed_metadata_path")
#: Options on the meaning of tokens, which the host now reads from `preprocessing`.
#: Source: megatron/bridge/data/builders/gpt_sft.py:59.
_SEMANTIC_NAMES = (
    "add_bos add_eos add_sep answer_only_loss chat chat_loss_mode label_key prompt_completion_config prompt_template"
    " truncation_field truncation_method use_hf_tokenizer_chat_template"
)
_SEMANTIC_OPTIONS = frozenset(_SEMANTIC_NAMES.split())
#: Other options that the host's datasets accept.
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


@rule("BP017", ERROR, when=IS_TEXT, noticed=VALIDATE, evidence=EXECUTED)
def data_source_not_exactly_one(run: Run) -> Found:
    """The dataset has no source, or two.

    Why: Crash at start: validate() refuses it, even if explicit packs make the source unnecessary.
    Bad: dataset_root null and hf_dataset null, with packed_train_data_path set. Good: dataset_root /data/my_sft.
    Fix: Set either {dataset.dataset_root} (any folder if packs are explicit) or {dataset.hf_dataset}.
    Source: PSB017; bridge/data/builders/gpt_sft.py:137
    """
    root, source = run.value("dataset.dataset_root"), run.value("dataset.hf_dataset")
    if (root is None) == (source is None):
        actual = "neither dataset_root nor hf_dataset" if root is None else "dataset_root and hf_dataset"
        yield wrong("dataset.dataset_root", actual, "exactly one of them")
    elif root is not None and not str(root).strip():
        yield wrong("dataset.dataset_root", repr(root), "a folder")


@fixable_rule("BP018", ERROR, "PSB018; bridge/data/builders/gpt_sft.py:200", when=HAS_SPECS, noticed=VALIDATE)
def rewrite_of_explicit_packs(run: Run) -> Found:
    """hf_rewrite is on with explicit packs.

    Why: Crash at start: validate() refuses it, because it would overwrite the packs.
    Bad: hf_rewrite true with packed_train_data_path set. Good: hf_rewrite false with packed_train_data_path set.
    Fix: Set {dataset.hf_rewrite} to false, or remove the packed paths.
    """
    is_rewritten = run.is_on("dataset.hf_rewrite")
    set_paths = [name for name in _PACK_PATHS if is_rewritten and run.value(f"{SPECS}.{name}") is not None]
    if set_paths:
        actual, allowed_values = f"true with {', '.join(set_paths)}", "false with explicit packs"
        yield wrong("dataset.hf_rewrite", actual, allowed_values, to=False, because="explicit packs are not rewritten")


@rule("BP019", ERROR, when=IS_TEXT, noticed="dataset build", evidence=EXECUTED)
def dataset_option_unknown(run: Run) -> Found:
    """dataset_kwargs has an option that no dataset of the host accepts.

    Why: Crash at dataset build: the host raises TypeError for an unexpected keyword argument.
    Bad: dataset_kwargs.pad_to_max_len true. Good: dataset_kwargs.pad_to_max_length true.
    Fix: Remove the option, or correct its spelling.
    Source: PSB019; bridge/data/builders/gpt_sft.py:468, data/datasets/gpt_sft.py:92
    """
    allowed_values = _SEMANTIC_OPTIONS | _OTHER_OPTIONS
    for option in run.dataset_kwargs:
        if option not in allowed_values | _REPORTED_ELSEWHERE:
            yield wrong(f"{_OPTIONS}.{option}", "set", ", ".join(sorted(allowed_values)))


@rule("BP035", ERROR, when=IS_TEXT, noticed="validate()")
def dataset_option_refused(run: Run) -> Found:
    """dataset_kwargs has an option that belongs elsewhere, or a value that is not plain.

    Why: Crash at start: validate() refuses max_num_samples, options that belong to preprocessing, and objects.
    Bad: preprocessing set, dataset_kwargs.answer_only_loss true. Good: preprocessing with its own loss_mode.
    Fix: Use {dataset.max_train_samples} and preprocessing instead.
    Source: PSB019; bridge/data/builders/gpt_sft.py:210, data/base.py:102
    """
    options = run.dataset_kwargs
    if "max_num_samples" in options:
        yield wrong(f"{_OPTIONS}.max_num_samples", "set", setting("dataset.max_train_samples"))
    for option in sorted(_SEMANTIC_OPTIONS & set(options)):
        if run.value("dataset.preprocessing") is not None:
            yield wrong(f"{_OPTIONS}.{option}", "set beside preprocessing", "preprocessing alone")
    for option, value in options.items():
        if _holds_object(value) or not isinstance(option, str):
            yield wrong(f"{_OPTIONS}.{option}", "an object", "names with plain values")


def _holds_object(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "_target_" in value or any(_holds_object(item) for item in value.values())
    return isinstance(value, (list, tuple)) and any(_holds_object(item) for item in value)


@rule("BP023", ADVICE, "PSB023; bridge/recipes/common.py:163", when=IS_TEXT)
def base_recipe_values_with_own_data(run: Run) -> Found:
    """The run trains your own data with the lengths, batch size and steps of the host's base recipe, chosen for SQuAD.

    Why: Silent: examples are cut at 2048 tokens, and 1000 steps of 128 packs are many epochs over a small dataset.
    Bad: own dataset_root with seq_length 2048, global_batch_size 128 and train_iters 1000. Good: values chosen for it.
    Fix: Choose {model.seq_length & dataset.seq_length & dataset.offline_packing_specs.packed_sequence_size},
        {train.global_batch_size} and {train.train_iters} for the data.
    """
    has_own_data = run.value("dataset.dataset_root") is not None
    if has_own_data and all(run.value(path) == value for path, value in _BASE_RECIPE.items()):
        actual = "own data with seq_length 2048, global_batch_size 128, train_iters 1000"
        yield wrong("dataset.dataset_root", actual, "values chosen for the data")


@rule("BP024", ERROR, "PSB024; bridge/training/config.py:1488", noticed=VALIDATE)
def adapter_without_pretrained_weights(run: Run) -> Found:
    """An adapter is trained, but pretrained_checkpoint is not set.

    Why: Crash at start: validate() refuses it. The host's recipes do not set it.
    Bad: peft LoRA, checkpoint.pretrained_checkpoint null. Good: pretrained_checkpoint /checkpoints/llama-3.2-1b.
    Fix: Set {checkpoint.pretrained_checkpoint}.
    """
    if run.is_set("peft") and run.value("checkpoint.pretrained_checkpoint") is None:
        yield wrong("checkpoint.pretrained_checkpoint", "none", "the checkpoint to adapt")


@rule("BP034", ADVICE, "PSB024; bridge/training/finetune.py:50", when=fine_tunes, noticed="finetune(), or never")
def no_weights_to_start_from(run: Run) -> Found:
    """The run fine-tunes without a checkpoint.

    Why: Crash or silent: finetune() refuses it; pretrain() with the same config trains from random weights.
    Bad: pretrained_checkpoint null, checkpoint.load null. Good: pretrained_checkpoint /checkpoints/llama-3.2-1b.
    Fix: Set {checkpoint.pretrained_checkpoint}.
    """
    paths = ("checkpoint.pretrained_checkpoint", "checkpoint.load")
    if run.value("peft") is None and all(run.value(path) is None for path in paths):
        yield wrong(paths[0], say("none, and {checkpoint.load} is none"), "a checkpoint")
