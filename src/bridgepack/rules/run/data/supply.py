"""Rules on having enough packs and test rows for the run's batches and steps."""

import math

from bridgepack.geometry import floor_to_multiple
from bridgepack.records import TRAIN, VALIDATION
from bridgepack.records.messages import join, say
from bridgepack.records.words import count_text
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.environment import BRIDGE
from bridgepack.rules.judging.rule import ADVICE, ERROR, WARNING, Found, fixable_rule, rule, wrong
from bridgepack.rules.judging.subject import IS_TEXT, PACKS_OFFLINE, Run
from bridgepack.rules.run.reading import EVALUATES, batch_set_to, smallest_batch

#: Maximum epochs before train_iters is unlikely to count packs.
_MANY_EPOCHS = 10
#: Field of a recipe whose steps are computed from its packs.
_RECIPE_EPOCHS = "schedule.num_epochs"
_EVALUATION_STEPS = "validation.eval_iters"
#: Usual numbers of epochs of an unpacked run whose train_iters is copied.
_USUAL_EPOCHS = range(1, 6)
#: Maximum sequences per step that the learning rates of most recipes are tuned for.
_LARGE_BATCH_SEQUENCES = 1024
#: Sequences per step of usual fine-tuning without packing.
USUAL_SEQUENCES = 128
#: Optimiser steps of a run below which a smaller batch is advised.
FEWEST_STEPS = 20


def num_packs(run: Run, split: str) -> int:
    """Return the number of packs in a split of the artifact.

    Raises:
        CannotJudgeError: no artifact was given, or the split or one of its files cannot be counted.
    """
    shards = run.require_artifact().shards.get(split, ())
    counts = [shard.num_rows for shard in shards]
    if not counts or None in counts:
        raise CannotJudgeError(f"the artifact's {split} packs cannot be counted")
    return sum(count for count in counts if count is not None)


def _num_sequences(run: Run, split: str) -> int:
    truth = run.require_artifact().truths.get(split)
    if truth is None or not truth.is_complete or not truth.num_rows:
        raise CannotJudgeError(f"the artifact's {split} packs are not all valid")
    return truth.num_sequences


def _training_packs(run: Run) -> int:
    limit = run.stated_integer("dataset.max_train_samples")
    return num_packs(run, TRAIN) if limit is None else limit


def _loader(run: Run) -> str | None:
    return run.text_or_none("dataset.dataloader_type")


def _fills_last_batch(run: Run) -> bool:
    """Return whether a batch may have more packs than the run."""
    return run.value("train.num_epochs") is not None or run.stated_value("dataset.drop_last") is False


@rule("BP601", ERROR, "PSB601; bridge/data/loaders.py:285", when=PACKS_OFFLINE, noticed="dataset build")
def fewer_packs_than_a_batch(run: Run) -> Found:
    """There are fewer training packs than global_batch_size.

    Why: Crash at dataset build. A pack holds several conversations, so there are far fewer packs than conversations.
    Bad: 40 training packs with global_batch_size 128. Good: 40 training packs with global_batch_size 8.
    Fix: Set the batch to at most the number of packs, or make smaller packs.
    """
    if _fills_last_batch(run) or _loader(run) == "external":
        return
    packs, unit = _training_packs(run), smallest_batch(run)
    if packs < run.global_batch_size:
        largest, noun = floor_to_multiple(packs, unit), "pack" if packs == 1 else "packs"
        actual = f"{run.global_batch_size} packs per step, with only {packs} training {noun}"
        fix = say("Set {batch}.", batch=batch_set_to(run, largest, is_most=True)) if largest else _too_few(unit)
        yield wrong("train.global_batch_size", actual, f"at most {largest or packs} packs per step", fix=fix)


def _too_few(unit: int) -> str:
    return (
        f"A step takes at least {unit} packs, for the data-parallel ranks. Use fewer GPUs, smaller packs or more data."
    )


@rule("BP604", ERROR, when=(PACKS_OFFLINE, EVALUATES), versions={BRIDGE: "<0.7"}, noticed="first evaluation")
def fewer_validation_packs_than_a_batch(run: Run) -> Found:
    """There are fewer validation packs than eval_global_batch_size.

    Why: Crash at the first evaluation, eval_interval steps into the run: the loader drops incomplete batches and needs
        at least one complete batch.
    Bad: 5 validation packs with eval_global_batch_size 8. Good: 16 validation packs with eval_global_batch_size 8.
    Fix: Lower {validation.eval_global_batch_size}, set {validation.eval_iters} to 0, or move more examples into
        validation.
    Evidence: read in the source; fixed after 0.6.2 by Bridge #5239 and #4914.
    Source: PSB604; bridge/data/samplers.py:291, data/loaders.py:365
    """
    packs = num_packs(run, VALIDATION) if _loader(run) == "batch" else run.eval_global_batch_size
    if packs < run.eval_global_batch_size:
        actual = f"{run.eval_global_batch_size}, with {packs} validation packs"
        yield wrong("validation.eval_global_batch_size", actual, f"at most {packs}")


@fixable_rule("BP605", ERROR, when=IS_TEXT, versions={BRIDGE: "<0.7"}, noticed="end of training")
def fewer_test_rows_than_a_batch(run: Run) -> Found:
    """There are fewer test rows than eval_global_batch_size.

    Why: Crash at the end of training, when the test split is read. It is never packed: its rows are single examples.
    Bad: do_test true, 3 lines in test.jsonl, eval_global_batch_size 8. Good: 100 lines in test.jsonl.
    Fix: Set {dataset.do_test} to false, or put at least one batch of rows into test.jsonl.
    Evidence: read in the source; fixed after 0.6.2 by Bridge #5239 and #4914.
    Source: PSB605; bridge/data/samplers.py:291, data/loaders.py:384
    """
    if not run.flag("dataset.do_test") or _loader(run) != "batch" or not run.eval_iters:
        return
    root = run.text_or_none("dataset.dataset_root")
    if root is None:
        raise CannotJudgeError("the test rows come from a Hugging Face dataset")
    path, batch = f"{root.rstrip('/')}/test.jsonl", run.eval_global_batch_size
    rows = run.require_files().num_lines(path, at_most=batch)
    if rows is not None and rows < batch:
        actual, why = f"true, and {path} has {rows} rows for a batch of {batch}", "it is smaller than a batch"
        yield wrong("dataset.do_test", actual, "false, or at least one batch of rows", to=False, because=why)


@rule("BP606", ADVICE, when=(PACKS_OFFLINE, EVALUATES))
def validation_packs_left_out(run: Run) -> Found:
    """An evaluation does not read every validation pack.

    Why: Silent: packs beyond eval_iters batches are skipped, and before 0.7 those beyond the last complete batch. The
        skipped packs change with each evaluation, so the loss changes even if the model does not.
    Bad: 20 validation packs, eval_global_batch_size 8, eval_iters 1. Good: 16 validation packs, eval_iters 2.
    Fix: Set {validation.eval_global_batch_size} to a number that divides the packs, and {validation.eval_iters} to
        packs / {validation.eval_global_batch_size}.
    Evidence: read in the source; Bridge #4914, and main of 2026-08-22. Source: PSB606; bridge/data/samplers.py:291
    """
    packs, batch, steps = num_packs(run, VALIDATION), run.eval_global_batch_size, run.eval_iters
    if steps is None:
        raise CannotJudgeError(say("{validation.eval_iters} is null"))
    if batch < 1:
        return
    is_filled = run.release.keeps_last_evaluation_batch
    read = min(steps * batch, packs if is_filled else packs // batch * batch)
    if 0 < read < packs:
        num_batches = -(-packs // batch) if is_filled else packs // batch
        is_whole = is_filled or packs % batch == 0
        fix = (
            say("Set {validation.eval_iters} to {number}.", number=num_batches)
            if is_whole
            else _near_batches(run, packs)
        )
        actual = f"{steps} x {batch} of {packs} packs are read"
        yield wrong("validation.eval_iters", actual, f"batches that read all {packs} packs", fix=fix)


@rule("BP644", WARNING, "bridge/data/samplers.py; bridge/training/eval.py", when=(PACKS_OFFLINE, EVALUATES))
def validation_sets_left_out(run: Run) -> Found:
    """An evaluation reads no pack of one of the validation sets.

    Why: Silent: the loss of that set is missing at these steps, and the validation loss is one of the other sets. An
        evaluation reads eval_iters batches, and the next one goes on where it ended.
    Bad: sets of 12 and 2 packs, eval_global_batch_size 2, eval_iters 1. Good: eval_iters 7, which reads all of them.
    Fix: Raise {validation.eval_iters}, so that every evaluation reads all packs; or put more rows into the small set.
    """
    sets = run.slow_facts.require_evaluated_sets()
    for name, count in sets.num_of_set.items():
        if count < sets.num_evaluations:
            actual = f"{count} of {count_text(sets.num_evaluations, 'evaluation')} read packs of the set {name!r}"
            yield wrong(_EVALUATION_STEPS, actual, "packs of every set in every evaluation")


def _computes_evaluation(run: Run) -> bool:
    """Return whether the steps of an evaluation follow from a recipe's packs; a number that is set is a choice."""
    return _EVALUATION_STEPS in run.config.derived


@rule("BP625", WARNING, when=(PACKS_OFFLINE, _computes_evaluation))
def validation_packs_never_read(run: Run) -> Found:
    """There are validation packs, and no step evaluates them.

    Why: Silent: the run logs no validation loss, and the rows that were set aside are not trained either. A recipe's
        evaluation has no steps where the data-parallel ranks are more than the validation packs.
    Bad: 1 validation pack for 2 data-parallel ranks. Good: 2 validation packs, which one step evaluates.
    Fix: Raise data.validation_fraction or add rows to data.validation, and build again; or use fewer GPUs. Where no
        evaluation is wanted, set {validation.eval_iters} to 0.
    Source: bridge/data/loaders.py:365,404; bridge/training/pretrain.py:171
    """
    if run.eval_iters != 0 or not run.flag("dataset.do_validation"):
        return
    packs, least = num_packs(run, VALIDATION), run.eval_global_batch_size
    if packs:
        actual = f"0, because {packs} validation {'pack is' if packs == 1 else 'packs are'} fewer than a step takes"
        yield wrong(_EVALUATION_STEPS, actual, f"at least {least} validation packs, or no validation data")


def _near_batches(run: Run, packs: int) -> str:
    """Return the evaluation batches nearest to the run's that divide its packs, with their number of batches."""
    batch, unit = run.eval_global_batch_size, smallest_batch(run)
    sizes = [size for size in range(unit, packs + 1, unit) if packs % size == 0]
    near = [*[size for size in sizes if size < batch][-1:], *[size for size in sizes if size > batch][:1]]
    if not near:
        return f"Use fewer GPUs, or validation data that give a multiple of {unit} packs."
    allowed_values = " or ".join(f"{size} (eval_iters {packs // size})" for size in near)
    return say("Set {validation.eval_global_batch_size} to {allowed_values}.", allowed_values=allowed_values)


@rule("BP607", WARNING, "PSB607; bridge/data/loaders.py:109, data/samplers.py:326", when=PACKS_OFFLINE)
def steps_of_an_unpacked_run(run: Run) -> Found:
    """train_iters seems to count examples, not packs, so the run has many epochs.

    Why: Silent: a step reads packs, not examples, so the run repeats the packs many times, as any usual number of steps
        does with few packs. If steps, warmup and intervals count examples, training takes as many times longer as
        a pack has sequences, and the learning rate decays over the wrong horizon.
    Bad: 1000 packs of 8 sequences, global_batch_size 8, train_iters 1000: 8 epochs. Good: train_iters 125: 1 epoch.
    Fix: Set {train.train_iters} to epochs x packs / {train.global_batch_size} and scale the schedule, or set
        {train.num_epochs} instead.
    Evidence: executed with the real 0.6.2 (the sampler repeats packs).
    """
    counts_epochs = run.value("train.train_iters") is None or run.value("train.num_epochs") is not None
    if counts_epochs or run.config.user_path("train.train_iters") == _RECIPE_EPOCHS or run.global_batch_size <= 0:
        return
    packs, sequences = num_packs(run, TRAIN), _num_sequences(run, TRAIN)
    steps, batch = run.integer("train.train_iters"), run.global_batch_size
    read, slack = steps * batch, max(batch, sequences // 100)
    counts_sequences = sequences >= 2 * packs and any(abs(read - n * sequences) <= slack for n in _USUAL_EPOCHS)
    if read > _MANY_EPOCHS * packs or (counts_sequences and read >= 2 * packs):
        actual = f"{steps} steps of {batch} packs: {read / packs:.1f} epochs over {packs} packs"
        yield wrong("train.train_iters", actual, f"{-(-packs // batch)} steps per epoch")


@rule("BP608", WARNING, "PSB608; docs/training/packed-sequences.md", when=PACKS_OFFLINE)
def batch_of_many_sequences(run: Run) -> Found:
    """A step trains far more sequences than usual, because global_batch_size counts packs.

    Why: Silent: a learning rate tuned for batches of 128 conversations or so is too small for thousands of them, and
        the run has few steps.
    Bad: global_batch_size 512, 20 sequences per pack: 10240 per step. Good: global_batch_size 6.
    Fix: Divide the unpacked batch size by the sequences per pack; or tune the learning rate again, and ignore the rule.
    Evidence: the host's documentation; validate() proposes global_batch_size // micro_batch_size.
    """
    per_pack, batch = _num_sequences(run, TRAIN) / num_packs(run, TRAIN), run.global_batch_size
    sequences, unit = round(batch * per_pack), smallest_batch(run)
    usual = max(round(USUAL_SEQUENCES / per_pack / unit), 1) * unit
    if sequences > _LARGE_BATCH_SEQUENCES and per_pack >= 2 and usual < batch:
        actual, allowed_values = f"{batch} packs, with {per_pack:.1f} conversations in each", f"{usual} packs"
        one_step = f"One step trains about {sequences:,} conversations."
        cure = say("For the usual {number}, set {batch}.", number=USUAL_SEQUENCES, batch=batch_set_to(run, usual))
        fix = join([one_step, cure], " ")
        yield wrong("train.global_batch_size", actual, allowed_values, fix=fix)


@rule("BP638", WARNING, "bridge/data/samplers.py", when=PACKS_OFFLINE)
def few_optimiser_steps(run: Run) -> Found:
    """The run has fewer than 20 optimiser steps, and a smaller batch would give more.

    Why: Silent: the weights change only a few times, most of them while the learning rate rises or falls, so the model
        hardly learns from the data.
    Bad: 121 packs, global_batch_size 64, one epoch: 2 steps. Good: global_batch_size 6: 21 steps.
    Fix: Lower the batch, or train more epochs. Runs that end before they have read the packs once are not judged.
    """
    run.require_plain_gpus()
    packs, batch, unit = _training_packs(run), run.global_batch_size, run.micro_batch_size * run.data_parallel_size
    if batch <= max(unit, 0) or (packs < batch and not _fills_last_batch(run)):  # the latter is BP601
        return
    steps, epochs = run.integer_or_none("train.train_iters"), run.number_or_none("train.num_epochs")
    if steps is None:
        steps = math.ceil((epochs or 0) * packs / batch)
    read = max((steps - 1) * batch + 1, packs)
    largest = max(floor_to_multiple(read // FEWEST_STEPS, unit), unit)
    if packs - batch < steps * batch and steps < FEWEST_STEPS and largest < batch:
        counts_epochs = epochs is not None or run.config.user_path("train.train_iters") == _RECIPE_EPOCHS
        longer = "" if counts_epochs else say(", and {train.train_iters} to {steps}", steps=-(-read // largest))
        actual = f"{steps} steps of {batch} packs, over {packs} packs"
        fix = say("Set {batch}{longer}.", batch=batch_set_to(run, largest, is_most=True), longer=longer)
        yield wrong("train.global_batch_size", actual, f"at most {largest} packs per step", fix=fix)


@fixable_rule(
    "BP614",
    ERROR,
    "PSB614; bridge/data/samplers.py:185, data/loaders.py:456",
    when=PACKS_OFFLINE,
    noticed="mid-run",
)
def packs_run_out(run: Run) -> Found:
    """The single loader reads the packs once, but the steps need more packs.

    Why: Crash in mid-run (StopIteration) or on resume (no samples left to consume): the single loader ends.
    Bad: dataloader_type single, 100 packs, 50 steps of 8. Good: dataloader_type batch.
    Fix: Set {dataset.dataloader_type} to batch, or train fewer steps.
    """
    if _loader(run) != "single":
        return
    num_packs_read, packs = run.integer("train.train_iters") * run.global_batch_size, _training_packs(run)
    if num_packs_read > packs:
        actual, allowed_values = f"single, with {packs} packs for {num_packs_read}", "batch, which repeats the packs"
        yield wrong(
            "dataset.dataloader_type", actual, allowed_values, to="batch", because="the batch loader repeats the packs"
        )
