"""Numbers in texts."""

import pytest

from bridgepack.records.words import index_in


@pytest.mark.parametrize(
    ("text", "index"),
    [("0", 0), ("9", 9), ("10", None), ("007", 7), ("-1", None), ("", None), ("1.0", None), ("²", None), ("٣", None)],
)
def test_an_index_is_one_of_the_items(text: str, index: int | None) -> None:
    assert index_in(10, text) == index


@pytest.mark.parametrize(("text", "index"), [("9" * 4301, None), ("0" * 4301 + "3", 3)])
def test_python_is_asked_for_no_number_of_thousands_of_digits(text: str, index: int | None) -> None:
    assert index_in(10, text) == index
