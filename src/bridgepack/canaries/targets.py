"""What the canary is pointed at: an artifact, or a recipe and its artifact; or made-up packs where there is none."""

import glob
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bridgepack.bridge.targets import load_target
from bridgepack.canaries.packs import TokenSequence, choice_of, laid_out, lengths_of
from bridgepack.canaries.records import CanaryOptions
from bridgepack.config.errors import quote
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.recorded import recorded_recipe_values
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE, read_bridge_metadata
from bridgepack.data.artifact.manifest import MANIFEST_FILE
from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.proof.packs import opened_artifact, read_packs
from bridgepack.records import TRAIN, PackedRow
from bridgepack.records.words import count_text

#: Where `build` puts artifacts, as NAME-FINGERPRINT.
_BUILD_FOLDER = Path("artifacts")
_FINGERPRINT = re.compile(r"[0-9a-f]+")
_FOLDERS_NAMED = 4
#: Sections of a recipe that say what packs are made of and how, and what they say of the run alone.
_BUILT_FROM, _OF_THE_RUN = ("data", "preprocessing", "packing"), ("packing.pad_cu_seqlens",)
#: Packs among which the canary chooses, evenly spread over the split.
_NUM_CANDIDATES = 32
#: Stored tokens of a sequence: one that is read and one that is predicted.
_SHORTEST_STORED = 2
_TAKEN_FOR_GRANTED = (
    "masks and boundaries are used as stored; `bridgepack check` and `bridgepack prove sources` say whether they are "
    "right"
)
_MADE_UP_SEED = 1
_MADE_UP_EOS = 2
_MADE_UP_TOKENS = 500
_SHORTEST, _LONGEST = 4, 120


@dataclass(frozen=True, kw_only=True, slots=True)
class CanaryTarget:
    """A recipe, and packs of it."""

    place: str  #: what the user named
    recipe: SFTRecipe  #: the recipe
    artifact: Path | None  #: folder of the packs, where there is one
    rows: Mapping[int, PackedRow]  #: number of the pack in the split -> as stored
    eos_token_id: int  #: of the tokenizer
    pad_seq_to_mult: int  #: multiple of runtime lengths
    entries: tuple[dict[str, Any], ...]  #: of the packs' metadata
    notes: tuple[str, ...] = ()  #: what the reader should know


def open_target(text: str, options: CanaryOptions) -> CanaryTarget:
    """Return a target, an artifact's folder or a recipe as the command line takes it, with its packs.

    Raises:
        ConfigError: it is neither, or packs of the recipe are not built before the run.
        ArtifactError: the artifact cannot be read.
    """
    if Path(text).is_dir():
        if options.artifact is not None:
            raise ConfigError(f"--artifact is given, and {text!r} is an artifact itself. Leave --artifact out.")
        for path in options.overrides:
            if path.split(".")[0] in _BUILT_FROM and path not in _OF_THE_RUN:
                raise ConfigError(
                    f"--set {path}; {text!r} is built, and its packs stay as they are. Build it again with {path}, or "
                    "give the recipe in its place."
                )
        folder = Path(text)
        recipe = SFTRecipe.from_mapping(recorded_recipe_values(opened_artifact(folder).manifest)).override(
            options.overrides
        )
        return _with_artifact(text, recipe, folder, options.num_packs)
    target = load_target(text, options.overrides)
    if target.recipe is None:
        raise ConfigError(
            f"target {text!r} is neither a bridgepack recipe nor an artifact's folder; the canary needs one of them. "
            "Give the recipe that the packs are built with, or the folder of the artifact."
        )
    recipe = target.recipe
    if recipe.packing.mode != "offline":
        raise ConfigError(
            f"packing.mode is {recipe.packing.mode!r}; the canary compares packs that are built before the run. "
            "Set packing.mode to offline.",
            field="packing.mode",
        )
    folder_or_path = options.artifact or _folder_of(recipe)
    if folder_or_path is not None:
        return _with_artifact(text, recipe, folder_or_path, options.num_packs)
    return _made_up(text, recipe, options.num_packs, options.max_tokens)


def _folder_of(recipe: SFTRecipe) -> Path | None:
    """Return where a recipe's artifact is: the folder that it names, or where `build` puts it; None where none is."""
    recipe_artifacts = [Path(recipe.artifact)] if recipe.artifact is not None else []
    for folder in (*recipe_artifacts, _BUILD_FOLDER / recipe.name):
        if (folder / MANIFEST_FILE).is_file():
            return folder
    folders = sorted(path.parent for path in _BUILD_FOLDER.glob(f"{glob.escape(recipe.name)}-*/{MANIFEST_FILE}"))
    folders = [folder for folder in folders if _FINGERPRINT.fullmatch(folder.name.removeprefix(f"{recipe.name}-"))]
    if len(folders) > 1:
        names = ", ".join(map(str, folders[:_FOLDERS_NAMED]))
        raise ConfigError(
            f"{len(folders)} artifacts of recipe {recipe.name} are here: {names}. Name one with --artifact."
        )
    return folders[0] if folders else None


def _with_artifact(place: str, recipe: SFTRecipe, folder: Path, num_packs: int) -> CanaryTarget:
    artifact = opened_artifact(folder)
    manifest = artifact.manifest
    total = artifact.split(TRAIN).statistics.num_packs
    if not total:
        raise ArtifactError(f"{str(folder)!r} has no training pack, so there is nothing to compare. Build it of more.")
    numbers = np.unique(np.linspace(0, total - 1, min(total, _NUM_CANDIDATES)).round().astype(np.int64))
    rows = read_packs(artifact, TRAIN, numbers.tolist())
    for number, row in rows.items():
        _refuse_malformed(folder, number, row)
    lengths = [lengths_of(rows[int(number)]) for number in numbers]
    choice = choice_of(
        np.array([len(sequence_lengths) for sequence_lengths in lengths]),
        np.array([sequence_lengths.max() for sequence_lengths in lengths]),
        num_packs,
    )
    return CanaryTarget(
        place=place,
        recipe=recipe,
        artifact=folder,
        rows={int(numbers[index]): rows[int(numbers[index])] for index in choice},
        eos_token_id=int(manifest.tokenizer["eos_token_id"]),
        pad_seq_to_mult=manifest.pad_seq_to_mult,
        entries=tuple(dict(entry) for entry in read_bridge_metadata(folder / BRIDGE_METADATA_FILE)),
        notes=(_TAKEN_FOR_GRANTED,),
    )


def _refuse_malformed(folder: Path, number: int, row: PackedRow) -> None:
    starts, num_tokens = row.seq_start_id.astype(np.int64), len(row.input_ids)
    if len(row.loss_mask) != num_tokens:
        problem = f"has {count_text(num_tokens, 'token')} and a mask over {len(row.loss_mask):,}"
    elif not len(starts) or starts[0] != 0 or (np.diff(np.append(starts, num_tokens)) < _SHORTEST_STORED).any():
        problem = f"has sequences that begin at {quote(starts.tolist())}, in {count_text(num_tokens, 'token')}"
    else:
        return
    raise ArtifactError(
        f"{str(folder)!r}: training pack {number} {problem}, so it is not a valid pack. `bridgepack check` lists all "
        "such rows; build the artifact again."
    )


def _made_up(place: str, recipe: SFTRecipe, num_packs: int, max_tokens: int) -> CanaryTarget:
    """Return packs of random tokens, laid out as the recipe would."""
    rng = np.random.default_rng(_MADE_UP_SEED)
    size = min(recipe.packing.packed_sequence_size, max_tokens)
    multiple = int(recipe.resolve().pad_seq_to_mult.value)
    rows = {number: _made_up_row(rng, size, multiple) for number in range(num_packs)}
    lengths = [lengths_of(row) for row in rows.values()]
    entry = {
        "max_samples_per_bin": max(len(pack_lengths) for pack_lengths in lengths),
        "dataset_max_seqlen": max(int(pack_lengths.max()) for pack_lengths in lengths),
        "min_packed_seqlen": min(int(pack_lengths.sum()) for pack_lengths in lengths),
    }
    return CanaryTarget(
        place=place,
        recipe=recipe,
        artifact=None,
        rows=rows,
        eos_token_id=_MADE_UP_EOS,
        pad_seq_to_mult=multiple,
        entries=(entry,),
        notes=(f"{recipe.name} is not built here, so packs of random tokens were made up; --artifact names real ones",),
    )


def _made_up_row(rng: np.random.Generator, size: int, multiple: int) -> PackedRow:
    sequences: list[TokenSequence] = []
    num_used_tokens = 0
    while True:
        length = int(rng.integers(_SHORTEST, max(min(_LONGEST, size // 3), _SHORTEST + 1)))
        num_used_tokens += -(-length // multiple) * multiple
        if num_used_tokens > size and sequences:
            return laid_out(sequences, multiple, _MADE_UP_EOS)
        ids = rng.integers(_MADE_UP_EOS + 1, _MADE_UP_TOKENS, length + 1)
        mask = (np.arange(length + 1) >= length // 2).astype(np.int64)
        mask[-1] = 0
        sequences.append(TokenSequence(input_ids=ids, loss_mask=mask))
