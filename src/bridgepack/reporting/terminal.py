"""Renders summaries of builds and artifacts, and drawings of packs, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bridgepack.bridge.wiring import Packs, RunLength, run_length
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.recorded import recorded_recipe_values
from bridgepack.data.artifact.artifact import DROPPED_ROWS_FILE, LOST_CONTENT_FILE, PLAN_FOLDER
from bridgepack.records import (
    LOSS_CURES,
    Drop,
    DropReason,
    LostContent,
    Manifest,
    SourceRecord,
    SplitRecord,
    SplitStatistics,
    UnreadField,
    Waiting,
)
from bridgepack.reporting.pieces import added_line, cut_history_line
from bridgepack.reporting.text import first_lines, printable, without_middle

if TYPE_CHECKING:
    from bridgepack.data.results import ArtifactPlan, BuildResult

TOKENIZER_WARNING = (
    "this version of transformers loads the tokenizer as one that loses text (spaces, line ends), although its "
    "tokenizer.json does not; Megatron-Bridge would do the same here. Set tokenizer.loader to tokenizer_json, or use "
    "another version of transformers."
)
_BAR_WIDTH = 40
#: Where the lines are that a long list leaves out.
_ALL = "--json lists all"
_LABEL_WIDTH = 38
#: Characters of what is wrong with a row; of more, the middle is left out, because the remedy stands at the end.
_DETAIL_CHARACTERS = 500
#: Names of fields without a finding that are shown, and characters of a field's name.
_NAMES, _NAME_CHARACTERS = 40, 80


def describe_build(result: BuildResult, recipe: SFTRecipe | None = None) -> str:
    """Return the summary of a build: inputs, packs, drops with reasons, location, and steps of the run.

    `recipe` is the run's (default: the manifest's, whose batch size may differ if nothing was built).
    """
    if result.was_built_before:
        head = f"Already built, nothing to do: {result.output}"
    else:
        head = f"Built {result.output}"
        if result.damage:
            head += f" again{_because_of(result.damage)}"
        elif result.replaced_fingerprint == result.manifest.fingerprint:
            head += " again"
        elif result.replaced_fingerprint is not None:
            head += f" (replaced the artifact {result.replaced_fingerprint[:12]})"
    summary = describe_manifest(result.manifest, result.output)
    recipe = recipe or SFTRecipe.from_mapping(recorded_recipe_values(result.manifest))
    num_packs = {split.name: split.statistics.num_packs for split in result.manifest.splits}
    run = run_length(recipe, Packs(folder=str(result.output), num_packs=num_packs))
    lines = [*_describe_work(result), "", *describe_run(run)]
    return "\n".join([printable(head), "", summary, *map(printable, lines)])


def _because_of(damage: Mapping[str, str]) -> str:
    (path, problem), num_more = next(iter(damage.items())), len(damage) - 1
    more = f"; {num_more:,} more {'file' if num_more == 1 else 'files'}" if num_more else ""
    return f", because the old one was changed: {path}: {problem}{more}"


def describe_run(run: RunLength) -> Iterator[str]:
    """Yield the number of steps and epochs of a run, or a warning if training cannot start."""
    packs, batch, steps = run.num_packs, run.global_batch_size, run.num_steps
    if not run.lack:
        yield (
            f"run: {packs:,} {'pack' if packs == 1 else 'packs'}, {batch:,} per step: {packs / batch:,.1f} steps per "
            f"epoch; {steps:,} {'step is' if steps == 1 else 'steps are'} {steps * batch / packs:,.1f} epochs"
        )
    else:
        most, least = run.most_packs_per_step, run.smallest_batch
        needs = f"A step takes at least {least:,} packs, for the data-parallel ranks"
        cure = f"Set {run.at_most(most)}." if most else f"{needs}. Use fewer GPUs, smaller packs or more data."
        yield f"warning: training cannot start: {packs:,} packs < global batch {batch:,}. {cure}"


def _describe_work(result: BuildResult) -> Iterator[str]:
    kept = result.kept
    if result.upload is not None:
        yield ""
        yield (
            f"A copy is in {result.upload.url}: {result.upload.num_sent:,} of {result.upload.num_files:,} files were "
            "sent, the others were already there"
        )
    if kept.num_ranges_found or kept.num_shards_found:
        yield ""
        yield (
            f"{kept.num_ranges_found:,} of {kept.num_ranges_found + kept.num_ranges_tokenized:,} input ranges were "
            f"tokenised before; {kept.num_shards_found:,} of {kept.num_shards_found + kept.num_shards_written:,} "
            "shards were written before"
        )
    if kept.num_rows_copied:
        yield ""
        yield f"{kept.num_rows_copied:,} rows, which both lengths leave whole, were tokenised before; the others now"
    for message in filter(None, (kept.engine_message, kept.served_message)):
        yield ""
        yield f"note: {message}"


def describe_manifest(manifest: Manifest, folder: Path, waiting: Waiting | None = None) -> str:
    """Return an artifact's summary, with how long ranks wait for each other in its own run where that is known."""
    return printable("\n".join(_summary(manifest, folder, waiting)))


def _describe_waiting(waiting: Waiting) -> Iterator[str]:
    now = waiting.as_built
    yield (
        f"{'slowest rank':<22}{now.mean:.3f} times an even step (p95 {now.p95:.3f}, worst {now.worst:.3f}), over "
        f"{waiting.num_steps:,} steps"
    )
    yield (
        f"{'':<22}{waiting.shuffled.mean:.3f} in random order, {waiting.within_batch.mean:.3f} balanced within_batch, "
        f"{waiting.across_batches.mean:.3f} across_batches"
    )


def _summary(manifest: Manifest, folder: Path, waiting: Waiting | None) -> Iterator[str]:
    yield f"{'fingerprint':<22}{manifest.fingerprint[:12]}"
    yield f"{'packed_sequence_size':<22}{manifest.packed_sequence_size:,} runtime tokens"
    yield f"{'pad_seq_to_mult':<22}{manifest.pad_seq_to_mult} ({manifest.resolved['pad_seq_to_mult']['because']})"
    yield f"{'tokenizer':<22}{manifest.tokenizer['name_or_path']}"
    if manifest.balance is not None:
        yield f"{'balance':<22}{manifest.balance.describe()}"
    if waiting is not None:
        yield from _describe_waiting(waiting)
    if manifest.tokenizer.get("loses_text"):
        yield ""
        yield f"warning: {TOKENIZER_WARNING}"
    for split in manifest.splits:
        yield ""
        yield from _describe_split(manifest, split)
        if set(split.drops) - {DropReason.NOT_SAMPLED} or split.dropped_pieces:
            yield f"  every dropped row: {folder / PLAN_FOLDER / DROPPED_ROWS_FILE}"
        if split.lost_content:
            yield f"  every row with lost content: {folder / PLAN_FOLDER / LOST_CONTENT_FILE}"


def _describe_split(manifest: Manifest, split: SplitRecord) -> Iterator[str]:
    numbers = split.statistics
    num_dropped = sum(split.drops.values())
    alignment = numbers.num_alignment_tokens / max(numbers.num_packs * manifest.packed_sequence_size, 1)
    lines = {
        "rows in": f"{numbers.num_rows_in:,}" + _if_any(numbers.num_blank_lines, " (and {} blank lines)"),
        "sequences packed": f"{numbers.num_sequences:,}"
        + _if_any(numbers.num_truncated, ", of which {} truncated")
        + _if_any(numbers.num_repeated, ", {} of them repeated")
        + _split(numbers),
        "rows dropped": f"{num_dropped:,}",
        "packs": f"{numbers.num_packs:,}, {numbers.sequences_per_pack:.1f} sequences per pack"
        f" (max {numbers.max_sequences_per_pack})",
        "fill": f"{manifest.fill_fraction(split):.2%} of the capacity is tokens, {alignment:.2%} alignment padding",
        "tokens": f"{numbers.num_tokens:,}, of which {numbers.num_trained_tokens:,} "
        f"({numbers.num_trained_tokens / max(numbers.num_tokens, 1):.1%}) trained",
        **added_line(numbers),
        **cut_history_line(split),
        "shards": f"{len(split.shards)}, {sum(shard.num_bytes for shard in split.shards) / 1e6:,.1f} MB",
    }
    yield split.name
    for name, text in lines.items():
        yield f"  {name:<20}{text}"
        if name == "rows in" and split.skipped_files is not None:
            yield f"  {'':<20}{split.skipped_files.describe()}"
        if name == "rows dropped":
            for reason, count in split.drops.items():
                drop = next((drop for drop in split.drop_examples if drop.reason == reason), None)
                example = "left out of the mixture by the seed" if drop is None else f"e.g. {origin_text(split, drop)}"
                yield f"    {reason:<28}{count:>8,}   {example}"
            yield from _describe_pieces(split)
    if split.is_mixture:
        yield f"  {'sources':<38}{'rows':>9} {'sequences':>10} {'tokens':>13} {'trained':>13}  asked  actual"
        lines_of_sources = (_source_line(sources, depth) for depth, sources in source_tree(split))
        yield from first_lines(lines_of_sources, _ALL)
    if split.lost_content:
        yield "  lost content        content of rows that the chat template left out or changed"
    for kind, count in split.lost_content.items():
        lost = next((lost for lost in split.lost_examples if lost.kind == kind), None)
        yield f"    {kind:<28}{count:>8,}   e.g. {origin_text(split, lost)}"
        yield f"      fix: {LOSS_CURES.get(kind, 'see the docs of the bridgepack that built it')}"
    sources = [" ".join(source.name) for source in split.sources] if split.sources[1:] else []
    yield from describe_unread(split.unread, sources)


def _describe_pieces(split: SplitRecord) -> Iterator[str]:
    """Yield the lines about dropped pieces of rows that stay; equal pieces of other rows may be packed."""
    if split.dropped_pieces:
        num_rows = split.statistics.num_partly_packed
        num_dropped = sum(split.dropped_pieces.values())
        yield f"  {'pieces dropped':<20}{num_dropped:,}, of {num_rows:,} rows whose other pieces are packed"
    for reason, count in split.dropped_pieces.items():
        drop = next((drop for drop in split.piece_examples if drop.reason == reason), None)
        yield f"    {reason:<28}{count:>8,}   e.g. {origin_text(split, drop)}"


def describe_unread(fields: Sequence[UnreadField], sources: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines about columns and fields of turns that nobody reads; `sources` are names if there are several."""
    if fields:
        yield "  not read            columns and fields of turns that nobody reads"
    yield from first_lines((_unread_line(field, sources) for field in fields if field.holds != "identifier"), _ALL)
    others = list(dict.fromkeys(field.name for field in fields if field.holds == "identifier"))
    if others:
        names = [without_middle(name, _NAME_CHARACTERS) for name in others[:_NAMES]]
        more = f" and {len(others) - _NAMES:,} more" if len(others) > _NAMES else ""
        yield f"    {', '.join(names)}{more}: identifiers, labels or copies"


def _unread_line(field: UnreadField, sources: Sequence[str]) -> str:
    share = f"{field.holds} in {field.num_rows / max(field.num_rows_read, 1):.0%} of the rows"
    where = f" of {sources[field.source]}" if sources else ""
    name = without_middle(field.name, _NAME_CHARACTERS)
    return f"    {name:<28}{field.num_rows:>8,}   {share}{where}, e.g. {field.example}"


def source_tree(split: SplitRecord) -> Iterator[tuple[int, Sequence[SourceRecord]]]:
    """Yield depth, from 1, and sources of each line of a tree: those of a mixture, then each of them below it."""
    above: tuple[str, ...] = ()
    for source in split.sources:
        for depth in range(1, len(source.name)):
            group = source.name[:depth]
            if above[:depth] != group:
                yield depth, [one for one in split.sources if one.name[:depth] == group]
        above = source.name
        yield len(above), [source]


def _source_line(sources: Sequence[SourceRecord], depth: int) -> str:
    label = "  " * depth + sources[0].name[depth - 1]
    label = label if len(label) <= _LABEL_WIDTH else f"{'  ' * depth}...{label[2 * depth + 3 - _LABEL_WIDTH :]}"
    numbers = [
        sum(getattr(source, f"num_{name}") for source in sources)
        for name in ("rows_in", "sequences", "tokens", "trained_tokens")
    ]
    asked = [source.share_asked for source in sources if source.share_asked is not None]
    shares = [f"{sum(asked):7.2%}" if asked else f"{'-':>7}", f"{sum(source.share_got for source in sources):7.2%}"]
    counts = f"{numbers[0]:>9,} {numbers[1]:>10,} {numbers[2]:>13,} {numbers[3]:>13,}"
    return f"  {label:<{_LABEL_WIDTH}}{counts} {shares[0]} {shares[1]}"


def origin_text(split: SplitRecord, example: Drop | LostContent | None) -> str:
    """Return `FILE row N: what is wrong with it`, or nothing without an example."""
    if example is None:
        return ""
    detail = " ".join(without_middle(example.detail, _DETAIL_CHARACTERS).split())
    return f"{split.inputs[example.file_index].path} row {example.row}: {detail}"


def describe_histogram(split: SplitRecord) -> Iterator[str]:
    """Yield the lines of a split's length histogram, in runtime tokens."""
    histogram = split.statistics.length_histogram
    most = max((count for _, count in histogram), default=1) or 1
    yield f"sequence lengths in runtime tokens, {split.name}"
    low = 1
    for bound, count in histogram:
        bar = "█" * round(_BAR_WIDTH * count / most)
        yield f"  {low:>9,} - {bound:<9,} {count:>10,} {bar}"
        low = bound + 1


def describe_plan(plan: ArtifactPlan, *, source: Path | None = None, tokenises_again: bool = False) -> str:
    """Return what a build would do, or a re-pack of the artifact in a folder `source`.

    `tokenises_again` as of `RepackPlan`.
    """
    action = "build" if source is None else f"pack the sequences of {source} again"
    if tokenises_again:
        action += ", after reading its inputs and tokenising again the conversations that the old or new length cuts"
    if plan.existing is not None:
        needs = " (needs --replace)" if plan.existing.fingerprint != plan.spec.fingerprint else ""
        why = _because_of(plan.damage) if plan.damage else ""
        action += f", and replace the artifact {plan.existing.fingerprint[:12]}{needs}{why}"
    if plan.is_built:
        action = "nothing: it is already built"
    copy = [] if plan.copy is None else [f"copy: {plan.copy}"]
    lines = [f"would do: {action}", f"output: {plan.output}", *copy, f"fingerprint: {plan.spec.fingerprint}", ""]
    for split, records in plan.spec.inputs.items() if source is None else ():
        lines.append(f"{split} inputs:")
        inputs = (f"  {record.path}  {record.num_bytes:,} bytes  sha256 {record.sha256[:12]}" for record in records)
        lines += first_lines(inputs, _ALL)
        lines += [f"  {plan.spec.skipped[split].describe()}"] if split in plan.spec.skipped else []
    lines += ["", "derived:"] if source is None else ["derived:"]
    derived, balance = plan.spec.resolved.explain(), plan.spec.resolved.balance
    if balance is not None:
        derived["balance"]["value"] = balance.describe()
    lines += [f"  {name} = {item['value']} ({item['because']})" for name, item in derived.items()]
    return printable("\n".join([*lines, "", "recipe:", plan.spec.resolved.recipe.model_dump_json(indent=2)]))


def _if_any(count: int, text: str) -> str:
    return text.format(f"{count:,}") if count else ""


def _split(numbers: SplitStatistics) -> str:
    left_out = _if_any(numbers.num_untrained_pieces, "; {} more without trained tokens left out")
    return _if_any(numbers.num_split, f", of which {numbers.num_pieces:,} are pieces of {{}} split rows{left_out}")
