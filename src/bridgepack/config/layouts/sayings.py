"""What detection says of data, in words: why a layout fits, or why none does and what to do."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from bridgepack.config.document import stated_values
from bridgepack.config.errors import did_you_mean, quote
from bridgepack.config.layouts.candidates import Candidate
from bridgepack.config.layouts.contents import Contents
from bridgepack.config.layouts.entry import PublicLayout
from bridgepack.config.recipe.layout import AnyLayout

#: Value of `--layout` that writes no layout.
NO_LAYOUT = "none"
_BY_HAND = f"To name the columns yourself in data.layout, write the recipe with --layout {NO_LAYOUT}"
_PATHS = (
    "There, what is inside a column has a path, such as data.prompt or answers.0.value; turns under names that are not "
    "known are to be written anew, as a column messages with a list of {role: user, content: ..} and "
    "{role: assistant, content: ..}"
)
_IN_RECIPE = "To name the columns yourself, write data.layout"
_WIDEST, _SHOWN = 60, 4


def unknown_name(name: str, names: Sequence[str]) -> str:
    """Return the message for a name that no entry has."""
    return (
        f"--layout is {quote(name)}; allowed: a name that `bridgepack recipes layouts` lists, or {NO_LAYOUT}. "
        f"{did_you_mean(name, [*names, NO_LAYOUT])}"
    )


def refused_layout(data_name: str, entry: PublicLayout, *, is_new: bool = True) -> str:
    """Return the message for rows of a layout that is not read; `is_new` where a new recipe is written."""
    by_hand = _BY_HAND if is_new else _IN_RECIPE
    return f"{data_name}: its rows look like {entry.name} ({entry.title}); {entry.refusal}. {by_hand}."


def equal_fits(
    data_name: str,
    options: Sequence[tuple[str, AnyLayout | None, Collection[str]]],
    columns: Collection[str],
    *,
    is_new: bool = True,
) -> str:
    """Return the message for rows that several layouts fit.

    `options` are names, layouts and the columns known; `is_new` where a new recipe is written.
    """
    lines = []
    for name, layout, known_columns in options:
        unread_columns = ", ".join(column for column in columns if column not in known_columns)
        how = "is refused" if layout is None else as_flow(layout)
        lines.append(f"  {name}{f' (does not read {unread_columns})' if unread_columns else ''}: {how}")
    names = list(dict.fromkeys(name for name, *_ in options))
    choice = (
        f"Choose one with --layout {' or --layout '.join(names)}"
        if len(names) > 1 and is_new
        else "Copy one of them into the recipe, as data.layout"
    )
    fits = f"{len(options)} layouts fit its rows equally well"
    return f"{data_name}: {fits}:\n" + "\n".join(lines) + f"\n{choice}." + (f" {_BY_HAND}." if is_new else "")


def lacks_columns(data_name: str, entries: Sequence[PublicLayout], columns: Mapping[str, str]) -> str:
    """Return the message for rows that lack the columns of the layout that was asked for."""
    slot_words = "; or ".join(", ".join(words_of_slots(entry)) for entry in entries)
    has = f"{data_name}, which has {_list_columns(columns)}"
    return f"--layout is {entries[0].name}, which reads {slot_words}; {has}. Choose another. {_BY_HAND}."


def unknown_columns(data_name: str, columns: Mapping[str, str]) -> str:
    """Return the message for rows that no layout reads."""
    paths = any(contents.endswith((", a list", ", an object")) for contents in columns.values())
    inside = f" {_PATHS}." if paths else ""
    return f"{data_name}: no known layout reads its rows; they have {_list_columns(columns)}. {_BY_HAND}.{inside}"


def no_layout_of_kind(data_name: str, kind: str, columns: Mapping[str, str], kinds: Sequence[str]) -> str:
    """Return the message for rows that no layout of a kind reads; `kinds` are those whose layouts read some."""
    other_kinds = f", but as {' or '.join(kinds)}" if kinds else ""
    cure = f"Set preprocessing.kind to {' or '.join(kinds)}, or name" if kinds else "Name"
    return (
        f"{data_name}: no known layout reads its rows as {kind}{other_kinds} (preprocessing.kind is {kind}); they have "
        f"{_list_columns(columns)}. {cure} the columns in data.layout."
    )


def mixed_shapes(data_name: str, shapes: Counter[str], examples: Mapping[str, str]) -> str:
    """Return the message for rows of several shapes; the name of rows that nothing fits is empty."""
    total = shapes.total()
    parts = ", ".join(
        f"{percent(count, total)} {f'like {name}' if name else 'like no known layout'} ({examples[name]})"
        for name, count in shapes.most_common()
    )
    return (
        f"{data_name}: its rows have several shapes: {parts}. Write each shape to its own file, and list the files in "
        f"data.train, each with its layout; or write none with --layout {NO_LAYOUT}, and a build reads each row by "
        "the layout that fits it; or choose one with --layout NAME, which drops the other rows."
    )


def several_layouts(shapes: Sequence[tuple[str, int]], total: int) -> str:
    """Return what to say of rows that several layouts read; `shapes` are their names and numbers of rows."""
    parts = ", ".join(f"{percent(num_rows, total)} like {name}" for name, num_rows in shapes)
    return f"its rows have several shapes: {parts}; each is read by the layout that fits it"


def reasons(
    candidate: Candidate, repeated_columns: Collection[str], num_rows: int, *, is_chosen: bool
) -> Iterator[str]:
    """Yield why a candidate was taken."""
    slots = candidate.entry.all_slots
    read = [name for slot, names in candidate.columns.items() if not slots[slot].is_ignored for name in names]
    how = (
        "chosen by --layout"
        if is_chosen
        else f"{', '.join(read)} fit in {num_rows:,} {'row' if num_rows == 1 else 'rows'}"
    )
    marks = [mark for mark in candidate.entry.marks if mark not in read]
    yield how + (f", beside {', '.join(marks)}" if marks and not is_chosen else "")
    for name in candidate.ignored_columns:
        yield f"{name} is not read: the system text has the same"
    for name in sorted(repeated_columns):
        yield f"{name} is not read: other columns that are read have its text"


def choice_of_pair(names: Collection[str], kind: str) -> str:
    """Return what becomes of texts in a prompt and a completion, and how to choose otherwise; empty for other rows."""
    if "prompt_completion" not in names:
        return ""
    if kind == "chat":
        return (
            "prompt and completion become turns of the chat template; with preprocessing.kind prompt_completion they "
            "stay plain text"
        )
    return "prompt and completion stay plain text; with preprocessing.kind chat they become turns of the chat template"


def lacking(num_rows: int, total: int, place: str) -> str:
    """Return what to say of rows in which a column is empty."""
    return f"{percent(num_rows, total)} of the rows lack one of these columns or an answer, first {place}"


def other_shapes(num_rows: int, total: int, place: str) -> str:
    """Return what to say of rows that do not fit."""
    return f"{percent(num_rows, total)} of the rows have another shape, first {place}"


def flags_and_roles(flags: Collection[str], aliases: Mapping[str, str]) -> Iterator[str]:
    """Yield what the recipe says of flags about the loss, and of roles under other names."""
    if flags:
        names = ", ".join(sorted(flags))
        yield f"turns that {names} marks as untrained are not trained (preprocessing.message_weights: mask)"
    renamed_roles = [f"{name} is {role}" for name, role in aliases.items() if name != role]
    if renamed_roles:
        yield f"roles have other names: {', '.join(renamed_roles)}"


def unknown_role(name: str, place: str) -> str:
    """Return what to say of a role that is not known."""
    return f"the role {name!r} is not known, first {place}; name it in data.role_aliases, or its rows are dropped"


def words_of_slots(entry: PublicLayout) -> Iterator[str]:
    """Yield the columns of an entry: `question or query`, `system (optional)`."""
    for slot in entry.slots.values():
        names = [name for name in slot.names if name != "*"]
        shown_names = names[:_SHOWN] + (["others"] if len(names) > _SHOWN else [])
        any_other = ["any column with turns"] if len(names) < len(slot.names) else []
        yield " or ".join([*shown_names, *any_other]) + ("" if slot.needs == "always" else " (optional)")


def as_flow(layout: AnyLayout) -> str:
    """Return a layout in one line of YAML."""
    from bridgepack.config.editing.yaml_text import flow  # imports ruamel.yaml, which few workers need

    return flow(stated_values(layout))


def kind_of(contents: Contents, value: Any) -> str:
    """Return what a column holds and its type: `text`, `text, a list`, `identifier, an int`."""
    names = {list: "a list", dict: "an object", int: "a number", float: "a number", bool: "true or false"}
    return f"{contents}, {names[type(value)]}" if type(value) in names else contents


def percent(num: int, total: int) -> str:
    """Return a share in percent; never 0 % or 100 % of some, but not all."""
    share = 100 * num / max(total, 1)
    return f"{share:.0f} %" if num == total or 1 <= share <= 99 else f"{share:.2g} %"


def example(value: Any) -> str:
    """Return a value as an example, on one short line."""
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def _list_columns(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({contents})" for name, contents in columns.items()) or "no columns"
