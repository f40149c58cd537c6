"""Rules on paths to packs, on the raw data that a packed run still reads, and on the folder it lies in."""

import re
from itertools import pairwise
from pathlib import Path, PurePath

from bridgepack.records import TRAIN, Files
from bridgepack.rules.engine.context import CannotJudgeError
from bridgepack.rules.engine.rule import ADVICE, ERROR, EXECUTED, WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import DEFAULT_WIDTH_MULTIPLE, HAS_SPECS, SPECS, Run
from bridgepack.rules.run.data.packed_paths import (
    METADATA_SETTING,
    PATH_SETTINGS,
    VALIDATION,
    PackedPath,
    cache_folders,
    cached_metadata,
    cached_packs,
    explicit_paths,
    is_parquet_name,
    raw_root,
    resolved,
    splits_packed_by_host,
    visible_paths,
)

_KINDS = ".npy, .parquet, .pq, a folder of Parquet files, or a pattern with * or ?"
_SPLIT_OF_NAME = re.compile(r"(?:(?P<train>train(ing)?)|(?P<other>valid(ation)?|val|test))(?![a-z])", re.IGNORECASE)
_BRACKETS = re.compile(r"\[[^\]/]+\]")


@rule("BP225", ERROR, "bridgepack, data/reading/inputs.py", noticed="never, the build does", evidence=EXECUTED)
def input_not_there(run: Run) -> Found:
    """A file, a folder or a pattern that a build reads leads to nothing, and there are no packs yet.

    Why: Crash in the build, the first thing that a launched run does.
    Bad: data.train chats.jsonl, and no such file. Good: the file exists, or the packs do.
    Fix: Correct the path, or check with --no-files where the files are on another machine.
    """
    if run.is_stated(f"{SPECS}.packed_train_data_path") or not run.config.inputs:
        return
    files = run.require_files()
    for field, path in run.config.inputs:
        if not files.exists(path) and not files.matches(path):
            yield wrong(field, f"{path}, which is not there", "a file, a folder or a pattern that is")


@rule("BP201", ERROR, "PSB201; bridge/data/packing/config.py:55, data/packing/paths.py:46", evidence=EXECUTED)
def packed_path_of_unknown_kind(run: Run) -> Found:
    """An explicit path to packs is neither .npy nor anything that the host takes for Parquet.

    Why: Crash at construction: must be a .npy file or a packed parquet spec. Set afterwards, the host finds no packs.
    Bad: packed_train_data_path /data/packs/*, without extension. Good: /data/packs/*.parquet.
    Fix: Name a Parquet file, a folder of them, or a pattern that ends in .parquet. Noticed: construction of the config.
    """
    for path in explicit_paths(run):
        if path.is_npy or path.is_parquet or path.is_remote:
            continue
        is_named = path.is_pattern and re.search(r"\.parquet|\.pq", path.text, re.IGNORECASE)
        if not is_named and (path.is_pattern or not run.require_files().is_folder(path.text)):
            yield wrong(path.setting, path.text, _KINDS)


@rule("BP203", ERROR, "PSB203, PSB202; bridge/data/builders/gpt_sft.py:456, data/loaders.py:402", evidence=EXECUTED)
def packed_npy_missing(run: Run) -> Found:
    """An explicit .npy file of packs does not exist.

    Why: Silent: set after construction, the host prints a warning, skips training and exits with 0. At construction it
        is a FileNotFoundError, on the login node too.
    Bad: packed_train_data_path /data/packs/training.npy, and no such file. Good: the file exists.
    Fix: Correct the path; it must exist on every node.
    Noticed: construction of the config; never where it is set later.
    """
    for path, files in visible_paths(run):
        if path.is_npy and not files.exists(path.text):
            yield wrong(path.setting, f"{path.text}, no such file", "a file that exists")


@rule("BP204", ERROR, noticed="construction of the config; never where it is set later", evidence=EXECUTED)
def packed_parquet_missing(run: Run) -> Found:
    """An explicit path to Parquet packs leads to no file.

    Why: Silent: set after construction, the host packs dataset_root/training.jsonl into that path and trains on it. At
        construction it is a FileNotFoundError.
    Bad: packed_train_data_path /data/packs/*.parquet, and no such file. Good: two files that match.
    Fix: Correct the path; it must exist on every node. A folder is not searched in depth.
    Source: PSB204, PSB202, PSB201; bridge/data/builders/gpt_sft.py:652, data/packing/config.py:76
    """
    for path, files in visible_paths(run):
        is_read = path.is_parquet or path.is_pattern or files.is_folder(path.text)
        if is_read and not path.is_npy and not resolved(path, files):
            yield wrong(path.setting, f"{path.text}, no Parquet file there", "at least one .parquet or .pq")


@rule("BP205", ERROR, "PSB205; bridge/data/packing/offline.py:293", when=splits_packed_by_host)
def metadata_path_is_text(run: Run) -> Found:
    """The host is to pack and to write metadata, and packed_metadata_path is a str, not a pathlib.Path.

    Why: Crash after packing: 'str' object has no attribute 'open'. The next run finds the packs, never any metadata.
    Bad: packed_metadata_path "/data/meta.json", no path to packs. Good: packed_metadata_path Path("/data/meta.json").
    Fix: Give a pathlib.Path, or build the packs before the run and name them. Noticed: dataset build, on rank 0.
    Evidence: executed with the real 0.6.2.
    """
    value = run.value(METADATA_SETTING)
    if isinstance(value, str) and not isinstance(value, PurePath):
        found = f"the text {value!r}, to be written for {' and '.join(splits_packed_by_host(run))}"
        yield wrong(METADATA_SETTING, found, "a pathlib.Path", to=Path(value), because="the host opens it as a path")


def _strangers(path: PackedPath, files: Files) -> list[str]:
    """Return the files of a path whose names say that they belong to another split."""
    wrong = "other" if path.split == TRAIN else "train"
    names = [name.rpartition("/")[2] for name in resolved(path, files)]
    matched = [(name, _SPLIT_OF_NAME.match(name)) for name in names]
    return [name for name, match in matched if match is not None and match[wrong]]


@rule("BP212", ERROR, "PSB212; bridge/data/packing/paths.py:154", evidence=EXECUTED)
def packed_path_mixes_splits(run: Run) -> Found:
    """A folder or pattern of packs takes in files whose names belong to another split.

    Why: Silent: the host reads every Parquet file there; validation data is trained, or training data validated.
    Bad: packed_train_data_path /data/packs, with validation_4096.idx.parquet in it.
    Good: /data/packs/training_*.parquet.
    Fix: Name the files, e.g. with a pattern that begins like the split.
    """
    for path, files in visible_paths(run):
        if (path.is_pattern or files.is_folder(path.text)) and (strangers := _strangers(path, files)):
            found = f"{path.text} takes in {strangers[0]}"
            yield wrong(path.setting, found, f"files of {path.split} only", group=path.setting)


@rule("BP213", ERROR, "PSB213; bridge/data/packing/paths.py:120", evidence=EXECUTED)
def packed_path_with_brackets(run: Run) -> Found:
    """A path to packs is a pattern of brackets alone, which the host takes for a file name.

    Why: Crash at construction: Packed Parquet file not found.
    Bad: packed_train_data_path /data/packs/shard-[0-3].parquet. Good: /data/packs/shard-?.parquet.
    Fix: Use * or ?; with one of them in it the host expands brackets too. Noticed: construction of the config.
    """
    for path in explicit_paths(run):
        is_brackets = not path.is_pattern and _BRACKETS.search(path.text)
        if is_brackets and (run.files is None or not run.files.exists(path.text)):
            yield wrong(path.setting, path.text, "* or ? in place of brackets")


@rule("BP214", WARNING, "PSB214; bridge/data/packing/paths.py:142", evidence="executed with the real 0.6.2")
def packed_path_with_double_star(run: Run) -> Found:
    """A path to packs has **, which the host reads as *: one level, not any depth.

    Why: Silent: packs at any other depth are left out.
    Bad: packed_train_data_path /data/packs/**/*.parquet. Good: /data/packs/*/*.parquet.
    Fix: Write one * for each level, or put all shards into one folder. Noticed: never, as long as one file matches.
    """
    for path in explicit_paths(run):
        if "**" in path.text:
            single = path.text.replace("**", "*")
            yield wrong(path.setting, path.text, f"{single}, which is what it means to the host", to=single)


@rule("BP215", ERROR, "PSB215; bridge/data/builders/gpt_sft.py:463, data/packing/gpt_sft.py:84", evidence=EXECUTED)
def npy_without_metadata(run: Run) -> Found:
    """Packs are .npy, and there is no metadata file for them.

    Why: Crash at dataset build: FileNotFoundError; .npy files need their metadata even where pad_cu_seqlens is off.
    Bad: packed_train_data_path /data/training.npy, packed_metadata_path null. Good: packed_metadata_path set.
    Fix: Name the metadata file, or convert the packs to Parquet. Noticed: dataset build.
    """
    if not any(path.is_npy for path in explicit_paths(run)):
        return
    metadata, files = run.text_or_none(METADATA_SETTING), run.files
    if metadata is None:
        if files is None or not cached_metadata(run, files):
            yield wrong(METADATA_SETTING, "null, with .npy packs", "the packs' metadata file")
    elif files is not None and "://" not in metadata and not files.exists(metadata):
        yield wrong(METADATA_SETTING, f"{metadata}, no such file", "a file that exists")


@rule("BP222", WARNING, "PSB616, PSB212; bridge/data/builders/gpt_sft.py:868")
def validation_packs_are_training_packs(run: Run) -> Found:
    """packed_val_data_path is the same as packed_train_data_path.

    Why: Silent: the validation loss is measured on training data.
    Bad: both paths are /data/packs/training_4096.idx.parquet. Good: validation_4096.idx.parquet for the second.
    Fix: Name the validation packs, or set dataset.do_validation to false.
    """
    texts = [path.text.rstrip("/") for path in explicit_paths(run)]
    if len(texts) == 2 and texts[0] == texts[1] and run.flag("dataset.do_validation"):
        yield wrong(PATH_SETTINGS[VALIDATION], texts[1], "packs of its own")


@rule("BP223", ADVICE, "PSB214; bridge/data/packing/paths.py:142")
def shards_out_of_number_order(run: Run) -> Found:
    """Shards are numbered without leading zeros, so the host's order of names is not that of numbers.

    Why: Silent: shard_10 comes before shard_2: rows have other numbers, and new shards fall in between on resume.
    Bad: shard_2.parquet and shard_10.parquet. Good: shard_02.parquet and shard_10.parquet.
    Fix: Number the shards with leading zeros.
    """
    for path, files in visible_paths(run):
        names = [name for name in resolved(path, files) if is_parquet_name(name)]
        swapped = [pair for pair in pairwise(names) if _by_number(pair[0]) > _by_number(pair[1])]
        if swapped:
            found = " before ".join(name.rpartition("/")[2] for name in swapped[0])
            yield wrong(path.setting, found, "numbers with leading zeros", group=path.setting)


def _by_number(name: str) -> list[tuple[int, str]]:
    """Return a key that orders names by the numbers in them."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


@rule("BP206", WARNING, "PSB206; bridge/data/builders/gpt_sft.py:628, 868", evidence="executed with the real 0.6.2")
def validation_packed_by_host(run: Run) -> Found:
    """The training packs are named and the validation packs are not, so the host packs validation.jsonl itself.

    Why: Silent: validation is packed with the run's own preprocessing, not with that of the training packs. Crash when
        the dataset is built where there is no validation.jsonl: rank 0 fails and the others wait for it.
    Bad: packed_train_data_path set, packed_val_data_path null, do_validation true. Good: do_validation false.
    Fix: Name validation packs, or set dataset.do_validation to false. Noticed: dataset build, or never.
    """
    if splits_packed_by_host(run) == (VALIDATION,):
        allowed = "a path to validation packs, or do_validation false"
        yield wrong(PATH_SETTINGS[VALIDATION], "null, with named training packs and do_validation", allowed)


@rule("BP207", WARNING, "PSB207; bridge/data/builders/gpt_sft.py:780, data/datasets/gpt_sft.py:641", when=HAS_SPECS)
def test_split_width_not_divisible(run: Run) -> Found:
    """do_test is on, and the width of test batches, which are never packed, does not divide.

    Why: Crash at the end of training, where dataset_root has a test.jsonl: its rows are rounded to 16 tokens, and
        context or sequence parallelism needs another multiple.
    Bad: do_test true, CP 4, TP 8, sequence_parallel: 16 where 32 is needed. Good: do_test false.
    Fix: Set dataset.do_test to false; it is true by default. Noticed: end of training.
    """
    if not run.flag("dataset.do_test"):
        return
    needed = run.needed_width_multiple
    width = run.dataset_kwargs.get("pad_seq_length_to_mult", DEFAULT_WIDTH_MULTIPLE)
    if run.dataset_kwargs.get("pad_to_max_length"):
        width = run.integer("dataset.seq_length")
    if type(width) is not int:
        raise CannotJudgeError(f"dataset.dataset_kwargs.pad_seq_length_to_mult is {width!r}")
    if width % needed == 0:
        return
    is_seen = run.files is not None and run.value("dataset.hf_dataset") is None
    if not is_seen or run.require_files().exists(f"{raw_root(run)}/test.jsonl"):
        found = f"true, with test rows a multiple of {width} wide"
        allowed = f"false, or rows a multiple of {needed} wide"
        yield wrong("dataset.do_test", found, allowed, to=False, because="the test split is never packed")


@rule("BP219", ERROR, "PSB219; bridge/data/builders/gpt_sft.py:802", when=HAS_SPECS, noticed="dataset build")
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


@rule("BP221", ERROR, when=splits_packed_by_host, noticed="dataset build", evidence=EXECUTED)
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

    Why: Crash when the dataset is built, where dataset_root may not be written: the folder is made although nothing is
        written into it. Otherwise an empty folder stays behind.
    Bad: packed_train_data_path set, packed_metadata_path null. Good: packed_metadata_path Path("bridge_metadata.json").
    Fix: Name the metadata file of the packs.
    """
    if any(path.split == TRAIN for path in explicit_paths(run)) and run.value(METADATA_SETTING) is None:
        yield wrong(METADATA_SETTING, "null, with named packs", "the packs' metadata file")
