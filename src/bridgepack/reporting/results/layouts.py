"""The blocks of the public layouts, and of which of them data has."""

from collections.abc import Iterable, Iterator

from bridgepack.config.layouts.detect import Detection
from bridgepack.config.layouts.entry import PublicLayout
from bridgepack.config.layouts.sayings import words_of_slots
from bridgepack.reporting.blocks import Block, Line


def detection_blocks(detection: Detection, path: str = "") -> Iterator[Block]:
    """Yield what was detected, of a path if it has a layout of its own, and why, and the columns that nobody reads."""
    of = f" of {path}" if path else ""
    yield Line(f"layout{of}: {detection.entry.name} ({detection.entry.title})", tuple(detection.why))
    for field in detection.unread:
        share = f"in {field.num_rows:,} of {detection.num_rows:,} rows"
        yield Line(f"  unread: {field.name} ({field.holds}) {share}, e.g. {field.example!r}")
    if detection.unread:
        where = "its layout" if path else "data.layout"
        yield Line(f"  Name each in {where}, where it is to be read, or in its ignore.")


def layout_blocks(entries: Iterable[PublicLayout]) -> Iterator[Block]:
    """Yield the entries with their columns, and what is said where they are not read."""
    for entry in entries:
        refusal = (f"refused: {entry.refusal}",) if not entry.layout else ()
        items = (f"columns: {', '.join(words_of_slots(entry))}", *refusal, entry.url)
        yield Line(f"{entry.name}{'' if entry.layout else ' (refused)'}: {entry.title}", items, is_wrapped=True)
