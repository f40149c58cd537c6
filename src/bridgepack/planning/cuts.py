"""Cuts a sample of conversations between exchanges, as a build does, for maximum lengths that are compared."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.files import make_folders
from bridgepack.geometry import IntArray
from bridgepack.planning.sample import SampledSource, Sampler, population
from bridgepack.records import TRAIN

#: A size larger than any sequence, and a multiple for every topology.
ANY_LENGTH = 1 << 30
#: Settings with which no sequence is too long.
UNLIMITED: Mapping[str, Any] = MappingProxyType(
    {
        "packing.packed_sequence_size": ANY_LENGTH,
        "packing.max_sequence_length": None,
        "packing.pad_seq_to_mult": None,
        "packing.balance": {},
        "parallelism": {},
        "artifact": None,
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CutLengths:
    """Sequences of conversations that were cut to a maximum length."""

    runtime: IntArray  #: shape [num_sequences], int64, runtime tokens, as of `Lengths`
    lost_fraction: float  #: share of the trained tokens (0-1) that no sequence has
    #: tokens that sequences show again, less those that none shows, for each token of the whole conversations
    added_fraction: float


class Totals(NamedTuple):
    """Estimated totals of all rows from those that were read."""

    num_tokens: float
    num_trained: float


def cuts_exchanges(recipe: SFTRecipe) -> bool:
    """Return whether a recipe cuts conversations that are too long between exchanges."""
    return getattr(recipe.chat_preprocessing, "over_long", "") in ("truncate_history", "split_exchanges")


def cost_of_cutting(uncut: Totals, cut: Totals) -> tuple[float, float]:
    """Return `lost_fraction` and `added_fraction` as of `CutLengths`."""
    lost_fraction = 1 - cut.num_trained / max(uncut.num_trained, 1.0)
    return max(lost_fraction, 0.0), max(cut.num_tokens / max(uncut.num_tokens, 1.0) - 1, 0.0)


def totals(sources: Iterable[SampledSource], splits: Sequence[str]) -> Totals:
    """Return the totals of sampled sources."""
    num_tokens = num_trained = 0.0
    for source in sources:
        for file in source.files:
            weight = file.factor * source.share
            for part in (part for name in splits for part in file.parts(name)):
                num_tokens += weight * int((part.sequences["stored_length"] - 1).sum())
                num_trained += weight * int(part.sequences["num_trained"].sum())
    return Totals(num_tokens, num_trained)


def cut_lengths(
    recipe: SFTRecipe, sources: Sequence[SampledSource], limits: Iterable[int], folder: Path, *, scale: float
) -> dict[int, CutLengths]:
    """Return maximum length -> sequences of the training rows, cut to it as a build of the recipe cuts them.

    Args:
        recipe: cuts conversations between exchanges.
        sources: sampled without a maximum length.
        limits: in runtime tokens.
        folder: for token files.
        scale: as of `population`.

    Raises:
        DataError: when a file cannot be read.
    """
    uncut, lengths_by_limit = totals(sources, [TRAIN]), {}
    for limit in sorted(set(limits)):
        place = folder / f"cut-{limit}"
        make_folders(place)
        recipe_with_limit = recipe.override({**UNLIMITED, "packing.max_sequence_length": limit})
        sampler = Sampler.from_recipe(recipe_with_limit, dict.fromkeys(source.split for source in sources), place)
        cut = sampler.again(sources, shorter=limit, splits=False)
        lost_fraction, added_fraction = cost_of_cutting(uncut, totals(cut, [TRAIN]))
        lengths = [sample for source in cut for sample in source.lengths([TRAIN])]
        runtime = population(lengths, scale) - 1
        lengths_by_limit[limit] = CutLengths(
            runtime=runtime, lost_fraction=lost_fraction, added_fraction=added_fraction
        )
    return lengths_by_limit


def whole_totals(
    recipe: SFTRecipe, sources: Sequence[SampledSource], splits: Sequence[str], folder: Path
) -> list[Totals]:
    """Return the totals of each source, sampled as a recipe cuts it, if nothing were cut."""
    make_folders(folder)
    sampler = Sampler.from_recipe(recipe.override(UNLIMITED), dict.fromkeys(source.split for source in sources), folder)
    shorter = recipe.resolve().max_sequence_length.value
    splits_rows = getattr(recipe.chat_preprocessing, "over_long", "") == "split_exchanges"
    return [totals([source], splits) for source in sampler.again(sources, shorter=shorter, splits=splits_rows)]


def as_many(runtime: IntArray, share: float) -> IntArray:
    """Return a share (0-1) of sequences, chosen alike in every run."""
    indices = np.random.default_rng(0).choice(len(runtime), round(len(runtime) * share), replace=False)
    return runtime[np.sort(indices)]
