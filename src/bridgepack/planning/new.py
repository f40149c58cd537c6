"""Text of a new recipe file for a model, a number of GPUs and a length, with comments; it passes `check`."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bridgepack.config.errors import nearest_name, shown
from bridgepack.config.load import CatalogueEntry
from bridgepack.config.recipe.data import DataConfig
from bridgepack.config.recipe.preprocessing import CONVERSATION_COLUMNS
from bridgepack.config.starting import SHIPPED_MARKS, Wish, recipe_for, recipe_text, recipes_of_model, values_like
from bridgepack.data.reading.inputs import find_inputs
from bridgepack.data.reading.remote import scheme_of
from bridgepack.data.reading.rows import read_range
from bridgepack.data.reading.sampling import file_windows
from bridgepack.data.sequences.encoding import fields_that_read
from bridgepack.errors import ConfigError, DataError
from bridgepack.planning.lengths import Lengths
from bridgepack.planning.machines import DEFAULT_GPU, gpu_named
from bridgepack.planning.plan import plan_recipe
from bridgepack.planning.shape import model_shape
from bridgepack.records import TRAIN

#: Data that a topology is planned for before any is known: packs of sequences of equal length, as many as a step takes.
_PER_PACK, _NUM_SEQUENCES = 16, 1 << 12


def new_recipe(wish: Wish, entries: Sequence[CatalogueEntry]) -> str:
    """Return the YAML text of a new recipe.

    Args:
        wish: model, GPUs and length of the recipe.
        entries: the catalogue; a recipe for the same model is the starting point.

    Raises:
        ConfigError: the model is unknown, or does not fit the GPUs or the length.
    """
    same, wish = recipes_of_model(entries, wish.model), replace(wish, columns=_columns(wish.data))
    if same:
        values, origin = values_like(same, wish)
    else:
        _check_names(wish, entries)
        values, estimated_gb = _planned(wish)
        origin = f"topology by an estimate of {estimated_gb:.0f} GB for each GPU; try it before you rely on it"
    return recipe_text(wish, values, origin)


def _columns(data: str) -> dict[str, str]:
    """Return the fields that read the first row of data which is here, where the columns read unasked do not."""
    if scheme_of(data) is not None:
        return {}
    row: Mapping[str, Any] = {}
    with suppress(DataError):
        file = find_inputs((data,), "data.train", TRAIN, Path())[0]
        windows = file_windows(file, max_row_bytes=DataConfig.model_fields["max_row_bytes"].default).windows
        rows = (item for window in windows for _, item in read_range(file, window.part))
        row = next((item for item in rows if isinstance(item, Mapping)), row)
    is_chat = any(row.get(name) is not None for name in CONVERSATION_COLUMNS)
    return {} if is_chat or {"prompt", "completion"} <= row.keys() else fields_that_read(row)


def _planned(wish: Wish) -> tuple[dict[str, Any], float]:
    """Return the values of the best plan, and its memory per GPU in GB."""
    values = {"model": {"name": wish.model}, "tokenizer": {"name_or_path": wish.model}}
    recipe = recipe_for(wish, values)
    try:
        model_shape(recipe)
    except ConfigError as error:
        raise ConfigError(str(error).replace("model.name is", "--model is", 1)) from None
    runtime = np.full(_NUM_SEQUENCES, max(wish.seq_length // _PER_PACK, 1))
    lengths = Lengths(runtime=runtime, share=1 / _NUM_SEQUENCES, origin="")
    gpu = gpu_named(DEFAULT_GPU)
    best = plan_recipe(recipe, lengths, gpu=gpu, num_gpus=wish.num_gpus, sizes=(wish.seq_length,)).best
    for path, value in best.changes.items():
        section, _, name = path.partition(".")
        if value is not None and (section in ("parallelism", "packing") or name == "recompute"):
            values[section] = {**values.get(section, {}), name: value}
    return values, best.memory.total_gb


def _check_names(wish: Wish, entries: Sequence[CatalogueEntry]) -> None:
    """Accept a model that the catalogue does not have where it can be one, with its tokenizer."""
    is_shipped = any(mark in wish.model for mark in SHIPPED_MARKS) and wish.model.endswith("_config")
    if "/" not in wish.model and not Path(wish.model).is_dir() and not is_shipped:
        ids = sorted({entry.recipe.tokenizer.name_or_path for entry in entries if entry.recipe and entry.recipe.model})
        names = {name.rpartition("/")[2].lower(): name for name in ids} | {entry.name: entry.name for entry in entries}
        nearest = nearest_name(wish.model.rpartition("/")[2].lower(), names)
        raise ConfigError(
            f"--model is {shown(wish.model)}; allowed: an id on the hub (org/name), a folder, a recipe of "
            "Megatron-Bridge or of the catalogue. "
            f"{f'Did you mean {names[nearest]}?' if nearest else 'Use one of these.'}"
        )
    if is_shipped and wish.tokenizer is None:
        raise ConfigError(
            f"--model is {shown(wish.model)}, which is not in the catalogue; its tokenizer is not known. "
            "Add --tokenizer with its id on the hub."
        )
