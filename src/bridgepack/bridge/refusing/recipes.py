"""Refusals of what a recipe's own fields ask for: readings of the data that the host does not do, and its model."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bridgepack.bridge.artifact_paths import paths_of_artifact
from bridgepack.bridge.bases import why_not_made
from bridgepack.bridge.wiring.columns import HOST_LAYOUT, columns_for_host, layouts_for_host
from bridgepack.config.errors import quote
from bridgepack.config.layouts.sayings import as_flow
from bridgepack.config.recipe.data import DataSource, as_sources, path_of, sets_amount, source_entries
from bridgepack.config.recipe.host_paths import SPECS
from bridgepack.config.recipe.pack_paths import pack_paths_in
from bridgepack.config.recipe.preprocessing import FORM_FIELDS, ChatPreprocessing
from bridgepack.config.recipe.readings import written_layouts
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.host.roots import canonical_name_of, is_within
from bridgepack.records import Refusal, RunConfig

#: File suffix -> script-free builder of `datasets` that reads it.
FILE_BUILDERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".arrow": "arrow", ".csv": "csv"}
_OFFLINE = "Remove it, or set packing.mode to offline."
_OFFLINE_LAYOUT = "Change it, or set packing.mode to offline."
#: Kind -> a layout that the host reads.
_EXAMPLES = {
    "chat": "{kind: chat, messages: [{from_column: messages}]}",
    "prompt_completion": '{kind: prompt_completion, prompt: "{prompt}", completion: "{completion}"}',
}


def readings(recipe: SFTRecipe) -> Iterator[Refusal]:
    """Yield what a recipe asks for that the host does not do where it reads the data itself."""
    mode = recipe.packing.mode
    if mode == "offline":
        return
    as_it_is = f"none with packing.mode {mode}: the host reads the data itself"
    kind = recipe.preprocessing.kind
    if kind in {"text", "tokenized"}:
        allowed_values = f"chat or prompt_completion with packing.mode {mode}: the host tokenises the data itself"
        yield _reading("preprocessing.kind", kind, allowed_values, "Set one of these, or set packing.mode to offline.")
    if recipe.preprocessing.others:
        kinds = ", ".join(section.kind for section in recipe.preprocessing.others)
        allowed_values = f"none with packing.mode {mode}: the host reads rows of one kind"
        yield _reading("preprocessing.others", f"a section of kind {kinds}", allowed_values, _OFFLINE)
    yield from _forms(recipe)
    fraction = recipe.data.validation_fraction
    if fraction > 0:
        allowed_values = f"0 with packing.mode {mode}: the host reads the data itself and splits nothing"
        fix = "Name the validation data in data.validation, or set packing.mode to offline."
        yield _reading("data.validation_fraction", str(fraction), allowed_values, fix)
    yield from _layouts(recipe)
    for split in ("train", "validation"):
        if split == "train" or recipe.data.validation is not None:
            yield from _source(recipe, split, as_it_is)


def _layouts(recipe: SFTRecipe) -> Iterator[Refusal]:
    """Yield layouts that are missing, or that the host does not read."""
    mode, kind = recipe.packing.mode, recipe.preprocessing.kind
    if kind not in {"chat", "prompt_completion"} or len(as_sources(recipe.data.train)) != 1:
        return  # said already
    allowed_values = f"{HOST_LAYOUT} with packing.mode {mode}: the host reads the data itself"
    first = layouts_for_host(recipe)
    if not first:
        fix = f"Set it to {_EXAMPLES[kind]}, with the columns of your rows."
        yield _reading("data.layout", "missing", allowed_values, fix)
        return
    if any(written_layouts(recipe.data, source) != first for source in recipe.data.all_sources):
        yield _reading("data.layout", "not the same for all rows", "one layout: the host has one", _OFFLINE_LAYOUT)
    elif first[0].kind != kind or columns_for_host(first) is None:
        yield _reading("data.layout", quote(", ".join(map(as_flow, first))), allowed_values, _OFFLINE_LAYOUT)


def _forms(recipe: SFTRecipe) -> Iterator[Refusal]:
    """Yield readings of chats that the host does not do; what a recipe does not say is the host's."""
    preprocessing = recipe.preprocessing
    if not isinstance(preprocessing, ChatPreprocessing):
        return
    of_host = dict.fromkeys(FORM_FIELDS, "keep")
    for name in sorted(preprocessing.model_fields_set - {"kind", "loss_mode", "over_long", "others"}):
        value, usual = getattr(preprocessing, name), type(preprocessing).model_fields[name].default
        if value != of_host.get(name, usual):
            as_host = quote(of_host.get(name, usual))
            allowed_values = f"{as_host} with packing.mode {recipe.packing.mode}: the host reads the data itself"
            yield _reading(f"preprocessing.{name}", quote(value), allowed_values, _OFFLINE)


def _source(recipe: SFTRecipe, split: str, as_it_is: str) -> Iterator[Refusal]:
    field, sources_setting = f"data.{split}", getattr(recipe.data, split)
    sources, mode = as_sources(sources_setting), recipe.packing.mode
    if len(sources) != 1:
        value, allowed_values = f"a list of {len(sources)} sources", f"one with packing.mode {mode}: the host reads one"
        yield _reading(field, value, allowed_values, "Name one, or set packing.mode to offline.")
        return
    source = sources[0]
    settings = ["split"] if isinstance(source, DataSource) and source.path and source.split else []
    settings += ["weight, epochs or max_rows"] if any(map(sets_amount, source_entries(sources_setting))) else []
    if settings:
        yield _reading(field, f"a source with {', '.join(settings)}", as_it_is, _OFFLINE)
    path = path_of(source)
    if path is not None and builder_of(path) is None:
        kinds = ", ".join(FILE_BUILDERS)
        allowed_values = (
            f"a file ({kinds}) or a section {{dataset: ID}} with packing.mode {mode}: the host reads the data"
        )
        yield _reading(field, quote(path), allowed_values, "Name one of these, or set packing.mode to offline.")


def refuse_packs_unread(
    recipe: SFTRecipe | None, artifact: str | Path | None, *, config: RunConfig | None = None
) -> None:
    """Refuse packs that a run does not read; `config` is a run that has no recipe.

    Raises:
        ConfigError: packs are given, and the recipe's mode of packing, or the config's dataset, reads none.
    """
    dataset = config.values.get("dataset") if config is not None and recipe is None else None
    if artifact is not None and isinstance(dataset, Mapping) and _packs_batches_alone(dataset):
        raise ConfigError(
            f"--artifact is {str(artifact)!r}, and dataset.enable_in_batch_packing is true, so the run reads no packs. "
            "Remove --artifact, or set dataset.enable_offline_packing to true and enable_in_batch_packing to false."
        )
    if recipe is None or artifact is None:
        return
    refuse_other_packs(recipe, artifact)
    if recipe.packing.mode != "offline":
        raise ConfigError(
            f"--artifact is {str(artifact)!r}, and packing.mode is {recipe.packing.mode}, which reads no packs. "
            "Remove --artifact, or set packing.mode to offline."
        )


def refuse_other_packs(recipe: SFTRecipe, artifact: str | Path | None) -> None:
    """Refuse packs that a caller names beside overrides of a recipe that name others, which its run would read.

    Raises:
        ConfigError: naming both.
    """
    overrides = {} if artifact is None else pack_paths_in(recipe.bridge_overrides, recipe.release)
    paths = paths_of_artifact(Path(str(artifact)), has_validation=True) if overrides else {}
    for path, override in overrides.items():
        text = paths.get(path.removeprefix(f"{SPECS}."))
        if text is not None and Path(text).absolute() != Path(str(override.value)).absolute():
            raise ConfigError(
                f"--artifact is {str(artifact)!r}, and {override.text()}; a run reads the packs of one of them. "
                f"Remove one, with every override of {SPECS}.packed_ paths.",
                field=override.place,
            )


def _packs_batches_alone(dataset: Mapping[str, Any]) -> bool:
    return dataset.get("enable_in_batch_packing") is True and dataset.get("enable_offline_packing") is not True


def builder_of(path: str) -> str | None:
    """Return the builder of `datasets` that reads a file, by the suffix of its name; or None."""
    return FILE_BUILDERS.get(Path(path.removesuffix(".gz").removesuffix(".zst")).suffix)


def models(recipe: SFTRecipe, base: Mapping[str, Any]) -> Iterator[Refusal]:
    """Yield the refusal of a model that makes images or video, or whose recipe the host does not make.

    Args:
        recipe: the recipe.
        base: plain values of its base.
    """
    if recipe.model is None:
        return
    name, kind = quote(recipe.model.name), str((base.get("model") or {}).get("_target_", ""))
    if is_within(kind, canonical_name_of("diffusion")):
        value = f"{name}, a {kind.rpartition('.')[2]}, which makes images or video"
        yield Refusal(
            kind="model", path="model.name", found=value, allowed="language models", fix="Use another recipe."
        )
    reason = why_not_made(recipe)
    if reason is not None:
        value = f"{name}, which Megatron-Bridge does not make: {reason}"
        allowed_values = f"a recipe of megatron-bridge {recipe.release.name} that can be made"
        yield Refusal(kind="model", path="model.name", found=value, allowed=allowed_values, fix="Use another recipe.")


def _reading(path: str, value: str, allowed_values: str, fix: str) -> Refusal:
    return Refusal(kind="reading", path=path, found=value, allowed=allowed_values, fix=fix)
