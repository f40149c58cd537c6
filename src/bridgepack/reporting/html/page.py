"""An artifact as one HTML page: the report of `check`, then the contents of its manifest, plan and rows."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bridgepack import __version__
from bridgepack.bridge.targets import Target
from bridgepack.bridge.wiring import Packs, RunLength, run_length
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.checking.packs import CheckedPacks, check_packs
from bridgepack.checking.settings import settings_of
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import recipe_to_yaml
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.checking import ArtifactOnDisk
from bridgepack.data.artifact.inspection import (
    PackView,
    SequenceView,
    TextSpan,
    tokenizer_of,
    view_pack,
    view_sequences,
)
from bridgepack.errors import ArtifactError, BridgepackError, ConfigError
from bridgepack.planning.balance import waiting_in
from bridgepack.planning.layout import DEFAULT_GPU, gpu_by_name
from bridgepack.planning.lengths import lengths_of
from bridgepack.planning.plan import Plan, plan_recipe, shape_to_plan
from bridgepack.proof.packs import opened_artifact, recorded_recipe
from bridgepack.records import LOSS_CURES, Drop, LostContent, Manifest, PackedRow, SplitRecord, Waiting
from bridgepack.reporting.html.cards import FindingCard, cards_of
from bridgepack.reporting.html.charts import (
    Chart,
    PackBar,
    SplitLengths,
    length_chart,
    lengths_of_plan,
    lengths_of_rows,
    pack_bars,
    value_chart,
)
from bridgepack.reporting.html.render import render_template
from bridgepack.reporting.plans import NO_LAYOUT
from bridgepack.reporting.terminal import source_tree
from bridgepack.reporting.text import without_middle
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.report import CheckReport
from bridgepack.rules.judging.rule import Severity
from bridgepack.rules.judging.truth import SplitTruth

#: Maximum characters of a stretch, of a pack, and maximum stretches of a sequence.
_SPAN_CHARACTERS, _PACK_CHARACTERS, _NUM_SPANS = 600, 24_000, 40
_BATCH_TOKENS = 1 << 22
#: Fewest packs of which histograms are drawn: of fewer, the table of packs says all.
_LEAST_DRAWN = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Excerpt:
    """A pack, shortened for the page."""

    why: str  #: why it is shown
    view: PackView  #: the pack with the sequences that are shown
    num_sequences: int  #: sequences of the whole pack
    num_tokens: int  #: runtime tokens of the whole pack, with alignment padding


def excerpts(
    artifact: Artifact | ArtifactOnDisk, split: str, chosen: dict[str, int], size: int | None
) -> list[Excerpt]:
    """Return excerpts of the chosen packs (reason for showing a pack -> the pack), each pack once.

    Without a manifest, which names the tokenizer, token ids are shown. `size` is the packed_sequence_size, if known.

    Raises:
        ArtifactError: a pack cannot be read.
    """
    reasons = {pack: ", ".join(why for why, other in chosen.items() if other == pack) for pack in chosen.values()}
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
    found: dict[int, PackedRow] = {}
    first = 0
    for shard in artifact.shard_facts(split):
        for batch in artifact.parts.iter_batches(shard.path, max_tokens=_BATCH_TOKENS):
            found |= {pack: batch.row(pack - first) for pack in packs if first <= pack < first + batch.num_rows}
            first += batch.num_rows
    if len(found) < len(packs):
        raise ArtifactError(f"{split} has {first} packs, not pack {max(packs)}. Build the artifact again.")
    return found


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
        shown = sequence.spans[:_NUM_SPANS]
        spans = tuple(replace(span, text=without_middle(span.text, _SPAN_CHARACTERS)) for span in shown)
        num_hidden = len(sequence.spans) - len(spans)
        if num_hidden:
            text = f"[... {num_hidden:,} more stretches ...]"
            num_tokens = sum(span.num_tokens for span in sequence.spans[_NUM_SPANS:])
            spans = (*spans, TextSpan(text=text, is_trained=False, num_tokens=num_tokens))
        if room <= 0:
            return
        room -= sum(len(span.text) for span in spans)
        yield replace(sequence, spans=spans)


#: Text in place of a section whose data is missing.
_FOREIGN = "another tool made these packs, and they have no manifest"
_CHANGED = "the files differ from the build; see the findings"
_UNSOUND = "some packs are unreadable or invalid; see the findings"


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitPage:
    """The data of one split on the page."""

    name: str
    record: SplitRecord | None  #: its record in the manifest, or None
    truth: SplitTruth  #: totals over its rows
    lengths: SplitLengths | None  #: None if unknown
    unknown: str  #: why the lengths are unknown
    packed_sequence_size: int | None
    charts: Mapping[str, Chart]  #: its histograms, of `lengths`, `fill`, `sequences` and `costs`; empty without lengths
    pack_bars: tuple[PackBar, ...]  #: some of its packs; empty without lengths
    excerpts: tuple[Excerpt, ...]

    @property
    def capacity(self) -> int | None:
        """Runtime tokens that its packs can hold, or None if unknown."""
        return None if self.packed_sequence_size is None else self.packed_sequence_size * self.truth.num_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class ArtifactPage:
    """The data of the page."""

    folder: Path  #: folder, file or pattern
    report: CheckReport
    facts: ArtifactFacts
    splits: tuple[SplitPage, ...]
    waiting: Waiting | str  #: or a text with the reason if unknown
    plan: Plan | str  #: possible pack sizes for its sequences in this run, or a text with the reason if unknown
    has_recipe: bool  #: whether it was judged with a recipe
    run: RunLength | str  #: steps of the run, of the given recipe or else the packs' own; or why they are unknown

    @property
    def urgent(self) -> list[FindingCard]:
        """Errors and warnings, those that say the same on one card."""
        return list(cards_of(one for one in self.report.findings if one.severity != Severity.ADVICE))

    @property
    def advice(self) -> list[FindingCard]:
        """Advice, on cards like `urgent`."""
        return list(cards_of(one for one in self.report.findings if one.severity == Severity.ADVICE))

    def html(self) -> str:
        """Return the page as HTML."""
        manifest = self.facts.manifest
        return render_template(
            "artifact.html.jinja",
            page=self,
            manifest=manifest,
            recipe="" if manifest is None else _recipe_text(manifest),
            origin=_origin,
            version=__version__,
            cures=LOSS_CURES,
            no_layout=NO_LAYOUT,
            source_tree=source_tree,
        )


def artifact_page(folder: Path, options: CheckOptions, target: Target | None = None) -> ArtifactPage:
    """Return the page of an artifact, of a packed file, or of the files that match a pattern.

    `target` is the recipe to judge it with, if `options` have the artifact (default: the artifact alone is judged).

    Raises:
        ArtifactError: the folder is not an artifact.
        RuleCrashError: a rule raised.
    """
    loaded = target or Target(kind="artifact", place=str(folder), artifact=folder)
    packs = check_packs(loaded, settings_of(loaded, options), options)
    assert packs is not None
    opened = _open_packs(folder, packs, options)
    splits = tuple(_split_pages(opened, packs.facts))
    unknown = _FOREIGN if packs.facts.manifest is None else _CHANGED
    return ArtifactPage(
        folder=folder,
        report=check_target(loaded, options, packs=packs),
        facts=packs.facts,
        splits=splits,
        waiting=_waiting(opened, loaded, options) if isinstance(opened, Artifact) else unknown,
        plan=_plan(opened, loaded) if isinstance(opened, Artifact) else unknown,
        has_recipe=loaded.config is not None,
        run=_run(opened, loaded) if isinstance(opened, Artifact) else unknown,
    )


def _run(artifact: Artifact, loaded: Target) -> RunLength | str:
    try:
        recipe = loaded.recipe or recorded_recipe(artifact, {})
        num_packs = {split.name: split.statistics.num_packs for split in artifact.manifest.splits}
        return run_length(recipe, Packs(folder=str(artifact.folder), num_packs=num_packs))
    except BridgepackError as error:
        return str(error)


def _waiting(artifact: Artifact, loaded: Target, options: CheckOptions) -> Waiting | str:
    try:
        source = loaded.recipe or loaded.config or recorded_recipe(artifact, {})
        return waiting_in(artifact, source, world_size=options.world_size)
    except BridgepackError as error:
        return str(error)


def _plan(artifact: Artifact, loaded: Target) -> Plan | str:
    try:
        recipe = loaded.recipe or recorded_recipe(artifact, {})
        num_gpus = recipe.parallelism.num_gpus
        if num_gpus is None:
            return "parallelism.num_gpus is not set; `bridgepack plan` takes it as --gpus"
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


def _split_pages(opened: Artifact | ArtifactOnDisk | None, facts: ArtifactFacts) -> Iterator[SplitPage]:
    size = facts.context.packed_sequence_size
    for name, truth in facts.truths.items():
        record = facts.manifest.split(name) if facts.manifest else None
        lengths, shown, unknown = None, [], ""
        try:
            if opened is None:
                raise ArtifactError(_CHANGED)
            lengths = _lengths(opened, truth)
            shown = excerpts(opened, name, _packs_to_draw(lengths), size)
        except ArtifactError as error:
            unknown = str(error)
        yield SplitPage(
            name=name,
            record=record,
            truth=truth,
            lengths=lengths,
            unknown=unknown,
            packed_sequence_size=size,
            charts={} if lengths is None else _charts(lengths, size),
            pack_bars=() if lengths is None else pack_bars(lengths, size),
            excerpts=tuple(shown),
        )


def _lengths(opened: Artifact | ArtifactOnDisk, truth: SplitTruth) -> SplitLengths:
    if not truth.is_complete or not truth.num_rows:
        raise ArtifactError(_UNSOUND)
    if isinstance(opened, Artifact):
        return lengths_of_plan(opened, truth.split, truth.num_rows)
    return lengths_of_rows(opened, truth.split, truth.num_rows)


def _charts(lengths: SplitLengths, size: int | None) -> dict[str, Chart]:
    charts = {"lengths": length_chart(lengths, size)}
    if lengths.num_packs < _LEAST_DRAWN:
        return charts
    return charts | {
        "fill": value_chart(lengths.pack_tokens),
        "sequences": value_chart(lengths.pack_sequences),
        "costs": value_chart(lengths.pack_costs / max(lengths.pack_costs.mean(), 1.0)),
    }


def _packs_to_draw(lengths: SplitLengths) -> dict[str, int]:
    drawn = int(np.random.default_rng(0).integers(lengths.num_packs))
    return {"The first pack": 0, "A pack drawn at random": drawn, "The emptiest pack": lengths.emptiest}


def _recipe_text(manifest: Manifest) -> str:
    recipe = manifest.recipe
    try:
        return recipe_to_yaml(SFTRecipe.from_mapping(recipe))
    except ConfigError:  # recipe of another version of bridgepack; JSON is valid YAML
        return json.dumps(recipe, indent=2)


def _origin(record: SplitRecord, example: Drop | LostContent) -> str:
    named = dict(enumerate(record.inputs)).get(example.file_index)
    return f"{named.path if named else 'an input that the manifest does not list'} row {example.row}"
