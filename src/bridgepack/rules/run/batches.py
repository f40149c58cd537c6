"""Rules on batch sizes and the GPUs that share them."""

from __future__ import annotations

from collections.abc import Iterator

from bridgepack.rules.rule import ADVICE, ERROR, WARNING, Violation
from bridgepack.rules.run.reading import (
    FINETUNING_DATASETS,
    is_on,
    is_text,
    nearest_multiples,
    require_plain_gpus,
    stated_integer,
)
from bridgepack.rules.run_rule import change, rule
from bridgepack.rules.run_subject import RunSubject

_EVAL_CONTEXT = "dist.eval_context_parallel_size"
_EVAL_SIZES = ("validation.eval_micro_batch_size", "validation.eval_global_batch_size")
_PARALLEL_SIZES = (
    "model.tensor_model_parallel_size",
    "model.pipeline_model_parallel_size",
    "model.context_parallel_size",
    "model.expert_model_parallel_size",
    "model.expert_tensor_parallel_size",
    _EVAL_CONTEXT,
)


def _does_not_divide(subject: RunSubject) -> bool:
    """Say whether the training batch is no whole number of micro batches on every copy of the model.

    Source: megatron/bridge/data/samplers.py:261, megatron/core/num_microbatches_calculator.py:381.
    """
    share = subject.micro_batch_size * subject.data_parallel_size
    if share <= 0 or subject.global_batch_size <= 0 or subject.global_batch_size % share == 0:
        return False
    is_rounded_down = is_on(subject, "train.decrease_batch_size_if_needed") and subject.global_batch_size > share
    return not is_rounded_down or subject.settings.value("dataset.dataloader_type") == "batch"


@rule("BP602", ERROR, "PSB602; megatron/bridge/data/samplers.py:261, megatron/core/num_microbatches_calculator.py:381")
def global_batch_not_divisible(subject: RunSubject) -> Iterator[Violation]:
    """The global batch is not a whole number of micro batches on every copy of the model.

    Why: Crash at setup: the counter of micro batches, or the sampler, refuses it.
    Bad: global_batch_size 12, micro_batch_size 1, 8 GPUs without model parallelism.
    Good: global_batch_size 16, micro_batch_size 1, 8 GPUs without model parallelism.
    Fix: Make global_batch_size a multiple of micro_batch_size x GPUs / (tensor x pipeline x context parallelism).
    Noticed: setup.
    """
    require_plain_gpus(subject)
    if _does_not_divide(subject):
        size, copies, batch = subject.micro_batch_size, subject.data_parallel_size, subject.global_batch_size
        yield Violation(
            where="train.global_batch_size",
            found=str(batch),
            allowed=f"a multiple of {size * copies} ({size} on each of {copies} copies of the model), "
            f"such as {nearest_multiples(batch, size * copies)}",
        )


@rule("BP603", ERROR, "PSB603; megatron/bridge/training/config.py:1335", noticed="validate()")
def evaluation_batch_not_divisible(subject: RunSubject) -> Iterator[Violation]:
    """The evaluation batch is not a whole number of micro batches on every copy of the model.

    Why: Crash at start: validate() refuses it, with or without validation data. What is not set for evaluation is as in
        training; its context parallelism may differ.
    Bad: eval_global_batch_size 12 on 8 GPUs without model parallelism.
    Good: eval_global_batch_size 16 on 8 GPUs without model parallelism.
    Fix: Make eval_global_batch_size a multiple of eval_micro_batch_size x copies of the model in evaluation.
    Evidence: executed with the real 0.6.2.
    """
    require_plain_gpus(subject)
    model_parallel_size = _evaluation_model_parallel_size(subject)
    if subject.world_size % model_parallel_size:
        return
    copies, batch = subject.world_size // model_parallel_size, subject.eval_global_batch_size
    share = subject.eval_micro_batch_size * copies
    if share > 0 and batch > 0 and batch % share:
        yield Violation(
            where=_EVAL_SIZES[1],
            found=str(batch),
            allowed=f"a multiple of {share} ({subject.eval_micro_batch_size} on each of {copies} copies), "
            f"such as {nearest_multiples(batch, share)}",
        )


def _evaluation_model_parallel_size(subject: RunSubject) -> int:
    evaluation = stated_integer(subject, _EVAL_CONTEXT)
    context = evaluation if evaluation is not None and evaluation > 0 else subject.context_parallel_size
    return subject.tensor_model_parallel_size * subject.pipeline_model_parallel_size * context


@rule("BP619", ERROR, "PSB602, PSC303, PSB603; megatron/bridge/training/config.py:1024,1328", noticed="validate()")
def gpus_not_a_multiple_of_model_parallelism(subject: RunSubject) -> Iterator[Violation]:
    """The GPUs cannot be shared out among copies of the model.

    Why: Crash at start: validate() refuses it; a copy of the model takes tensor x pipeline x context parallelism GPUs,
        in training and, where it differs, in evaluation.
    Bad: 8 GPUs with tensor parallelism 2 and context parallelism 3.
    Good: 8 GPUs with tensor parallelism 2 and context parallelism 2.
    Fix: Change the number of GPUs or one of the three sizes.
    Evidence: executed with the real 0.6.2.
    """
    require_plain_gpus(subject)
    for path, size in (
        ("model.context_parallel_size", subject.model_parallel_size),
        (_EVAL_CONTEXT, _evaluation_model_parallel_size(subject)),
    ):
        if subject.world_size % size:
            yield Violation(
                where=path,
                found=f"{subject.world_size} GPUs for copies of {size}",
                allowed=f"a multiple of {size} GPUs, such as {nearest_multiples(subject.world_size, size)}",
            )
            return


@rule("BP628", ERROR, "PSB602, PSB603; megatron/bridge/training/config.py:1335")
def batch_size_not_positive(subject: RunSubject) -> Iterator[Violation]:
    """A batch size is missing, zero or negative.

    Why: Crash at start or setup: validate() divides by it, and the counter of micro batches needs at least one.
    Bad: train.global_batch_size null.
    Good: train.global_batch_size 64.
    Fix: Set train.micro_batch_size and train.global_batch_size; those of evaluation may stay unset.
    Noticed: setup, mostly validate() already.
    """
    for path in ("train.micro_batch_size", "train.global_batch_size", *_EVAL_SIZES):
        if path in _EVAL_SIZES and not subject.settings.is_stated(path):
            continue
        size = subject.settings.integer_or_none(path)
        if (size is None and path not in _EVAL_SIZES) or (size is not None and size <= 0):
            yield Violation(where=path, found=str(size), allowed="a positive number")


@rule("BP629", ERROR, "PSB602; megatron/bridge/training/config.py:1020, megatron/core/parallel_state.py")
def parallel_size_not_positive(subject: RunSubject) -> Iterator[Violation]:
    """A size of parallelism is zero or negative.

    Why: Crash at start: GPUs cannot be divided by it.
    Bad: model.context_parallel_size 0.
    Good: model.context_parallel_size 1.
    Fix: Set it to 1 to turn that kind of parallelism off.
    Noticed: setup, mostly validate() already.
    """
    for path in _PARALLEL_SIZES:
        if not subject.settings.is_stated(path):
            continue
        size = subject.settings.integer_or_none(path)
        if size is not None and size < 1:
            yield Violation(
                where=path,
                found=str(size),
                allowed="1 or more",
                changes=change(path, 1, "1 turns that kind of parallelism off"),
            )


@rule("BP028", ADVICE, "PSB028; megatron/core/pipeline_parallel/schedules.py")
def fewer_micro_batches_than_pipeline_stages(subject: RunSubject) -> Iterator[Violation]:
    """A step has fewer micro batches than the pipeline has stages.

    Why: Slow: stages wait for each other; with one micro batch only one stage works at a time. Packing makes this
        likelier, because it shrinks the number of rows in a batch.
    Bad: pipeline parallelism 4 with global_batch_size 8, micro_batch_size 1 and 4 copies of the model.
    Good: the same with global_batch_size 32.
    Fix: Raise global_batch_size, or lower pipeline parallelism.
    Evidence: SkyRL #223; inferred from the schedule.
    """
    stages = subject.pipeline_model_parallel_size
    if stages == 1 or subject.dataset_kind not in FINETUNING_DATASETS:
        return
    require_plain_gpus(subject)
    share = subject.micro_batch_size * subject.data_parallel_size
    if share > 0 and 0 < subject.global_batch_size < share * stages:
        yield Violation(
            where="train.global_batch_size",
            found=f"{subject.global_batch_size // share} micro batches for {stages} stages",
            allowed=f"{share * stages} or more rows",
        )


@rule("BP615", WARNING, "PSB615; megatron/bridge/data/loaders.py:272", noticed="dataset build")
def last_batch_kept_with_custom_dataset(subject: RunSubject) -> Iterator[Violation]:
    """The last incomplete batch is kept, and the dataset cannot fill it up.

    Why: Crash at dataset build, unless the rows happen to be a multiple of the batch: only GPTSFTDatasetConfig knows
        rows that are padding.
    Bad: dataloader_type batch and drop_last false with DirectHFSFTDatasetConfig.
    Good: dataloader_type batch and drop_last true with DirectHFSFTDatasetConfig.
    Fix: Set dataset.drop_last to true.
    """
    if is_text(subject) or subject.settings.value("dataset.dataloader_type") != "batch":
        return
    if subject.settings.value("dataset.drop_last") is False and subject.settings.value("train.num_epochs") is None:
        yield Violation(
            where="dataset.drop_last",
            found=f"false with {subject.dataset_kind}",
            allowed="true",
            changes=change("dataset.drop_last", True, "only GPTSFTDatasetConfig can fill a batch up"),
        )
