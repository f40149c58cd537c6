"""Numbers of examples that hypothesis draws, as multiples of the profile's: 100 in CI, 25 in the quick tests."""

from typing import Any

from hypothesis import settings


def examples(multiple: float, **options: Any) -> settings:
    """Return settings with this multiple of the profile's examples: 0.4 -> 40 in CI and 10 in the quick tests."""
    return settings(max_examples=max(round(multiple * settings.default.max_examples), 1), **options)
