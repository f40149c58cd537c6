"""Finds packed files without a manifest: their splits, the host's metadata, and settings in their names."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.data.shards.npy import NPY_SUFFIX
from bridgepack.records import TRAIN, VALIDATION

TEST = "test"
#: Sub-folder in which Nemotron's data_prep puts the split folders.
SPLITS_FOLDER = "splits"
PACKED_SUFFIXES = (".parquet", ".pq", NPY_SUFFIX)

_SPLIT_NAMES = {
    "train": TRAIN,
    "training": TRAIN,
    "val": VALIDATION,
    "valid": VALIDATION,
    "validation": VALIDATION,
    "test": TEST,
}
_SPLIT_ORDER = (TRAIN, VALIDATION, TEST)
_FIRST_WORD = re.compile(r"[a-z]+")
_SIZED_NAME = re.compile(r"(?:training|validation)_(?P<size>[1-9]\d*)\.(?:(?:idx\.)?(?:parquet|pq)|npy)", re.ASCII)
_SIZED_METADATA = re.compile(r"[1-9]\d*_metadata\.jsonl", re.ASCII)
#: The host reads None as a multiple of 1.
_MULTIPLE = re.compile(r"pad_seq_to_mult(?P<multiple>[1-9]\d*|None)(?:_|$)", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundShards:
    """Packed files of a target without a manifest."""

    folder: Path  #: what the paths are relative to
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  #: split -> paths, sorted; training first
    is_whole: bool = False  #: these are all packed files in `folder`, so its metadata file describes them

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths, split after split."""
        return tuple(path for paths in self.splits.values() for path in paths)

    def name_hints(self) -> dict[str, int]:
        """Return packed_sequence_size and pad_seq_to_mult if file names state them and agree.

        Example: tok_pad_seq_to_mult8_sft_0f/training_4096.idx.parquet -> packed_sequence_size 4096, pad_seq_to_mult 8.

        Source: megatron-bridge 0.6.2, data/builders/gpt_sft.py (default_pack_path, train_path_packed).
        """
        parents = {self.folder, *((self.folder / path).parent for path in self.paths)}
        folders = {name for parent in parents for name in (parent.absolute().name, parent.resolve().name)}
        sizes = {int(match["size"]) for path in self.paths if (match := _SIZED_NAME.fullmatch(Path(path).name))}
        texts = {match["multiple"] for name in folders if (match := _MULTIPLE.search(name))}
        multiples = {1 if text == "None" else int(text) for text in texts}
        hints = {"packed_sequence_size": sizes, "pad_seq_to_mult": multiples}
        return {name: values.pop() for name, values in hints.items() if len(values) == 1}

    def metadata_path(self) -> Path | None:
        """Return the metadata file of the packs: ours, or the one that the host's builder wrote.

        None if there is none, if it is unclear which of several it is, or if the files are only part of a folder.
        """
        if not self.is_whole:
            return None
        own_path = self.folder / BRIDGE_METADATA_FILE
        paths_of_size = [path for path in self.folder.glob("*_metadata.jsonl") if _SIZED_METADATA.fullmatch(path.name)]
        size = self.name_hints().get("packed_sequence_size")
        if size is not None:
            paths_of_size = [path for path in paths_of_size if path.name == f"{size}_metadata.jsonl"]
        candidates = [own_path] if own_path.is_file() else paths_of_size
        return candidates[0] if len(candidates) == 1 else None


def find_shards(target: Path) -> FoundShards:
    """Return the packed files of a folder or of a pattern with `*` or `?`, or a single file; may be empty.

    In a folder: the files in sub-folders named like splits, else the files directly in it. If a split exists as
    Parquet and as `.npy`, the Parquet files, which the host reads. A file's split is the name of its folder, else
    the first word of its name, else training.
    """
    if target.is_dir():
        return FoundShards(folder=target, splits=_group_by_split(_files_in(target), target), is_whole=True)
    if target.exists():
        folder, paths = target.parent, [target]
    else:  # the last folder without a wildcard: data/*/a.parquet -> data; `**` is one level, as in the host
        folder = next((parent for parent in target.parents if not is_pattern(parent)), Path())
        pattern = re.sub(r"\*+", "*", str(target.relative_to(folder)))
        paths = list(folder.glob(pattern)) if is_pattern(target) else []
    splits = _group_by_split([path for path in paths if _is_packed(path)], folder)
    shards = FoundShards(folder=folder, splits=splits)
    all_shards = FoundShards(folder=folder, splits=_group_by_split(_files_in(folder), folder), is_whole=True)
    return all_shards if set(shards.paths) == set(all_shards.paths) else shards


def is_pattern(target: Path) -> bool:
    """Return whether the host treats a path as a pattern; brackets do not make one.

    Source: megatron-bridge 0.6.2, data/packing/paths.py (_resolve_parquet_paths).
    """
    return any(character in str(target) for character in "*?")


def _files_in(folder: Path) -> list[Path]:
    parents = [folder, folder / SPLITS_FOLDER]
    subfolders = [child for parent in parents if parent.is_dir() for child in parent.iterdir() if child.is_dir()]
    in_splits = [
        path
        for child in subfolders
        if child.name.lower() in _SPLIT_NAMES
        for path in child.iterdir()
        if _is_packed(path)
    ]
    return in_splits or ([path for path in folder.iterdir() if _is_packed(path)] if folder.is_dir() else [])


def _is_packed(path: Path) -> bool:
    is_hidden = path.name.startswith(".")
    return not is_hidden and path.name.lower().endswith(PACKED_SUFFIXES) and (path.is_file() or not path.exists())


def _group_by_split(paths: Iterable[Path], folder: Path) -> dict[str, tuple[str, ...]]:
    groups: dict[str, list[Path]] = {}
    for path in sorted(paths):
        word, folder_name = _FIRST_WORD.match(path.name.lower()), path.absolute().parent.name.lower()
        split = _SPLIT_NAMES.get(folder_name) or _SPLIT_NAMES.get(word[0] if word else "", TRAIN)
        groups.setdefault(split, []).append(path)
    files_of_split = {}
    for split in (name for name in _SPLIT_ORDER if name in groups):
        parquet = [path for path in groups[split] if path.suffix.lower() != NPY_SUFFIX]
        files_of_split[split] = tuple(str(path.relative_to(folder)) for path in parquet or groups[split])
    return files_of_split
