"""Rules on explicit paths to packs: what the host finds there, and what it does where it finds nothing."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path, PurePath

from bridgepack.records import TRAIN, Files
from bridgepack.rules.engine.rule import ADVICE, DATASET_BUILD, ERROR, EXECUTED, WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import Run
from bridgepack.rules.run.data.packed_paths import (
    METADATA_SETTING,
    PATH_SETTINGS,
    VALIDATION,
    PackedPath,
    cached_metadata,
    explicit_paths,
    is_parquet_name,
    resolved,
    splits_packed_by_host,
    visible_paths,
)

_KINDS = ".npy, .parquet, .pq, a folder of Parquet files, or a pattern with * or ?"
_SPLIT_OF_NAME = re.compile(r"(?:(?P<train>train(ing)?)|(?P<other>valid(ation)?|val|test))(?![a-z])", re.IGNORECASE)
_BRACKETS = re.compile(r"\[[^\]/]+\]")


@rule("BP201", ERROR, "PSB201; bridge/data/packing/config.py:55", noticed="construction", evidence=EXECUTED)
def packed_path_of_unknown_kind(run: Run) -> Found:
    """An explicit path to packs is neither .npy nor anything that the host takes for Parquet.

    Why: Crash at construction. Set afterwards, it is not checked, and the host finds no packs there.
    Bad: packed_train_data_path /data/packs/*, without extension. Good: /data/packs/*.parquet.
    Fix: Name a Parquet file, a folder of them, or a pattern that ends in .parquet.
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

    Why: Silent: set after construction, the host prints a warning, skips training and exits with 0.
    Bad: packed_train_data_path /data/packs/training.npy, and no such file. Good: the file exists.
    Fix: Correct the path; it must exist on every node. Noticed: construction; never where it is set later.
    """
    for path, files in visible_paths(run):
        if path.is_npy and not files.exists(path.text):
            yield wrong(path.setting, f"{path.text}, no such file", "a file that exists")


@rule("BP204", ERROR, noticed="construction; never where it is set later", evidence=EXECUTED)
def packed_parquet_missing(run: Run) -> Found:
    """An explicit path to Parquet packs leads to no file.

    Why: Silent: set after construction, the host packs dataset_root/training.jsonl into that path and trains on it.
    Bad: packed_train_data_path /data/packs/*.parquet, and no such file. Good: two files that match.
    Fix: Correct the path; it must exist on every node. A folder is not searched in depth.
    Source: PSB204, PSB202, PSB201; bridge/data/builders/gpt_sft.py:652, data/packing/config.py:76
    """
    for path, files in visible_paths(run):
        is_read = path.is_parquet or path.is_pattern or files.is_folder(path.text)
        if is_read and not path.is_npy and not resolved(path, files):
            yield wrong(path.setting, f"{path.text}, no Parquet file there", "at least one .parquet or .pq")


@rule("BP205", ERROR, "PSB205; bridge/data/packing/offline.py:293", when=splits_packed_by_host, noticed=DATASET_BUILD)
def metadata_path_is_text(run: Run) -> Found:
    """The host is to pack and to write metadata, and packed_metadata_path is a str, not a pathlib.Path.

    Why: Crash after the packs were written. The next run finds them and skips packing, without metadata for ever.
    Bad: packed_metadata_path "/data/meta.json", no path to packs. Good: packed_metadata_path Path("/data/meta.json").
    Fix: Give a pathlib.Path, or build the packs before the run and name them. Evidence: executed with the real 0.6.2.
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


@rule("BP213", ERROR, "PSB213; bridge/data/packing/paths.py:120", noticed="construction", evidence=EXECUTED)
def packed_path_with_brackets(run: Run) -> Found:
    """A path to packs is a pattern of brackets alone, which the host takes for a file name.

    Why: Crash at construction: Packed Parquet file not found.
    Bad: packed_train_data_path /data/packs/shard-[0-3].parquet. Good: /data/packs/shard-?.parquet.
    Fix: Use * or ?; with one of them in it the host expands brackets too.
    """
    for path in explicit_paths(run):
        is_brackets = not path.is_pattern and _BRACKETS.search(path.text)
        if is_brackets and (run.files is None or not run.files.exists(path.text)):
            yield wrong(path.setting, path.text, "* or ? in place of brackets")


@rule("BP214", WARNING, "PSB214; bridge/data/packing/paths.py:142", noticed="never, if one file matches")
def packed_path_with_double_star(run: Run) -> Found:
    """A path to packs has **, which the host reads as *: one level, not any depth.

    Why: Silent: packs at any other depth are left out.
    Bad: packed_train_data_path /data/packs/**/*.parquet. Good: /data/packs/*/*.parquet.
    Fix: Write one * for each level, or put all shards into one folder. Evidence: executed with the real 0.6.2.
    """
    for path in explicit_paths(run):
        if "**" in path.text:
            single = path.text.replace("**", "*")
            yield wrong(path.setting, path.text, f"{single}, which is what it means to the host", to=single)


@rule("BP215", ERROR, "PSB215; bridge/data/builders/gpt_sft.py:463", noticed=DATASET_BUILD, evidence=EXECUTED)
def npy_without_metadata(run: Run) -> Found:
    """Packs are .npy, and there is no metadata file for them.

    Why: Crash when the dataset is built: the host opens the metadata of every .npy file, also with pad_cu_seqlens off.
    Bad: packed_train_data_path /data/training.npy, packed_metadata_path null. Good: packed_metadata_path set.
    Fix: Name the metadata file, or convert the packs to Parquet.
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
