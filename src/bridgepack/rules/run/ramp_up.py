"""Rules on batches that grow during training."""

from __future__ import annotations

from bridgepack.rules.engine.environment import CORE
from bridgepack.rules.engine.rule import ERROR, VALIDATE, WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import Run


@rule("BP006", ERROR, "PSB006; bridge/data/batch_utils.py:55, training/train.py:882", versions={CORE: "<0.18"})
def batch_size_ramp_up_with_packing(run: Run) -> Found:
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
    if not run.packs_offline or run.value(path) is None:
        return
    if run.value("dataset.dataloader_type") == "batch":
        allowed = "null with offline packing"
        yield wrong(path, str(run.value(path)), allowed, to=None, because="the loader always gives the full batch")


@rule("BP038", WARNING, versions={CORE: ">=0.18"}, evidence="read in the source of megatron-core 0.18.1 and 0.19.2")
def batch_size_ramp_up_ignored(run: Run) -> Found:
    """A growing batch is asked for, in a way that megatron-core no longer reads.

    Why: Silent: the full batch is used from the first step on; rank 0 logs a line. The host does not hand
        step_batch_size_schedule on either. Read as before 0.18, a ramp-up breaks packed runs at the first step.
    Bad: rampup_batch_size [8, 8, 10000].
    Good: rampup_batch_size null.
    Fix: Remove rampup_batch_size and step_batch_size_schedule.
    Source: PSB006; core/num_microbatches_calculator.py:79, bridge/training/initialize.py:115
    """
    for path in ("train.rampup_batch_size", "train.step_batch_size_schedule"):
        if run.is_stated(path) and run.value(path) is not None:
            yield wrong(path, str(run.value(path)), "null", to=None, because="nothing reads it")


@rule("BP622", ERROR, "PSB006; bridge/training/config.py:484", noticed=VALIDATE)
def batch_size_ramp_up_with_epochs_or_samples(run: Run) -> Found:
    """The batch grows during training and its length is counted in epochs or samples.

    Why: Crash at start: validate() refuses it.
    Bad: rampup_batch_size [8, 8, 10000] with num_epochs 3.
    Good: rampup_batch_size null with num_epochs 3.
    Fix: Remove rampup_batch_size.
    """
    path = "train.rampup_batch_size"
    if not run.is_stated(path) or run.value(path) is None:
        return
    for length in ("train.num_epochs", "train.train_samples"):
        if run.value(length) is not None:
            found = f"{run.value(path)} with {length}"
            yield wrong(path, found, "null", to=None, because="not supported with epochs or samples")
