"""Text for terminals: made safe to print, and how wide it may be."""

import shutil


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
