"""Plain values become what a field of the host declares, or are refused."""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from bridgepack.bridge.writing.values import declared_types, host_value
from bridgepack.errors import ConfigError


class Kernel(enum.Enum):
    flash = 1
    fused = 2


@dataclass
class Overlap:
    is_on: bool
    num_buffers: int = 2


@dataclass
class Base:
    kernel: Kernel = Kernel.flash
    rate: float = 0.5


@dataclass
class Host(Base):
    kind: Literal["single", "batch"] | None = None
    folder: str | Path | None = None
    metadata: Path | None = None
    names: list[str] = field(default_factory=list)
    overlap: Overlap | None = None
    unresolved: "NotThere | None" = None  # type: ignore[name-defined] # noqa: F821
    activation: Callable[[int], int] | None = None


TYPES = declared_types(Host)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("kernel", "fused", Kernel.fused),
        ("kernel", None, None),
        ("rate", 1, 1.0),
        ("kind", "batch", "batch"),
        ("kind", None, None),
        ("metadata", "packs/bridge_metadata.json", Path("packs/bridge_metadata.json")),
        ("names", ("a", "b"), ["a", "b"]),
        ("overlap", {"is_on": True}, Overlap(is_on=True)),
        ("overlap", {"_target_": "anywhere.Overlap", "is_on": True, "num_buffers": 4}, Overlap(True, 4)),
        ("unresolved", "anything", "anything"),
    ],
)
def test_value_that_fits(name: str, value: Any, expected: Any) -> None:
    found = host_value(value, TYPES[name], field=name)

    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("kernel", "flsh", "flash, fused"),
        ("rate", True, "a number"),
        ("kind", "batches", "single, batch"),
        ("folder", 7, "a text or a path or null"),
        ("names", "a", "a list"),
        ("names", [1], "a text"),
        ("overlap", {"is_onn": True}, "is_on?"),
        ("overlap", {"is_on": "yes"}, "true or false"),
        ("overlap", {"num_buffers": 4}, "what Overlap takes"),
        ("activation", "gelu", "a function"),
    ],
)
def test_value_that_does_not_fit(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigError) as raised:
        host_value(value, TYPES[name], field=f"bridge_overrides.{name}")

    assert str(raised.value).startswith(f"bridge_overrides.{name} is {value!r}; allowed: ")
    assert allowed in str(raised.value)
