"""Data sources, bad-row handling, and the tokenizer."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from bridgepack.config.recipe.layout import OWN_TEMPLATE_VARIABLES
from bridgepack.config.recipe.layout_list import Layouts
from bridgepack.config.recipe.replaced import refuse_choice, refuse_fields_of_source
from bridgepack.config.section import Before, Flag, Section
from bridgepack.records import TRAIN, VALIDATION

#: Columns of rows, which no section of a source has.
COLUMNS_OF_ROWS = frozenset(
    {
        *("messages", "conversation", "conversations", "tools", "system", "prompt", "completion"),
        *("chat_template_kwargs", "input_ids", "loss_mask", "labels"),
    }
)
#: Values of `tokenizer.engine` in recipes and artifacts of earlier releases.
REMOVED_ENGINES = ("gigatoken",)
#: Default split of a `dataset`.
DEFAULT_SPLIT = "train"
#: Fields with a source's location, and a number of sections that nobody lists by hand.
_PLACES, _MANY_SOURCES = ("path", "dataset", "sources"), 20
#: Fields about a source's own rows, which a group of sources cannot have.
_OF_ROWS = ("split", "revision", "layout", "max_rows")


class DataSource(Section):
    """A source of rows, given by exactly one of `path`, `dataset` and `sources`, and how they are used."""

    path: str | None = None
    """A file, a folder, a glob, a URL or a data set saved with `save_to_disk`."""
    dataset: str | None = None
    """Id on the Hugging Face hub (`org/name`) or a path that `datasets.load_dataset` accepts."""
    sources: Annotated[tuple[Source, ...], Field(min_length=1)] | None = None
    """Sources that are first mixed with each other: a mixture within the mixture."""
    name: str | None = None
    """For a `dataset`: its configuration, e.g. `default`. Otherwise the source's name in reports."""
    split: str | None = None
    """For a `dataset`: split expression, e.g. `train_sft`, `train[:1000]`; `train` by default. For the `path` of a
    saved DatasetDict: the name of its split."""
    revision: str | None = None
    """For a `dataset`: commit, tag or branch; pin a commit so that the recipe always reads the same rows."""
    layout: Annotated[Layouts | None, Before(None)] = None
    """How the rows of this source are read, as `data.layout`, which is the default."""
    max_rows: Annotated[int, Field(ge=1, strict=True)] | None = None
    """Maximum rows to use, chosen by the seed among those that become sequences."""
    weight: Annotated[float, Field(gt=0, strict=True)] | None = None
    """Share in the mixture, relative to the other weights in the list; `data.mixture.by` sets the unit."""
    epochs: Annotated[float, Field(gt=0, le=10**6, strict=True)] | None = None
    """How often its sequences are used: 0.5 uses half of them, 2.5 uses each two or three times."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_replaced(cls, values: Any) -> Any:
        refuse_fields_of_source(values)
        refuse_choice(values)
        return values

    @model_validator(mode="after")
    def _check_place_and_amount(self) -> Self:
        places = [name for name in _PLACES if getattr(self, name) is not None]
        if len(places) != 1:
            places_text = f"{' and '.join(places)} are set" if places else "none of path, dataset and sources is set"
            raise ValueError(f" has a section in which {places_text}; exactly one of them is allowed. Name one.")
        for name in {"dataset": (), "path": ("revision",), "sources": _OF_ROWS}[places[0]]:
            if value := getattr(self, name):
                value_text = "set" if isinstance(value, Section) else repr(value)
                raise ValueError(
                    f"{name} is {value_text}; a section with {places[0]} cannot have it. Remove it"
                    f"{', or set it in its sources' if self.sources else ''}."
                )
        if self.weight is not None and self.epochs is not None:
            raise ValueError(f"weight is {self.weight} and epochs is {self.epochs}; only one can be set. Remove one.")
        check_weights(self.sources or (), "sources", takes_epochs=False)
        return self

    @property
    def label(self) -> str:
        """The source's name in reports."""
        of_hub = "/".join(part for part in (self.dataset, self.name) if part)
        return of_hub if self.dataset else self.name or self.path or "sources"


def check_weights(sources: Sequence[Source], where: str, *, takes_epochs: bool) -> None:
    """Check that all sources of a list have a weight, or none; with `takes_epochs`, epochs may replace a weight.

    Raises:
        ValueError: a source has neither; names the first.
    """
    lacks, cure = "no weight", "all or none"
    if takes_epochs:
        lacks, cure = "neither weight nor epochs", "one of the two; epochs: 1 uses every sequence once"
    for index, source in enumerate(sources):
        has_epochs = takes_epochs and isinstance(source, DataSource) and source.epochs is not None
        if (
            weight_of(source) is None
            and not has_epochs
            and any(weight_of(other_source) is not None for other_source in sources)
        ):
            raise ValueError(f"{where}.{index} has {lacks}, and others in the list have a weight. Set {cure}.")


def _shape(value: Any) -> str:
    """Return the source type that a value looks like, so that pydantic reports errors for that type only."""
    if isinstance(value, (dict, DataSource)):
        return "as section"
    return "as list" if isinstance(value, (list, tuple)) else "as path"


def _refuse_rows(value: Any) -> Any:
    """Refuse lists of rows: sections without a location that have a row's columns or are very many."""
    is_rows = isinstance(value, (list, tuple)) and all(isinstance(item, dict) for item in value)
    names = {name for item in value for name in item} if is_rows else set()
    if names and not names & set(_PLACES) and (names & COLUMNS_OF_ROWS or len(value) > _MANY_SOURCES):
        raise ValueError(
            f" is a list of rows, {len(value)} of them; allowed: a path, a section {{path: PATH}} or {{dataset: ID}}, "
            "or a list of these. Write the rows to a file, one JSON object per line, and name it; in Python, `build`, "
            "`check`, `plan`, `preview` and `prove` take the rows themselves."
        )
    return value


_Path = Annotated[str, Tag("as path")]
_Section = Annotated[DataSource, Tag("as section")]
Source = Annotated[_Path | _Section, Discriminator(_shape)]
_List = Annotated[tuple[Source, ...], Field(min_length=1), BeforeValidator(_refuse_rows), Tag("as list")]
Sources = Annotated[_Path | _Section | _List, Discriminator(_shape)]


# so that messages can name the fields of nested sections
DataSource.model_rebuild()


class MixtureConfig(Section):
    """Meaning of the sources' weights."""

    by: Literal["tokens", "rows"] = "tokens"
    """Unit of the shares: runtime tokens or rows of the packed sequences."""
    total: Annotated[int, Field(ge=1, le=10**15, strict=True)] | None = None
    """Total tokens or rows from the weighted training sources; sources with fewer are repeated evenly. By default the
    largest total without repeats."""


def source_entries(value: Sources | None) -> tuple[Source, ...]:
    """Return the listed sources of a split: one, several or none."""
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def as_sources(value: Sources | None) -> tuple[Source, ...]:
    """Return the sources of a split that hold rows, in order, with nested mixtures flattened."""
    return tuple(_leaves(source_entries(value)))


def _leaves(sources: Sequence[Source]) -> Iterator[Source]:
    for source in sources:
        if isinstance(source, DataSource) and source.sources is not None:
            yield from _leaves(source.sources)
        else:
            yield source


def path_of(source: Source) -> str | None:
    """Return the path of a source; None for a `dataset`."""
    return source if isinstance(source, str) else source.path


def weight_of(source: Source) -> float | None:
    """Return a source's weight, or None."""
    return source.weight if isinstance(source, DataSource) else None


def label_of(source: Source) -> str:
    """Return a source's name in reports."""
    return source if isinstance(source, str) else source.label


def amounts_of(source: DataSource) -> dict[str, float]:
    """Return the fields that set how much of a source is used -> their values."""
    values = {name: getattr(source, name) for name in ("weight", "epochs", "max_rows")}
    return {name: value for name, value in values.items() if value is not None}


def sets_amount(source: Source) -> bool:
    """Return whether a source, or one nested in it, sets how much of it is used."""
    if isinstance(source, str):
        return False
    return bool(amounts_of(source)) or any(map(sets_amount, source.sources or ()))


Role = Literal["system", "developer", "user", "assistant", "tool", "function_call", "observation"]


class DataConfig(Section):
    """Inputs of the build."""

    train: Sources
    """Training data: a file, a folder, a glob, a data set saved with `save_to_disk`, a `DataSource` section, or
    a list of these. Files: .jsonl, .json (an array), .csv, .tsv, each also .gz or .zst; .parquet, .arrow. Relative
    paths start at the current folder."""
    validation: Sources | None = None
    """Validation data, as `train`; none by default. In a list of sources that all have a `name`, each is a set of its
    own: its packs hold no other source."""
    layout: Annotated[Layouts | None, Before(None)] = None
    """How a row is read: which columns become turns, tools, a prompt, a completion or token ids. Of a list, the first
    layout that fits a row reads it. A source may have its own. By default the layouts that fit the first rows of the
    source's first file, of the kind of `preprocessing`."""
    mixture: MixtureConfig = MixtureConfig()
    """How weighted sources are mixed."""
    validation_fraction: Annotated[float, Field(ge=0.0, lt=1.0, strict=True)] = 0.0
    """Fraction (0-1) of the training rows set aside for validation, chosen per row by the seed."""
    on_bad_row: Literal["drop", "error"] = "drop"
    """`drop`: drop rows that cannot become sequences and record the reason in the ledger; `error`: stop the build."""
    deduplicate: Annotated[Literal["none", "exact"], Before("none")] = "none"
    """`exact`: of rows with equal tokens and mask only the first is kept (validation before training, then in order);
    the others are dropped and recorded in the ledger."""
    max_row_bytes: Annotated[int, Field(ge=1, strict=True)] = 1 << 25
    """Maximum size of a row in bytes, of its JSON or, in columnar files, its values; larger rows are dropped unread."""
    role_aliases: dict[str, Role] = Field(default_factory=dict)
    """Extra role name (case-insensitive) -> role, e.g. `{agent: assistant, customer: user}`. Built in are names with
    one meaning, such as human, gpt, bot, model, function_call, function_response and observation."""

    @property
    def all_sources(self) -> tuple[Source, ...]:
        """The sources of both splits that hold rows, those of training first."""
        return (*self.sources_of(TRAIN), *self.sources_of(VALIDATION))

    def sources_of(self, split: str) -> tuple[Source, ...]:
        """Return the sources of `training` or `validation` that hold rows, in order, with nested mixtures flattened."""
        return as_sources(self.train if split == TRAIN else self.validation)

    @property
    def has_validation_sets(self) -> bool:
        """Whether the validation data are several named sources, each of which gets packs of its own."""
        entries = source_entries(self.validation)
        return len(entries) > 1 and all(isinstance(source, DataSource) and source.name for source in entries)

    @model_validator(mode="before")
    @classmethod
    def _refuse_choice(cls, values: Any) -> Any:
        refuse_choice(values)
        return values

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.validation is not None and self.validation_fraction > 0:
            raise ValueError(
                f"validation_fraction is {self.validation_fraction} and validation is {self.validation!r}; "
                "only one of them can be set. Remove validation_fraction or validation."
            )
        for split in ("train", "validation"):
            check_weights(source_entries(getattr(self, split)), split, takes_epochs=True)
        if self.mixture.total is not None and all(weight_of(source) is None for source in source_entries(self.train)):
            raise ValueError(
                f"mixture.total is {self.mixture.total}, and no source of train has a weight. Remove it, or set "
                "weights."
            )
        for first, second in combinations(self.role_aliases, 2):
            if first.lower() == second.lower() and self.role_aliases[first] != self.role_aliases[second]:
                raise ValueError(
                    f"role_aliases[{first!r}] is {self.role_aliases[first]!r} and role_aliases[{second!r}] is "
                    f"{self.role_aliases[second]!r}; role names are case-insensitive. Remove one of them."
                )
        return self


class TokenizerConfig(Section):
    """The Hugging Face tokenizer that the model is trained with."""

    name_or_path: str
    """A folder with tokenizer files, or an id on the Hugging Face hub."""
    revision: str | None = None
    """Commit, tag or branch on the hub."""
    chat_template: str | None = None
    """Path of a Jinja file that replaces the tokenizer's chat template. Set the same template on Megatron-Bridge's
    tokenizer, not through `dataset_kwargs`."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Variables for the chat template, e.g. `{enable_thinking: false}`. Rows may set their own, by
    `chat_template_kwargs` of their layout."""
    template_date: datetime.date | None = None
    """Date that `strftime_now` returns in the chat template, e.g. `2025-06-30`. Without it, the templates of Llama 3
    and gpt-oss insert the build date, so the rows depend on the day of the build."""
    loader: Literal["transformers", "tokenizer_json"] = "transformers"
    """`transformers`: `AutoTokenizer`, as Megatron-Bridge loads it; `tokenizer_json`: tokenizer.json unchanged, for
    tokenizers that transformers loads as a class that loses spaces (transformers 5.12 with DeepSeek-V3)."""
    engine: Literal["auto", "tokenizers", "fastokens"] = "auto"
    """Library that encodes text. `tokenizers` is the reference; `fastokens` is much faster and is used only if it gives
    the same tokens on the data; `auto` takes it for inputs of 8 MiB or more. The choice never changes a token."""
    trust_remote_code: Flag = False
    """Run Python code that comes with the tokenizer, in `build` and `launch`; other commands need
    `--trust-remote-code`, too. Only for tokenizers whose code you have read."""

    @field_validator("engine", mode="before")
    @classmethod
    def _refuse_removed_engine(cls, value: object) -> object:
        if value in REMOVED_ENGINES:
            raise ValueError(
                f" is {value!r}, which bridgepack no longer uses; allowed: auto, tokenizers, fastokens. "
                "Set it to auto: the tokens stay the same."
            )
        return value

    @model_validator(mode="after")
    def _check_template_variables(self) -> Self:
        if variables := sorted(OWN_TEMPLATE_VARIABLES.intersection(self.chat_template_kwargs)):
            raise ValueError(
                f"chat_template_kwargs has {', '.join(variables)}; any other template variable is allowed. "
                "Remove it: messages and tools come from the rows, the date from template_date."
            )
        return self
