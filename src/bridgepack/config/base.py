"""The base of every recipe section: frozen, closed to unknown fields, documented field by field."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen recipe section; validators only reject, they never fill or change a value."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        validate_default=True,
        allow_inf_nan=False,
        str_min_length=1,
    )
