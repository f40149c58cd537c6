"""Counts as people write them."""


def count_text(count: int, noun: str) -> str:
    """Return a count with its noun: (1, "pack") -> `1 pack`, (2000, "pack") -> `2,000 packs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
