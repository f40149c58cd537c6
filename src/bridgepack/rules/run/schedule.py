"""Rules on the length of training, its schedules and the batch size ramp-up."""

from functools import partial

from bridgepack.records.messages import join, say, setting
from bridgepack.rules.judging.environment import CORE
from bridgepack.rules.judging.rule import ERROR, VALIDATE, WARNING, Found, fixable_rule, rule, wrong
from bridgepack.rules.judging.subject import Run

_LENGTHS = _STEPS, _SAMPLES, _EPOCHS = "train.train_iters", "train.train_samples", "train.num_epochs"
_MAX_STEPS, _RAMP_UP = "scheduler.max_steps", "train.rampup_batch_size"
_LOADERS = ("batch", "cyclic", "single", "external")


@fixable_rule("BP026", ERROR, "PSB026; bridge/training/config.py:1142", noticed=VALIDATE)
def epochs_without_finite_batches(run: Run) -> Found:
    """num_epochs is set with a dataset or a loader that has no epochs.

    Why: Crash at start: validate() refuses it; only GPTSFTDatasetConfig with the batch loader knows its size.
    Bad: train.num_epochs 3, dataset.dataloader_type cyclic. Good: dataloader_type batch.
    Fix: Set {dataset.dataloader_type} to batch, or set {train.train_iters} instead.
    """
    if not run.is_set(_EPOCHS):
        return
    loader = run.text_or_none("dataset.dataloader_type")
    if not run.is_text:
        fix = say("Set {train.train_iters}, and {train.num_epochs} to null.")
        yield wrong(_EPOCHS, f"set with {run.dataset_kind}", setting(_STEPS), fix=fix)
    elif loader != "batch":
        yield wrong(
            "dataset.dataloader_type", say("{loader} with {train.num_epochs}", loader=loader), "batch", to="batch"
        )


@rule("BP632", ERROR, "PSB614; bridge/data/loaders.py:452, data/samplers.py:111", noticed="dataset build")
def dataloader_type_unknown(run: Run) -> Found:
    """The host has no such loader type.

    Why: Crash at dataset build: the host knows no loader of this name. Bad: dataset.dataloader_type random. Good:
        dataset.dataloader_type batch.
    Fix: Use batch for fine-tuning.
    """
    loader = run.text_or_none("dataset.dataloader_type")
    if loader not in _LOADERS and run.dataset_kind != "None":
        yield wrong("dataset.dataloader_type", str(loader), ", ".join(_LOADERS))


@rule("BP620", ERROR, "PSB612; bridge/training/config.py:480", noticed=VALIDATE)
def training_length_not_said_once(run: Run) -> Found:
    """The length of training is not set, or set twice.

    Why: Crash at start: validate() needs exactly one of train_iters, train_samples and num_epochs.
    Bad: train_iters 1000 and num_epochs 3. Good: train_iters null and num_epochs 3.
    Fix: Set one of them, and the others to null.
    """
    lengths = [path for path in _LENGTHS if run.value(path) is not None]
    if len(lengths) != 1:
        yield wrong(_STEPS, join(map(setting, lengths), " and ") or "none of the three", "one of the three")


@rule("BP621", ERROR, "PSB612; bridge/training/config.py:483,487,1654", noticed=VALIDATE)
def training_length_not_positive(run: Run) -> Found:
    """The run, or the decay of its learning rate, has no steps.

    Bad: train.train_iters 0. Good: train.train_iters 1000.
    Fix: Set a positive length; an unset decay is as long as training.
    """
    for path in (_SAMPLES, _EPOCHS):
        length = run.number_or_none(path)
        if length is not None and length <= 0:
            yield wrong(path, f"{length:g}", "a positive number")
    if run.global_batch_size > 0 and run.value(_EPOCHS) is None and run.stated_integer(_MAX_STEPS) is None:
        yield from _empty_decay(run)


def _empty_decay(run: Run) -> Found:
    kind = "samples" if run.value(_SAMPLES) is not None else "iters"
    decay = run.stated_integer(f"scheduler.lr_decay_{kind}")
    path = f"train.train_{kind}" if decay is None else f"scheduler.lr_decay_{kind}"
    steps = run.integer_or_none(path)
    if (kind == "iters" or decay is not None) and steps is not None and steps <= 0:
        yield wrong(path, str(steps), "a positive number")


@fixable_rule("BP612", ERROR, "PSB612; bridge/training/config.py:1627,408", noticed=VALIDATE)
def schedule_shorter_than_training(run: Run) -> Found:
    """scheduler.max_steps is smaller than the number of training steps.

    Why: Crash at start, or with num_epochs once the dataset is built: max_steps must be at least train_iters.
    Bad: scheduler.max_steps 500 with train.train_iters 1000. Good: scheduler.max_steps 1000 with train.train_iters 500.
    Fix: Raise {scheduler.max_steps}, or leave it unset.
    """
    limit = run.stated_integer(_MAX_STEPS)
    if limit is None:
        return
    steps = run.integer_or_none(_STEPS) if limit > 0 or run.is_stated(_STEPS) else None
    if limit <= 0 or (steps is not None and limit < steps):
        allowed_values = (
            "a positive number" if steps is None else say("{steps} or more ({train.train_iters}), or null", steps=steps)
        )
        yield wrong(_MAX_STEPS, str(limit), allowed_values, to=None, because="an unset schedule is as long as training")


@rule("BP623", ERROR, "PSB612; bridge/training/config.py:420,1560", noticed=VALIDATE)
def schedule_counts_both_steps_and_samples(run: Run) -> Found:
    """The schedule is counted in samples and training in steps, or vice versa.

    Bad: train_iters 1000, scheduler.lr_warmup_samples 5000. Good: scheduler.lr_warmup_iters 50.
    Fix: Use the unit of training in the schedule; with {train.train_samples} set {scheduler.lr_warmup_iters} to 0.
    """
    counts_samples = run.value(_SAMPLES) is not None
    unit_of_other, unit = ("iters", "samples") if counts_samples else ("samples", "iters")
    names = [f"lr_decay_{unit_of_other}", f"lr_warmup_{unit_of_other}", *(["max_steps"] if counts_samples else [])]
    if any(_is_used(run, f"{name}_{unit}") for name in ("lr_decay", "lr_warmup", "lr_wsd_decay")):
        names.append(f"lr_wsd_decay_{unit_of_other}")
    for name in filter(partial(_is_used, run), names):
        allowed_values = f"{0 if 'warmup' in name else 'null'}, because training is counted in {unit}"
        yield wrong(f"scheduler.{name}", str(run.value(f"scheduler.{name}")), allowed_values)


def _is_used(run: Run, name: str) -> bool:
    path = f"scheduler.{name}"
    if not run.is_stated(path):
        return False
    value = run.value(path)
    return value != 0 if "warmup" in name else value is not None


@rule("BP624", ERROR, "PSB612; bridge/training/config.py:434", noticed=VALIDATE)
def warmup_said_twice(run: Run) -> Found:
    """The warmup is set as a fraction and as a number.

    Bad: scheduler.lr_warmup_fraction 0.1, lr_warmup_iters 50. Good: lr_warmup_iters 0.
    Fix: Set one of them; set the unused numbers to 0.
    """
    path = "scheduler.lr_warmup_fraction"
    if run.is_set(path):
        for name in filter(partial(_is_used, run), ("lr_warmup_iters", "lr_warmup_samples")):
            yield wrong(path, f"{run.value(path)} with {name} {run.value(f'scheduler.{name}')}", f"null, or {name} 0")


@rule("BP631", WARNING, "PSB612; bridge/training/config.py:1660", noticed="a warning at start")
def warmup_longer_than_decay(run: Run) -> Found:
    """The learning rate is still rising when its decay is over.

    Why: Silent: the host cuts the warmup to one sample less than the decay, with a warning on rank 0; the rate never
        falls. Packing makes runs shorter, so a warmup copied from an unpacked run is too long.
    Bad: lr_warmup_iters 200 with train_iters 100. Good: lr_warmup_iters 10 with train_iters 100.
    Fix: Lower {scheduler.lr_warmup_iters}.
    """
    if not run.is_stated("scheduler.lr_warmup_iters") or run.value(_STEPS) is None:
        return
    warmup = run.integer("scheduler.lr_warmup_iters")
    limits = (run.stated_integer(_MAX_STEPS), run.stated_integer("scheduler.lr_decay_iters"))
    decay = next((limit for limit in limits if limit is not None), run.integer(_STEPS))
    if warmup >= decay > 0:
        yield wrong("scheduler.lr_warmup_iters", str(warmup), f"below {decay}, the decay's steps")


@rule("BP626", ERROR, "PSB612; bridge/training/config.py:411", noticed=VALIDATE)
def schedule_refused(run: Run) -> Found:
    """The weight decay falls or is negative, or the scheduler's values come from both the config and the checkpoint.

    Bad: scheduler.start_weight_decay 0.1, end_weight_decay 0.01. Good: start 0.01, end 0.1.
    Fix: Raise {scheduler.end_weight_decay}; set at most one of {scheduler.override_opt_param_scheduler} and
        {scheduler.use_checkpoint_opt_param_scheduler}.
    """
    start = run.number_or_none("scheduler.start_weight_decay")
    end = run.number_or_none("scheduler.end_weight_decay")
    if start is not None and (start < 0 or end is None or end < start):
        where = "scheduler.end_weight_decay" if start >= 0 else "scheduler.start_weight_decay"
        yield wrong(where, f"from {start} to {end}", "0 <= start_weight_decay <= end_weight_decay")
    switches = ("scheduler.override_opt_param_scheduler", "scheduler.use_checkpoint_opt_param_scheduler")
    if all(run.flag(path) for path in switches):
        yield wrong(switches[0], say("true, and {path} is true", path=setting(switches[1])), "at most one of them")


@fixable_rule("BP618", ERROR, "PSB604; bridge/data/loaders.py:133,365", noticed="dataset build")
def evaluation_steps_missing(run: Run) -> Found:
    """validation.eval_iters is null.

    Why: Crash at dataset build: the loader multiplies it by the batch (TypeError), with or without validation data.
    Bad: validation.eval_iters null. Good: validation.eval_iters 0, which turns evaluation off.
    Fix: Set {validation.eval_iters}; 0 turns evaluation off.
    """
    if run.eval_iters is None and run.dataset_kind != "None":
        why = "0 turns evaluation off"
        yield wrong("validation.eval_iters", "null", "a number; 0 turns evaluation off", to=0, because=why)


@fixable_rule("BP038", WARNING, versions={CORE: ">=0.18"}, evidence="read in megatron-core 0.18.1 and 0.19.2")
def batch_size_ramp_up_ignored(run: Run) -> Found:
    """Batch size ramp-up is set, but this version of megatron-core ignores it.

    Why: Silent: the full batch is used from the first step on; rank 0 logs a line. The host also ignores
        step_batch_size_schedule.
    Bad: rampup_batch_size [8, 8, 10000]. Good: rampup_batch_size null.
    Fix: Remove {train.rampup_batch_size} and {train.step_batch_size_schedule}.
    Source: PSB006; core/num_microbatches_calculator.py:79, bridge/training/initialize.py:115
    """
    for path in (_RAMP_UP, "train.step_batch_size_schedule"):
        if run.is_set(path):
            yield wrong(path, str(run.value(path)), "null", to=None, because="nothing reads it")


@fixable_rule("BP622", ERROR, "PSB006; bridge/training/config.py:484", noticed=VALIDATE)
def batch_size_ramp_up_with_epochs_or_samples(run: Run) -> Found:
    """Batch size ramp-up is set with num_epochs or train_samples.

    Bad: rampup_batch_size [8, 8, 10000] with num_epochs 3. Good: rampup_batch_size null. Fix: Remove
        {train.rampup_batch_size}.
    """
    for length in (_EPOCHS, _SAMPLES):
        if run.is_set(_RAMP_UP) and run.value(length) is not None:
            yield wrong(
                _RAMP_UP,
                say("{value} with {length}", value=run.value(_RAMP_UP), length=setting(length)),
                "null",
                to=None,
            )
