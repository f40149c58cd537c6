"""What a test says whose result differs from the file on record."""

from pathlib import Path

_PROJECT = Path(__file__).parents[2]


def renewed_by(test_file: str) -> str:
    """Return the command that writes the file of a test anew, for the message of its assertion."""
    place = Path(test_file).resolve().relative_to(_PROJECT)
    return (
        f"if the difference is meant, write the file anew and review it: BRIDGEPACK_REGENERATE=1 scripts/test {place}"
    )
