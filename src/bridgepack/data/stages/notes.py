"""Notes about rows, as drops and losses: counts, examples, a ledger."""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bridgepack.data.files import replaced_when_whole
from bridgepack.records import Drop, LostContent

#: Maximum examples per reason or kind in the manifest.
_EXAMPLES_PER_KIND = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Notes[Item: (Drop, LostContent)]:
    """Drops or losses of a range or a split."""

    counts: Mapping[str, int]  #: reason or kind -> rows
    examples: tuple[Item, ...]  #: the first few of each reason or kind, in row order
    ledgers: tuple[Path, ...]  #: files with a line for each, in row order; there may be millions


type Drops = Notes[Drop]
type Losses = Notes[LostContent]


def write_notes[Item: (Drop, LostContent)](
    ledger: Path, items: Sequence[Item], *, split: str, file: str, field: str
) -> Notes[Item]:
    """Return a range's notes, whose reason or kind is in `field`, after writing a ledger line for each."""
    if not items:
        return Notes(counts={}, examples=(), ledgers=())
    with ledger.open("w", encoding="utf-8") as stream:
        for item in items:
            line = {"split": split, "file": file, "row": item.row, field: getattr(item, field), "detail": item.detail}
            first_token = getattr(item, "first_token", None)
            line |= {} if first_token is None else {"first_token": first_token}
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    counts = Counter(str(getattr(item, field)) for item in items)
    return Notes(counts=counts, examples=_first_of_each(items, field), ledgers=(ledger,))


def join_notes[Item: (Drop, LostContent)](parts: Sequence[Notes[Item]], field: str) -> Notes[Item]:
    """Return the notes of a split from those of its ranges, in order; the largest counts come first."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part.counts)
    return Notes(
        counts=dict(total.most_common()),
        examples=_first_of_each((item for part in parts for item in part.examples), field),
        ledgers=tuple(ledger for part in parts for ledger in part.ledgers),
    )


def write_ledger(path: Path, parts: Iterable[Drops | Losses]) -> None:
    """Write one JSON line per drop or loss, in input order."""
    with replaced_when_whole(path) as temporary, temporary.open("wb") as target:
        for ledger in (ledger for part in parts for ledger in part.ledgers):
            with ledger.open("rb") as source:
                shutil.copyfileobj(source, target)


def _first_of_each[Item: (Drop, LostContent)](items: Iterable[Item], field: str) -> tuple[Item, ...]:
    counts: Counter[str] = Counter()
    examples = []
    for item in items:
        kind = getattr(item, field)
        counts[kind] += 1
        if counts[kind] <= _EXAMPLES_PER_KIND:
            examples.append(item)
    return tuple(examples)
