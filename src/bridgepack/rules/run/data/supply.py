"""Rules on having enough packs and test rows for the run's batches and steps."""

import re

from bridgepack.records import TRAIN, VALIDATION
from bridgepack.rules.engine.context import CannotJudgeError
from bridgepack.rules.engine.environment import BRIDGE
from bridgepack.rules.engine.rule import ADVICE, ERROR, WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import IS_TEXT, PACKS_OFFLINE, Run
from bridgepack.rules.run.reading import EVALUATES

#: Maximum epochs before train_iters is unlikely to count packs.
_MANY_EPOCHS = 10
#: Field of a recipe whose steps are computed from its packs.
_RECIPE_EPOCHS = "schedule.num_epochs"
#: Usual numbers of epochs of an unpacked run whose train_iters is copied.
_USUAL_EPOCHS = range(1, 6)
#: Maximum sequences per step that the learning rates of most recipes are tuned for.
_LARGE_BATCH_SEQUENCES = 1024
#: Folder of one checkpoint. Source: megatron-bridge 0.5.1, training/utils/checkpoint_utils.py.
_STEP_FOLDER = re.compile(r"iter_(\d{7,})")


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


@rule("BP601", ERROR, "PSB601; bridge/data/loaders.py:285", when=PACKS_OFFLINE, noticed="dataset build")
def fewer_packs_than_a_batch(run: Run) -> Found:
    """There are fewer training packs than global_batch_size.

    Why: Crash at dataset build. Packing divides the number of rows by the sequences per pack.
    Bad: 40 training packs with global_batch_size 128. Good: 40 training packs with global_batch_size 8.
    Fix: Lower global_batch_size, or make smaller packs. In a ConfigContainer, num_epochs in place of train_iters fills
        the last batch.
    """
    counts_epochs = run.value("train.num_epochs") is not None
    if counts_epochs or run.stated("dataset.drop_last") is False or _loader(run) == "external":
        return
    packs = _training_packs(run)
    if packs < run.global_batch_size:
        found = f"{run.global_batch_size} packs per step, with {packs} training packs"
        yield wrong("train.global_batch_size", found, f"at most {packs} packs per step")


@rule("BP604", ERROR, when=(PACKS_OFFLINE, EVALUATES), versions={BRIDGE: "<0.7"}, noticed="first evaluation")
def fewer_validation_packs_than_a_batch(run: Run) -> Found:
    """There are fewer validation packs than eval_global_batch_size.

    Why: Crash at the first evaluation, eval_interval steps into the run: the loader drops incomplete batches and needs
        at least one complete batch.
    Bad: 5 validation packs with eval_global_batch_size 8. Good: 16 validation packs with eval_global_batch_size 8.
    Fix: Lower eval_global_batch_size, set eval_iters to 0, or move more examples into validation.
    Evidence: read in the source; fixed after 0.6.2 by Bridge #5239 and #4914.
    Source: PSB604; bridge/data/samplers.py:291, data/loaders.py:365
    """
    packs = num_packs(run, VALIDATION) if _loader(run) == "batch" else run.eval_global_batch_size
    if packs < run.eval_global_batch_size:
        found = f"{run.eval_global_batch_size}, with {packs} validation packs"
        yield wrong("validation.eval_global_batch_size", found, f"at most {packs}")


@rule("BP605", ERROR, when=IS_TEXT, versions={BRIDGE: "<0.7"}, noticed="end of training")
def fewer_test_rows_than_a_batch(run: Run) -> Found:
    """There are fewer test rows than eval_global_batch_size.

    Why: Crash at the end of training, when the test split is read. It is never packed: its rows are single examples.
    Bad: do_test true, 3 lines in test.jsonl, eval_global_batch_size 8. Good: 100 lines in test.jsonl.
    Fix: Set dataset.do_test to false, or put at least one batch of rows into test.jsonl.
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
        found, why = f"true, and {path} has {rows} rows for a batch of {batch}", "it is smaller than a batch"
        yield wrong("dataset.do_test", found, "false, or at least one batch of rows", to=False, because=why)


@rule("BP606", ADVICE, when=(PACKS_OFFLINE, EVALUATES), versions={BRIDGE: "<0.7"})
def validation_packs_left_out(run: Run) -> Found:
    """An evaluation does not read every validation pack.

    Why: Silent: packs beyond the last complete batch, or beyond eval_iters batches, are skipped. The skipped packs
        change with each evaluation, so the loss changes even if the model does not.
    Bad: 20 validation packs, eval_global_batch_size 8, eval_iters 1. Good: 16 validation packs, eval_iters 2.
    Fix: Set eval_iters to packs / eval_global_batch_size, with a batch that divides the packs.
    Evidence: read in the source; Bridge #4914. Source: PSB606; bridge/data/samplers.py:291
    """
    packs, batch, steps = num_packs(run, VALIDATION), run.eval_global_batch_size, run.eval_iters
    if steps is None:
        raise CannotJudgeError("validation.eval_iters is null")
    read = min(steps * batch, packs // batch * batch) if batch > 0 else packs
    if 0 < read < packs:
        allowed = f"{max(packs // batch, 1)}, with a batch that divides {packs}"
        yield wrong("validation.eval_iters", f"{steps} x {batch} packs, of {packs}", allowed)


@rule("BP607", WARNING, "PSB607; bridge/data/loaders.py:109, data/samplers.py:326", when=PACKS_OFFLINE)
def steps_of_an_unpacked_run(run: Run) -> Found:
    """train_iters seems to count examples, not packs, so the run has many epochs.

    Why: Silent: a step reads packs, not examples, so the run repeats the packs many times, as any usual number of steps
        does with few packs. If steps, warmup and intervals count examples, training takes as many times longer as
        a pack has sequences, and the learning rate decays over the wrong horizon.
    Bad: 1000 packs of 8 sequences, global_batch_size 8, train_iters 1000: 8 epochs. Good: train_iters 125: 1 epoch.
    Fix: Set train_iters to epochs x packs / global_batch_size and scale the schedule, or set num_epochs instead.
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
        found = f"{steps} steps of {batch} packs: {read / packs:.1f} epochs over {packs} packs"
        yield wrong("train.train_iters", found, f"{-(-packs // batch)} steps per epoch")


@rule("BP608", ADVICE, "PSB608; docs/training/packed-sequences.md", when=PACKS_OFFLINE)
def batch_of_many_sequences(run: Run) -> Found:
    """A step trains far more sequences than global_batch_size.

    Why: Silent: global_batch_size counts packs, so a learning rate tuned for that many examples is too small.
    Bad: global_batch_size 512, 20 sequences per pack: 10240 per step. Good: global_batch_size 32.
    Fix: Divide the unpacked batch size by the sequences per pack, or tune the learning rate again.
    Evidence: the host's documentation; validate() proposes global_batch_size // micro_batch_size.
    """
    per_pack, batch = _num_sequences(run, TRAIN) / num_packs(run, TRAIN), run.global_batch_size
    sequences = round(batch * per_pack)
    if sequences > _LARGE_BATCH_SEQUENCES and per_pack >= 2:
        allowed = f"{max(round(batch / per_pack), 1)}, for {batch} sequences per step"
        yield wrong("train.global_batch_size", f"{batch} packs: about {sequences} sequences per step", allowed)


@rule("BP614", ERROR, "PSB614; bridge/data/samplers.py:185, data/loaders.py:456", when=PACKS_OFFLINE, noticed="mid-run")
def packs_run_out(run: Run) -> Found:
    """The single loader reads the packs once, but the steps need more packs.

    Why: Crash in mid-run (StopIteration) or on resume (no samples left to consume): the single loader ends.
    Bad: dataloader_type single, 100 packs, 50 steps of 8. Good: dataloader_type batch.
    Fix: Set dataset.dataloader_type to batch, or train fewer steps.
    """
    if _loader(run) != "single":
        return
    needed, packs = run.integer("train.train_iters") * run.global_batch_size, _training_packs(run)
    if needed > packs:
        found, allowed = f"single, with {packs} packs for {needed}", "batch, which repeats the packs"
        yield wrong("dataset.dataloader_type", found, allowed, to="batch", because="the batch loader repeats the packs")


@rule("BP633", ERROR, when=PACKS_OFFLINE, versions={BRIDGE: "<0.6"}, noticed="never: training hangs at its first step")
def resumes_with_less_than_a_batch(run: Run) -> Found:
    """This version of the host resumes at a point where the epoch has fewer packs left than global_batch_size.

    Why: Silent: its loader starts every pass over the packs at the resumed position, finds no whole batch there, and
        loops forever. With more packs left, it trains on these alone until the end.
    Bad: megatron-bridge 0.5.1, 40 packs, batches of 16, checkpoint of step 2: 8 packs left. Good: of step 1.
    Fix: Resume from another checkpoint (checkpoint.ckpt_step), or with megatron-bridge 0.6.
    Source: bridge/data/samplers.py (MegatronPretrainingBatchSampler), data/loaders.py (cyclic_iter) of 0.3.0 to 0.5.1
    Evidence: read in the source of 0.3.0 to 0.5.1.
    """
    folder = run.text_or_none("checkpoint.load") if run.is_stated("checkpoint.load") else None
    if folder is None or _loader(run) != "batch" or run.flag("checkpoint.finetune"):
        return
    step, batch = run.stated_integer("checkpoint.ckpt_step"), run.global_batch_size
    if step is None:
        found = (_STEP_FOLDER.fullmatch(name) for name in run.require_files().names(folder))
        step = max((int(name[1]) for name in found if name is not None), default=0)
    packs = _training_packs(run)
    left = packs - step * batch % packs if packs > 0 else 0
    if 0 < left < batch <= packs:
        text = f"step {step}: {left} of {packs} packs are left in the epoch, fewer than a batch of {batch}"
        yield wrong("checkpoint.load", text, "a checkpoint with at least one batch left in the epoch")
