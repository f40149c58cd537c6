"""One layout or several: a row is read by the first of them that fits it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from bridgepack.config.recipe.layout import AnyLayout, ChatLayout, Layout, TurnsFromColumn, columns_in, columns_of
from bridgepack.config.recipe.replaced import CHOICE_OF_PAIRS, refuse_choice


def _distinct_of_one_kind(layouts: tuple[AnyLayout, ...]) -> tuple[AnyLayout, ...]:
    for index, layout in enumerate(layouts):
        if layout in layouts[:index]:
            first = layouts.index(layout)
            raise ValueError(f" has the same layout twice, as entries {first} and {index}. Remove entry {index}.")
        if layout.kind != layouts[0].kind:
            raise ValueError(
                f" has layouts of the kinds {layouts[0].kind} and {layout.kind}; the rows of a source are of one kind. "
                "Write the rows of each kind to their own file, and name the files in data.train, each with its layout."
            )
    return layouts


def _refuse_name(value: Any) -> Any:
    if isinstance(value, str):
        cure = CHOICE_OF_PAIRS if _is_of_pairs(value) else "Remove it and the layout is detected."
        raise ValueError(
            f" is {value!r}; allowed: a section such as {{kind: chat, messages: [{{from_column: messages}}]}}, or a "
            f"list of these. `bridgepack new --layout NAME` writes the section of a layout's name. {cure}"
        )
    if isinstance(value, Mapping):
        refuse_choice(value)
        if _is_of_pairs(kind := str(value.get("kind"))):
            raise ValueError(f"kind is {kind!r}; allowed: chat, for a chosen answer. {CHOICE_OF_PAIRS}")
    return value


def _is_of_pairs(name: str) -> bool:
    return any(word in name.lower() for word in ("preference", "chosen", "dpo"))


_Named = Annotated[Layout, BeforeValidator(_refuse_name)]
#: A layout, or a list of which the first that fits a row reads it.
Layouts = Annotated[
    Annotated[_Named, Tag("as layout")]
    | Annotated[tuple[_Named, ...], Field(min_length=1), AfterValidator(_distinct_of_one_kind), Tag("as layouts")],
    Discriminator(lambda value: "as layouts" if isinstance(value, (list, tuple)) else "as layout"),
]


def listed_layouts(layouts: AnyLayout | tuple[AnyLayout, ...] | None) -> tuple[AnyLayout, ...]:
    """Return the layouts of a field: one, several or none."""
    if layouts is None:
        return ()
    return layouts if isinstance(layouts, tuple) else (layouts,)


def names_of_layouts(layouts: Sequence[AnyLayout]) -> tuple[str, ...]:
    """Return a name for each layout, the columns that its rows have: `messages`, `prompt, completion`."""
    return unique_names([", ".join(dict.fromkeys(_main_columns(layout))) for layout in layouts])


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of which no two are equal: `messages`, `messages` -> `messages`, `messages (2)`."""
    counts: Counter[str] = Counter()
    unique = []
    for name in names:
        counts[name] += 1
        unique.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return tuple(unique)


def _main_columns(layout: AnyLayout) -> list[str]:
    """Return the columns that tell a layout: those of turns and texts, without a system text's and optional ones."""
    if layout.kind == "tokenized":
        return [layout.input_ids]
    if not isinstance(layout, ChatLayout):
        return [column.path for column in columns_of(layout)]
    names: list[str] = []
    for turn in layout.messages:
        if isinstance(turn, TurnsFromColumn):
            names.append(turn.from_column)
        elif turn.role not in {"system", "developer"}:
            pieces = [turn.content] if isinstance(turn.content, str) else [*(turn.content or ())]
            names += [column.path for piece in pieces for column in columns_in(piece)]
            names += [turn.tool_calls] if turn.tool_calls and not pieces else []
    return names
