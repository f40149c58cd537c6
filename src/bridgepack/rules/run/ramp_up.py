"""Rules on batches that grow during training."""

from __future__ import annotations

from collections.abc import Iterator

from bridgepack.rules.rule import ERROR, WARNING, Violation
from bridgepack.rules.run_rule import change, rule
from bridgepack.rules.run_subject import RunSubject
from bridgepack.rules.versions import CORE


@rule("BP006", ERROR, "PSB006; megatron/bridge/data/batch_utils.py:55, training/train.py:882", versions={CORE: "<0.18"})
def batch_size_ramp_up_with_packing(subject: RunSubject) -> Iterator[Violation]:
    """The batch grows during training and rows are packs.

    Why: Crash at the first step: the loader always gives the full batch, which is cut into as many pieces as the
        smaller batch has, so a micro batch holds more than one pack.
    Bad: rampup_batch_size [8, 8, 10000] with global_batch_size 64 and offline packing.
    Good: rampup_batch_size null.
    Fix: Remove rampup_batch_size.
    Noticed: first step.
    Evidence: read in the source; in megatron-core 0.18 and newer the ramp-up is ignored (BP038).
    """
    path = "train.rampup_batch_size"
    if not subject.packs_offline or subject.settings.value(path) is None:
        return
    if subject.settings.value("dataset.dataloader_type") == "batch":
        yield Violation(
            where=path,
            found=str(subject.settings.value(path)),
            allowed="null with offline packing",
            changes=change(path, None, "the loader always gives the full batch"),
        )


@rule(
    "BP038",
    WARNING,
    "PSB006; megatron/core/num_microbatches_calculator.py:79, megatron/bridge/training/initialize.py:115",
    versions={CORE: ">=0.18"},
)
def batch_size_ramp_up_ignored(subject: RunSubject) -> Iterator[Violation]:
    """A growing batch is asked for, in a way that megatron-core no longer reads.

    Why: Silent: the full batch is used from the first step on; rank 0 logs a line. The host does not hand
        step_batch_size_schedule on either. Read as before 0.18, a ramp-up breaks packed runs at the first step.
    Bad: rampup_batch_size [8, 8, 10000].
    Good: rampup_batch_size null.
    Fix: Remove rampup_batch_size and step_batch_size_schedule.
    Evidence: read in the source of megatron-core 0.18.1 and 0.19.2.
    """
    for path in ("train.rampup_batch_size", "train.step_batch_size_schedule"):
        if subject.settings.is_stated(path) and subject.settings.value(path) is not None:
            yield Violation(
                where=path,
                found=str(subject.settings.value(path)),
                allowed="null",
                changes=change(path, None, "nothing reads it"),
            )


@rule("BP622", ERROR, "PSB006; megatron/bridge/training/config.py:484", noticed="validate()")
def batch_size_ramp_up_with_epochs_or_samples(subject: RunSubject) -> Iterator[Violation]:
    """The batch grows during training and its length is counted in epochs or samples.

    Why: Crash at start: validate() refuses it.
    Bad: rampup_batch_size [8, 8, 10000] with num_epochs 3.
    Good: rampup_batch_size null with num_epochs 3.
    Fix: Remove rampup_batch_size.
    """
    path = "train.rampup_batch_size"
    if not subject.settings.is_stated(path) or subject.settings.value(path) is None:
        return
    for length in ("train.num_epochs", "train.train_samples"):
        if subject.settings.value(length) is not None:
            yield Violation(
                where=path,
                found=f"{subject.settings.value(path)} with {length}",
                allowed="null",
                changes=change(path, None, "not supported with epochs or samples"),
            )
