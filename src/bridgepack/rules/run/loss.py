"""Rules on how the loss is averaged: over tokens or over micro batches, and by which collective."""

from __future__ import annotations

from collections.abc import Iterator

from bridgepack.records import Change
from bridgepack.rules.rule import ADVICE, ERROR, WARNING, Violation
from bridgepack.rules.run.reading import (
    DIFFUSION_DATASETS,
    FINETUNING_DATASETS,
    PRETRAINING_DATASETS,
    is_on,
)
from bridgepack.rules.run_rule import change, rule
from bridgepack.rules.run_subject import RunSubject

_PER_TOKEN = "model.calculate_per_token_loss"
_AVERAGE = "ddp.average_in_collective"


def _averages_in_collective(subject: RunSubject) -> bool:
    """Say whether gradients are averaged by the collective; Megatron-FSDP turns that off before anything looks.

    Source: megatron/bridge/training/config.py:1083.
    """
    is_turned_off = (is_on(subject, "dist.use_megatron_fsdp") or is_on(subject, "ddp.use_megatron_fsdp")) and not is_on(
        subject, "ddp.disable_symmetric_registration"
    )
    return subject.settings.flag(_AVERAGE) and not is_turned_off


def _is_checked_by_host(subject: RunSubject) -> bool:
    """Say whether validate() looks at the loss: context parallelism with a dataset of fine-tuning."""
    return subject.context_parallel_size > 1 and subject.dataset_kind in FINETUNING_DATASETS


def _per_token_loss(subject: RunSubject, why: str) -> tuple[Change, ...]:
    """Return the changes that turn the loss per token on, with the collective that goes with it."""
    changes = change(_PER_TOKEN, True, why)
    if is_on(subject, _AVERAGE):
        changes += change(_AVERAGE, False, "the loss per token forbids averaging in the collective")
    return changes


@rule("BP011", ERROR, "PSB011; megatron/bridge/training/config.py:1452", noticed="validate()")
def per_token_loss_off_with_context_parallelism(subject: RunSubject) -> Iterator[Violation]:
    """Context parallelism is on in fine-tuning and the loss is not computed per token.

    Why: Crash at start: validate() refuses it, because a rank whose share of a pack is all prompt has no token to
        average over (NaN).
    Bad: model.context_parallel_size 2, model.calculate_per_token_loss false.
    Good: model.context_parallel_size 2, model.calculate_per_token_loss true.
    Fix: Set model.calculate_per_token_loss true and ddp.average_in_collective false.
    Evidence: executed with the real 0.6.2; Megatron-LM #1764, NeMo #14488, Bridge #374.
    """
    if _is_checked_by_host(subject) and not subject.settings.flag(_PER_TOKEN):
        yield Violation(
            where=_PER_TOKEN,
            found="false",
            allowed=f"true, because context parallelism is {subject.context_parallel_size}",
            changes=_per_token_loss(subject, "a rank may hold no trained token"),
        )


@rule("BP012", ERROR, "PSB012; megatron/bridge/training/config.py:1455", noticed="validate()")
def average_in_collective_with_context_parallelism(subject: RunSubject) -> Iterator[Violation]:
    """Context parallelism is on in fine-tuning and gradients are averaged by the collective.

    Why: Crash at start: validate() refuses it; ranks hold different numbers of trained tokens.
    Bad: model.context_parallel_size 2, ddp.average_in_collective true.
    Good: model.context_parallel_size 2, ddp.average_in_collective false.
    Fix: Set ddp.average_in_collective to false.
    Evidence: executed with the real 0.6.2.
    """
    if _is_checked_by_host(subject) and _averages_in_collective(subject):
        yield Violation(
            where=_AVERAGE,
            found="true",
            allowed=f"false, because context parallelism is {subject.context_parallel_size}",
            changes=change(_AVERAGE, False, "ranks hold different numbers of trained tokens"),
        )


@rule("BP013", ERROR, "PSB013; megatron/core/distributed/distributed_data_parallel.py:180", noticed="setup")
def average_in_collective_with_per_token_loss(subject: RunSubject) -> Iterator[Violation]:
    """The loss is computed per token and gradients are averaged by the collective.

    Why: Crash at setup, after the weights were loaded: the wrapper for data parallelism refuses it. Without context
        parallelism validate() lets it pass.
    Bad: model.calculate_per_token_loss true, ddp.average_in_collective true.
    Good: model.calculate_per_token_loss true, ddp.average_in_collective false.
    Fix: Set ddp.average_in_collective to false.
    """
    if not subject.settings.flag(_PER_TOKEN) or not _averages_in_collective(subject):
        return
    if not _is_checked_by_host(subject):
        yield Violation(
            where=_AVERAGE,
            found="true",
            allowed="false, because model.calculate_per_token_loss is true",
            changes=change(_AVERAGE, False, "the loss per token forbids averaging in the collective"),
        )


@rule("BP014", ADVICE, "PSB014; megatron/bridge/training/losses.py:102, megatron/core/pipeline_parallel/schedules.py")
def loss_averaged_over_packs(subject: RunSubject) -> Iterator[Violation]:
    """Rows are packs and the loss is averaged inside each of them before it is averaged over the batch.

    Why: Silent: a pack with ten trained tokens weighs as much as one with four thousand; the curve differs from an
        unpacked run and from other pack sizes.
    Bad: enable_offline_packing true, model.calculate_per_token_loss false.
    Good: model.calculate_per_token_loss true, ddp.average_in_collective false.
    Fix: Set model.calculate_per_token_loss true and ddp.average_in_collective false.
    Evidence: read in the source; Bridge #2952, SkyRL #223. Most recipes of the host average over packs.
    """
    if not subject.packs_offline or subject.settings.flag(_PER_TOKEN) or subject.context_parallel_size > 1:
        return
    yield Violation(
        where=_PER_TOKEN,
        found="false",
        allowed="true, so that every trained token weighs the same",
        changes=_per_token_loss(subject, "every trained token weighs the same"),
    )


@rule("BP032", WARNING, "PSB011, PSB810; megatron/bridge/training/config.py:1439")
def custom_dataset_with_mean_loss_under_context_parallelism(subject: RunSubject) -> Iterator[Violation]:
    """Context parallelism is on with a dataset of your own, and the loss is not computed per token.

    Why: Silent: validate() asks for the loss per token only with the host's own fine-tuning datasets; with another one
        a rank without a trained token gives NaN or a wrong average.
    Bad: dataset my_package.MyProvider, context_parallel_size 2, calculate_per_token_loss false.
    Good: the same with calculate_per_token_loss true.
    Fix: Set model.calculate_per_token_loss true and ddp.average_in_collective false, unless this is pretraining.
    Evidence: read in the source; Megatron-LM #1764.
    """
    if subject.context_parallel_size == 1 or subject.settings.flag(_PER_TOKEN):
        return
    if subject.dataset_kind in FINETUNING_DATASETS | PRETRAINING_DATASETS | DIFFUSION_DATASETS:
        return
    yield Violation(
        where=_PER_TOKEN,
        found=f"false, with {subject.dataset_kind} and context parallelism {subject.context_parallel_size}",
        allowed="true in fine-tuning",
    )


@rule("BP617", ADVICE, "PSB617; megatron/bridge/training/losses.py:102")
def validation_loss_weighs_packs(subject: RunSubject) -> Iterator[Violation]:
    """The validation loss is an average over packs, not over tokens.

    Why: Silent: it cannot be compared with that of an unpacked run, nor with packs of another size.
    Bad: packed validation with model.calculate_per_token_loss false.
    Good: packed validation with model.calculate_per_token_loss true.
    Fix: Set model.calculate_per_token_loss true and ddp.average_in_collective false.
    """
    if subject.packs_offline and subject.evaluates and not subject.settings.flag(_PER_TOKEN):
        yield Violation(
            where=_PER_TOKEN,
            found="false",
            allowed="true, where validation losses are to be compared",
            changes=_per_token_loss(subject, "every trained token weighs the same"),
        )


@rule("BP027", ADVICE, "PSB027; docs/bridge-rl-integration.md:190", noticed="assertion of the framework on top")
def context_parallelism_without_packing(subject: RunSubject) -> Iterator[Violation]:
    """Context parallelism is on and rows are not packed.

    Why: Crash in stacks on top of the host: SkyRL and NeMo-RL refuse context parallelism without packing. The host's
        own fine-tuning accepts it, and splits rows that are mostly padding.
    Bad: model.context_parallel_size 2, enable_offline_packing false.
    Good: model.context_parallel_size 2, enable_offline_packing true.
    Fix: Turn packing on.
    Evidence: SkyRL #274; the host's documentation.
    """
    if subject.context_parallel_size > 1 and not subject.is_packed and subject.dataset_kind in FINETUNING_DATASETS:
        yield Violation(
            where="model.context_parallel_size",
            found=f"{subject.context_parallel_size}, without packing",
            allowed="packing, or no context parallelism",
        )
