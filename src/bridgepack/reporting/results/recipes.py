"""The blocks of the catalogue of recipes, and of a recipe with the origin of each value."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from bridgepack.config.editing.yaml_text import flow
from bridgepack.config.load import CatalogueEntry
from bridgepack.planning.resolved import ResolvedView, plain_value
from bridgepack.reporting.blocks import Block, Column, Line, Section, Table, Title

#: Title -> name in `CatalogueEntry.to_dict`.
_COLUMNS = {
    "recipe": "name",
    "method": "method",
    "GPUs": "num_gpus",
    "tokens": "seq_length",
    "CP": "context_parallel_size",
    "TP": "tensor_model_parallel_size",
    "PP": "pipeline_model_parallel_size",
    "EP": "expert_model_parallel_size",
}
#: Characters of a line of the catalogue, and of a value of a recipe before its origin.
_LINE, _VALUE = 80, 40


def catalogue_blocks(entries: Sequence[CatalogueEntry], host_recipes: Sequence[str] = ()) -> Iterator[Block]:
    """Yield the recipes by family, the errors of those that cannot be loaded, and those of Megatron-Bridge itself."""
    readable = [entry for entry in entries if not entry.error]
    rows = [tuple(_COLUMNS), *map(_row, readable)]
    widths = [max(len(row[column]) for row in rows) for column in range(1, len(_COLUMNS))]
    widest = min(max(len(row[0]) for row in rows), _LINE - sum(widths) - len(widths) - 2)
    columns = (
        Column("", f"{{:{widest}}}"),
        *(Column(title, f" {{:{width}}}") for title, width in zip([*_COLUMNS][1:], widths, strict=True)),
        Column("Recipe"),
    )
    titles = "".join(column.screen.format(title) for column, title in zip(columns, _COLUMNS, strict=False))
    yield Line(f"  {titles.rstrip()}")
    for family, group in groupby(readable, key=lambda entry: entry.family):
        cells = [(_name_cell(entry.name, widest), *_row(entry)[1:], entry.name) for entry in group]
        yield Table(title=f"Recipes of {family}", columns=columns, rows=cells, head=f"{family}:")
    yield Section("", tuple(_ending(entries, len(readable))))
    if host_recipes:
        names = tuple(f"bridge:{name}" for name in host_recipes)
        lines = (Line("recipes of the installed Megatron-Bridge:", names), Line(f"{len(host_recipes)} recipes"))
        yield Section("", lines)


def _ending(entries: Sequence[CatalogueEntry], num_recipes: int) -> Iterator[Line]:
    yield from (Line(f"cannot be loaded: {entry.name}: {entry.error}") for entry in entries if entry.error)
    if any(not entry.recipe and not entry.error for entry in entries):
        yield Line("-: listing runs no Python of the folder recipes/ here")
    yield Line(f"{num_recipes} recipes; `bridgepack recipes show NAME` prints one")


def _row(entry: CatalogueEntry) -> tuple[str, ...]:
    values = entry.to_dict()
    if values["packing"] not in (None, "offline"):
        values["seq_length"] = f"{values['seq_length']} {values['packing']}"
    return tuple("-" if values[name] is None else str(values[name]) for name in _COLUMNS.values())


def _name_cell(name: str, width: int) -> str:
    """Return a name that is too long for its column on a line of its own."""
    return f"{name}\n{'':{width}}" if len(name) > width else name


def resolved_blocks(view: ResolvedView) -> Iterator[Block]:
    """Yield a recipe with every value."""
    counts = "".join(f"{count:,} {split}, " for split, count in view.num_packs.items())
    counts = f"{counts.removesuffix(', ')}; " if counts else ""
    yield Title(view.recipe.name)
    yield Line(f"packs: {counts}{view.packs}")
    if view.recipe.replacements:
        yield Section("", (Line("overrides:", tuple(pair.text() for pair in view.recipe.replacements)),))
    fields = [(field.field, flow(field.value), field.origin) for field in view.fields]
    yield Section("", (_origins("fields of the recipe", fields),))
    values = [(name, flow(item["value"]), f"derived: {item['because']}") for name, item in view.derived.items()]
    yield Section("", (_origins("derived", values),))
    settings = [
        (
            setting.path,
            flow(plain_value(setting.value)),
            f"{setting.origin}: {setting.because if setting.origin == 'derived' else setting.field}",
        )
        for setting in view.settings
    ]
    yield Section("", (_origins("set in Megatron-Bridge", settings),))
    if view.base_changes:
        changes = [
            (change.path, flow(plain_value(change.value)), f"was {flow(plain_value(change.base))}: {change.because}")
            for change in view.base_changes
        ]
        yield Section("", (_origins("changed in the base, which the recipe does not ask for", changes),))


def _origins(title: str, rows: Sequence[tuple[str, str, str]]) -> Table:
    names = max((len(name) for name, _, _ in rows), default=0)
    values = max((min(len(value), _VALUE) for _, value, _ in rows), default=0)
    columns = (Column("Name", f"{{:{names}}}"), Column("Value", f"  {{:{values}}}"), Column("Origin", "  {}"))
    return Table(title=title, columns=columns, rows=rows, head=f"{title}:")
