"""Tells by names which files of a folder are for training and which are held out.

`train.jsonl`, `test-00000-of-00002.parquet`, `validation/part.jsonl`, `sums_train.csv`. A name that is only a split's,
but for numbers, counts more than one with other words, and a file's name more than its folder's.
"""

import re
from collections.abc import Mapping, Sequence

from bridgepack.config.errors import quote
from bridgepack.errors import DataError

TRAIN_NAMES = ("train", "training")
#: Names of held-out splits: the first that data has becomes the validation data.
HELD_OUT_NAMES = ("validation", "valid", "val", "dev", "eval", "evaluation", "test", "testing")
_WORD = re.compile(r"[a-z]+")
#: Words that count the files of a split.
_COUNTING = frozenset({"of", "part", "shard", "chunk"})
_NAMED_FILES = 3


def group_by_split(paths: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return split (`train`, or a held-out one) -> members, from the parts of each member's path.

    What names no split is training data. So is what has the name of a held-out split among other words, unless there is
    a training split by name: `dev-blog.jsonl` alone is no `dev`.
    """
    split_of_member = {member: _split_of(parts) for member, parts in paths.items()}
    has_train = any(split is not None and split[0] == "train" for split in split_of_member.values())
    groups: dict[str, list[str]] = {}
    for member, split in split_of_member.items():
        is_told = split is not None and (has_train or split[1])
        groups.setdefault(split[0] if split is not None and is_told else "train", []).append(member)
    return groups


def refuse_several_splits(place: str, files: Mapping[str, Sequence[str]], field: str) -> None:
    """Refuse a folder of which all files would be read, some for training and some held out.

    `files` are their names -> the parts of their paths below `place`.

    Raises:
        DataError: it has both.
    """
    groups = group_by_split(files)
    held_out = [name for name in HELD_OUT_NAMES if name in groups]
    if not held_out or "train" not in groups:
        return
    ending = next(iter(files.values()))[-1].partition(".")[2]
    split_list = "; ".join(
        f"{name}: {_list_of(['/'.join(files[member]) for member in groups[name]])}" for name in groups
    )
    raise DataError(
        f"{field} is {quote(place)}, a folder with files of several splits ({split_list}), which would be read as "
        "one; allowed: the files of one split, by a path, a list or a pattern. Set data.train to those for training, "
        f"and data.validation to those of {held_out[0]}, as `bridgepack new --data` does. If all are for one "
        f"split, write a pattern, e.g. {f'{place.rstrip("/")}/**/*.{ending}'!r}."
    )


def _list_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_FILES} more" if len(names) > _NAMED_FILES else ""
    return ", ".join(names[:_NAMED_FILES]) + more


def _split_of(parts: Sequence[str]) -> tuple[str, bool] | None:
    """Return (split that a path names, whether a part of it is only that name); None if it names none."""
    splits = [split for part in reversed(parts) if (split := _split_in_name(part.partition(".")[0])) is not None]
    return next((split for split in splits if split[1]), next(iter(splits), None))


def _split_in_name(stem: str) -> tuple[str, bool] | None:
    words = [word for word in _WORD.findall(stem.lower()) if word not in _COUNTING]
    for word in (*words[:1], *words[-1:]):
        if word in TRAIN_NAMES:
            return "train", len(words) == 1
        if word in HELD_OUT_NAMES:
            return word, len(words) == 1
    return None
