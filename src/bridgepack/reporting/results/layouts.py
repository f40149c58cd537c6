"""The blocks of the public layouts, of which of them data has, and which have read it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from bridgepack.config.layouts.contents import is_media
from bridgepack.config.layouts.detect import Detection
from bridgepack.config.layouts.entry import PublicLayout
from bridgepack.config.layouts.sayings import words_of_slots
from bridgepack.records import SplitRecord
from bridgepack.reporting.blocks import Block, Line


def detection_blocks(detection: Detection, path: str = "") -> Iterator[Block]:
    """Yield what was detected, of a path if it has a layout of its own, and why, and the columns that nobody reads."""
    of = f" of {path}" if path else ""
    yield Line(f"layout{of}: {detection.entry.name} ({detection.entry.title})", tuple(detection.why))
    for field in detection.unread:
        share = f"in {field.num_rows:,} of {detection.num_rows:,} rows"
        yield Line(f"  unread: {field.name} ({field.holds}) {share}, e.g. {field.example!r}")
    media = [field.name for field in detection.unread if is_media(field.name)]
    if len(detection.unread) > len(media):
        where = "its layout" if path else "data.layout"
        yield Line(f"  Name each in {where}, where it is to be read, or in its ignore.")
    if media:
        yield Line(
            f"  Rows with {', '.join(media)} are not text alone; preprocessing.on_lost_content: drop leaves them out."
        )


def layout_blocks(entries: Iterable[PublicLayout]) -> Iterator[Block]:
    """Yield the entries with their columns, and what is said where they are not read."""
    for entry in entries:
        refusal = (f"refused: {entry.refusal}",) if not entry.layout else ()
        names = ", ".join(f"{data_set.name} ({data_set.title})" for data_set in entry.data_sets)
        aliases = (f"also named: {names}",) if names else ()
        items = (f"columns: {', '.join(words_of_slots(entry))}", *refusal, *aliases, entry.url)
        yield Line(f"{entry.name}{'' if entry.layout else ' (refused)'}: {entry.title}", items, is_wrapped=True)


def reading_text(split: SplitRecord) -> str:
    """Return the layouts that read a split's rows, and how many each if they are several."""
    counts: Counter[str] = Counter()
    for record in split.inputs:
        counts.update(record.read_as)
    return layouts_text(counts)


def layouts_text(counts: Mapping[str, int]) -> str:
    """Return layouts with the rows that they have read: `messages`, or `messages 9, prompt_completion 1`."""
    readers = {name: count for name, count in counts.items() if count}
    return "".join(readers) if len(readers) < 2 else ", ".join(f"{name} {count:,}" for name, count in readers.items())
