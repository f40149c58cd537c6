"""API function that lists the layouts of data that are known by name."""

from dataclasses import dataclass
from typing import Any, ClassVar

from bridgepack.config.layouts.entry import PublicLayout
from bridgepack.config.layouts.public import PUBLIC_LAYOUTS
from bridgepack.records.results import Result
from bridgepack.records.words import counted
from bridgepack.reporting.layouts import layout_to_dict


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutListing(Result):
    """The layouts of data that are known by name, in `layouts`."""

    TABLE: ClassVar = "layouts"

    layouts: tuple[PublicLayout, ...]

    def headline(self) -> str:
        """Return what came out, in one line."""
        return counted(len(self.layouts), "layout")

    def to_dict(self) -> dict[str, Any]:
        """Return the listing as plain values, for JSON."""
        return {"layouts": self.table()}

    def table(self) -> list[dict[str, Any]]:
        """Return the layouts."""
        return [layout_to_dict(entry) for entry in self.layouts]


def list_layouts() -> LayoutListing:
    """Return the layouts of public data sets that are known by name, with their columns.

    Example: `bridgepack.list_layouts().to_pandas()`.
    """
    return LayoutListing(layouts=PUBLIC_LAYOUTS)
