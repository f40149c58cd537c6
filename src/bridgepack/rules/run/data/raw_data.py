"""Rules on the raw data that a packed run still reads, and on the folder that it lies in."""

from __future__ import annotations

from bridgepack.records import TRAIN
from bridgepack.rules.engine.context import CannotJudgeError
from bridgepack.rules.engine.rule import ADVICE, DATASET_BUILD, ERROR, EXECUTED, WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import DEFAULT_WIDTH_MULTIPLE, HAS_SPECS, Run
from bridgepack.rules.run.data.packed_paths import (
    METADATA_SETTING,
    PATH_SETTINGS,
    VALIDATION,
    cache_folders,
    cached_packs,
    explicit_paths,
    raw_root,
    splits_packed_by_host,
)


@rule("BP206", WARNING, "PSB206; bridge/data/builders/gpt_sft.py:628, 868", noticed="dataset build, or never")
def validation_packed_by_host(run: Run) -> Found:
    """The training packs are named and the validation packs are not, so the host packs validation.jsonl itself.

    Why: Silent: validation is packed with the run's own preprocessing. Crash where there is no validation.jsonl.
    Bad: packed_train_data_path set, packed_val_data_path null, do_validation true. Good: do_validation false.
    Fix: Name validation packs, or set dataset.do_validation to false. Evidence: executed with the real 0.6.2.
    """
    if splits_packed_by_host(run) == (VALIDATION,):
        allowed = "a path to validation packs, or do_validation false"
        yield wrong(PATH_SETTINGS[VALIDATION], "null, with named training packs and do_validation", allowed)


@rule("BP207", WARNING, "PSB207; bridge/data/builders/gpt_sft.py:780", when=HAS_SPECS, noticed="end of training")
def test_split_width_not_divisible(run: Run) -> Found:
    """do_test is on, and the width of test batches, which are never packed, does not divide.

    Why: Crash at the end of training with a test.jsonl: its rows are rounded to 16 tokens, whatever is needed.
    Bad: do_test true, CP 4, TP 8, sequence_parallel: 16 where 32 is needed. Good: do_test false.
    Fix: Set dataset.do_test to false; it is true by default.
    """
    if not run.flag("dataset.do_test"):
        return
    needed = run.needed_width_multiple
    width = run.dataset_kwargs.get("pad_seq_length_to_mult", DEFAULT_WIDTH_MULTIPLE)
    if run.dataset_kwargs.get("pad_to_max_length"):
        width = run.integer("dataset.seq_length")
    if type(width) is not int:
        raise CannotJudgeError(f"dataset.dataset_kwargs.pad_seq_length_to_mult is {width!r}")
    if width % needed and _may_have_test_data(run):
        found = f"true, with test rows a multiple of {width} wide"
        allowed = f"false, or rows a multiple of {needed} wide"
        yield wrong("dataset.do_test", found, allowed, to=False, because="the test split is never packed")


def _may_have_test_data(run: Run) -> bool:
    """Say whether there may be a test split: there is, or it was not looked at."""
    if run.files is None or run.value("dataset.hf_dataset") is not None:
        return True
    return run.files.exists(f"{raw_root(run)}/test.jsonl")


@rule("BP219", ERROR, "PSB219; bridge/data/builders/gpt_sft.py:802", when=HAS_SPECS, noticed=DATASET_BUILD)
def raw_folder_not_writable(run: Run) -> Found:
    """The host needs its folder of packs under dataset_root, does not have it, and may not make it.

    Why: Crash when the dataset is built: PermissionError. With explicit packs too, where packed_metadata_path is null.
    Bad: a dataset_root that only others may write, packed_metadata_path null. Good: all three packed paths named.
    Fix: Name packed_train_data_path, packed_val_data_path and packed_metadata_path, or make dataset_root writable.
    """
    unnamed = [PATH_SETTINGS[split] for split in splits_packed_by_host(run)]
    unnamed += [METADATA_SETTING] * (run.value(METADATA_SETTING) is None)
    if not unnamed:
        return
    files, root = run.require_files(), raw_root(run)
    if not files.is_writable(f"{root}/packed") and not cache_folders(run, files):
        found = f"{root} is not writable, and {unnamed[0]} is null"
        yield wrong("dataset.dataset_root", found, "a writable folder, or all paths named")


@rule("BP221", ERROR, when=splits_packed_by_host, noticed=DATASET_BUILD, evidence=EXECUTED)
def raw_data_missing(run: Run) -> Found:
    """The host is to pack a split, and neither its JSON Lines nor packs of it exist.

    Why: Crash when the dataset is built: GPT SFT input path does not exist. The other ranks wait for rank 0.
    Bad: packed_val_data_path null, do_validation true, no validation.jsonl in dataset_root. Good: it is there.
    Fix: Name the packs of that split, put its JSON Lines into dataset_root, or switch the split off.
    Source: PSB206, PSB201; bridge/data/packing/offline.py:204
    """
    if run.value("dataset.hf_dataset") is not None:
        return
    if run.dataset_kind == "HFDatasetConfig":
        raise CannotJudgeError("the host writes the raw data itself")
    files, root = run.require_files(), raw_root(run)
    for split in splits_packed_by_host(run):
        raw = f"{root}/{split}.jsonl"
        if not files.exists(raw) and not cached_packs(run, split, files):
            yield wrong(PATH_SETTINGS[split], f"null, and no {raw}", "packs, or that file")


@rule("BP224", ADVICE, "PSB219; bridge/data/builders/gpt_sft.py:827", noticed="dataset build, or never")
def metadata_path_left_to_host(run: Run) -> Found:
    """The packs are named and packed_metadata_path is not, so the host makes a folder under dataset_root for it.

    Why: Crash when the dataset is built where dataset_root may not be written. Otherwise an empty folder stays behind.
    Bad: packed_train_data_path set, packed_metadata_path null. Good: packed_metadata_path Path("bridge_metadata.json").
    Fix: Name the metadata file of the packs.
    """
    if any(path.split == TRAIN for path in explicit_paths(run)) and run.value(METADATA_SETTING) is None:
        yield wrong(METADATA_SETTING, "null, with named packs", "the packs' metadata file")
