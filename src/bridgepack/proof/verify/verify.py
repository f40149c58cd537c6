"""Verifies an artifact: files against the manifest, ingredients, and packs against their sources."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bridgepack.data.artifact.artifact import LOST_CONTENT_FILE, PLAN_FOLDER, Artifact, refuse_npy
from bridgepack.data.artifact.plan import iter_lost_content
from bridgepack.data.sequences.encoding import Loss
from bridgepack.data.tasks import Progress, SilentProgress
from bridgepack.data.tokenizers.trust import refuse_tokenizer_code
from bridgepack.errors import ArtifactError, BridgepackError, ConfigError, TokenizerError
from bridgepack.proof.packs import drawn_of_each, opened_artifact, recorded_recipe
from bridgepack.proof.verify.derive import DerivedPacks, PackDeriver, difference_at
from bridgepack.proof.verify.ingredients import Integrity, check_integrity, describe_ingredient
from bridgepack.proof.verify.rebuild import Origin, compare_rebuilt, opened_origin
from bridgepack.proof.verify.records import Cause, Check, Outcome, RowDifference, VerifyReport
from bridgepack.records.words import count_text

DEFAULT_SAMPLE, DEFAULT_SEED = 100, 0
_DIFFERENCES_KEPT = 10
_NO_OTHER_CAUSE = (
    "inputs, tokenizer, template and libraries are those of the manifest: shard and manifest were changed together, or "
    "another build made them"
)


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """How an artifact is verified."""

    num_packs: int | None = DEFAULT_SAMPLE  #: size of the sample; None for everything, by rebuilding it
    seed: int = DEFAULT_SEED
    #: present location of sources: `data.train`, `data.validation`, `tokenizer.name_or_path`, `tokenizer.revision`,
    #: `tokenizer.chat_template`
    overrides: Mapping[str, Any] = field(default_factory=dict)
    num_workers: int = 1  #: maximum processes of the build
    scratch: Path | None = None  #: folder for the build; by default the system's temporary folder
    trust_remote_code: bool = False  #: run code that comes with the tokenizer, if the recipe names such a one
    progress: Progress = field(default_factory=SilentProgress)  #: is told about progress


def verify_artifact(folder: Path, options: VerifyOptions) -> VerifyReport:
    """Return whether an artifact matches its sources.

    Compares its files with the manifest, and inputs and tokenizer with the recorded hashes. Then derives packs again:
    a sample and every pack of the first shard that does not match the manifest, or all by rebuilding the artifact.

    Raises:
        ArtifactError: the folder is not an artifact, or holds `.npy` files.
        ConfigError: an override changes anything but the location of sources, or the tokenizer brings code.
    """
    artifact = opened_artifact(folder, may_be_changed=True)
    for split in artifact.manifest.splits:
        refuse_npy(folder, split.shards)
    recipe = recorded_recipe(artifact, options.overrides)
    refuse_tokenizer_code(recipe, is_trusted=options.trust_remote_code)
    integrity = check_integrity(artifact, options.progress)
    with opened_origin(artifact, recipe, options.progress) as origin:
        return _Verification(artifact, integrity, origin, options).report()


class _Verification:
    def __init__(self, artifact: Artifact, integrity: Integrity, origin: Origin, options: VerifyOptions) -> None:
        self._artifact, self._integrity, self._origin, self._options = artifact, integrity, origin, options
        self.checks: list[Check] = [*integrity.checks, *origin.checks]
        version_changes = [item for item in origin.changed if item.cause == "library version changed"]
        self.notes = [f"{item.name} was {item.then}, is {item.now}" for item in version_changes]

    def report(self) -> VerifyReport:
        manifest, options, origin = self._artifact.manifest, self._options, self._origin
        if origin.why_nothing is not None:
            comparison = DerivedPacks()
            self.checks.append(self._underived_check(origin.why_nothing))
        elif options.num_packs is None:
            comparison = self._rebuilt()
        else:
            comparison = self._derive()
        is_rebuilt = options.num_packs is None
        return VerifyReport(
            artifact=str(self._artifact.folder),
            mode="all" if is_rebuilt else "sample",
            seed=None if is_rebuilt else options.seed,
            num_packs=sum(split.statistics.num_packs for split in manifest.splits),
            num_packs_compared=comparison.num_packs,
            num_sequences_compared=comparison.num_sequences,
            num_packs_different=comparison.num_packs_different,
            checks=tuple(self.checks),
            changed=origin.changed,
            differences=tuple(map(self._with_cause, comparison.differences[:_DIFFERENCES_KEPT])),
            notes=tuple(self.notes),
        )

    def _derive(self) -> DerivedPacks:
        """Return the comparison of a sample, and of the packs of the first shard that does not match the manifest."""
        total = DerivedPacks()
        try:
            for split, packs in self._choose_packs().items():
                total.add(self._compare(split, packs))
        except (ArtifactError, TokenizerError) as error:
            self.checks.append(self._underived_check(str(error)))
            return total
        if total.num_sequences or total.differences:
            num_different, amount = (
                total.num_packs_different,
                f"{count_text(total.num_packs, 'pack')}, {count_text(total.num_sequences, 'sequence')}",
            )
            wrong = f"{num_different} of {amount} are not what the sources give" if num_different else ""
            outcome: Outcome = "differs" if wrong else "same"
            self.checks.append(
                Check(name="packs", outcome=outcome, detail=wrong or f"{amount} are what the sources give")
            )
            self.checks += _losses_checks(self._artifact, total)
        if total.unread:
            self.checks.append(
                self._underived_check("; ".join(dict.fromkeys(total.unread)), total.num_unread_sequences)
            )
        return total

    def _compare(self, split: str, packs: Iterable[int]) -> DerivedPacks:
        if self._integrity.changed_plans:
            raise ArtifactError(f"{', '.join(self._integrity.changed_plans)}: changed after the build")
        packs = set(packs) & set(range(self._artifact.split(split).statistics.num_packs))
        return PackDeriver(self._artifact, split, self._origin.giver(split), self._options.progress).compare(packs)

    def _rebuilt(self) -> DerivedPacks:
        if self._origin.why_not_whole is not None:
            self.checks.append(self._underived_check(self._origin.why_not_whole))
            return DerivedPacks()
        options = self._options
        try:
            rebuilt = compare_rebuilt(
                self._artifact,
                self._origin,
                scratch=options.scratch,
                num_workers=options.num_workers,
                progress=options.progress,
            )
        except ConfigError:
            raise
        except BridgepackError as error:
            self.checks.append(self._underived_check(f"the artifact cannot be rebuilt: {error}"))
            return DerivedPacks()
        self.checks += rebuilt.checks
        self.notes += rebuilt.notes
        total = DerivedPacks()
        for record in self._artifact.manifest.splits:
            packs, numbers = rebuilt.packs.get(record.name, []), record.statistics
            total.num_packs += numbers.num_packs
            total.num_sequences += numbers.num_sequences
            total.num_packs_different += len(packs)
            examples = packs[:_DIFFERENCES_KEPT]
            try:
                total.differences += self._compare(record.name, examples).differences if examples else []
            except BridgepackError as error:  # e.g. the plan is unreadable, so sequences cannot be located
                self.checks.append(self._underived_check(str(error)))
            packs_with_differences = {(item.split, item.pack) for item in total.differences}
            total.differences += [
                difference_at(self._artifact, record.name, pack, None, "", None, "a pack", "another pack, or none")
                for pack in examples
                if (record.name, pack) not in packs_with_differences  # each of its sequences is correct
            ]
        return total

    def _with_cause(self, item: RowDifference) -> RowDifference:
        reasons = list(self._reasons(item)) or [("artifact changed", _NO_OTHER_CAUSE)]
        causes, texts = (tuple(dict.fromkeys(part)) for part in zip(*reasons, strict=True))
        return replace(item, causes=causes, cause="; or ".join(texts))

    def _reasons(self, item: RowDifference) -> Iterator[tuple[Cause, str]]:
        """Yield possible causes; after a full rebuild, any input can move any sequence to another pack."""
        if item.shard in self._integrity.changed_shards:
            yield "artifact changed", f"{item.shard} was changed after the build"
        if self._integrity.is_manifest_changed:
            yield "artifact changed", "manifest.json was changed after the build"
        for change in self._origin.changed:
            is_of_all = change.cause != "input changed" or self._options.num_packs is None or item.file is None
            if is_of_all or change.name == item.file:
                yield change.cause, describe_ingredient(change)

    def _underived_check(self, why: str, num_sequences: int | None = None) -> Check:
        subject = "packs" if num_sequences is None else f"{count_text(num_sequences, 'sequence')}"
        return Check(name="sources", outcome="could not run", detail=f"{subject} were not compared: {why}")

    def _choose_packs(self) -> dict[str, list[int]]:
        """Return the packs to derive: a seeded sample over all splits, and those of the first changed shard."""
        splits = self._artifact.manifest.splits
        sizes = [split.statistics.num_packs for split in splits]
        samples = drawn_of_each(sizes, self._options.num_packs or 0, self._options.seed)
        packs_of_splits = {
            split.name: sorted({*sample, *self._packs_of_changed_shard(split.name)})
            for split, sample in zip(splits, samples, strict=True)
        }
        return {name: packs for name, packs in packs_of_splits.items() if packs}

    def _packs_of_changed_shard(self, split: str) -> Iterator[int]:
        record = self._artifact.manifest.split(split)
        first, names = 0, self._integrity.changed_shards[:1]
        for shard in record.shards if record is not None else ():
            if shard.path in names:
                yield from range(first, first + shard.num_rows)
            first += shard.num_rows


def _losses_checks(artifact: Artifact, derived_packs: DerivedPacks) -> Iterator[Check]:
    """Yield whether the lost-content ledger matches the derived rows, if the artifact has one."""
    if not (artifact.folder / PLAN_FOLDER / LOST_CONTENT_FILE).is_file():
        return
    paths = Counter((split.name, item.path) for split in artifact.manifest.splits for item in split.inputs)
    source_losses = {place: losses for place, losses in derived_packs.losses.items() if paths[place[:2]] == 1}
    ledger_losses: dict[tuple[str, str, int], set[Loss]] = {place: set() for place in source_losses}
    try:
        for line in iter_lost_content(artifact):
            if (place := (line.split, line.file, line.row)) in ledger_losses:
                ledger_losses[place].add(Loss(line.kind, line.detail))
    except ArtifactError as error:
        yield Check(name="lost content", outcome="differs", detail=str(error))
        return
    places = sorted(place for place, losses in source_losses.items() if losses != ledger_losses[place])
    if not places:
        detail = f"plan/{LOST_CONTENT_FILE} matches the sources for {count_text(len(source_losses), 'row')}"
        yield Check(name="lost content", outcome="same", detail=detail)
        return
    _, file, row = first = places[0]
    texts = [
        "; ".join(map(": ".join, sorted(losses))) or "nothing"
        for losses in (ledger_losses[first], source_losses[first])
    ]
    detail = (
        f"plan/{LOST_CONTENT_FILE} differs for {len(places)} of {len(source_losses)} rows from what the sources give, "
        f"e.g. for {file} row {row}: {texts[0]}; it is: {texts[1]}"
    )
    yield Check(name="lost content", outcome="differs", detail=detail)
