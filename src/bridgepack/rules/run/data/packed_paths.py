"""Locations of a run's packs, found as the host finds them: explicit paths, or the host's cache of its own packs."""

import re
from dataclasses import dataclass

from bridgepack.records import SPLITS, TRAIN
from bridgepack.records.messages import say
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.files import Files
from bridgepack.rules.judging.rule import Found, wrong
from bridgepack.rules.judging.subject import SPECS, Run

VALIDATION = SPLITS[1]
PATH_SETTINGS = {TRAIN: f"{SPECS}.packed_train_data_path", VALIDATION: f"{SPECS}.packed_val_data_path"}
_BRACKETS = re.compile(r"\[[^\]/]+\]")
METADATA_SETTING = f"{SPECS}.packed_metadata_path"


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedPath:
    """An explicit path to packs in the settings."""

    split: str  #: `training` or `validation`
    setting: str  #: dotted path of the setting
    text: str  #: the path: a file, a folder or a pattern
    expands_brackets: bool = False  #: as of the host's release

    @property
    def is_npy(self) -> bool:
        """Whether the path is a .npy file."""
        return self.text.lower().endswith(".npy")

    @property
    def is_parquet(self) -> bool:
        """Whether the path has a Parquet extension."""
        return is_parquet_name(self.text)

    @property
    def is_pattern(self) -> bool:
        """Whether the host expands the path: `*` and `?` make a pattern, and brackets from 0.7 on."""
        is_plain = "*" not in self.text and "?" not in self.text
        return not is_plain or (self.expands_brackets and self.has_brackets_alone)

    @property
    def has_brackets_alone(self) -> bool:
        """Whether the path has brackets with characters, and no `*` or `?`."""
        return "*" not in self.text and "?" not in self.text and _BRACKETS.search(self.text) is not None

    @property
    def is_remote(self) -> bool:
        """Whether the path is a URI, which is not checked."""
        return "://" in self.text


def is_parquet_name(name: str) -> bool:
    """Return whether a name has an extension that the host reads as Parquet."""
    return name.lower().endswith((".parquet", ".pq"))


def explicit_paths(run: Run) -> tuple[PackedPath, ...]:
    """Return the explicit paths to packs in the settings; empty without offline packing."""
    if not run.has_specs:
        return ()
    expands_brackets = run.versions.release.expands_brackets
    texts = {split: run.text_or_none(setting) for split, setting in PATH_SETTINGS.items()}
    return tuple(
        PackedPath(split=split, setting=PATH_SETTINGS[split], text=text, expands_brackets=expands_brackets)
        for split, text in texts.items()
        if text is not None
    )


def visible_paths(run: Run) -> tuple[tuple[PackedPath, Files], ...]:
    """Return the explicit paths that are not URIs, each with the file system; empty if no path is set.

    Raises:
        CannotJudgeError: files are not checked, or every path is a URI.
    """
    paths = explicit_paths(run)
    if not paths:
        return ()
    files = run.require_files()
    visible = tuple((path, files) for path in paths if not path.is_remote)
    if not visible:
        raise CannotJudgeError("the packs are at a URI, which is not checked")
    return visible


def splits_packed_by_host(run: Run) -> tuple[str, ...]:
    """Return the splits that the host packs itself: with offline packing, those without an explicit path.

    Source: megatron/bridge/data/builders/gpt_sft.py:622-635.
    """
    if not run.has_specs:
        return ()
    splits_of_paths = {path.split for path in explicit_paths(run)}
    splits_of_run = SPLITS if run.flag("dataset.do_validation") else (TRAIN,)
    return tuple(split for split in splits_of_run if split not in splits_of_paths)


def resolve_path(path: PackedPath, files: Files) -> tuple[str, ...]:
    """Return the files that the host reads for a path, sorted as it sorts them.

    Source: megatron/bridge/data/packing/paths.py:102-181.
    """
    is_literal = path.has_brackets_alone and path.is_parquet and files.exists(path.text)
    if path.is_pattern and not is_literal:
        return tuple(name for name in files.matches(path.text) if is_parquet_name(name))
    if not path.is_npy and files.is_folder(path.text):
        folder = path.text.rstrip("/")
        return tuple(f"{folder}/{name}" for name in files.names(path.text) if is_parquet_name(name))
    return (path.text,) if files.exists(path.text) else ()


def raw_root(run: Run) -> str:
    """Return the folder of the raw JSON Lines files, under which the host keeps the packs that it makes.

    Raises:
        CannotJudgeError: the folder is not set, or a URI.
    """
    root = run.text_or_none("dataset.dataset_root")
    if root is None:
        root = run.text_or_none("dataset.hf_output_root")
    if root is None:
        raise CannotJudgeError(say("neither {dataset.dataset_root} nor {dataset.hf_output_root} is set"))
    if "://" in root:
        raise CannotJudgeError(f"{root} is a URI, which is not checked")
    return root.rstrip("/")


def cached_packs(run: Run, split: str, files: Files) -> tuple[str, ...]:
    """Return the host's cached packs of this size and multiple under the raw root, with any other settings.

    Source: megatron/bridge/data/builders/gpt_sft.py:796-850.
    """
    return files.matches(f"{_cache_folder(run)}/{split}_{run.packed_sequence_size}.idx.parquet")


def cached_metadata(run: Run, files: Files) -> tuple[str, ...]:
    """Return the metadata files beside the host's cached packs of this size and multiple."""
    return files.matches(f"{_cache_folder(run)}/{run.packed_sequence_size}_metadata.jsonl")


def metadata_unread(run: Run, metadata: str) -> Found:
    """Yield the finding if the host cannot read its metadata: nothing is there, or a folder; URIs are not checked."""
    if run.files is not None and "://" not in metadata:
        reason = "a folder" if run.files.is_folder(metadata) else "no such file"
        if reason == "a folder" or not run.files.exists(metadata):
            yield wrong(METADATA_SETTING, f"{metadata}, {reason}", "a file that exists")


def cache_folders(run: Run, files: Files) -> tuple[str, ...]:
    """Return the existing cache folders of the host for this multiple."""
    return tuple(path for path in files.matches(_cache_folder(run)) if files.is_folder(path))


def _cache_folder(run: Run) -> str:
    multiple = run.value(f"{SPECS}.pad_seq_to_mult")
    return f"{raw_root(run)}/packed/*_pad_seq_to_mult{multiple}_sft_*"


def longest_sequence(run: Run) -> int:
    """Return the maximum number of tokens of a sequence when the host packs.

    Source: megatron/bridge/data/builders/gpt_sft.py:668-684.
    """
    longest = run.integer_or_none(f"{SPECS}.max_single_sequence_length")
    return longest or run.integer("dataset.seq_length")
