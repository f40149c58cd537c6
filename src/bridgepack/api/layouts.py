"""API function that lists the layouts of data that are known by name."""

from dataclasses import dataclass
from typing import Any, ClassVar

from bridgepack.config.layouts.entry import PublicLayout
from bridgepack.config.layouts.public import PUBLIC_LAYOUTS
from bridgepack.config.layouts.sayings import words_of_slots
from bridgepack.records.results import Result
from bridgepack.records.words import count_text


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutListing(Result):
    """The layouts of data that are known by name, in `layouts`."""

    TABLE: ClassVar = "layouts"

    layouts: tuple[PublicLayout, ...]

    def headline(self) -> str:
        """Return what came out, in one line."""
        return count_text(len(self.layouts), "layout")

    def to_dict(self) -> dict[str, Any]:
        """Return the listing as plain values, for JSON."""
        return {"layouts": self.table()}

    def table(self) -> list[dict[str, Any]]:
        """Return the layouts."""
        return [_plain(entry) for entry in self.layouts]


def list_layouts() -> LayoutListing:
    """Return the layouts of public data sets that are known by name, with their columns.

    Example: `bridgepack.list_layouts().to_pandas()`.
    """
    return LayoutListing(layouts=PUBLIC_LAYOUTS)


def _plain(entry: PublicLayout) -> dict[str, Any]:
    """Return an entry as plain values."""
    return {
        "name": entry.name,
        "title": entry.title,
        "url": entry.url,
        "is_read": entry.layout is not None,
        "columns": [*words_of_slots(entry)],
        "marks": [*entry.marks],
        "data_sets": [
            {"name": data_set.name, "title": data_set.title, "url": data_set.url} for data_set in entry.data_sets
        ],
        **({"refusal": entry.refusal} if entry.refusal else {}),
    }
