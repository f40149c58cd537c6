"""What is measured: pieces of work, and who does each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

#: Megatron-Bridge's code, another way, ours, the least it can take.
UPSTREAM, PEER, OURS, FLOOR = "upstream", "peer", "bridgepack", "floor"


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """One way to do a piece of work.

    Attributes:
        name: in tables; role: `UPSTREAM`, `PEER`, `OURS` or `FLOOR`.
        function: `module:name`; called with `arguments` in a fresh process, it gives what `Metric` names, and more.
        most_repeats: measurements at most; asked: role -> how many times less than its best it shall take.
    """

    name: str
    role: str
    function: str
    arguments: Mapping[str, Any]
    most_repeats: int | None = None
    asked: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, call: str, name: str, role: str, given: Mapping[str, Any], **more: Any) -> Contender:
        """Return one whose function, `module:name` in `benchlib`, gets `given` and `more`."""
        return cls(name=name, role=role, function=f"benchlib.{call}", arguments={**given, **more})

    def asking(self, **asked: float) -> Contender:
        """Return it with what is asked of it."""
        return replace(self, asked=asked)


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """What is compared: a measurement's `seconds` or `cpu_s`, for each of the `num` things it did; with a prefix."""

    label: str = ""
    prefix: str = ""
    compared: str = "seconds"
    asked: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Work of a part that contenders do in turns; rates are in `unit`s, of which there are `num_items`."""

    part: str
    name: str
    unit: str
    num_items: int
    contenders: tuple[Contender, ...]
    metrics: tuple[Metric, ...] = (Metric(),)
