"""How the rows of each source are read: by the layouts of the recipe, or by those that its data shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bridgepack.config.recipe.data import DataConfig, DataSource, Source
from bridgepack.config.recipe.layout import AnyLayout
from bridgepack.config.recipe.layout_list import listed_layouts, names_of_layouts, unique_names
from bridgepack.config.recipe.preprocessing import Preprocessing, PromptCompletionPreprocessing


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How the rows of one source are read."""

    layouts: tuple[AnyLayout, ...]  #: a row is read by the first that fits it
    names: tuple[str, ...]  #: a name for each, for the manifest and messages
    is_written: bool = False  #: the recipe has the layout; bare tool schemas then become OpenAI's form
    strips_spaces: bool = False  #: spaces around each column of a prompt and a completion are stripped

    @property
    def kind(self) -> str:
        """Kind of the source's rows, which chooses their settings."""
        return self.layouts[0].kind

    def to_dict(self) -> dict[str, Any]:
        """Return its layouts under their names, for the manifest."""
        return {"names": list(self.names), "layouts": [layout.model_dump(mode="json") for layout in self.layouts]}


def written_layouts(data: DataConfig, source: Source) -> tuple[AnyLayout, ...]:
    """Return the layouts that a recipe has for a source, its own or that of `data`; () if they are to be detected."""
    section = source.layout if isinstance(source, DataSource) else None
    return listed_layouts(section or data.layout)


def written_reading(preprocessing: Preprocessing, data: DataConfig, source: Source) -> Reading | None:
    """Return how a recipe says that the rows of a source are read; None if its layout is to be detected."""
    layouts = written_layouts(data, source)
    if not layouts:
        return None
    return Reading(
        layouts=layouts,
        names=names_of_layouts(layouts),
        is_written=True,
        strips_spaces=_strips_spaces(preprocessing.of_kind(layouts[0].kind)),
    )


def detected_reading(preprocessing: Preprocessing, layouts: Sequence[AnyLayout], names: Sequence[str]) -> Reading:
    """Return how rows are read whose layouts were detected, under the names of their shapes."""
    strips = _strips_spaces(preprocessing)
    return Reading(layouts=tuple(layouts), names=unique_names(names), strips_spaces=strips)


def kind_of(preprocessing: Preprocessing, data: DataConfig, source: Source) -> str:
    """Return the kind of a source's rows: that of its layout, else the recipe's, which narrows what is detected."""
    return next((layout.kind for layout in written_layouts(data, source)), preprocessing.kind)


def check_layouts(preprocessing: Preprocessing, data: DataConfig) -> None:
    """Check that the layout of `data` is of the recipe's kind, and that settings of other kinds have sources.

    A source's own layout may be of any kind; that of `data`, which many sources share, is of the recipe's.

    Raises:
        ValueError: names the field.
    """
    sources = data.all_sources
    shared_layouts = listed_layouts(data.layout)
    is_used = any(not isinstance(source, DataSource) or source.layout is None for source in sources)
    shared_kind = shared_layouts[0].kind if shared_layouts and is_used else preprocessing.kind
    if shared_kind != preprocessing.kind:
        raise ValueError(
            f"data: kind of the layout is {shared_kind}, and preprocessing.kind is {preprocessing.kind}; they "
            "must be equal, unless a source has a layout of its own. Change one of them."
        )
    kinds = {kind_of(preprocessing, data, source) for source in sources}
    kind = next((section.kind for section in preprocessing.others if section.kind not in kinds), None)
    if kind is not None:
        raise ValueError(
            f"preprocessing.others has a section of kind {kind}, and no source of data has a layout of that kind; "
            f"allowed: the kinds of sources. Set layout: {{kind: {kind}}} on one, or remove the section."
        )


def _strips_spaces(settings: Preprocessing) -> bool:
    return isinstance(settings, PromptCompletionPreprocessing) and settings.strip_whitespace
