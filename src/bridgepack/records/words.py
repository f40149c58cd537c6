"""Counts as words, for messages and reports."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return `1 row`, `2 rows` or `1,204 rows`; `plural` where an `s` does not make it, e.g. `batches`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
