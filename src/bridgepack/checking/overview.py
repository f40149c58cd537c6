"""What is known of an artifact, as its report tells it: the check, its manifest, its plan and some of its packs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bridgepack.bridge.targets import Target
from bridgepack.bridge.wiring import Packs, RunLength, run_length
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.checking.packs import CheckedPacks, check_packs
from bridgepack.checking.settings import settings_of
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.checking import ArtifactOnDisk
from bridgepack.data.artifact.inspection import (
    PackView,
    SequenceView,
    tokenizer_of,
    view_pack,
    view_sequences,
)
from bridgepack.data.artifact.lengths import SplitLengths, lengths_of_plan, lengths_of_rows
from bridgepack.errors import ArtifactError, BridgepackError
from bridgepack.planning.balance import waiting_in
from bridgepack.planning.layout import DEFAULT_GPU, gpu_by_name
from bridgepack.planning.lengths import lengths_of
from bridgepack.planning.plan import Plan, plan_recipe, shape_to_plan
from bridgepack.proof.packs import opened_artifact, recorded_recipe
from bridgepack.records import PackedRow, SplitRecord, Waiting
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.report import CheckReport
from bridgepack.rules.judging.truth import SplitTruth

#: Characters of a pack's text, after which no further sequence is shown.
_PACK_CHARACTERS = 24_000
#: Characters of a stretch and stretches of a sequence that count for it: pages show no more.
_SPAN_CHARACTERS, _NUM_SPANS = 600, 40
_BATCH_TOKENS = 1 << 22


@dataclass(frozen=True, kw_only=True, slots=True)
class Excerpt:
    """A pack, shortened for the page."""

    why: str  #: why it is shown
    view: PackView  #: the pack with the sequences that are shown
    num_sequences: int  #: sequences of the whole pack
    num_tokens: int  #: runtime tokens of the whole pack, with alignment padding


def excerpts(
    artifact: Artifact | ArtifactOnDisk, split: str, packs_by_reason: dict[str, int], size: int | None
) -> list[Excerpt]:
    """Return excerpts of the chosen packs (reason for showing a pack -> the pack), each pack once.

    Without a manifest, which names the tokenizer, token ids are shown. `size` is the packed_sequence_size, if known.

    Raises:
        ArtifactError: a pack cannot be read.
    """
    reasons = {
        pack: ", ".join(why for why, pack_of_reason in packs_by_reason.items() if pack_of_reason == pack)
        for pack in packs_by_reason.values()
    }
    if isinstance(artifact, Artifact):
        decoder = tokenizer_of(artifact)
        views = {pack: view_pack(artifact, split, pack, decoder=decoder) for pack in reasons}
        return [_excerpt(why, views[pack]) for pack, why in reasons.items()]
    note = "text is shown as token ids: the tokenizer of these packs is unknown"
    rows = _rows(artifact, split, set(reasons))
    return [
        _excerpt(
            why,
            PackView(
                split=split, index=pack, packed_sequence_size=size or 0, sequences=view_sequences(rows[pack]), note=note
            ),
        )
        for pack, why in reasons.items()
    ]


def _rows(artifact: ArtifactOnDisk, split: str, packs: set[int]) -> dict[int, PackedRow]:
    rows: dict[int, PackedRow] = {}
    first = 0
    for shard in artifact.shard_facts(split):
        for batch in artifact.parts.iter_batches(shard.path, max_tokens=_BATCH_TOKENS):
            rows |= {pack: batch.row(pack - first) for pack in packs if first <= pack < first + batch.num_rows}
            first += batch.num_rows
    if len(rows) < len(packs):
        raise ArtifactError(f"{split} has {first} packs, not pack {max(packs)}. Build the artifact again.")
    return rows


def _excerpt(why: str, view: PackView) -> Excerpt:
    return Excerpt(
        why=why,
        view=replace(view, sequences=tuple(_shorten(view.sequences))),
        num_sequences=len(view.sequences),
        num_tokens=sum(item.runtime_length + item.num_alignment_tokens for item in view.sequences),
    )


def _shorten(sequences: tuple[SequenceView, ...]) -> Iterator[SequenceView]:
    room = _PACK_CHARACTERS
    for sequence in sequences:
        if room <= 0:
            return
        room -= sum(min(len(span.text), _SPAN_CHARACTERS) for span in sequence.spans[:_NUM_SPANS])
        yield sequence


#: Text in place of a section whose data is missing.
_FOREIGN = "another tool made these packs, and they have no manifest"
_CHANGED = "the files differ from the build; see the findings"
_UNSOUND = "some packs are unreadable or invalid; see the findings"


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitOverview:
    """What is known of one split."""

    name: str
    record: SplitRecord | None  #: its record in the manifest, or None
    truth: SplitTruth  #: totals over its rows
    lengths: SplitLengths | None  #: None if unknown
    unknown: str  #: why the lengths are unknown
    packed_sequence_size: int | None
    excerpts: tuple[Excerpt, ...]

    @property
    def capacity(self) -> int | None:
        """Runtime tokens that its packs can hold, or None if unknown."""
        return None if self.packed_sequence_size is None else self.packed_sequence_size * self.truth.num_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """What is known of an artifact."""

    folder: Path  #: folder, file or pattern
    report: CheckReport
    facts: ArtifactFacts
    splits: tuple[SplitOverview, ...]
    waiting: Waiting | str  #: or a text with the reason if unknown
    plan: Plan | str  #: possible pack sizes for its sequences in this run, or a text with the reason if unknown
    has_recipe: bool  #: whether it was judged with a recipe
    run: RunLength | str  #: steps of the run, of the given recipe or else the packs' own; or why they are unknown


def overview_of(folder: Path, options: CheckOptions, target: Target | None = None) -> Overview:
    """Return what is known of an artifact, of a packed file, or of the files that match a pattern.

    `target` is the recipe to judge it with, if `options` have the artifact (default: the artifact alone is judged).

    Raises:
        ArtifactError: the folder is not an artifact.
        RuleCrashError: a rule raised.
    """
    target_of_check = target or Target(kind="artifact", place=str(folder), artifact=folder)
    packs = check_packs(target_of_check, settings_of(target_of_check, options), options)
    assert packs is not None
    artifact = _open_packs(folder, packs, options)
    splits = tuple(_split_pages(artifact, packs.facts))
    reason = _FOREIGN if packs.facts.manifest is None else _CHANGED
    return Overview(
        folder=folder,
        report=check_target(target_of_check, options, packs=packs),
        facts=packs.facts,
        splits=splits,
        waiting=_waiting(artifact, target_of_check, options) if isinstance(artifact, Artifact) else reason,
        plan=_plan(artifact, target_of_check) if isinstance(artifact, Artifact) else reason,
        has_recipe=target_of_check.config is not None,
        run=_run(artifact, target_of_check) if isinstance(artifact, Artifact) else reason,
    )


def _run(artifact: Artifact, target_of_check: Target) -> RunLength | str:
    try:
        recipe = target_of_check.recipe or recorded_recipe(artifact, {})
        num_packs = {split.name: split.statistics.num_packs for split in artifact.manifest.splits}
        return run_length(recipe, Packs(folder=str(artifact.folder), num_packs=num_packs))
    except BridgepackError as error:
        return str(error)


def _waiting(artifact: Artifact, target_of_check: Target, options: CheckOptions) -> Waiting | str:
    try:
        source = target_of_check.recipe or target_of_check.config or recorded_recipe(artifact, {})
        return waiting_in(artifact, source, world_size=options.world_size)
    except BridgepackError as error:
        return str(error)


def _plan(artifact: Artifact, target_of_check: Target) -> Plan | str:
    try:
        recipe = target_of_check.recipe or recorded_recipe(artifact, {})
        num_gpus = recipe.parallelism.num_gpus
        if num_gpus is None:
            return "parallelism.num_gpus is not set; `bridgepack plan` takes it as --num-gpus"
        shape_to_plan(recipe)
        lengths = lengths_of(recipe, artifact=artifact.folder)
        return plan_recipe(recipe, lengths, gpu=gpu_by_name(DEFAULT_GPU), num_gpus=num_gpus)
    except BridgepackError as error:
        return str(error)


def _open_packs(target: Path, packs: CheckedPacks, options: CheckOptions) -> Artifact | ArtifactOnDisk | None:
    if packs.facts.manifest is None:
        return ArtifactOnDisk(target, may_lack_manifest=bool(options.given))
    try:
        return opened_artifact(target)
    except ArtifactError:
        return None  # the findings say what differs


def _split_pages(artifact: Artifact | ArtifactOnDisk | None, facts: ArtifactFacts) -> Iterator[SplitOverview]:
    size = facts.context.packed_sequence_size
    for name, truth in facts.truths.items():
        record = facts.manifest.split(name) if facts.manifest else None
        lengths, samples, reason = None, [], ""
        try:
            if artifact is None:
                raise ArtifactError(_CHANGED)
            lengths = _lengths(artifact, truth)
            samples = excerpts(artifact, name, _packs_to_draw(lengths), size)
        except ArtifactError as error:
            reason = str(error)
        yield SplitOverview(
            name=name,
            record=record,
            truth=truth,
            lengths=lengths,
            unknown=reason,
            packed_sequence_size=size,
            excerpts=tuple(samples),
        )


def _lengths(artifact: Artifact | ArtifactOnDisk, truth: SplitTruth) -> SplitLengths:
    if not truth.is_complete or not truth.num_rows:
        raise ArtifactError(_UNSOUND)
    if isinstance(artifact, Artifact):
        return lengths_of_plan(artifact, truth.split, truth.num_rows)
    return lengths_of_rows(artifact, truth.split, truth.num_rows)


def _packs_to_draw(lengths: SplitLengths) -> dict[str, int]:
    random_pack = int(np.random.default_rng(0).integers(lengths.num_packs))
    return {"The first pack": 0, "A pack drawn at random": random_pack, "The emptiest pack": lengths.emptiest}
