"""The training and the held-out part of a folder or a saved DatasetDict, as sources for a recipe."""

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from bridgepack.config.errors import quote
from bridgepack.data.reading.inputs import data_files_in
from bridgepack.data.reading.saved import DICT_FILE, STATE_FILE, saved_splits
from bridgepack.data.reading.split_names import HELD_OUT_NAMES, group_by_split
from bridgepack.errors import DataError


@dataclass(frozen=True, kw_only=True, slots=True)
class Splits:
    """The splits of some data; paths and patterns."""

    train: tuple[str, ...]  #: the training data
    validation: tuple[str, ...]  #: the held-out split that comes first in `HELD_OUT_NAMES`
    name: str  #: name of that split
    unused: tuple[str, ...]  #: names of the other splits

    @property
    def note(self) -> str:
        """What the validation data is, in words."""
        text = f"; not used: {', '.join(self.unused)}" if self.unused else ""
        return f"data.validation is the data's own split {self.name}{text}"


def splits_of(data: str, field: str) -> Splits | None:
    """Return the splits of a folder or a saved DatasetDict; None where it is neither, or nothing is held out.

    Messages call the data `field`.

    Raises:
        DataError: a saved DatasetDict has no training split, or several, or is damaged.
    """
    folder = Path(data).expanduser()
    if (folder / DICT_FILE).is_file():
        return _splits_of_saved(folder, field)
    if not folder.is_dir() or (folder / STATE_FILE).is_file():
        return None
    try:
        files = {str(path): path.relative_to(folder).parts for path in data_files_in(folder, field)}
    except DataError:  # the build reports it; files may come later
        return None
    groups = group_by_split(files)
    name, *more_names = [name for name in HELD_OUT_NAMES if name in groups] or [""]
    if not name or "train" not in groups:
        return None
    train, validation = (_as_sources(folder, groups[split], list(files)) for split in ("train", name))
    return Splits(train=train, validation=validation, name=name, unused=tuple(more_names))


def _splits_of_saved(folder: Path, field: str) -> Splits | None:
    names = saved_splits(folder, field)
    groups = group_by_split({name: (name,) for name in names})
    train_splits = ["train"] if "train" in names else groups.get("train", [])
    if len(train_splits) != 1:
        example = train_splits[0] if train_splits else "NAME"
        raise DataError(
            f"{field} is {quote(str(folder))}, a saved DatasetDict with splits {', '.join(names) or 'none'}; allowed: "
            f"one with one training split. Name the folder of a split, e.g. {str(folder / example)!r}."
        )
    train, split = train_splits[0], next((name for name in HELD_OUT_NAMES if name in groups), None)
    if split is None:
        return None
    alike = [name for name in groups[split] if name.removeprefix(split) == train.removeprefix("train")]
    validation_names = alike or groups[split]
    return Splits(
        train=(str(folder / train),),
        validation=tuple(str(folder / name) for name in validation_names),
        name=", ".join(validation_names),
        unused=tuple(name for name in names if name not in {train, *validation_names}),
    )


def _as_sources(folder: Path, files: Sequence[str], every_file: Sequence[str]) -> tuple[str, ...]:
    """Return some files of a folder as one path or pattern where one means just them, else one by one."""
    if len(files) == 1:
        return (files[0],)
    places = _places(folder, files, every_file)
    return next(((place,) for place, place_files in places if place_files == sorted(files)), tuple(files))


def _places(folder: Path, files: Sequence[str], every_file: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield paths and patterns that may mean some files, and the files that each means."""
    parents = {str(Path(file).parent) for file in files}
    parent = Path(os.path.commonpath(parents))
    inside = {file: Path(file).relative_to(parent).parts for file in every_file if Path(file).is_relative_to(parent)}
    if parent != folder and len(group_by_split(inside)) == 1:
        yield str(parent), sorted(inside)
    names = [Path(file).name for file in files]
    begin = _common(names)
    end = _common([name[len(begin) :][::-1] for name in names])[::-1]
    any_name = f"{glob.escape(begin)}*{glob.escape(end)}" if len({*names}) > 1 else glob.escape(begin)
    below = Path(glob.escape(str(parent)), *(["**"] if len(parents) > 1 else []))
    pattern = str(below / any_name)
    yield pattern, sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 (as a build reads it)


def _common(texts: Sequence[str]) -> str:
    """Return what all texts begin with."""
    columns = takewhile(lambda column: len(set(column)) == 1, zip(*texts, strict=False))
    return "".join(column[0] for column in columns)
