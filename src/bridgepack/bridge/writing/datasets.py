"""The host's dataset config for a recipe: with packs built before the run, or rows that the host reads itself."""

import dataclasses
from pathlib import Path
from typing import Any

from bridgepack.bridge.bases import LOADER_FIELDS
from bridgepack.bridge.shipped import import_host
from bridgepack.config.errors import shown
from bridgepack.config.recipe.data import DEFAULT_SPLIT, DataSource, Source, as_sources, listed, path_of, sets_amount
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.releases import HostRelease

_BUILDERS = "megatron.bridge.data.builders"
#: File suffix -> script-free builder of `datasets` that reads it.
_FILE_BUILDERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".arrow": "arrow", ".csv": "csv"}


def dataset_config(recipe: SFTRecipe, base: Any, release: HostRelease) -> Any:
    """Return a new dataset config of the class that the packing mode needs; settings complete it.

    The loader settings of the base's dataset config are kept; all of it is kept if it also reads from the hub.

    Raises:
        ConfigError: the host cannot read the data that way.
    """
    size, mode = recipe.packing.packed_sequence_size, recipe.packing.mode
    loader = {name: getattr(base, name) for name in LOADER_FIELDS if hasattr(base, name)}
    if mode == "offline":
        specs = _host_class(release.specs_class)(packed_sequence_size=size)
        field = release.specs_path.rpartition(".")[2]
        return _host_class(release.dataset_class)(seq_length=size, **{field: specs}, **loader)
    if recipe.preprocessing.kind == "tokenized":
        raise ConfigError(
            f"preprocessing.kind is tokenized; with packing.mode {mode} the host tokenises the data itself. Set it to "
            "chat or prompt_completion, or set packing.mode to offline."
        )
    if recipe.data.validation_fraction > 0:
        raise ConfigError(
            f"data.validation_fraction is {recipe.data.validation_fraction}; with packing.mode {mode} the host reads "
            "the data itself and splits nothing. Name the validation data in data.validation."
        )
    sources = {"source": _source(recipe, "train"), "validation_source": None, "test_source": None}
    if recipe.data.validation is not None:
        sources["validation_source"] = _source(recipe, "validation")
    kind = import_host(_BUILDERS).DirectHFSFTDatasetConfig
    if type(base) is kind:
        return dataclasses.replace(base, seq_length=size, **sources)
    return kind(seq_length=size, **loader, **sources)


def _host_class(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(import_host(module), attribute)


def _source(recipe: SFTRecipe, split: str) -> Any:
    found = as_sources(getattr(recipe.data, split))
    if len(found) != 1:
        raise ConfigError(
            f"data.{split} is a list of {len(found)} sources; with packing.mode {recipe.packing.mode} the host reads "
            "one. Name one, or set packing.mode to offline."
        )
    said = [name for name in ("columns", "kind") if getattr(found[0], name, None)]
    said += ["split"] if isinstance(found[0], DataSource) and found[0].path and found[0].split else []
    said += ["weight, epochs or max_rows"] if any(map(sets_amount, listed(getattr(recipe.data, split)))) else []
    if said:
        raise ConfigError(
            f"data.{split} sets {', '.join(said)}; with packing.mode {recipe.packing.mode} the host "
            "reads the data itself, as it is. Remove it, or set packing.mode to offline."
        )
    return _of_source(found[0], f"data.{split}")


def _of_source(source: Source, field: str) -> Any:
    kind = import_host(_BUILDERS).HFDatasetSourceConfig
    path = path_of(source)
    if path is None:
        assert isinstance(source, DataSource)
        assert source.dataset is not None
        split = source.split or DEFAULT_SPLIT
        if _is_preset(kind, source.dataset):
            return kind(dataset_name=source.dataset, split=split)
        options = {"revision": source.revision} if source.revision is not None else None
        return kind(path_or_dataset=source.dataset, split=split, subset=source.name, load_kwargs=options)
    builder = _FILE_BUILDERS.get(Path(path.removesuffix(".gz").removesuffix(".zst")).suffix)
    if builder is None:
        raise ConfigError(
            f"{field} is {shown(path)}; where the host reads the data itself, allowed: a file "
            f"({', '.join(_FILE_BUILDERS)}) or a section {{dataset: ID}}. Name one of these."
        )
    return kind(path_or_dataset=builder, split="train", load_kwargs={"data_files": path})


def _is_preset(kind: Any, name: str) -> bool:
    """Return whether the host has its own dataset with a name, e.g. `cord_v2`."""
    if "/" in name or Path(name).exists():
        return False
    try:
        kind(dataset_name=name).validate()
    except ValueError as error:
        return "requires adapter_kwargs" in str(error)
    return True
