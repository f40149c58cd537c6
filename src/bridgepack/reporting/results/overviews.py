"""The blocks of an artifact's report: the findings of `check`, then its rows, lengths, packs and origin."""

import json
import shlex
from collections.abc import Iterator

from bridgepack.checking.overview import Overview, SplitOverview
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.recorded import recorded_recipe_values
from bridgepack.config.write import recipe_to_yaml
from bridgepack.errors import ConfigError
from bridgepack.records import Manifest, SplitRecord
from bridgepack.records.words import count_text
from bridgepack.reporting.blocks import (
    Block,
    Code,
    Column,
    Figure,
    Findings,
    Legend,
    Line,
    Section,
    Table,
    Tone,
    Verdict,
)
from bridgepack.reporting.results.artifacts import (
    ledger_blocks,
    loss_blocks,
    pack_figures,
    source_table,
    unread_blocks,
)
from bridgepack.reporting.results.checks import upgrade_table, upgrade_title
from bridgepack.reporting.results.overview_packs import name_of, pack_sections, percent
from bridgepack.reporting.results.packs import sequence_block
from bridgepack.reporting.results.served import kinds_table


def overview_blocks(overview: Overview) -> Iterator[Block]:
    """Yield an artifact's report."""
    manifest, first = overview.facts.manifest, overview.splits[0] if overview.splits else None
    yield _verdict(overview, first)
    if first is not None and first.excerpts:
        texts = map(sequence_block, first.excerpts[0].view.sequences[:1])
        yield Section("What is trained", (Line(f"The first sequence of {first.name}."), Legend(), *texts))
    yield Section("Findings", tuple(_findings(overview)))
    yield Section("Rows: packed and dropped", tuple(_ledger(overview, manifest)))
    yield Section("Sources", tuple(_sources(overview)))
    yield from pack_sections(overview)
    yield Section("Overlap between splits", tuple(_overlap(overview)))
    yield Section("How to reproduce it", tuple(_origin(overview, manifest)))


def _verdict(overview: Overview, first: SplitOverview | None) -> Verdict:
    report = overview.report
    tone: Tone = "good"
    text = "No findings"
    if report.num_errors:
        text, tone = f"Not ready: {count_text(report.num_errors, 'error')}", "bad"
    elif report.num_warnings:
        text, tone = f"No errors, {count_text(report.num_warnings, 'warning')}", "warn"
    elif report.findings:
        text = "No errors or warnings"
    need = "the environment of the run" if overview.has_recipe else "a recipe"
    details = [
        f"{len(report.rules_run)} rules checked {report.num_rows:,} packs with {report.num_tokens:,} stored tokens "
        f"from {report.num_shards_read} of {report.num_shards} shards; {len(report.rules_skipped)} rules did not run "
        f"because they need more, such as {need}."
    ]
    if report.num_errors and report.num_warnings:
        details.append(f"{count_text(report.num_warnings, 'warning')} as well.")
    figures = () if first is None else tuple(_tiles(overview, first))
    return Verdict(text=text, details=tuple(details), tone=tone, figures=figures)


def _tiles(overview: Overview, split: SplitOverview) -> Iterator[Figure]:
    truth, record, run = split.truth, split.record, overview.run
    yield Figure(name="Packs", value=f"{truth.num_rows:,}", note=split.name)
    if record is not None:
        num_dropped, num_rows = sum(record.drops.values()), record.statistics.num_rows_in
        share = f"{percent(num_dropped, num_rows)} of {num_rows:,} rows"
        yield Figure(name="Rows dropped", value=f"{num_dropped:,}", note=share)
    if not isinstance(run, str):
        batch = f"of {count_text(run.global_batch_size, 'pack')}"
        steps = ("none", run.lack) if run.lack else (f"{run.num_steps:,}", batch)
        yield Figure(name="Steps", value=steps[0], note=steps[1])
    mean = truth.num_sequences / max(truth.num_rows, 1)
    yield Figure(name="Sequences", value=f"{truth.num_sequences:,}", note=f"{mean:.1f} per pack")
    yield Figure(name="Tokens", value=f"{truth.num_tokens:,}", note="runtime, padding included")
    num_tokens = record.statistics.num_tokens if record is not None else truth.num_tokens
    tokens = f"{truth.num_trained_tokens:,} tokens"
    yield Figure(name="Trained", value=percent(truth.num_trained_tokens, num_tokens), note=tokens)
    manifest = overview.facts.manifest
    if record is not None and manifest is not None:
        yield Figure(name="Fill", value=percent(manifest.fill_fraction(record)), note="padding not counted")
    elif split.capacity:
        yield Figure(name="Fill", value=percent(truth.num_tokens, split.capacity), note="padding included")
    else:
        yield Figure(name="Fill", value="not known", note="give the pack size with --given")
    size = f"{split.packed_sequence_size:,}" if split.packed_sequence_size else "not known"
    yield Figure(name="Pack size", value=size, note="runtime tokens")


def _findings(overview: Overview) -> Iterator[Block]:
    report = overview.report
    if report.host is not None:
        yield Line(report.host.text)
    yield Findings(report.findings) if report.findings else Line("None: every rule that could run passed.")
    if report.upgrade is not None:
        title = f"Megatron-Bridge {upgrade_title(report.upgrade)}"
        yield Section(title, tuple(upgrade_table(report.upgrade)))


def _ledger(overview: Overview, manifest: Manifest | None) -> Iterator[Block]:
    for split in overview.splits:
        if split.record is None or manifest is None:
            text = "Not known: another tool made these packs, without a record of the rows that it read or dropped."
            yield Section(split.name, (Line(text),))
        else:
            yield Section(split.name, tuple(_record_blocks(manifest, split.record)))
    if manifest is not None and manifest.served is not None and manifest.served.num_answers:
        yield Section("of the training files", (kinds_table(manifest.served),))
    if manifest is not None:
        yield Line("Every dropped row is in plan/dropped.jsonl, every loss in plan/lost_content.jsonl.")


def _record_blocks(manifest: Manifest, record: SplitRecord) -> Iterator[Block]:
    numbers = record.statistics
    counts = {
        "read": numbers.num_rows_in,
        "packed": numbers.num_rows_packed,
        "dropped": sum(record.drops.values()),
        **({"packed in part": numbers.num_partly_packed} if record.dropped_pieces else {}),
    }
    columns = (Column("What"), Column("Rows", is_number=True), Column("Share", is_number=True))
    rows = [(name, f"{count:,}", percent(count, numbers.num_rows_in)) for name, count in counts.items()]
    yield Table(title=f"Rows of {record.name}", columns=columns, rows=rows)
    yield from ledger_blocks(record)
    yield pack_figures(manifest, record)
    losses = tuple(loss_blocks(record))
    yield from losses or (Line("No content is lost to the chat template."),)
    sources = [" ".join(source.name) for source in record.sources] if record.sources[1:] else []
    yield from unread_blocks(record.unread, sources)


def _sources(overview: Overview) -> Iterator[Block]:
    for split in overview.splits:
        if split.record is None or not split.record.sources:
            why = "its manifest lists no sources." if split.record else "another tool made these packs."
            yield Section(split.name, (Line(f"Not known: {why}"),))
        else:
            yield Section(split.name, (source_table(split.record),))


def _overlap(overview: Overview) -> Iterator[Line]:
    if len(overview.splits) < 2:
        yield Line("There is one split.")
    elif overview.facts.shared_sequences:
        for overlap in overview.facts.shared_sequences:
            yield Line(f"{overlap.share} are in {overlap.other} as well, first at {overlap.where}.")
    else:
        is_partial = any(not split.truth.is_complete for split in overview.splits)
        yield Line(f"No sequence is in both splits{', as far as packs could be read' if is_partial else ''}.")


def _origin(overview: Overview, manifest: Manifest | None) -> Iterator[Block]:
    if manifest is None:
        yield Line(f"Not known: these packs have no manifest. They were read from {overview.folder}.")
        return
    name = shlex.quote(name_of(overview))
    yield Line("The same inputs, recipe and versions give the same bytes. Save the recipe below as recipe.yaml, then:")
    yield Code(f"bridgepack build recipe.yaml --output {name}\nbridgepack prove sources {name}")
    facts = {
        "fingerprint": manifest.fingerprint,
        "format version": str(manifest.format_version),
        "pad_seq_to_mult": str(manifest.pad_seq_to_mult),
        "tokenizer": tokenizer_text(manifest),
        **{name: str(version) for name, version in manifest.versions.items()},
    }
    yield facts_table("Built with", facts)
    columns = (Column("File"), Column("Rows", is_number=True), Column("Bytes", is_number=True), Column("sha256"))
    for split in manifest.splits:
        rows = [(file.path, f"{file.num_rows:,}", f"{file.num_bytes:,}", file.sha256[:16]) for file in split.inputs]
        yield Table(title=f"Inputs of {split.name}", columns=columns, rows=rows, remainder="manifest.json has all")
    yield Section("The recipe", (Code(_recipe_text(manifest)),), is_folded=True)


def facts_table(title: str, facts: dict[str, str]) -> Table:
    """Return names with what is known of them."""
    return Table(
        title=title, columns=(Column("What", "{}: "), Column("Value", "{}", is_long=True)), rows=[*facts.items()]
    )


def tokenizer_text(manifest: Manifest) -> str:
    """Return the tokenizer with its revision."""
    revision = manifest.tokenizer.get("revision")
    return f"{manifest.tokenizer.get('name_or_path', 'not known')}{f' at {revision}' if revision else ''}"


def _recipe_text(manifest: Manifest) -> str:
    try:
        return recipe_to_yaml(SFTRecipe.from_mapping(recorded_recipe_values(manifest)))
    except ConfigError:  # recipe of another version of bridgepack; JSON is valid YAML
        return json.dumps(manifest.recipe, indent=2)
