"""Results as parts of a page, as notebooks show them: figures, findings, texts with what is trained, tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, singledispatch
from itertools import islice
from typing import Any

from bridgepack.checking.written_report import WrittenReport
from bridgepack.data.artifact.inspection import ArtifactView, PackView, SequenceView
from bridgepack.data.results import BuildResult
from bridgepack.planning.candidate import Candidate
from bridgepack.planning.plan import Plan
from bridgepack.planning.preview import Preview, SourcePreview
from bridgepack.proof.diff.records import DiffReport
from bridgepack.proof.masks.records import MaskReport
from bridgepack.proof.served.records import ServedReport
from bridgepack.proof.trace.records import PackTrace, SourceTrace, StepTrace
from bridgepack.proof.verify.records import VerifyReport
from bridgepack.records import Manifest, SplitRecord
from bridgepack.records.results import Result, leaves, plain_values
from bridgepack.reporting.diffs import describe_artifact_diff
from bridgepack.reporting.html.cards import FindingCard, cards_of
from bridgepack.reporting.html.render import render_template
from bridgepack.reporting.proofs import (
    describe_masks,
    describe_pack,
    describe_source,
    describe_step,
    describe_verification,
)
from bridgepack.reporting.served import count_lines, describe_served
from bridgepack.reporting.terminal import describe_run, describe_unread, origin_text
from bridgepack.reporting.text import without_middle
from bridgepack.rules.judging.report import CheckReport

#: Maximum rows of a table, findings, sequences, and characters of a stretch of text; the result itself has all.
_ROWS, _FINDINGS, _SEQUENCES, _CHARACTERS = 20, 20, 10, 600
#: Class of results that are shown as the command writes them -> what writes one.
_WRITTEN: Mapping[type[Result], Callable[[Any], str]] = {
    VerifyReport: describe_verification,
    MaskReport: describe_masks,
    ServedReport: describe_served,
    DiffReport: describe_artifact_diff,
    StepTrace: partial(describe_step, has_colour=False, limit=_SEQUENCES),
    PackTrace: partial(describe_pack, has_colour=False, limit=_SEQUENCES),
    SourceTrace: partial(describe_source, has_colour=False),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table; its cells are texts."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What is shown of a result, in this order."""

    figures: Mapping[str, str] = field(default_factory=dict)
    findings: Sequence[FindingCard] = ()
    sequences: Sequence[SequenceView] = ()
    tables: Sequence[Table] = ()
    text: str = ""
    more: str = ""  #: what is left out, and how to see it


def result_html(result: Result) -> str:
    """Return a result as one HTML element with its own style; it needs no script and loads nothing."""
    return render_template("notebook.html.jinja", headline=result.headline(), parts=_parts(result))


@singledispatch
def _parts(result: Result) -> Parts:
    """Return the command's text or the table of `to_pandas`; classes that have more to show are registered below."""
    if (write := _WRITTEN.get(type(result))) is not None:
        return Parts(text=write(result))
    rows = [dict(leaves(plain_values(row))) for row in islice(result.table(), _ROWS + 1)]
    head = tuple(dict.fromkeys(name for row in rows for name in row))
    cells = [[_cell(row.get(name, "")) for name in head] for row in rows[:_ROWS]]
    more = f"The first {_ROWS} entries; to_pandas() has all." if len(rows) > _ROWS else ""
    return Parts(tables=[Table(title=type(result).__name__, head=head, rows=cells)] if rows else (), more=more)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


@_parts.register
def _of_build(result: BuildResult) -> Parts:
    return _of_manifest(result.manifest)


@_parts.register
def _of_artifact(result: ArtifactView) -> Parts:
    return _of_manifest(result.manifest)


def _of_manifest(manifest: Manifest) -> Parts:
    tables = [table for split in manifest.splits for table in _tables_of(split)]
    unread = [line for split in manifest.splits for line in describe_unread(split.unread)]
    served = [] if manifest.served is None else list(count_lines(manifest.served))
    return Parts(
        figures=_figures(manifest),
        tables=[table for table in tables if table.rows],
        text="\n".join([*unread, *(["answers as a server shows them:", *served] if served else ())]),
    )


def _figures(manifest: Manifest) -> dict[str, str]:
    figures: dict[str, str] = {}
    for split in manifest.splits:
        numbers, of_split = split.statistics, "" if split is manifest.splits[0] else f", {split.name}"
        figures |= {
            f"rows{of_split}": f"{numbers.num_rows_in:,}",
            f"rows dropped{of_split}": f"{sum(split.drops.values()):,}",
            f"sequences{of_split}": f"{numbers.num_sequences:,}",
            f"packs{of_split}": f"{numbers.num_packs:,}",
            f"fill{of_split}": f"{manifest.fill_fraction(split):.1%}",
            f"trained tokens{of_split}": f"{numbers.num_trained_tokens / max(numbers.num_tokens, 1):.1%}",
        }
    return figures


def _tables_of(split: SplitRecord) -> Iterator[Table]:
    head = ("reason", "rows", "for example")
    drops = {drop.reason: origin_text(split, drop) for drop in reversed(split.drop_examples)}
    lost = {one.kind: origin_text(split, one) for one in reversed(split.lost_examples)}
    pieces = {drop.reason: origin_text(split, drop) for drop in reversed(split.piece_examples)}
    tables: tuple[tuple[str, Mapping[Any, int], Mapping[Any, str]], ...] = (
        (f"Rows dropped, {split.name}", split.drops, drops),
        (f"Pieces dropped of rows that are packed in part, {split.name}", split.dropped_pieces, pieces),
        (f"Content that the chat template left out or changed, {split.name}", split.lost_content, lost),
    )
    for title, counts, examples in tables:
        rows = [[kind, f"{count:,}", examples.get(kind, "")] for kind, count in counts.items()]
        yield Table(title=title, head=head, rows=rows)


@_parts.register
def _of_pack(view: PackView) -> Parts:
    return Parts(text=view.note or "", **_shown(view.sequences))


def _shown(sequences: Sequence[SequenceView]) -> dict[str, Any]:
    """Return the first sequences, long stretches without their middle, and what is left out."""
    shown = [
        replace(one, spans=tuple(replace(span, text=without_middle(span.text, _CHARACTERS)) for span in one.spans))
        for one in sequences[:_SEQUENCES]
    ]
    num_more = len(sequences) - len(shown)
    return {"sequences": shown, "more": f"{num_more:,} more; `sequences` has all." if num_more else ""}


@_parts.register
def _of_check(report: CheckReport) -> Parts:
    figures = {
        "errors": f"{report.num_errors:,}",
        "warnings": f"{report.num_warnings:,}",
        "advice": f"{report.num_advice:,}",
        "rules that ran": f"{len(report.rules_run):,}",
        "rules that need more": f"{len(report.rules_skipped):,}",
    }
    cards = list(cards_of(report.findings))
    num_more = len(cards) - _FINDINGS
    more = f"{num_more:,} more; `findings` has all." if num_more > 0 else ""
    text = "\n".join(filter(None, (report.note, report.host.text if report.host else "")))
    return Parts(figures=figures, findings=cards[:_FINDINGS], text=text, more=more)


@_parts.register
def _of_report(written: WrittenReport) -> Parts:
    return _of_check(written.report)


@_parts.register
def _of_preview(preview: Preview) -> Parts:
    figures = {
        "rows": f"{sum(source.num_rows for source in preview.sources):,}",
        "rows read": f"{sum(source.num_rows_read for source in preview.sources):,}",
        "of them dropped": f"{sum(drop.num_rows for source in preview.sources for drop in source.drops):,}",
        **{f"packs, {split}": f"{count:,}" for split, count in (preview.num_packs or {}).items()},
        **({} if preview.run is None else {"steps": f"{preview.run.num_steps:,}"}),
    }
    lengths = [[" ".join(source.files[:3]), *_lengths(source)] for source in preview.sources]
    head = ("source", "p50", "p95", "p99", "longest", "trained")
    drops = [
        [note.kind, f"{note.num_rows:,}", note.example]
        for source in preview.sources
        for note in (*source.drops, *source.lost_content)
    ]
    tables = [
        Table(title="Tokens of a sequence", head=head, rows=lengths),
        Table(title="Rows that would be dropped, or lose content", head=("reason", "rows", "for example"), rows=drops),
    ]
    lines = [line for source in preview.sources for line in describe_unread(source.unread)]
    warnings = [] if preview.run is None else [line for line in describe_run(preview.run) if "warning" in line]
    return Parts(
        figures=figures,
        tables=[table for table in tables if table.rows],
        text="\n".join([*lines, *warnings]),
        **_shown([sequence for source in preview.sources for sequence in source.sequences]),
    )


def _lengths(source: SourcePreview) -> list[str]:
    tokens = source.tokens
    if tokens is None:
        return ["-"] * 5
    counts = (tokens.p50, tokens.p95, tokens.p99, tokens.max)
    return [*(f"{count:,}" for count in counts), f"{tokens.trained_fraction:.1%}"]


@_parts.register
def _of_plan(plan: Plan) -> Parts:
    head = (
        "pack size",
        "layout",
        "packs a step",
        "fill",
        "over-long",
        "straggler",
        "GB per GPU",
        "tokens/s per GPU",
        "",
    )
    rows = [_candidate(one, plan) for one in plan.candidates[:_ROWS]]
    title = f"Best first, on {plan.num_gpus} x {plan.gpu.name}; speeds and memory are estimates"
    return Parts(tables=[Table(title=title, head=head, rows=rows)], text=f"lengths: {plan.lengths.origin}")


def _candidate(one: Candidate, plan: Plan) -> list[str]:
    layout = one.layout
    return [
        f"{one.packed_sequence_size:,}",
        f"TP {layout.tensor}, PP {layout.pipeline}, CP {layout.context}, EP {layout.expert}"
        f"{', recompute' if layout.recomputes or layout.modules else ''}",
        f"{one.global_batch_size:,}",
        f"{one.fill_fraction:.1%}",
        f"{one.over_long_fraction:.1%}",
        f"{one.waiting.ratio(one.balance):.2f}",
        f"{one.memory.total_gb:,.0f}",
        f"{one.tokens_per_s:,.0f}",
        "best" if one is plan.best else one.loses(plan.best),
    ]
