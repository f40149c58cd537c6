"""What a message must say, whatever its words: a code, a field, a value, a number, a command."""


def mentions(text: object, *facts: object) -> bool:
    """Return true if every fact stands in a text, else fail with those that are missing."""
    message = str(text)
    missing = [str(fact) for fact in facts if str(fact) not in message]
    assert not missing, f"{missing} missing in: {message}"
    return True
