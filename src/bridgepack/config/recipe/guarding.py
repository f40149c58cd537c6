"""How closely a run is watched while it trains."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from bridgepack.config.recipe.training import NotNegativeInt, PositiveInt
from bridgepack.config.section import Section


class GuardConfig(Section):
    """What looks on while a run trains, and stops it when packed rows are not computed as such."""

    enabled: Annotated[bool, Field(strict=True)] = True
    """Watch runs that `scripts/train.py` starts."""
    first_steps: NotNegativeInt = 5
    """Steps that are watched at the start of every job, also of a resumed one."""
    every_steps: PositiveInt | None = 100
    """Afterwards every step whose number is a multiple of this; null for none."""

    @model_validator(mode="after")
    def _check_watches_something(self) -> Self:
        if self.enabled and self.first_steps == 0 and self.every_steps is None:
            raise ValueError(
                "first_steps is 0 and every_steps is null, so no step is watched; allowed: at least one of them. "
                "Set enabled to false to watch nothing."
            )
        return self

    def watches(self, step: int, *, first_step: int) -> bool:
        """Say whether a step is watched.

        Args:
            step: as the host logs it, from 1.
            first_step: of this job.
        """
        is_early = step - first_step < self.first_steps
        return self.enabled and (is_early or (self.every_steps is not None and step % self.every_steps == 0))
