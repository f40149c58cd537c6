"""Rules on packs over time: epochs, repetition, resumed runs, order, splits made apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from bridgepack.records import TRAIN, Files
from bridgepack.rules.context import CannotJudgeError
from bridgepack.rules.rule import ADVICE, WARNING, Violation
from bridgepack.rules.run.reading import is_set, stated_integer
from bridgepack.rules.run.supply import num_packs
from bridgepack.rules.run_rule import change, rule
from bridgepack.rules.run_subject import SPECS, RunSubject
from bridgepack.rules.versions import BRIDGE

_TRAIN_PATH, _VALIDATION_PATH = f"{SPECS}.packed_train_data_path", f"{SPECS}.packed_val_data_path"
#: Folders that hold one split of an artifact.
_SPLIT_FOLDERS = frozenset({"training", "train", "validation", "valid", "val"})
#: Files that the host rewrites in a checkpoint's folder with every checkpoint.
_TRACKERS = ("latest_train_state.pt", "latest_checkpointed_iteration.txt")


@rule("BP609", WARNING, "PSB609; megatron/bridge/data/loaders.py:271, data/samplers.py:368, data/packing/gpt_sft.py:93")
def filled_up_batch_with_mean_loss(subject: RunSubject) -> Iterator[Violation]:
    """The last batch of an epoch is filled up with packs that train nothing, and the loss is averaged over packs.

    Why: Silent: num_epochs keeps the last batch and fills it with masked copies of a pack; averaged over packs they
        make the others' gradients smaller, and a rank may get nothing else.
    Bad: num_epochs 3 with offline packing and model.calculate_per_token_loss false.
    Good: num_epochs 3 with model.calculate_per_token_loss true.
    Fix: Set model.calculate_per_token_loss true and ddp.average_in_collective false.
    """
    if not subject.packs_offline or not is_set(subject, "train.num_epochs"):
        return
    if subject.settings.flag("model.calculate_per_token_loss"):
        return
    if subject.artifact is not None and num_packs(subject, TRAIN) % subject.global_batch_size == 0:
        return
    mended = change("model.calculate_per_token_loss", True, "masked packs then weigh nothing")
    mended += change("ddp.average_in_collective", False, "the loss per token forbids averaging in the collective")
    yield Violation(
        where="model.calculate_per_token_loss",
        found="false with train.num_epochs",
        allowed="true, or packs that are a multiple of global_batch_size",
        changes=mended,
    )


@rule("BP610", WARNING, "PSB610; megatron/bridge/data/packing/parquet.py:363")
def training_samples_counted_in_packs(subject: RunSubject) -> Iterator[Violation]:
    """max_train_samples is set with offline packing, where it counts packs.

    Why: Silent: a number of examples is read as a number of packs; above the packs there are, whole shuffled epochs are
        appended until it is reached.
    Bad: max_train_samples 10000 with offline packing into 1200 packs.
    Good: max_train_samples null with offline packing.
    Fix: Leave max_train_samples out and limit the examples before packing.
    Evidence: executed with the real 0.6.2; the host's GLM-5.2 recipes set it.
    """
    limit = stated_integer(subject, "dataset.max_train_samples") if subject.packs_offline else None
    if limit is None:
        return
    packs = None if subject.artifact is None else num_packs(subject, TRAIN)
    if packs is None or limit > packs:
        yield Violation(
            where="dataset.max_train_samples",
            found=f"{limit} packs" if packs is None else f"{limit}, and there are {packs} packs",
            allowed="null, or at most the number of packs",
            changes=change("dataset.max_train_samples", None, "it counts packs, and repeats them"),
        )


@rule("BP611", WARNING, "PSB611; megatron/bridge/data/samplers.py:326")
def packs_newer_than_checkpoint(subject: RunSubject) -> Iterator[Violation]:
    """The run resumes, and its packs were written after the checkpoint.

    Why: Silent: the checkpoint knows how many packs were read, not which; over other packs, or with another batch,
        the same place holds other data, which is repeated or left out.
    Bad: checkpoint.load with a checkpoint of Monday, packs of Tuesday.
    Good: checkpoint.load with a checkpoint of Tuesday, packs of Monday.
    Fix: Resume with the packs the checkpoint was trained on, or start anew from pretrained_checkpoint.
    """
    if not subject.packs_offline or not subject.settings.is_stated("checkpoint.load"):
        return
    folder, packs = subject.settings.text_or_none("checkpoint.load"), subject.settings.text_or_none(_TRAIN_PATH)
    if folder is None:
        return
    if packs is None:
        raise CannotJudgeError("the host makes the packs, so where they lie is not known")
    files = subject.require_files()
    saved = [files.modified_s(f"{folder.rstrip('/')}/{name}") for name in _TRACKERS]
    written = [files.modified_s(path) for path in _pack_files(files, packs)]
    last_saved = max((time for time in saved if time is not None), default=None)
    last_written = max((time for time in written if time is not None), default=None)
    if last_saved is not None and last_written is not None and last_written > last_saved:
        yield Violation(
            where="checkpoint.load",
            found=f"a checkpoint {round((last_written - last_saved) / 60)} minutes older than the packs",
            allowed="packs that are older than the checkpoint",
        )


def _pack_files(files: Files, spec: str) -> tuple[str, ...]:
    if files.is_folder(spec):
        return tuple(f"{spec.rstrip('/')}/{name}" for name in files.names(spec))
    return files.matches(spec) if any(sign in spec for sign in "*?") else (spec,)


@rule("BP613", ADVICE, "PSB613; megatron/bridge/data/samplers.py before 0.6", versions={BRIDGE: "<0.6"})
def packs_read_in_file_order(subject: RunSubject) -> Iterator[Violation]:
    """This version of the host reads packs in the order of the file, in every epoch.

    Why: Silent: the batch sampler does not shuffle before 0.6. First-fit packing fills the first packs best and leaves
        the emptiest for the end, so the batches drift over an epoch.
    Bad: packs made by megatron-bridge 0.5.1, trained with 0.5.1.
    Good: packs made by bridgepack, whose order is random.
    Fix: Shuffle rows when packs are written, or use megatron-bridge 0.6.
    Evidence: history of the host's samplers.py.
    """
    if not subject.packs_offline or subject.settings.value("dataset.dataloader_type") != "batch":
        return
    if subject.artifact is None or subject.artifact.manifest is None:
        yield Violation(
            where="dataset.dataloader_type",
            found=f"batch in megatron-bridge {subject.versions['megatron-bridge']}, which does not shuffle",
            allowed="packs in random order, or megatron-bridge 0.6",
        )


@rule("BP616", ADVICE, "PSB616; megatron/bridge/data/builders/gpt_sft.py:868", noticed="first evaluation, or never")
def splits_from_two_artifacts(subject: RunSubject) -> Iterator[Violation]:
    """Training and validation packs lie in different artifacts.

    Why: Crash at the first evaluation, or silent: both are read with the same size, multiple and tokenizer, and nothing
        compares how they were made.
    Bad: packed_train_data_path /data/v2/training, packed_val_data_path /data/v1/validation.
    Good: packed_train_data_path /data/v2/training, packed_val_data_path /data/v2/validation.
    Fix: Build both splits at once, or check both artifacts against this run.
    """
    if not subject.has_specs or not subject.settings.flag("dataset.do_validation"):
        return
    training, validation = (subject.settings.text_or_none(path) for path in (_TRAIN_PATH, _VALIDATION_PATH))
    if training is None or validation is None:
        return
    if _artifact_folder(training) != _artifact_folder(validation):
        yield Violation(where=_VALIDATION_PATH, found=validation, allowed=f"packs in {_artifact_folder(training)}")


def _artifact_folder(spec: str) -> PurePosixPath:
    path = PurePosixPath(spec)
    folder = path.parent if path.suffix else path
    return folder.parent if folder.name in _SPLIT_FOLDERS else folder
