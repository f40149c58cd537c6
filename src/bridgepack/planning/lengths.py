"""Sequence lengths of a run before a pack size is chosen, and the packs of a given size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import numpy as np

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import iter_plan_columns
from bridgepack.data.build import find_files, planned_build
from bridgepack.data.files import make_folders
from bridgepack.data.identity import store_key, tokenization_identity
from bridgepack.data.packing.plan import plan_packs
from bridgepack.data.reading.ranges import iter_ranges
from bridgepack.data.results import BuildOptions
from bridgepack.data.stages.finish import RangePlace, RangeResult, Sequences, finish_range
from bridgepack.data.stages.write import ArtifactWriter
from bridgepack.data.store.store import check_stored_tokens, store_at
from bridgepack.data.tasks import InThisProcess, SilentProgress
from bridgepack.data.tokenizers.engines import REFERENCE
from bridgepack.errors import DataError
from bridgepack.geometry import IntArray, aligned_runtime_lengths, floor_to_multiple
from bridgepack.planning.cuts import UNLIMITED, CutLengths, as_many, cut_lengths, cuts_exchanges
from bridgepack.planning.sample import STOPPED_EARLY, Sampler, population, sampled_sources, without_stops
from bridgepack.records import TRAIN, DropReason
from bridgepack.records.words import count_text

#: Factor of the usual budget of a sample; the decisive tail of the lengths needs many rows.
_TIMES_BUDGET = 4
#: Maximum sequences that packs are planned from; of more sequences, a share.
_MAX_SEQUENCES = 1 << 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """The sequence lengths of a run."""

    #: shape [num_sequences], int64, runtime tokens without alignment padding, as long as their rows are
    runtime: IntArray
    share: float  #: share of the run's sequences that are included; 1 for all
    origin: str  #: the source of the lengths, and how much of it was read
    #: maximum length -> the same rows, cut between exchanges; empty if they are not
    cuts: Mapping[int, CutLengths] = field(default_factory=dict)


def lengths_of(
    recipe: SFTRecipe, *, artifact: Path | None = None, store: Path | None = None, sizes: Sequence[int] = ()
) -> Lengths:
    """Return the lengths of training sequences of an artifact, or of a recipe's rows from a sample or a store.

    `sizes` are pack sizes to compare, beside the recipe's: a sample of conversations is cut to each as in a build.

    Raises:
        ConfigError, TokenizerError: as for a build.
        DataError: an input is missing, cannot be read, or has no sequence; or the store lacks rows.
        ArtifactError: the folder is no artifact, or has no plan.
        StoreError: the folder is no token store, or tokens in it are broken.
    """
    if artifact is not None:
        return _lengths_of_artifact(artifact)
    unlimited_recipe = recipe.override({**UNLIMITED, "preprocessing.over_long": "drop"})
    if store is not None:
        lengths = _lengths_of_store(unlimited_recipe, store)
        if cuts_exchanges(recipe):
            lengths = replace(lengths, origin=f"{lengths.origin}; what cuts between exchanges leave is estimated")
    else:
        longest, size = recipe.packing.max_sequence_length, recipe.packing.packed_sequence_size
        lengths = _lengths_of_rows(unlimited_recipe, recipe, (longest,) if longest else (*sizes, size))
        if lengths.cuts:
            return lengths
    action = recipe.preprocessing.over_long
    kinds = [section.kind for section in recipe.preprocessing.others if section.over_long != action]
    if not kinds:
        return lengths
    note = f"; over-long rows of kind {', '.join(kinds)} are counted as preprocessing.over_long says: {action}"
    return replace(lengths, origin=f"{lengths.origin}{note}")


def _lengths_of_artifact(folder: Path) -> Lengths:
    artifact = Artifact(folder)
    runtime = np.concatenate([part for (part,) in iter_plan_columns(artifact, TRAIN, ("runtime_length",))])
    record = artifact.manifest.split(TRAIN)
    num_gone = record.drops.get(DropReason.OVER_LONG, 0) if record else 0
    without = f"; without {num_gone:,} rows that were too long for its packs" if num_gone else ""
    numbers = record.statistics if record else None
    if numbers and (numbers.num_truncated or numbers.num_cut_turns or numbers.num_split):
        without += "; sequences that were cut or split for its packs stay so"
    return _limit(runtime, 1.0, f"all {len(runtime):,} training sequences of {folder}{without}")


def _lengths_of_rows(recipe: SFTRecipe, cut_recipe: SFTRecipe, limits: Sequence[int]) -> Lengths:
    """Return the lengths of a sample of the rows of `recipe`, without a limit, and as `cut_recipe` cuts them."""
    with TemporaryDirectory(prefix="bridgepack-plan-") as scratch:
        files = {TRAIN: find_files(recipe, Path(scratch))[0][TRAIN]}
        sampler = Sampler.from_recipe(recipe, files, Path(scratch))
        sources = sampled_sources(files, max_row_bytes=recipe.data.max_row_bytes)
        has_cuts = cuts_exchanges(cut_recipe)
        is_complete = sampler.read(sources, times=1 if has_cuts else _TIMES_BUDGET)
        samples = [sample for source in sources for sample in source.lengths([TRAIN])]
        parts = [part for source in sources for file in source.files for part in file.parts(TRAIN)]
        num_read = sum(len(lengths) for lengths, _ in samples)
        if not num_read:
            message = "data.train gives no sequence; allowed: rows that do. `bridgepack preview` says why."
            raise DataError(message, field="data.train")
        least = min(weight for lengths, weight in samples if len(lengths))
        longest = max(int(lengths.max()) for lengths, _ in samples if len(lengths))
        needed_limits = [limit for limit in limits if limit < longest] if has_cuts else []
        cuts = cut_lengths(cut_recipe, sources, needed_limits, Path(scratch), scale=1 / least)
    total = sum(len(lengths) * weight for lengths, weight in samples)
    exact = all(weight == 1 for _, weight in samples)
    origin = f"all {num_read:,} sequences" if exact else f"a sample of {num_read:,} of about {round(total):,} sequences"
    notes = "; mixtures and duplicates are not counted" if recipe.chooses_rows else ""
    notes += "" if is_complete else f"; {STOPPED_EARLY}"
    notes += _cost_of_splitting([part.sequences for part in parts])
    notes += "; what is too long is cut as by a build" if cuts else ""
    return _limit(population(samples, 1 / least) - 1, 1 / least, f"{origin} of the recipe's data{notes}", cuts)


def _lengths_of_store(recipe: SFTRecipe, folder: Path) -> Lengths:
    """Return the lengths of all rows from the tokens in a store, which is not changed."""
    with (
        store_at(folder, is_emptied=False) as store,
        planned_build(recipe, options=BuildOptions(num_workers=0)) as plan,
        TemporaryDirectory(prefix="bridgepack-plan-") as scratch,
    ):
        spec, results, num_rows, num_there = plan.spec, list[RangeResult](), 0, 0
        settings = without_stops(spec.finish_settings(TRAIN, Path(scratch)))
        make_folders(settings.folder)
        engines = dict.fromkeys((plan.engine().name, REFERENCE))
        keys = [store_key(tokenization_identity(recipe, spec.tokenizer, engine)) for engine in engines]
        for index, (file, record) in enumerate(zip(plan.files[TRAIN], spec.inputs[TRAIN], strict=True)):
            for part in iter_ranges(file, sha256=record.sha256, max_row_bytes=recipe.data.max_row_bytes):
                num_rows += part.num_rows
                paths = (store.token_file(key, part, file.view) for key in keys)
                path = next((path for path in paths if path.exists()), None)
                if path is not None:
                    check_stored_tokens(path)
                    num_there += part.num_rows
                    place = RangePlace(
                        file_index=index,
                        label=file.label,
                        first_row=part.first_row,
                        token_file=path,
                        kind=file.kind_of_rows,
                    )
                    results.append(finish_range(settings, place))
        if num_there < num_rows:
            raise DataError(
                f"--store is {str(folder)!r}; it lacks the tokens of {num_rows - num_there:,} of the "
                f"{count_text(num_rows, 'row')} "
                "of data.train; allowed: a store that has all of them, of this recipe's tokenizer, preprocessing and "
                "bridgepack. Build the recipe with this --store, or leave --store out for a sample."
            )
        writer = ArtifactWriter(
            spec=spec, folder=Path(scratch), runner=InThisProcess(), progress=SilentProgress(), watch=lambda _: None
        )
        split = writer.splits({TRAIN: results})[0]
        runtime, notes = split.runtime_lengths(1), _cost_of_splitting([split.sequences])
    return _limit(runtime, 1.0, f"all {len(runtime):,} training sequences of the recipe's data, from {folder}{notes}")


def _cost_of_splitting(parts: Sequence[Sequences]) -> str:
    """Return what splitting conversations adds, as the end of an origin; empty if none is split."""
    runtime = np.concatenate([np.empty(0, dtype=np.int64), *(part["stored_length"] - np.int64(1) for part in parts)])
    is_added = np.concatenate([np.empty(0, dtype=np.bool_), *(part["is_added"] for part in parts)])
    if not is_added.any():
        return ""
    share = runtime[is_added].sum() / max(runtime[~is_added].sum(), 1)
    return f"; split conversations show earlier turns again, {share:.0%} more tokens than one sequence per row"


def _limit(
    runtime: IntArray, share: float, origin: str, cuts: Mapping[int, CutLengths] = MappingProxyType({})
) -> Lengths:
    if len(runtime) > _MAX_SEQUENCES:
        fraction = _MAX_SEQUENCES / len(runtime)
        share, runtime = share * fraction, as_many(runtime, fraction)
        cuts = {limit: replace(cut, runtime=as_many(cut.runtime, fraction)) for limit, cut in cuts.items()}
        origin = f"{origin}; packs are planned from {_MAX_SEQUENCES:,} of them"
    return Lengths(runtime=runtime, share=share, origin=origin, cuts=cuts)


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedLengths:
    """The packs of one size."""

    packs: tuple[IntArray, ...]  #: sequences of each pack, runtime tokens with alignment padding
    num_tokens: int  #: runtime tokens without alignment padding
    fill_fraction: float  #: tokens without alignment padding / capacity of the packs (0-1)
    padding_fraction: float  #: alignment padding / capacity of the packs (0-1)
    over_long_fraction: float  #: share of sequences that are too long, and are cut or dropped (0-1)
    #: share of tokens that are lost with them (0-1); of trained tokens where `Lengths.cuts` has the length
    lost_fraction: float
    added_fraction: float = 0.0  #: as of `CutLengths`

    @property
    def num_packs(self) -> int:
        """Packs."""
        return len(self.packs)


def pack_lengths(lengths: Lengths, recipe: SFTRecipe, multiple: int) -> PackedLengths:
    """Return the packs of a recipe's build for sequences aligned to a multiple."""
    packing, runtime = recipe.packing, lengths.runtime
    size = packing.packed_sequence_size
    limit = floor_to_multiple(packing.max_sequence_length or size, multiple)
    is_over_long = runtime > limit
    lengths_kept = runtime[~is_over_long]
    cut_lengths_found = lengths.cuts.get(packing.max_sequence_length or size)
    action, cut = recipe.preprocessing.over_long, runtime[is_over_long]
    if cut_lengths_found is not None:
        lengths_kept = np.minimum(cut_lengths_found.runtime, limit)
    elif action in ("truncate", "truncate_history"):  # of a cut history at most so much is left
        lengths_kept = np.minimum(runtime, limit)
    elif action in ("split", "split_exchanges"):  # without what each sequence shows again
        lengths_kept = np.concatenate(
            [lengths_kept, np.repeat(limit, int((cut // limit).sum())), (cut % limit)[cut % limit > 0]]
        )
    aligned_lengths = aligned_runtime_lengths(lengths_kept, multiple)
    plan = plan_packs(
        aligned_lengths,
        packed_sequence_size=size,
        algorithm=packing.algorithm,
        max_sequences_per_pack=packing.max_sequences_per_pack,
        seed=packing.seed,
    )
    room, num_tokens = max(plan.num_packs * size, 1), int(lengths_kept.sum())
    return PackedLengths(
        packs=tuple(aligned_lengths[plan.pack(index)] for index in range(plan.num_packs)),
        num_tokens=num_tokens,
        fill_fraction=num_tokens / room,
        padding_fraction=(int(aligned_lengths.sum()) - num_tokens) / room,
        over_long_fraction=float(is_over_long.mean()),
        lost_fraction=1 - num_tokens / max(int(runtime.sum()), 1)
        if cut_lengths_found is None
        else cut_lengths_found.lost_fraction,
        added_fraction=0.0 if cut_lengths_found is None else cut_lengths_found.added_fraction,
    )
