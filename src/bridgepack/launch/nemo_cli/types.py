"""Types of arguments in the form that nemo-run's command line can read."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Optional

# nemo-run 0.11 reads `Optional[X]`; `X | None` is a type that it does not know.
OptionalText = Optional[str]  # noqa: UP045
OptionalNumber = Optional[int]  # noqa: UP045
OptionalFlag = Optional[bool]  # noqa: UP045


def with_types[**P, T](function: Callable[P, T]) -> Callable[P, T]:
    """Give a function its annotations as types; nemo-run cannot read them as texts, which `annotations` makes them."""
    function.__annotations__ = typing.get_type_hints(function)
    return function
