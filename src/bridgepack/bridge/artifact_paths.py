"""Paths under which the host finds the packs of an artifact, of bridgepack or another tool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgepack.bridge.wiring import Packs
from bridgepack.config.recipe.host_paths import TRAIN_PATH
from bridgepack.config.recipe.pack_paths import pack_paths_in
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.records import TRAIN, VALIDATION

if TYPE_CHECKING:
    from bridgepack.data.artifact.discovery import FoundShards

_PARQUET = frozenset({".parquet", ".pq"})
_MANIFEST = "manifest.json"


def packs_in(artifact: Path) -> Packs:
    """Return the packs of an artifact that a run reads; without a manifest their number is unknown."""
    from bridgepack.data.artifact.manifest import MANIFEST_FILE, read_manifest

    if not (artifact / MANIFEST_FILE).is_file():
        return Packs(folder=str(artifact), num_packs={})
    splits = read_manifest(artifact).splits
    return Packs(folder=str(artifact), num_packs={split.name: split.statistics.num_packs for split in splits})


def folder_of_packs(recipe: SFTRecipe, artifact: str | Path | None = None) -> Path | None:
    """Return the folder of the packs that a recipe's run reads, which need not exist.

    Args:
        recipe: the recipe.
        artifact: folder that the caller names (default: the recipe's, else `artifacts/NAME`).

    Returns:
        None where an override names other packs, or the run reads none.
    """
    if recipe.packing.mode != "offline":
        return None
    folder = artifact or recipe.artifact
    if folder is None and TRAIN_PATH in pack_paths_in(recipe.bridge_overrides, recipe.release):
        return None
    return Path(folder or f"artifacts/{recipe.name}")


def paths_of_artifact(artifact: Path, *, has_validation: bool) -> dict[str, Any]:
    """Return the fields of PackedSequenceSpecs with paths to packs.

    A field is missing if no single path gives the host all files of a split.

    Args:
        artifact: a folder, a packed file or a pattern; a missing one is treated as a bridgepack artifact.
        has_validation: whether the run evaluates.
    """
    is_pattern = any(mark in str(artifact) for mark in "*?")
    is_missing = not is_pattern and not artifact.exists()
    if is_missing or (artifact / _MANIFEST).exists() or (artifact / TRAIN).is_dir():
        return {
            "packed_train_data_path": str(artifact / TRAIN),
            "packed_val_data_path": str(artifact / VALIDATION) if has_validation else None,
            "packed_metadata_path": artifact / "bridge_metadata.json",
        }
    from bridgepack.data.artifact.discovery import find_shards

    shards = find_shards(artifact)
    train = str(artifact) if is_pattern and set(shards.splits) == {TRAIN} else _path_of(shards, TRAIN)
    validation = _path_of(shards, VALIDATION) if has_validation else None
    metadata = shards.metadata_path()
    return {
        **({"packed_train_data_path": train} if train else {}),
        **({"packed_val_data_path": validation} if validation or not has_validation else {}),
        **({"packed_metadata_path": metadata} if metadata else {}),
    }


def _path_of(shards: FoundShards, split: str) -> str | None:
    files = [shards.folder / path for path in shards.splits.get(split, ())]
    if len(files) == 1:
        return str(files[0])
    folders = {file.parent for file in files}
    if len(folders) != 1 or any(file.suffix not in _PARQUET for file in files):
        return None
    folder = folders.pop()
    is_whole = {entry for entry in folder.iterdir() if entry.suffix in _PARQUET} == set(files)
    return str(folder) if is_whole else None
