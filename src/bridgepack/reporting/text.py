"""Text for terminals: made safe and short enough to print, and how wide it may be."""

import shutil
from collections.abc import Iterable, Iterator
from itertools import islice

#: Maximum lines of a list that grows with the data.
MOST_LINES = 20


def printable(text: str) -> str:
    """Return a text without the control characters by which data could take over a terminal; lines and tabs stay."""
    return "".join(
        character if character in "\n\t" or character.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


def without_middle(text: str, most: int) -> str:
    """Return a text of more than `most` characters without its middle, and with how much is left out."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} [... {len(text) - 2 * half:,} characters ...] {text[-half:]}"


def terminal_width() -> int:
    """Return the columns that prose is wrapped to: the terminal's, but 40 to 80; 80 in a pipe."""
    return min(max(shutil.get_terminal_size().columns, 40), 80)


def first_lines(lines: Iterable[str], where_all_are: str, most: int = MOST_LINES) -> Iterator[str]:
    """Yield the lines of a list, of a long one the first and how many more there are, and where."""
    left = iter(lines)
    yield from islice(left, most)
    if num_more := sum(1 for _ in left):
        yield f"    ... and {num_more:,} more: {where_all_are}"
