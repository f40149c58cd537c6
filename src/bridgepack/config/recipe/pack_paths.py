"""Overrides that say where a run's packs are, in the place of the folder of an artifact."""

from collections.abc import Mapping
from typing import Any

from bridgepack.config.recipe.host_paths import PACK_PATHS, TRAIN_PATH
from bridgepack.config.recipe.quantities import Written, overrides_in
from bridgepack.errors import ConfigError
from bridgepack.host import HostRelease
from bridgepack.records.checks import OVERRIDES


def pack_paths_in(section: Mapping[str, Any], release: HostRelease) -> Mapping[str, Written]:
    """Return canonical path -> override, of a recipe's section of them, that says where packs or their metadata are."""
    return {path: override for path, override in overrides_in(section, release).items() if path in PACK_PATHS}


def refuse_part_of_packs(values: Mapping[str, Any], release: HostRelease) -> None:
    """Refuse a recipe in which overrides name validation packs or metadata, and no training packs.

    Those of training would be the ones that are built, or that a command names: of another artifact.

    Args:
        values: plain values of the recipe, as its author wrote it.
        release: of the recipe.

    Raises:
        ConfigError: naming the override.
    """
    paths = pack_paths_in(values.get(OVERRIDES) or {}, release)
    if TRAIN_PATH in paths or "artifact" in values:
        return
    for override in paths.values():
        raise ConfigError(
            f"{override.text()}, and no override names the training packs, so the run reads packs of two artifacts. "
            f"Set {OVERRIDES}.{TRAIN_PATH}, too, or remove it and set artifact.",
            field=override.place,
        )
