"""Verifies an artifact: its files against the manifest, its ingredients, and its packs against the sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bridgepack.config.recipe import SFTRecipe
from bridgepack.data.artifact import Artifact
from bridgepack.data.execution import Progress, SilentProgress
from bridgepack.errors import BridgepackError, ConfigError, TokenizerError
from bridgepack.proving.derived_packs import DerivedPacks, PackDeriver
from bridgepack.proving.ingredients import aligned_files, compare_inputs, compare_tokenizer, compare_versions
from bridgepack.proving.integrity import Integrity, check_integrity
from bridgepack.proving.packs import opened_artifact, split_record
from bridgepack.proving.rebuilding import compare_rebuilt
from bridgepack.proving.runs import plain
from bridgepack.proving.source_rows import FoundSources, found_sources
from bridgepack.proving.verify_causes import with_causes
from bridgepack.proving.verify_records import Check, Ingredient, VerifyReport

DEFAULT_SAMPLE, DEFAULT_SEED = 100, 0
_DIFFERENCES_KEPT = 10
#: Settings that say where sources are, not what is made of them.
_PLACES = (
    "data.train",
    "data.validation",
    "tokenizer.name_or_path",
    "tokenizer.revision",
    "tokenizer.chat_template",
)


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """How an artifact is verified.

    Attributes:
        num_packs: size of the sample; None for everything, by building it anew.
        seed: of the sample.
        overrides: where sources are now: `data.train`, `data.validation`, `tokenizer.name_or_path`,
            `tokenizer.revision`, `tokenizer.chat_template`.
        num_workers: most processes of the build.
        scratch: folder for the build; by default the system's own.
        progress: told how far it is.
    """

    num_packs: int | None = DEFAULT_SAMPLE
    seed: int = DEFAULT_SEED
    overrides: Mapping[str, Any] = field(default_factory=dict)
    num_workers: int = 1
    scratch: Path | None = None
    progress: Progress = field(default_factory=SilentProgress)


def verify_artifact(folder: Path, options: VerifyOptions) -> VerifyReport:
    """Return whether an artifact is what its sources give.

    Its files are compared with the manifest, inputs and tokenizer with the recorded hashes; then packs are derived
    anew: a sample and every pack of the first shard that is not the manifest's, or all by building the artifact anew.

    Raises:
        ArtifactError: the folder is no artifact.
        ConfigError: an override says something else than where sources are.
    """
    artifact = opened_artifact(folder)
    recipe = _recipe(artifact, options.overrides)
    integrity = check_integrity(artifact, options.progress)
    with found_sources(recipe) as sources:
        inputs, changed_inputs = compare_inputs(artifact, sources, options.progress)
        checks, changed, is_loaded = compare_tokenizer(artifact, recipe)
        work = _Verification(artifact, recipe, integrity, sources, options)
        work.changed = (*changed_inputs, *changed, *compare_versions(artifact))
        work.checks = [*integrity.checks, inputs, *checks]
        return work.report(is_loaded=is_loaded)


class _Verification:
    """One verification; what it found so far."""

    def __init__(
        self,
        artifact: Artifact,
        recipe: SFTRecipe,
        integrity: Integrity,
        sources: FoundSources,
        options: VerifyOptions,
    ) -> None:
        self._artifact, self._recipe, self._integrity = artifact, recipe, integrity
        self._sources, self._options = sources, options
        self.checks: list[Check] = []
        self.changed: tuple[Ingredient, ...] = ()
        self.notes: list[str] = []

    def report(self, *, is_loaded: bool) -> VerifyReport:
        manifest, options = self._artifact.manifest, self._options
        self.notes += [f"{item.name} was {item.then}, is {item.now}" for item in self.changed if _is_library(item)]
        if not is_loaded:
            found = DerivedPacks()
            self.checks.append(_not_derived("the tokenizer cannot be loaded"))
        elif options.num_packs is None:
            found = self._rebuilt()
        else:
            found = self._derived()
        is_rebuilt = options.num_packs is None
        differences = with_causes(found.differences, self._integrity, self.changed, is_rebuilt=is_rebuilt)
        return VerifyReport(
            artifact=str(self._artifact.folder),
            mode="all" if options.num_packs is None else "sample",
            seed=None if options.num_packs is None else options.seed,
            num_packs=sum(split.statistics.num_packs for split in manifest.splits),
            num_packs_compared=found.num_packs,
            num_sequences_compared=found.num_sequences,
            num_packs_different=found.num_packs_different,
            checks=tuple(self.checks),
            changed=self.changed,
            differences=tuple(differences[:_DIFFERENCES_KEPT]),
            notes=tuple(self.notes),
        )

    def _derived(self) -> DerivedPacks:
        """Derive a sample, and the packs of the first shard that is not the manifest's."""
        total = DerivedPacks()
        try:
            for split, packs in self._chosen().items():
                total.add(self._compared(split, packs))
        except TokenizerError as error:
            self.checks.append(_not_derived(str(error)))
            return total
        if total.num_sequences or total.differences:
            self.checks.append(_packs_check(total))
        if total.unread:
            self.checks.append(_not_derived("; ".join(dict.fromkeys(total.unread)), total.num_unread_sequences))
        return total

    def _compared(self, split: str, packs: Iterable[int]) -> DerivedPacks:
        record = split_record(self._artifact, split)
        files, _ = aligned_files(record.inputs, self._sources, split)
        deriver = PackDeriver(self._artifact, split, self._recipe, files, self._options.progress)
        return deriver.compare(packs)

    def _rebuilt(self) -> DerivedPacks:
        if self._sources.gone or any(item.now is None and item.cause == "input changed" for item in self.changed):
            self.checks.append(_not_derived("sources are gone; --sample compares what can be derived without them"))
            return DerivedPacks()
        options = self._options
        try:
            rebuilt = compare_rebuilt(
                self._artifact,
                self._recipe,
                scratch=options.scratch,
                num_workers=options.num_workers,
                progress=options.progress,
            )
        except ConfigError:
            raise
        except BridgepackError as error:
            self.checks.append(_not_derived(f"the artifact cannot be built anew: {error}"))
            return DerivedPacks()
        self.checks += rebuilt.checks
        self.notes += rebuilt.notes
        of_sequences = [
            item for split, packs in rebuilt.changed_packs.items() for item in self._compared(split, packs).differences
        ]
        rebuilt.found.differences = of_sequences or rebuilt.found.differences
        return rebuilt.found

    def _chosen(self) -> dict[str, list[int]]:
        """Return the packs to derive: a seeded sample over all splits, and those of the first changed shard."""
        counts = [(split.name, split.statistics.num_packs) for split in self._artifact.manifest.splits]
        total = sum(count for _, count in counts)
        wanted = min(self._options.num_packs or 0, total)
        drawn = np.random.default_rng(self._options.seed).choice(total, size=wanted, replace=False)
        chosen: dict[str, list[int]] = {}
        first = 0
        for name, count in counts:
            here = drawn[(drawn >= first) & (drawn < first + count)] - first
            packs = sorted({*here.tolist(), *self._packs_of_changed_shard(name)})
            if packs:
                chosen[name] = packs
            first += count
        return chosen

    def _packs_of_changed_shard(self, split: str) -> Iterator[int]:
        record = self._artifact.manifest.split(split)
        first, names = 0, self._integrity.changed_shards[:1]
        for shard in record.shards if record is not None else ():
            if shard.path in names:
                yield from range(first, first + shard.num_rows)
            first += shard.num_rows


def _recipe(artifact: Artifact, overrides: Mapping[str, Any]) -> SFTRecipe:
    """Return the manifest's recipe with sources where they are now.

    Raises:
        ConfigError: an override says something else.
    """
    for path in overrides:
        if path not in _PLACES:
            raise ConfigError(
                f"--set {path}; allowed: {', '.join(_PLACES)}. An artifact is verified with the recipe that it was "
                "built with; only where its sources are may be another."
            )
    recipe = SFTRecipe.from_mapping(plain(artifact.manifest.recipe))
    return recipe.override(overrides) if overrides else recipe


def _packs_check(found: DerivedPacks) -> Check:
    num_different = found.num_packs_different
    done = f"{found.num_packs} packs, {found.num_sequences} sequences"
    if num_different:
        return Check(name="packs", outcome="differs", detail=f"{num_different} of {done} are not what the sources give")
    return Check(name="packs", outcome="same", detail=f"{done} are what the sources give")


def _not_derived(why: str, num_sequences: int | None = None) -> Check:
    what = "packs" if num_sequences is None else f"{num_sequences} sequences"
    return Check(name="sources", outcome="could not run", detail=f"{what} were not compared: {why}")


def _is_library(item: Ingredient) -> bool:
    return item.cause == "library version changed"
