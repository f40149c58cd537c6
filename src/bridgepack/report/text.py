"""Text from data, made safe to print."""


def printable(text: str) -> str:
    """Return a text without the control characters by which data could take over a terminal; lines and tabs stay."""
    return "".join(
        character if character in "\n\t" or character.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )
