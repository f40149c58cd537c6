"""What detection says of data, in words: why a layout fits, or why none does and what to do."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from bridgepack.config.document import written
from bridgepack.config.errors import did_you_mean, quoted
from bridgepack.config.layouts.candidates import Candidate
from bridgepack.config.layouts.contents import Contents
from bridgepack.config.layouts.entry import PublicLayout
from bridgepack.config.recipe.layout import AnyLayout

#: Value of `--layout` that writes no layout.
NO_LAYOUT = "none"
_BY_HAND = f"To name the columns yourself in data.layout, write the recipe with --layout {NO_LAYOUT}"
_WIDEST, _SHOWN = 60, 4


def unknown_name(name: str, names: Sequence[str]) -> str:
    """Return the message for a name that no entry has."""
    return (
        f"--layout is {quoted(name)}; allowed: a name that `bridgepack recipes layouts` lists, or {NO_LAYOUT}. "
        f"{did_you_mean(name, [*names, NO_LAYOUT])}"
    )


def refused_layout(what: str, entry: PublicLayout) -> str:
    """Return the message for rows of a layout that is not read."""
    return f"{what}: its rows look like {entry.name} ({entry.title}); {entry.refusal}. {_BY_HAND}."


def equal_fits(
    what: str, options: Sequence[tuple[str, AnyLayout | None, Collection[str]]], columns: Collection[str]
) -> str:
    """Return the message for rows that several layouts fit; `options` are names, layouts and the columns known."""
    lines = []
    for name, layout, known in options:
        rest = ", ".join(column for column in columns if column not in known)
        how = "is refused" if layout is None else as_flow(layout)
        lines.append(f"  {name}{f' (does not read {rest})' if rest else ''}: {how}")
    names = list(dict.fromkeys(name for name, *_ in options))
    choice = (
        f"Choose one with --layout {' or --layout '.join(names)}"
        if len(names) > 1
        else "Copy one of them into the recipe"
    )
    fits = f"{len(options)} layouts fit its rows equally well"
    return f"{what}: {fits}:\n" + "\n".join(lines) + f"\n{choice}. {_BY_HAND}."


def lacks_columns(what: str, entry: PublicLayout, columns: Mapping[str, str]) -> str:
    """Return the message for rows that lack the columns of the layout that was asked for."""
    wanted = ", ".join(words_of_slots(entry))
    has = f"{what}, which has {_list_columns(columns)}"
    return f"--layout is {entry.name}, which reads {wanted}; {has}. Choose another. {_BY_HAND}."


def unknown_columns(what: str, columns: Mapping[str, str]) -> str:
    """Return the message for rows that no layout reads."""
    return f"{what}: no known layout reads its rows; they have {_list_columns(columns)}. {_BY_HAND}."


def mixed_shapes(what: str, shapes: Counter[str], examples: Mapping[str, str]) -> str:
    """Return the message for rows of several shapes; the name of rows that nothing fits is empty."""
    total = shapes.total()
    parts = ", ".join(
        f"{percent(count, total)} {f'like {name}' if name else 'like no known layout'} ({examples[name]})"
        for name, count in shapes.most_common()
    )
    return (
        f"{what}: its rows have several shapes: {parts}. Write each shape to its own file, and list the files in "
        "data.train, each with its layout; or choose one with --layout NAME, which drops the other rows."
    )


def reasons(candidate: Candidate, repeated: Collection[str], num_rows: int, *, is_chosen: bool) -> Iterator[str]:
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
    for name in candidate.ignored:
        yield f"{name} is not read: the system text has the same"
    for name in sorted(repeated):
        yield f"{name} is not read: other columns that are read have its text"


def lacking(num_rows: int, total: int, place: str) -> str:
    """Return what to say of rows in which a column is empty."""
    return f"{percent(num_rows, total)} of the rows lack one of these columns or an answer, first {place}"


def others(num_rows: int, total: int, place: str) -> str:
    """Return what to say of rows that do not fit."""
    return f"{percent(num_rows, total)} of the rows have another shape, first {place}"


def flags_and_roles(flags: Collection[str], aliases: Mapping[str, str]) -> Iterator[str]:
    """Yield what the recipe says of flags about the loss, and of roles under other names."""
    if flags:
        names = ", ".join(sorted(flags))
        yield f"turns that {names} marks as untrained are not trained (preprocessing.message_weights: mask)"
    others = [f"{name} is {role}" for name, role in aliases.items() if name != role]
    if others:
        yield f"roles have other names: {', '.join(others)}"


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

    return flow(written(layout))


def kind_of(held: Contents, value: Any) -> str:
    """Return what a column holds and its type: `text`, `text, a list`, `identifier, an int`."""
    names = {list: "a list", dict: "an object", int: "a number", float: "a number", bool: "true or false"}
    return f"{held}, {names[type(value)]}" if type(value) in names else held


def percent(num: int, total: int) -> str:
    """Return a share in percent; never 0 % or 100 % of some, but not all."""
    share = 100 * num / max(total, 1)
    return f"{share:.0f} %" if num == total or 1 <= share <= 99 else f"{share:.2g} %"


def example(value: Any) -> str:
    """Return a value as an example, on one short line."""
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def _list_columns(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({held})" for name, held in columns.items()) or "no columns"
