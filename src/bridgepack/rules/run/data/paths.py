"""Rules on paths to packs, on the raw data that a packed run still reads, and on its folder."""

import re
from itertools import pairwise
from pathlib import Path, PurePath

from bridgepack.records import TRAIN
from bridgepack.records.messages import say, setting
from bridgepack.rules.judging.files import Files
from bridgepack.rules.judging.rule import ADVICE, ERROR, EXECUTED, WARNING, Found, fixable_rule, place, rule, wrong
from bridgepack.rules.judging.settings import unfit
from bridgepack.rules.judging.subject import DEFAULT_WIDTH_MULTIPLE, HAS_SPECS, SPECS, Run
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
    metadata_unread,
    raw_root,
    resolve_path,
    splits_packed_by_host,
    visible_paths,
)

_KINDS = ".npy, .parquet, .pq, a folder of Parquet files, or a pattern with * or ?"
_SPLIT_OF_NAME = re.compile(r"(?:(?P<train>train(ing)?)|(?P<other>valid(ation)?|val|test))(?![a-z])", re.IGNORECASE)


@rule("BP225", ERROR, "bridgepack, data/reading/inputs.py", noticed="bridgepack build", evidence=EXECUTED)
def input_not_there(run: Run) -> Found:
    """An input of the build (file, folder or pattern) does not exist, and no packs exist yet.

    Why: Crash in the build, the first stage of a launched run.
    Bad: data.train chats.jsonl, and no such file. Good: the file exists, or the packs do.
    Fix: Correct the path, or check with --no-files if the files are on another machine.
    """
    if run.is_stated(f"{SPECS}.packed_train_data_path") or not run.config.inputs:
        return
    files = run.require_files()
    for field, path in run.config.inputs:
        if not files.exists(path) and not files.matches(path):
            yield wrong(
                place(field), f"{path}, which does not exist", "an existing file or folder, or a pattern that matches"
            )


@rule("BP201", ERROR, "PSB201; bridge/data/packing/config.py:55, data/packing/paths.py:46", evidence=EXECUTED)
def packed_path_of_unknown_kind(run: Run) -> Found:
    """An explicit path to packs is neither .npy nor Parquet.

    Why: Crash when the config is made: the path must be a .npy file or a packed parquet spec. If set later, the host
        finds no packs.
    Bad: packed_train_data_path /data/packs/*, without extension. Good: /data/packs/*.parquet.
    Fix: Set a Parquet file, a folder of them, or a pattern that ends in .parquet. Noticed: construction of the config.
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

    Why: Silent: if the path is set after construction, the host prints a warning, skips training and exits with 0. At
        construction it is a FileNotFoundError, on the login node too.
    Bad: packed_train_data_path /data/packs/training.npy, and no such file. Good: the file exists.
    Fix: Correct the path; it must exist on every node. Noticed: construction of the config; never if it is set later.
    """
    for path, files in visible_paths(run):
        if path.is_npy and not files.exists(path.text):
            yield wrong(path.setting, f"{path.text}, no such file", "a file that exists")


@rule("BP204", ERROR, noticed="construction of the config; never if it is set later", evidence=EXECUTED)
def packed_parquet_missing(run: Run) -> Found:
    """An explicit path to Parquet packs matches no file.

    Why: Silent: if the path is set after construction, the host packs dataset_root/training.jsonl into it and trains on
        that. At construction it is a FileNotFoundError.
    Bad: packed_train_data_path /data/packs/*.parquet, and no such file. Good: two files that match.
    Fix: Correct the path; it must exist on every node. Subfolders are not searched.
    Source: PSB204, PSB202, PSB201; bridge/data/builders/gpt_sft.py:652, data/packing/config.py:76
    """
    for path, files in visible_paths(run):
        is_read = path.is_parquet or path.is_pattern or files.is_folder(path.text)
        if is_read and not path.is_npy and not resolve_path(path, files):
            yield wrong(path.setting, f"{path.text}, no Parquet file there", "at least one .parquet or .pq")


@fixable_rule("BP205", ERROR, "PSB205; bridge/data/packing/offline.py:293", when=splits_packed_by_host)
def metadata_path_is_text(run: Run) -> Found:
    """The host packs and writes metadata, but packed_metadata_path is a str instead of a pathlib.Path.

    Why: Crash after packing: Python says that a 'str' object has no attribute 'open'. The next run finds packs without
        metadata.
    Bad: packed_metadata_path "/data/meta.json", no path to packs. Good: packed_metadata_path Path("/data/meta.json").
    Fix: Set a pathlib.Path, or build the packs before the run and set their paths. Noticed: dataset build, on rank 0.
    Evidence: executed with the real 0.6.2.
    """
    value = run.value(METADATA_SETTING)
    if isinstance(value, str) and not isinstance(value, PurePath):
        actual = f"the string {value!r}, to be written for {' and '.join(splits_packed_by_host(run))}"
        yield wrong(METADATA_SETTING, actual, "a pathlib.Path", to=Path(value), because="the host opens it as a path")


def _strangers(path: PackedPath, files: Files) -> list[str]:
    other_split = "other" if path.split == TRAIN else "train"
    names = [name.rpartition("/")[2] for name in resolve_path(path, files)]
    splits_of_names = [(name, _SPLIT_OF_NAME.match(name)) for name in names]
    return [name for name, match in splits_of_names if match is not None and match[other_split]]


@rule("BP212", ERROR, "PSB212; bridge/data/packing/paths.py:154", evidence=EXECUTED)
def packed_path_mixes_splits(run: Run) -> Found:
    """A folder or pattern of packs includes files whose names belong to another split.

    Why: Silent: the host reads every Parquet file there; it trains on validation data, or validates on training data.
    Bad: packed_train_data_path /data/packs, with validation_4096.idx.parquet in it.
    Good: /data/packs/training_*.parquet. Fix: Use a pattern that begins with the split's name.
    """
    for path, files in visible_paths(run):
        if (path.is_pattern or files.is_folder(path.text)) and (strangers := _strangers(path, files)):
            actual = f"{path.text} includes {strangers[0]}"
            yield wrong(path.setting, actual, f"files of {path.split} only", group=path.setting)


@rule("BP213", ERROR, "PSB213; bridge/data/packing/paths.py:120", evidence=EXECUTED)
def packed_path_with_brackets(run: Run) -> Found:
    """A path to packs is a pattern with brackets only, which the host reads as a file name.

    Why: Crash when the dataset is made: the host says "Packed Parquet file not found". Megatron-Bridge 0.7 expands
        brackets.
    Bad: packed_train_data_path /data/packs/shard-[0-3].parquet. Good: /data/packs/shard-?.parquet.
    Fix: Use * or ?; with one of them in the pattern the host expands brackets too. Noticed: construction of the config.
    """
    for path in explicit_paths(run):
        if (
            path.has_brackets_alone
            and not run.release.expands_brackets
            and (run.files is None or not run.files.exists(path.text))
        ):
            yield wrong(path.setting, path.text, "* or ? instead of brackets")


@fixable_rule("BP214", WARNING, "PSB214; bridge/data/packing/paths.py:142", evidence="executed with the real 0.6.2")
def packed_path_with_double_star(run: Run) -> Found:
    """A path to packs has **, which the host reads as *: one level, not any depth.

    Why: Silent: the host skips packs at any other depth.
    Bad: packed_train_data_path /data/packs/**/*.parquet. Good: /data/packs/*/*.parquet.
    Fix: Write one * for each level, or put all shards into one folder. Noticed: never, as long as one file matches.
    """
    for path in explicit_paths(run):
        if "**" in path.text:
            single = path.text.replace("**", "*")
            yield wrong(path.setting, path.text, f"{single}, as the host reads it", to=single)


@rule("BP215", ERROR, "PSB215; bridge/data/builders/gpt_sft.py:463, data/packing/gpt_sft.py:84", evidence=EXECUTED)
def npy_without_metadata(run: Run) -> Found:
    """Packs are .npy files without a metadata file.

    Why: Crash at dataset build: the host raises FileNotFoundError, because .npy files need their metadata even if
        pad_cu_seqlens is off.
    Bad: packed_train_data_path /data/training.npy, packed_metadata_path null. Good: packed_metadata_path set.
    Fix: Set {dataset.offline_packing_specs.packed_metadata_path}, or convert the packs to Parquet. Noticed: dataset
        build.
    """
    if not any(path.is_npy for path in explicit_paths(run)):
        return
    metadata, files = run.text_or_none(METADATA_SETTING), run.files
    if metadata is None:
        has_root = run.is_set("dataset.dataset_root") or run.is_set("dataset.hf_output_root")
        if files is None or not has_root or not cached_metadata(run, files):
            yield wrong(METADATA_SETTING, "null, with .npy packs", "the packs' metadata file")
    else:
        yield from metadata_unread(run, metadata)


@rule("BP222", WARNING, "PSB616, PSB212; bridge/data/builders/gpt_sft.py:868")
def validation_packs_are_training_packs(run: Run) -> Found:
    """packed_val_data_path is the same as packed_train_data_path.

    Why: Silent: the validation loss is measured on training data.
    Bad: both paths are /data/packs/training_4096.idx.parquet. Good: validation_4096.idx.parquet for the second.
    Fix: Set {dataset.offline_packing_specs.packed_val_data_path} to the validation packs, or {dataset.do_validation} to
        false.
    """
    texts = [path.text.rstrip("/") for path in explicit_paths(run)]
    if len(texts) == 2 and texts[0] == texts[1] and run.flag("dataset.do_validation"):
        yield wrong(PATH_SETTINGS[VALIDATION], texts[1], "separate validation packs")


@rule("BP223", ADVICE, "PSB214; bridge/data/packing/paths.py:142")
def shards_out_of_number_order(run: Run) -> Found:
    """Shards are numbered without leading zeros, so the host does not read them in the order of their numbers.

    Why: Silent: shard_10 comes before shard_2, so row numbers differ, and new shards are inserted in between on resume.
    Bad: shard_2.parquet and shard_10.parquet. Good: shard_02.parquet and shard_10.parquet.
    Fix: Number the shards with leading zeros.
    """
    for path, files in visible_paths(run):
        names = [name for name in resolve_path(path, files) if is_parquet_name(name)]
        pairs_out_of_order = [pair for pair in pairwise(names) if _by_number(pair[0]) > _by_number(pair[1])]
        if pairs_out_of_order:
            actual = " before ".join(name.rpartition("/")[2] for name in pairs_out_of_order[0])
            yield wrong(path.setting, actual, "numbers with leading zeros", group=path.setting)


def _by_number(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


@rule("BP206", WARNING, "PSB206; bridge/data/builders/gpt_sft.py:628, 868", evidence="executed with the real 0.6.2")
def validation_packed_by_host(run: Run) -> Found:
    """packed_train_data_path is set and packed_val_data_path is not, so the host packs validation.jsonl itself.

    Why: Silent: validation is packed with the run's own preprocessing, not with that of the training packs. Crash when
        the dataset is built if validation.jsonl does not exist: rank 0 fails while the others wait.
    Bad: packed_train_data_path set, packed_val_data_path null, do_validation true. Good: do_validation false.
    Fix: Set {dataset.offline_packing_specs.packed_val_data_path}, or {dataset.do_validation} to false. Noticed: dataset
        build, or never.
    """
    if splits_packed_by_host(run) == (VALIDATION,):
        allowed_values = "a path to validation packs, or do_validation false"
        yield wrong(PATH_SETTINGS[VALIDATION], "null, with explicit training packs and do_validation", allowed_values)


@fixable_rule(
    "BP207",
    WARNING,
    "PSB207; bridge/data/builders/gpt_sft.py:780, data/datasets/gpt_sft.py:641",
    when=HAS_SPECS,
)
def test_split_width_not_divisible(run: Run) -> Found:
    """do_test is on, but the width of test rows, which are never packed, is not divisible by the parallel sizes.

    Why: Crash at the end of training if dataset_root has a test.jsonl: its rows are rounded to 16 tokens, but context
        or sequence parallelism needs another multiple.
    Bad: do_test true, CP 4, TP 8, sequence_parallel: 16 where 32 is needed. Good: do_test false.
    Fix: Set {dataset.do_test} to false; it is true by default. Noticed: end of training.
    """
    if not run.flag("dataset.do_test"):
        return
    multiple = run.needed_width_multiple
    width = run.dataset_kwargs.get("pad_seq_length_to_mult", DEFAULT_WIDTH_MULTIPLE)
    if run.dataset_kwargs.get("pad_to_max_length"):
        width = run.integer("dataset.seq_length")
    if type(width) is not int:
        raise unfit("dataset.dataset_kwargs.pad_seq_length_to_mult", width, "not a whole number")
    if width % multiple == 0:
        return
    is_seen = run.files is not None and run.value("dataset.hf_dataset") is None
    if not is_seen or run.require_files().exists(f"{raw_root(run)}/test.jsonl"):
        actual = f"true, with test rows a multiple of {width} wide"
        allowed_values = f"false, or rows a multiple of {multiple} wide"
        yield wrong("dataset.do_test", actual, allowed_values, to=False, because="the test split is never packed")


@rule("BP219", ERROR, "PSB219; bridge/data/builders/gpt_sft.py:802", when=HAS_SPECS, noticed="dataset build")
def raw_folder_not_writable(run: Run) -> Found:
    """The host needs a folder for packs under dataset_root, which does not exist and cannot be created.

    Why: Crash when the dataset is built: the host raises PermissionError, even with explicit packs if
        packed_metadata_path is null.
    Bad: a dataset_root that only others may write, packed_metadata_path null. Good: all three packed paths set.
    Fix: Set {dataset.offline_packing_specs.packed_train_data_path},
        {dataset.offline_packing_specs.packed_val_data_path} and {dataset.offline_packing_specs.packed_metadata_path},
        or make {dataset.dataset_root} writable.
    """
    unset_paths = [PATH_SETTINGS[split] for split in splits_packed_by_host(run)]
    unset_paths += [METADATA_SETTING] * (run.value(METADATA_SETTING) is None)
    if not unset_paths:
        return
    files, root = run.require_files(), raw_root(run)
    if not files.is_writable(f"{root}/packed") and not cache_folders(run, files):
        actual = say("{root} is not writable, and {path} is null", root=root, path=setting(unset_paths[0]))
        yield wrong("dataset.dataset_root", actual, "a writable folder, or all packed paths set")


@rule("BP221", ERROR, when=splits_packed_by_host, noticed="dataset build", evidence=EXECUTED)
def raw_data_missing(run: Run) -> Found:
    """The host packs a split, but neither its JSON Lines nor cached packs of it exist.

    Why: Crash when the dataset is built: the host says "GPT SFT input path does not exist". The other ranks wait for
        rank 0.
    Bad: packed_val_data_path null, do_validation true, no validation.jsonl in dataset_root. Good: it exists.
    Fix: Set the path to that split's packs, put its JSON Lines into {dataset.dataset_root}, or turn the split off.
    Source: PSB206, PSB201; bridge/data/packing/offline.py:204
    """
    if run.value("dataset.hf_dataset") is not None:
        return
    files, root = run.require_files(), raw_root(run)
    for split in splits_packed_by_host(run):
        raw = f"{root}/{split}.jsonl"
        if not files.exists(raw) and not cached_packs(run, split, files):
            yield wrong(PATH_SETTINGS[split], f"null, and no {raw}", "packs, or that file")


@rule("BP224", ADVICE, "PSB219; bridge/data/builders/gpt_sft.py:827", noticed="dataset build, or never")
def metadata_path_left_to_host(run: Run) -> Found:
    """packed_metadata_path is null with explicit packs, so the host creates a folder under dataset_root for it.

    Why: Crash when the dataset is built if dataset_root is not writable, although nothing is written into the folder.
        Otherwise an empty folder is left.
    Bad: packed_train_data_path set, packed_metadata_path null. Good: packed_metadata_path Path("bridge_metadata.json").
    Fix: Set {dataset.offline_packing_specs.packed_metadata_path} to the packs' metadata file.
    """
    if any(path.split == TRAIN for path in explicit_paths(run)) and run.value(METADATA_SETTING) is None:
        yield wrong(METADATA_SETTING, "null, with explicit packs", "the packs' metadata file")
