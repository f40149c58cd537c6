"""Where rows come from: paths, sections with what is said of a source, and mixtures of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from bridgepack.config.section import Section

#: What a source's `columns` can name, whatever the recipe's preprocessing calls these columns.
ColumnName = Literal[
    "messages", "tools", "system", "prompt", "completion", "chat_template_kwargs", "input_ids", "loss_mask", "labels"
]
#: Split of a `dataset` that names none.
DEFAULT_SPLIT = "train"
#: Fields of a section that say where rows are, and more sections than anyone lists by hand.
_PLACES, _MANY_SOURCES = ("path", "dataset", "sources"), 20
#: Fields of a section that say something of its rows, which a group of sources does not have.
_OF_ROWS = ("split", "revision", "columns", "kind", "max_rows")


class DataSource(Section):
    """A source of rows and how they are used: one of `path`, `dataset` and `sources`."""

    path: str | None = None
    """A file, a folder, a glob, a URL or a data set saved with `save_to_disk`, as it may stand without a section."""
    dataset: str | None = None
    """Id on the Hugging Face hub (`org/name`) or a path that `datasets.load_dataset` accepts."""
    sources: Annotated[tuple[Source, ...], Field(min_length=1)] | None = None
    """Sources that are mixed among themselves first: a mixture within the mixture."""
    name: str | None = None
    """Of a `dataset`: its configuration, e.g. `default`. Otherwise what reports call the source."""
    split: str | None = None
    """Of a `dataset`: split expression, e.g. `train_sft`, `train[:1000]`; `train` by default. Of the `path` of a saved
    DatasetDict: the name of its split."""
    revision: str | None = None
    """Of a `dataset`: commit, tag or branch; pin a commit so that the same recipe always means the same rows."""
    columns: dict[ColumnName, str] = Field(default_factory=dict)
    """What the preprocessing reads -> the column of this source that holds it, e.g. `{prompt: question, completion:
    answer}`; other columns keep their names."""
    kind: Literal["chat", "prompt_completion"] | None = None
    """How rows of this source are read in a recipe of chats: `prompt_completion` makes a user and an assistant turn of
    the two columns, whatever else a row has. By default each row is what it looks like."""
    max_rows: Annotated[int, Field(ge=1, strict=True)] | None = None
    """Most rows that are used, chosen by the seed among those that become sequences."""
    weight: Annotated[float, Field(gt=0)] | None = None
    """Share in the mixture, relative to the other weights of the list; `data.mixture` says of what."""
    epochs: Annotated[float, Field(gt=0, le=10**6)] | None = None
    """How often its sequences are used: 0.5 uses half of them, 2.5 each of them two or three times."""

    @model_validator(mode="after")
    def _check_one_place(self) -> Self:
        places = [name for name in _PLACES if getattr(self, name) is not None]
        if len(places) != 1:
            found = f"{' and '.join(places)} are set" if places else "none of path, dataset and sources is set"
            raise ValueError(f" has a section in which {found}; exactly one of them is allowed. Name one.")
        for name in {"dataset": (), "path": ("revision",), "sources": _OF_ROWS}[places[0]]:
            if getattr(self, name):
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; a section with {places[0]} has none. Remove it"
                    f"{', or set it in its sources' if self.sources else ''}."
                )
        return self

    @model_validator(mode="after")
    def _check_one_amount(self) -> Self:
        if self.weight is not None and self.epochs is not None:
            raise ValueError(f"weight is {self.weight} and epochs is {self.epochs}; only one can be set. Remove one.")
        check_weights(self.sources or (), "sources", takes_epochs=False)
        return self

    @property
    def label(self) -> str:
        """What reports call it."""
        of_hub = "/".join(part for part in (self.dataset, self.name) if part)
        return of_hub if self.dataset else self.name or self.path or "sources"


def check_weights(sources: Sequence[Source], where: str, *, takes_epochs: bool) -> None:
    """Accept a list of sources of which all have a weight, or none; with `takes_epochs` epochs may stand for one.

    Raises:
        ValueError: naming the first that has neither.
    """
    lacks, cure = "no weight", "all or none"
    if takes_epochs:
        lacks, cure = "neither weight nor epochs", "one of the two; epochs: 1 uses every sequence once"
    for index, source in enumerate(sources):
        has_epochs = takes_epochs and isinstance(source, DataSource) and source.epochs is not None
        if weight_of(source) is None and not has_epochs and any(weight_of(other) is not None for other in sources):
            raise ValueError(f"{where}.{index} has {lacks}, and others of the list have a weight. Set {cure}.")


def _shape(value: Any) -> str:
    """Return which shape of a source a value is meant to have; pydantic then complains about that one alone."""
    if isinstance(value, (dict, DataSource)):
        return "as section"
    return "as list" if isinstance(value, (list, tuple)) else "as path"


def _refuse_rows(value: Any) -> Any:
    """Accept a list but one of rows: sections that name no place, and have a row's columns or are very many."""
    is_rows = isinstance(value, (list, tuple)) and all(isinstance(one, dict) for one in value)
    names = {name for one in value for name in one} if is_rows else set()
    if names and not names & set(_PLACES) and (names & set(get_args(ColumnName)) or len(value) > _MANY_SOURCES):
        raise ValueError(
            f" is a list of rows, {len(value)} of them; allowed: a path, a section {{path: PATH}} or {{dataset: ID}}, "
            "or a list of these. Write the rows to a file, one JSON object a line, and name it; in Python `build` "
            "takes datasets.Dataset.from_list(rows), too."
        )
    return value


_Path = Annotated[str, Tag("as path")]
_Section = Annotated[DataSource, Tag("as section")]
Source = Annotated[_Path | _Section, Discriminator(_shape)]
_List = Annotated[tuple[Source, ...], Field(min_length=1), BeforeValidator(_refuse_rows), Tag("as list")]
Sources = Annotated[_Path | _Section | _List, Discriminator(_shape)]


# so that messages find the fields of a section within a section
DataSource.model_rebuild()


class MixtureConfig(Section):
    """What the weights of sources mean."""

    by: Literal["tokens", "rows"] = "tokens"
    """What a weight is a share of: runtime tokens or rows, of the sequences that are packed."""
    total: Annotated[int, Field(ge=1, le=10**15, strict=True)] | None = None
    """Tokens or rows of the training sources with a weight together; they are repeated evenly where they have fewer.
    By default as many as there are without repeating any."""


def listed(value: Sources | None) -> tuple[Source, ...]:
    """Return the sources of a split as they are listed: one, several or none."""
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def as_sources(value: Sources | None) -> tuple[Source, ...]:
    """Return the sources of a split that have rows, those of mixtures within it among them, in order."""
    return tuple(_leaves(listed(value)))


def _leaves(sources: Sequence[Source]) -> Iterator[Source]:
    for source in sources:
        if isinstance(source, DataSource) and source.sources is not None:
            yield from _leaves(source.sources)
        else:
            yield source


def path_of(source: Source) -> str | None:
    """Return the path of a source; None for a data set that `datasets.load_dataset` finds."""
    return source if isinstance(source, str) else source.path


def weight_of(source: Source) -> float | None:
    """Return a source's weight; None where it has none."""
    return source.weight if isinstance(source, DataSource) else None


def label_of(source: Source) -> str:
    """Return what reports call a source."""
    return source if isinstance(source, str) else source.label


def amounts_of(source: DataSource) -> dict[str, float]:
    """Return what a section says of how much of it is used: field -> value."""
    values = {name: getattr(source, name) for name in ("weight", "epochs", "max_rows")}
    return {name: value for name, value in values.items() if value is not None}


def sets_amount(source: Source) -> bool:
    """Say whether something tells how much of a source, or of one within it, is used."""
    if isinstance(source, str):
        return False
    return bool(amounts_of(source)) or any(map(sets_amount, source.sources or ()))
