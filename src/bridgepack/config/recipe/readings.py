"""How the rows of each source are read: its layouts, those of older fields of the recipe included."""

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bridgepack.config.recipe.data import DataConfig, DataSource, Source, as_sources, label_of
from bridgepack.config.recipe.layout import (
    AnyLayout,
    ChatLayout,
    PromptCompletionLayout,
    TextLayout,
    TokenizedLayout,
    TurnFromColumns,
    TurnsFromColumn,
)
from bridgepack.config.recipe.preprocessing import (
    CONVERSATION_COLUMNS,
    ChatPreprocessing,
    Preprocessing,
    PromptCompletionPreprocessing,
    TextPreprocessing,
    TokenizedPreprocessing,
)

#: Columns of tool schemas that are read unasked, beside `tools`.
_TOOLS = ("tools", "functions", "tool_defs")
#: Columns that Megatron-Bridge reads if a row has none of the recipe's.
#: Source: megatron-bridge 0.6.2, data/sft_processing.py, normalize_sft_example.
_STANDARD_PAIR = ("prompt", "completion")
#: Older fields of `preprocessing` that a layout replaces.
_REPLACED = (
    *("conversation_column", "prompt_column", "completion_column", "tools_column", "chat_template_kwargs_column"),
    *("prompt_template", "input_ids_column", "loss_mask_column", "labels_column"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How the rows of one source are read."""

    layouts: tuple[AnyLayout, ...]  #: a row is read by the first that fits it
    needed: tuple[str, ...] = ()  #: columns of which a row must have at least one; empty if all may be missing
    refused: tuple[str, ...] = ()  #: columns that a row must not have, because they hold a conversation
    ignored: tuple[str, ...] = ()  #: columns that are deliberately not read, beside those of the layouts
    is_written: bool = False  #: the recipe has a layout; bare tool schemas then become OpenAI's form
    strips_spaces: bool = False  #: spaces around each column of a prompt and a completion are stripped

    @property
    def kind(self) -> str:
        """Kind of the source's rows, which chooses their settings."""
        return self.layouts[0].kind


def reading_of(preprocessing: Preprocessing, data: DataConfig, source: Source) -> Reading:
    """Return how the rows of a source are read.

    A source's own layout comes first, then that of `data`; without either, the older fields `columns` and `kind` of the
    source and `*_column` of `preprocessing` are read as layouts.
    """
    section = source if isinstance(source, DataSource) else DataSource(path=source)
    columns: dict[str, str] = {str(name): column for name, column in section.columns.items()}
    written = section.layout or data.layout
    settings = preprocessing if written is None else preprocessing.of_kind(written.kind)
    strips = isinstance(settings, PromptCompletionPreprocessing) and settings.strip_whitespace
    if written is not None:
        return Reading(layouts=(written,), is_written=True, strips_spaces=strips)
    optional = {"system", "tools", "chat_template_kwargs"}
    needed = tuple(column for name, column in sorted(section.columns.items()) if name not in optional)
    if isinstance(preprocessing, ChatPreprocessing):
        is_pair = section.kind == "prompt_completion"
        layouts = tuple(_chats(preprocessing, columns, is_pair=is_pair))
        hides = (*CONVERSATION_COLUMNS, preprocessing.conversation_column or "messages") if is_pair else ()
        return Reading(layouts=layouts, needed=needed, ignored=hides)
    if isinstance(preprocessing, PromptCompletionPreprocessing):
        pairs = tuple(_pairs(preprocessing, columns))
        hidden: tuple[str, ...] = CONVERSATION_COLUMNS if section.kind == "prompt_completion" else ()
        refused = () if hidden else tuple(name for name in CONVERSATION_COLUMNS if name not in _taken(columns))
        return Reading(layouts=pairs, needed=needed, refused=refused, ignored=hidden, strips_spaces=strips)
    if isinstance(preprocessing, TextPreprocessing):
        return Reading(layouts=(TextLayout(kind="text"),))
    return Reading(layouts=tuple(_tokenized(preprocessing, columns)), needed=needed)


def kind_of(preprocessing: Preprocessing, data: DataConfig, source: Source) -> str:
    """Return the kind of a source's rows: that of its layout, else the recipe's."""
    layout = (source.layout if isinstance(source, DataSource) else None) or data.layout
    return preprocessing.kind if layout is None else layout.kind


def check_layouts(preprocessing: Preprocessing, data: DataConfig) -> None:
    """Check that no older field says otherwise how rows are read, and that settings of other kinds have sources.

    A source's own layout may be of any kind; that of `data`, which many sources share, is of the recipe's.

    Raises:
        ValueError: names the field.
    """
    for split in ("train", "validation"):
        for source in as_sources(getattr(data, split)):
            section = source if isinstance(source, DataSource) else DataSource(path=source)
            layout = section.layout or data.layout
            if layout is None:
                continue
            if section.layout is None and layout.kind != preprocessing.kind:
                raise ValueError(
                    f"data: kind of the layout is {layout.kind}, and preprocessing.kind is {preprocessing.kind}; they "
                    "must be equal, unless a source has a layout of its own. Change one of them."
                )
            for name in ("columns", "kind"):
                if getattr(section, name):
                    raise ValueError(
                        f"data.{split}: {name} of {label_of(source)} is set beside a layout, which says how its rows "
                        f"are read. Remove {name}."
                    )
            for name, value in _older_fields(preprocessing.of_kind(layout.kind)).items():
                where = "preprocessing" if layout.kind == preprocessing.kind else "preprocessing.others"
                raise ValueError(
                    f"{where}.{name} is {value!r} beside a layout, which says how rows are read. Remove it, and "
                    "name the column in the layout."
                )
    sources = (*as_sources(data.train), *as_sources(data.validation))
    kinds = {kind_of(preprocessing, data, source) for source in sources}
    if unused := [other.kind for other in preprocessing.others if other.kind not in kinds]:
        raise ValueError(
            f"preprocessing.others has a section of kind {unused[0]}, and no source of data has a layout of that kind; "
            f"allowed: the kinds of sources. Set layout: {{kind: {unused[0]}}} on one, or remove the section."
        )


def _older_fields(preprocessing: Preprocessing) -> dict[str, Any]:
    """Return older fields about columns that have another value than their default."""
    fields = type(preprocessing).model_fields
    named = {name: getattr(preprocessing, name) for name in _REPLACED if name in fields}
    return {name: value for name, value in named.items() if value != fields[name].default}


def _chats(
    settings: ChatPreprocessing, columns: Mapping[str, str] = MappingProxyType({}), *, is_pair: bool
) -> Iterator[ChatLayout]:
    """Yield the layouts of a chat recipe: turns in a column, else a prompt and a completion, as texts or as turns."""
    own_tools = columns.get("tools", settings.tools_column)
    shared: dict[str, Any] = {
        "tools": own_tools if own_tools != _TOOLS[0] else _TOOLS,
        "chat_template_kwargs": columns.get("chat_template_kwargs", settings.chat_template_kwargs_column),
    }
    system = TurnFromColumns(role="system", content=_quoted(columns.get("system", "system")))
    names: tuple[str, ...] = (settings.conversation_column,) if settings.conversation_column else CONVERSATION_COLUMNS
    own = (columns["messages"],) if "messages" in columns else ()
    names = (*own, *(name for name in names[len(own) :] if name not in _taken(columns)))
    for name in () if is_pair else names:
        yield ChatLayout(kind="chat", messages=(system, TurnsFromColumn(from_column=name)), **shared)
    prompt, completion = (
        columns.get(name, column)
        for name, column in (("prompt", settings.prompt_column), ("completion", settings.completion_column))
    )
    texts = (
        TurnFromColumns(role="user", content=_quoted(prompt)),
        TurnFromColumns(role="assistant", content=_quoted(completion)),
    )
    turns = TurnsFromColumn(from_column=prompt), TurnsFromColumn(from_column=completion)
    for pair in (texts, turns, (turns[0], texts[1]), (texts[0], turns[1])):
        yield ChatLayout(kind="chat", messages=(system, *pair), **shared)


def _pairs(settings: PromptCompletionPreprocessing, columns: Mapping[str, str]) -> Iterator[PromptCompletionLayout]:
    """Yield the layouts of a prompt-completion recipe: its columns, else the standard ones."""
    own = columns.get("prompt", settings.prompt_column), columns.get("completion", settings.completion_column)
    others = () if _taken(columns).intersection(_STANDARD_PAIR) else (_STANDARD_PAIR,)
    for prompt, completion in dict.fromkeys((own, *others)):
        template = _filled(settings.prompt_template, prompt)
        yield PromptCompletionLayout(kind="prompt_completion", prompt=template, completion=_quoted(completion))


def _filled(prompt_template: str, column: str) -> str:
    """Return a layout's text for a template whose only placeholder is `{prompt}`."""
    parts = string.Formatter().parse(prompt_template)
    return "".join(
        text.replace("{", "{{").replace("}", "}}") + (_quoted(column) if name is not None else "")
        for text, name, _, _ in parts
    )


def _tokenized(settings: TokenizedPreprocessing, columns: Mapping[str, str]) -> Iterator[TokenizedLayout]:
    """Yield the layouts of tokens: with the only column that is named, else with a mask, else with labels."""
    ids = columns.get("input_ids", settings.input_ids_column)
    mask, labels = settings.loss_mask_column, settings.labels_column
    if mask is None and labels is None and not columns.keys() & {"loss_mask", "labels"}:
        yield TokenizedLayout(kind="tokenized", input_ids=ids)
        return
    if labels is None:
        column = columns.get("loss_mask", mask or "loss_mask")
        yield TokenizedLayout(kind="tokenized", input_ids=ids, loss_mask=column)
    if mask is None:
        yield TokenizedLayout(kind="tokenized", input_ids=ids, labels=columns.get("labels", labels or "labels"))


def _taken(columns: Mapping[str, str]) -> frozenset[str]:
    """Return the names that a source's `columns` gives a meaning: those read, and those of its data."""
    return frozenset((*columns, *columns.values()))


def _quoted(column: str) -> str:
    return f"{{{column}}}"
