"""Texts that several results share: made safe and short enough to print, and how wide they may be."""

import json
import shutil
from typing import Any

#: Maximum lines of a list that grows with the data.
MOST_LINES = 20


def printable(text: str) -> str:
    """Return a text without the control characters by which data could take over a terminal; lines and tabs stay."""
    return "".join(
        character if character in "\n\t" or character.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


def json_text(value: Any) -> str:
    """Return values as JSON whose characters a terminal or a page shows as they are; others are escaped.

    Such as ESC, C1 controls and marks of direction in the name of a column: they stand in texts alone.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return "".join(
        character if character == "\n" or character.isprintable() else json.dumps(character)[1:-1] for character in text
    )


def without_middle(text: str, maximum: int) -> str:
    """Return a text of more than `maximum` characters without its middle, and with how much is left out."""
    half = maximum // 2
    return (
        text if len(text) <= maximum else f"{text[:half]} [... {len(text) - 2 * half:,} characters ...] {text[-half:]}"
    )


def terminal_width() -> int:
    """Return the columns that prose is wrapped to: the terminal's, but 40 to 80; 80 in a pipe."""
    return min(max(shutil.get_terminal_size().columns, 40), 80)


def caught_text(moment: str) -> str:
    """Return who notices a violation, and when: `at bridgepack build`, `by Megatron-Bridge: first step`."""
    text = moment.rstrip(".")
    if not text or text.startswith("bridgepack"):
        return f"at {text}" if text else ""
    first, comma, remainder = text.partition(", ")
    if first.partition(";")[0] == "never":
        return f"never by Megatron-Bridge{first.removeprefix('never')}{comma}{remainder}"
    return f"by Megatron-Bridge: {text}"
