"""A recipe with the values that are derived from it, and why they are what they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bridgepack.config.recipe.readings import Reading
from bridgepack.records import BalanceRecord

if TYPE_CHECKING:
    from bridgepack.config.recipe.recipe import SFTRecipe

#: What a recipe without a layout says of it.
DETECTED = "detected from the data"


@dataclass(frozen=True, kw_only=True, slots=True)
class Derived:
    """A value derived by `resolve`."""

    value: int  #: in the unit of its field
    because: str  #: how it was derived, with numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedRecipe:
    """A recipe with every derived value."""

    recipe: SFTRecipe  #: as written
    pad_seq_to_mult: Derived  #: every runtime length is a multiple of this
    max_sequence_length: Derived  #: maximum runtime length of an unsplit sequence; a multiple of `pad_seq_to_mult`
    balance: BalanceRecord | None = None  #: topology and costs that the order of packs is balanced for, or None
    #: split -> how each of its sources is read whose layout was detected, None for others; empty if nothing was
    readings: Mapping[str, tuple[Reading | None, ...]] = field(default_factory=dict)

    def explain(self) -> dict[str, dict[str, Any]]:
        """Return every derived value with its reason, for output and the manifest."""
        fields = {"pad_seq_to_mult": self.pad_seq_to_mult, "max_sequence_length": self.max_sequence_length}
        values = {name: {"value": item.value, "because": item.because} for name, item in fields.items()}
        if habits := self.recipe.host_habits:
            habit_fields = ", ".join(f"preprocessing.{name}" for name in habits)
            because = f"{habit_fields} is keep, and the recipe is for Megatron-Bridge {self.recipe.release.name}"
            values["host_habits"] = {"value": habits, "because": because}
        if self.recipe.detects_layouts:
            values["layout"] = self._explain_layout()
        if self.balance is None:
            return values
        because = f"packing.balance.kind is {self.balance.kind}"
        return values | {"balance": {"value": self.balance.values(), "because": because}}

    def _explain_layout(self) -> dict[str, Any]:
        if not self.readings:
            return {"value": DETECTED, "because": "data.layout is not set; it is found where the data is read"}
        value = {}
        for split, readings in self.readings.items():
            # rows are what they are, whether one source names their files or several do
            alike = readings[:1] if len({*readings}) == 1 else readings
            value[split] = [None if reading is None else reading.to_dict() for reading in alike]
        return {"value": value, "because": f"{DETECTED}: the layouts that fit the first rows of each source"}
