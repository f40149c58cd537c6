"""Renders the public layouts, and which of them data has, as text for a terminal."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from bridgepack.config.layouts.detect import Detection
from bridgepack.config.layouts.entry import PublicLayout
from bridgepack.config.layouts.sayings import words_of_slots
from bridgepack.reporting.text import printable, terminal_width


def describe_detection(detection: Detection, path: str = "") -> str:
    """Return what was detected, of a path if it has a layout of its own, and why, and the columns that nobody reads."""
    return printable("\n".join(_lines(detection, path)))


def _lines(detection: Detection, path: str) -> Iterator[str]:
    yield f"layout{f' of {path}' if path else ''}: {detection.entry.name} ({detection.entry.title})"
    yield from (f"  {line}" for line in detection.why)
    for one in detection.unread:
        share = f"in {one.num_rows:,} of {detection.num_rows:,} rows"
        yield f"  unread: {one.name} ({one.holds}) {share}, e.g. {one.example!r}"
    if detection.unread:
        yield f"  Name each in {'its layout' if path else 'data.layout'}, where it is to be read, or in its ignore."


def layouts_table(entries: Sequence[PublicLayout]) -> str:
    """Return the entries with their columns, and what is said where they are not read."""
    return "\n".join(line for entry in entries for line in _describe_entry(entry))


def _describe_entry(entry: PublicLayout) -> Iterator[str]:
    yield from _wrapped(f"{entry.name}{'' if entry.layout else ' (refused)'}: {entry.title}")
    yield from _wrapped(f"  columns: {', '.join(words_of_slots(entry))}")
    if not entry.layout:
        yield from _wrapped(f"  refused: {entry.refusal}")
    yield f"  {entry.url}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, terminal_width(), subsequent_indent="    ", break_on_hyphens=False, break_long_words=False
    )


def layout_to_dict(entry: PublicLayout) -> dict[str, Any]:
    """Return an entry as plain values."""
    return {
        "name": entry.name,
        "title": entry.title,
        "url": entry.url,
        "is_read": entry.layout is not None,
        "columns": [*words_of_slots(entry)],
        "marks": [*entry.marks],
        **({"refusal": entry.refusal} if entry.refusal else {}),
    }
