"""What turns become as a layout reads them, and why some are refused."""

from typing import Any

import pytest

from bridgepack.data.layouts.messages import MessageReader, Messages
from bridgepack.errors import RowError


def read_turns(*turns: Any) -> Messages:
    return MessageReader({}).read(turns)


def refusal_of(*turns: Any) -> str:
    """Return the reason and the detail of what drops the row."""
    with pytest.raises(RowError) as caught:
        read_turns(*turns)
    return f"{caught.value.reason}: {caught.value.detail}"
