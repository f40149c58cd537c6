"""Renders the catalogue of recipes as a table, and a recipe with the origin of each value."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from bridgepack.bridge.artifact_paths import packs_in
from bridgepack.bridge.wiring import Packs, Setting, host_settings
from bridgepack.bridge.wiring.settings import Scope
from bridgepack.config.editing.yaml_text import flow
from bridgepack.config.load import CatalogueEntry
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.forecast import forecast_packs
from bridgepack.errors import BridgepackError, ConfigError

_SIZES = {
    "CP": "context_parallel_size",
    "TP": "tensor_model_parallel_size",
    "PP": "pipeline_model_parallel_size",
    "EP": "expert_model_parallel_size",
}
#: Title -> name in `entry_to_dict`.
_COLUMNS = {
    "recipe": "name",
    "method": "method",
    "GPUs": "num_gpus",
    "tokens": "seq_length",
    **_SIZES,
}
#: Characters of a line of the catalogue.
_LINE = 80
_FORECAST = "forecast"
_plain = partial(TypeAdapter(Any).dump_python, mode="json", exclude_unset=True, fallback=str)


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldValue:
    """One field of a recipe."""

    field: str  #: dotted path
    value: Any  #: plain value
    origin: str  #: `recipe` if set in the recipe, else `default`


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedView:
    """A recipe with every value and its origin."""

    recipe: SFTRecipe  #: the recipe
    fields: tuple[FieldValue, ...]  #: every field
    derived: Mapping[str, Mapping[str, Any]]  #: values that `resolve` computes: name -> value and reason
    settings: tuple[Setting, ...]  #: what the recipe sets in Megatron-Bridge
    packs: str  #: origin of the number of packs
    num_packs: Mapping[str, int]  #: split -> number of packs; empty if unknown

    def to_dict(self) -> dict[str, Any]:
        """Return the view as plain values with stable keys."""
        return {
            "name": self.recipe.name,
            "packs": {"num_packs": dict(self.num_packs), "because": self.packs},
            "fields": [asdict(entry) for entry in self.fields],
            "derived": [{"name": name, **item, "origin": "derived"} for name, item in self.derived.items()],
            "settings": [
                {
                    "path": entry.path,
                    "value": _plain(entry.value),
                    "origin": entry.origin,
                    "field": entry.field or None,
                    "because": entry.because or None,
                }
                for entry in self.settings
            ],
        }


def entry_to_dict(entry: CatalogueEntry) -> dict[str, Any]:
    """Return a recipe of the catalogue as plain values with stable keys; unknown values are None."""
    recipe = entry.recipe
    topology = recipe.parallelism if recipe else None
    return {
        "name": entry.name,
        "family": entry.family,
        "target": entry.target,
        "summary": entry.summary,
        "error": entry.error or None,
        "model": recipe.model.name if recipe and recipe.model else None,
        "method": recipe.method.kind if recipe else None,
        "packing": recipe.packing.mode if recipe else None,
        "num_gpus": topology.num_gpus if topology else None,
        "seq_length": recipe.packing.packed_sequence_size if recipe else None,
        **{name: getattr(topology, name, None) for name in _SIZES.values()},
    }


def catalogue_table(entries: Sequence[CatalogueEntry]) -> str:
    """Return the recipes by family, the errors of those that cannot be loaded, and why some have no numbers."""
    read = [entry for entry in entries if not entry.error]
    rows = [tuple(_COLUMNS), *map(_row, read)]
    widths = [max(len(row[column]) for row in rows) for column in range(1, len(_COLUMNS))]
    widest = min(max(len(row[0]) for row in rows), _LINE - sum(widths) - len(widths) - 2)
    lines = [_table_line(rows[0], [widest, *widths])]
    for family, group in groupby(read, key=lambda entry: entry.family):
        lines += [f"{family}:", *(_table_line(_row(entry), [widest, *widths]) for entry in group)]
    errors = [f"cannot be loaded: {entry.name}: {entry.error}" for entry in entries if entry.error]
    unread = any(not entry.recipe and not entry.error for entry in entries)
    note = ["-: listing runs no Python of the folder recipes/ here"] if unread else []
    end = f"{len(read)} recipes; `bridgepack recipes show NAME` prints one"
    return "\n".join([*lines, "", *errors, *note, end])


def _table_line(row: Sequence[str], widths: Sequence[int]) -> str:
    """Return a row's cells below their titles; a name that is too long has a line of its own."""
    name, other_cells = row[0], " ".join(cell.ljust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
    break_ = f"\n  {'':{widths[0]}}" if len(name) > widths[0] else ""
    return f"  {name.ljust(widths[0])}{break_} {other_cells}".rstrip()


def shipped_lines(names: Sequence[str]) -> str:
    """Return the recipes of Megatron-Bridge, one per line; each is a target of `check` and a `model.name`."""
    lines = [f"  bridge:{name}" for name in names]
    return "\n".join(["", "recipes of the installed Megatron-Bridge:", *lines, f"{len(names)} recipes"])


def resolved_view(recipe: SFTRecipe, *, artifact: Path | None = None) -> ResolvedView:
    """Return a recipe with every value, based on the packs of an artifact if one exists, else on a forecast.

    Raises:
        ConfigError: the folder does not exist, or packed_sequence_size is not a multiple of pad_seq_to_mult.
        ArtifactError: the manifest cannot be read.
    """
    packs, because = _packs(recipe, artifact)
    return ResolvedView(
        recipe=recipe,
        fields=tuple(_fields(recipe)),
        derived={**recipe.resolve().explain(), **_shares(recipe)},
        settings=tuple(_settings(recipe, packs, is_forecast=because.startswith(_FORECAST))),
        packs=because,
        num_packs=packs.num_packs if packs else {},
    )


def describe_resolved(view: ResolvedView) -> str:
    """Return a recipe with every value, for a terminal."""
    counts = "".join(f"{count:,} {split}, " for split, count in view.num_packs.items())
    counts = f"{counts.removesuffix(', ')}; " if counts else ""
    lines = [view.recipe.name, f"packs: {counts}{view.packs}", "", "fields of the recipe:"]
    lines += _align([(entry.field, flow(entry.value), entry.origin) for entry in view.fields])
    lines += ["", "derived:"]
    lines += _align([(name, flow(item["value"]), f"derived: {item['because']}") for name, item in view.derived.items()])
    lines += ["", "set in Megatron-Bridge:"]
    lines += _align(
        [
            (
                entry.path,
                flow(_plain(entry.value)),
                f"{entry.origin}: {entry.because if entry.origin == 'derived' else entry.field}",
            )
            for entry in view.settings
        ]
    )
    return "\n".join(lines)


def _row(entry: CatalogueEntry) -> tuple[str, ...]:
    values = entry_to_dict(entry)
    if values["packing"] not in (None, "offline"):
        values["seq_length"] = f"{values['seq_length']} {values['packing']}"
    return tuple("-" if values[name] is None else str(values[name]) for name in _COLUMNS.values())


def _packs(recipe: SFTRecipe, artifact: Path | None) -> tuple[Packs | None, str]:
    if recipe.packing.mode != "offline":
        return None, f"none: packing.mode is {recipe.packing.mode}"
    if artifact is not None and not artifact.is_dir():
        raise ConfigError(f"--artifact is {str(artifact)!r}; there is no such folder. Build it, or give another.")
    folder = artifact or Path(recipe.artifact or f"artifacts/{recipe.name}")
    if folder.is_dir():
        packs = packs_in(folder)
        if packs.num_packs:
            return packs, f"counted in {folder}"
    if recipe.chooses_rows:
        return None, "which sequences are used depends on all rows (data.mixture, data.deduplicate): build counts them"
    if Path(recipe.tokenizer.name_or_path).is_dir():
        projection = _project_packs(recipe)
        if projection is not None:
            return Packs(folder=str(folder), num_packs=projection), f"{_FORECAST} from tokenised rows, as in `preview`"
    forecast = forecast_packs(recipe)
    packs = Packs(folder=str(folder), num_packs=forecast.num_packs)
    return (packs if forecast.num_packs else None), forecast.because


def _project_packs(recipe: SFTRecipe) -> dict[str, int] | None:
    from bridgepack.planning.preview import preview_recipe  # loads a tokenizer, which is rarely installed here

    try:
        num_packs = preview_recipe(recipe, num_rows=0).num_packs or {}
    except BridgepackError:
        return None
    return {split: count for split, count in num_packs.items() if count} or None


def _shares(recipe: SFTRecipe) -> dict[str, dict[str, Any]]:
    scope = Scope(recipe=recipe, packs=None)
    size = scope.data_parallel_size()
    if size is None:
        return {}
    batch = next(entry.value for entry in host_settings(recipe) if entry.path == "train.global_batch_size")
    micro, topology = recipe.batch.micro_batch_size, recipe.parallelism
    product = " x ".join(str(getattr(topology, _SIZES[name])) for name in ("TP", "PP", "CP"))
    because = f"{topology.num_gpus} GPUs / ({product} tensor x pipeline x context ranks)"
    shares = {"data_parallel_size": {"value": size, "because": because}}
    if batch % (micro * size) == 0:
        because = f"global batch of {batch} / (micro batch of {micro} x {size} data-parallel ranks)"
        shares["gradient_accumulation_steps"] = {"value": batch // (micro * size), "because": because}
    return shares


def _settings(recipe: SFTRecipe, packs: Packs | None, *, is_forecast: bool) -> Iterator[Setting]:
    without = {setting.path: setting for setting in host_settings(recipe)}
    for setting in host_settings(recipe, packs=packs):
        counts = not setting.path.startswith("dataset.") and without.get(setting.path) != setting
        yield replace(setting, because=f"{setting.because}; {_FORECAST}") if is_forecast and counts else setting


def _fields(section: BaseModel, prefix: str = "") -> Iterator[FieldValue]:
    for name in type(section).model_fields:
        value, path = getattr(section, name), f"{prefix}{name}"
        if isinstance(value, BaseModel):
            yield from _fields(value, f"{path}.")
        else:
            origin = "recipe" if name in section.model_fields_set else "default"
            yield FieldValue(field=path, value=_plain(value), origin=origin)


def _align(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    names = max((len(name) for name, _, _ in rows), default=0)
    values = max((min(len(value), 40) for _, value, _ in rows), default=0)
    for name, value, origin in rows:
        yield f"  {name:<{names}}  {value:<{values}}  {origin}"
