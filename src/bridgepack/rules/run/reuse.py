"""Rules on packs over time: epochs, repetition, resumed runs, order, splits made apart."""

from __future__ import annotations

from pathlib import PurePosixPath

from bridgepack.records import TRAIN, Files
from bridgepack.rules.engine.context import CannotJudgeError
from bridgepack.rules.engine.environment import BRIDGE
from bridgepack.rules.engine.rule import ADVICE, WARNING, Found, change, rule, wrong
from bridgepack.rules.engine.subject import HAS_SPECS, PACKS_OFFLINE, SPECS, Run
from bridgepack.rules.run.supply import num_packs

_TRAIN_PATH, _VALIDATION_PATH = f"{SPECS}.packed_train_data_path", f"{SPECS}.packed_val_data_path"
#: Folders that hold one split of an artifact.
_SPLIT_FOLDERS = frozenset({"training", "train", "validation", "valid", "val"})
#: Files that the host rewrites in a checkpoint's folder with every checkpoint.
_TRACKERS = ("latest_train_state.pt", "latest_checkpointed_iteration.txt")


@rule("BP609", WARNING, when=PACKS_OFFLINE)
def filled_up_batch_with_mean_loss(run: Run) -> Found:
    """The last batch of an epoch is filled up with packs that train nothing, and the loss is averaged over packs.

    Why: Silent: num_epochs keeps the last batch and fills it with masked copies of a pack; averaged over packs they
        make the others' gradients smaller, and a rank may get nothing else.
    Bad: num_epochs 3 with offline packing and model.calculate_per_token_loss false.
    Good: num_epochs 3 with model.calculate_per_token_loss true.
    Fix: Set model.calculate_per_token_loss true and ddp.average_in_collective false.
    Source: PSB609; bridge/data/loaders.py:271, data/samplers.py:368, data/packing/gpt_sft.py:93
    """
    if not run.is_set("train.num_epochs"):
        return
    if run.flag("model.calculate_per_token_loss"):
        return
    if run.artifact is not None and num_packs(run, TRAIN) % run.global_batch_size == 0:
        return
    mended = change("model.calculate_per_token_loss", True, "masked packs then weigh nothing")
    mended += change("ddp.average_in_collective", False, "the loss per token forbids averaging in the collective")
    allowed = "true, or packs that are a multiple of global_batch_size"
    yield wrong("model.calculate_per_token_loss", "false with train.num_epochs", allowed, changes=mended)


@rule("BP610", WARNING, "PSB610; bridge/data/packing/parquet.py:363")
def training_samples_counted_in_packs(run: Run) -> Found:
    """max_train_samples is set with offline packing, where it counts packs.

    Why: Silent: a number of examples is read as a number of packs; above the packs there are, whole shuffled epochs are
        appended until it is reached.
    Bad: max_train_samples 10000 with offline packing into 1200 packs.
    Good: max_train_samples null with offline packing.
    Fix: Leave max_train_samples out and limit the examples before packing.
    Evidence: executed with the real 0.6.2; the host's GLM-5.2 recipes set it.
    """
    limit = run.stated_integer("dataset.max_train_samples") if run.packs_offline else None
    if limit is None:
        return
    packs = None if run.artifact is None else num_packs(run, TRAIN)
    if packs is None or limit > packs:
        found = f"{limit} packs" if packs is None else f"{limit}, and there are {packs} packs"
        allowed = "null, or at most the number of packs"
        yield wrong("dataset.max_train_samples", found, allowed, to=None, because="it counts packs, and repeats them")


@rule("BP611", WARNING, "PSB611; bridge/data/samplers.py:326", when=PACKS_OFFLINE)
def packs_newer_than_checkpoint(run: Run) -> Found:
    """The run resumes, and its packs were written after the checkpoint.

    Why: Silent: the checkpoint knows how many packs were read, not which; over other packs, or with another batch,
        the same place holds other data, which is repeated or left out.
    Bad: checkpoint.load with a checkpoint of Monday, packs of Tuesday.
    Good: checkpoint.load with a checkpoint of Tuesday, packs of Monday.
    Fix: Resume with the packs the checkpoint was trained on, or start anew from pretrained_checkpoint.
    """
    if not run.is_stated("checkpoint.load"):
        return
    folder, packs = run.text_or_none("checkpoint.load"), run.text_or_none(_TRAIN_PATH)
    if folder is None:
        return
    if packs is None:
        raise CannotJudgeError("the host makes the packs, so where they lie is not known")
    files = run.require_files()
    saved = [files.modified_s(f"{folder.rstrip('/')}/{name}") for name in _TRACKERS]
    written = [files.modified_s(path) for path in _pack_files(files, packs)]
    last_saved = max((time for time in saved if time is not None), default=None)
    last_written = max((time for time in written if time is not None), default=None)
    if last_saved is not None and last_written is not None and last_written > last_saved:
        found = f"a checkpoint {round((last_written - last_saved) / 60)} minutes older than the packs"
        yield wrong("checkpoint.load", found, "packs that are older than the checkpoint")


def _pack_files(files: Files, spec: str) -> tuple[str, ...]:
    if files.is_folder(spec):
        return tuple(f"{spec.rstrip('/')}/{name}" for name in files.names(spec))
    return files.matches(spec) if any(sign in spec for sign in "*?") else (spec,)


@rule("BP613", ADVICE, "PSB613; bridge/data/samplers.py before 0.6", when=PACKS_OFFLINE, versions={BRIDGE: "<0.6"})
def packs_read_in_file_order(run: Run) -> Found:
    """This version of the host reads packs in the order of the file, in every epoch.

    Why: Silent: the batch sampler does not shuffle before 0.6. First-fit packing fills the first packs best and leaves
        the emptiest for the end, so the batches drift over an epoch.
    Bad: packs made by megatron-bridge 0.5.1, trained with 0.5.1.
    Good: packs made by bridgepack, whose order is random.
    Fix: Shuffle rows when packs are written, or use megatron-bridge 0.6.
    Evidence: history of the host's samplers.py.
    """
    if run.value("dataset.dataloader_type") != "batch":
        return
    if run.artifact is None or run.artifact.manifest is None:
        found = f"batch in megatron-bridge {run.versions['megatron-bridge']}, which does not shuffle"
        yield wrong("dataset.dataloader_type", found, "packs in random order, or megatron-bridge 0.6")


@rule("BP616", ADVICE, "PSB616; bridge/data/builders/gpt_sft.py:868", when=HAS_SPECS)
def splits_from_two_artifacts(run: Run) -> Found:
    """Training and validation packs lie in different artifacts.

    Why: Crash at the first evaluation, or silent: both are read with the same size, multiple and tokenizer, and nothing
        compares how they were made.
    Bad: packed_train_data_path /data/v2/training, packed_val_data_path /data/v1/validation.
    Good: packed_train_data_path /data/v2/training, packed_val_data_path /data/v2/validation.
    Fix: Build both splits at once, or check both artifacts against this run.
    Noticed: first evaluation, or never.
    """
    if not run.flag("dataset.do_validation"):
        return
    training, validation = (run.text_or_none(path) for path in (_TRAIN_PATH, _VALIDATION_PATH))
    if training is None or validation is None:
        return
    if _artifact_folder(training) != _artifact_folder(validation):
        yield wrong(_VALIDATION_PATH, validation, f"packs in {_artifact_folder(training)}")


def _artifact_folder(spec: str) -> PurePosixPath:
    path = PurePosixPath(spec)
    folder = path.parent if path.suffix else path
    return folder.parent if folder.name in _SPLIT_FOLDERS else folder
