"""The blocks of a preview of a build."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bridgepack.config.layouts.sayings import choice_of_pair
from bridgepack.data.artifact.inspection import SequenceView
from bridgepack.planning.preview import Note, Preview, SourcePreview
from bridgepack.planning.sample import STOPPED_EARLY
from bridgepack.records import LOSS_CURES
from bridgepack.reporting.blocks import Block, Figure, Figures, Legend, Line, MarkedText, Section, Table
from bridgepack.reporting.results import shows
from bridgepack.reporting.results.artifacts import (
    EXAMPLES,
    REASONS,
    example_cells,
    losses_table,
    unread_blocks,
)
from bridgepack.reporting.results.builds import run_line
from bridgepack.reporting.results.layouts import layouts_text
from bridgepack.reporting.results.packs import sequence_block
from bridgepack.reporting.results.served import sample_blocks
from bridgepack.reporting.results.tokenizers import tokenizer_warnings
from bridgepack.reporting.text import without_middle

#: Maximum characters of a stretch of text; the middle of a longer one is omitted.
_SPAN_CHARACTERS = 1500
_FILES = 3


@shows
def preview_blocks(preview: Preview) -> Iterator[Block]:
    """Yield for each source its format, first sequences, tokens and drops; then packs and steps."""
    for source in preview.sources:
        names = ", ".join(source.files[:_FILES]) + (", ..." if len(source.files) > _FILES else "")
        yield Section(f"{source.split}: {names}", tuple(_source_blocks(source)))
    yield Section("", tuple(_pack_blocks(preview)))


def _source_blocks(source: SourcePreview) -> Iterator[Block]:
    columns = "; ".join(f"{name}: {kind}" for name, kind in source.columns.items())
    reading = layouts_text(source.read_as)
    figures = {"format": f"{source.format}, {columns or 'no column is known'}", "rows read": _rows(source)}
    yield _figures({**figures, **({"read as": reading} if reading else {})})
    if choice := choice_of_pair(source.read_as, source.kind):
        yield Line(f"  {choice}")
    if source.sequences:
        yield Legend("first sequences")
    yield from map(_sequence, source.sequences)
    yield _figures(_tokens(source))
    yield from _note_table(f"Rows that would be dropped, {source.split}", source.drops)
    if source.lost_content:
        rows = [(*_note_cells(note), LOSS_CURES.get(note.kind, "")) for note in source.lost_content]
        title = f"Content that the chat template leaves out or changes, {source.split}"
        yield losses_table(title, rows, "leaves out or changes")
    yield from unread_blocks(source.unread)


def _figures(values: Mapping[str, str]) -> Figures:
    return Figures(tuple(Figure(name=name, value=value) for name, value in values.items()), 20)


def _sequence(sequence: SequenceView) -> MarkedText:
    spans = (replace(span, text=without_middle(span.text, _SPAN_CHARACTERS)) for span in sequence.spans)
    return sequence_block(replace(sequence, spans=tuple(spans)))


def _tokens(source: SourcePreview) -> dict[str, str]:
    tokens = source.tokens
    num_dropped = f"{sum(drop.num_rows for drop in source.drops):,} of {source.num_rows_read:,}"
    if tokens is None:
        return {"tokens": "none: no row would become a sequence", "rows dropped": num_dropped}
    of_what = "tokens per sequence" if tokens.added_fraction else "tokens per row"
    figures = {
        of_what: f"p50 {tokens.p50:,}  p95 {tokens.p95:,}  p99 {tokens.p99:,}  max {tokens.max:,}",
        "trained": f"{tokens.trained_fraction:.1%} of the tokens",
    }
    if tokens.added_fraction:
        figures["split conversations"] = (
            f"{tokens.sequences_per_row:.2f} sequences per row, {tokens.added_fraction:.0%} more tokens than one "
            "sequence per row"
        )
    if tokens.lost_fraction:
        figures["cut between exchanges "] = f"{tokens.lost_fraction:.1%} of the trained tokens are left out"
    return figures | {"rows dropped": num_dropped}


def _rows(source: SourcePreview) -> str:
    if not source.is_sample:
        return f"all {source.num_rows:,} rows" if source.num_rows != 1 else "the only row"
    files = f" in {len(source.files)} of {source.num_files:,} files" if source.num_files > 1 else ""
    total = f"{'' if source.is_counted else 'about '}{source.num_rows:,}"
    return f"a sample of {source.num_rows_read:,} of {total} rows{files}: all figures are of this sample"


def _note_table(title: str, notes: Sequence[Note]) -> Iterator[Table]:
    if notes:
        yield Table(title=title, columns=(*REASONS[:2], *EXAMPLES), rows=[*map(_note_cells, notes)])


def _note_cells(note: Note) -> tuple[str, ...]:
    return note.kind, f"{note.num_rows:,}", *example_cells(" ".join(note.example.split()))


def _pack_blocks(preview: Preview) -> Iterator[Block]:
    if preview.num_packs is None:
        yield Line(
            "packs: not projected; which sequences are used depends on all rows (data.mixture, data.deduplicate)"
        )
    about = "about " if preview.is_sample else ""
    counts = ", ".join(f"{about}{count:,} {split}" for split, count in (preview.num_packs or {}).items())
    if counts:
        yield Line(f"packs: {counts}{' (projected from the sample; the build counts exactly)' if about else ''}")
    if preview.stopped_early:
        yield Line(f"warning: {STOPPED_EARLY}")
    yield from (Line(f"{split}: {files.describe()}") for split, files in preview.skipped.items())
    if preview.run is not None:
        yield run_line(preview.run)
    if preview.served is not None:
        yield from sample_blocks(preview.served)
    if preview.template is not None:
        yield Line("what is known of the chat template:", tuple(_template_lines(preview.template)))
    if preview.forms:
        forms = tuple(_form(name, choice) for name, choice in preview.forms.items())
        yield Line("forms that the chat template shows (auto; `given` is as the row has it):", forms)
    yield from tokenizer_warnings(preview.lost_flags, loses_text=preview.loses_text)
    for field, reasons in preview.stops.items():
        yield Line(f"warning: {field} is error: a build would stop at such rows ({reasons}), not drop them.")


def _template_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield what begins and ends answers, as texts in quotes, and variables; `facts` as of `TemplateFacts.as_json`."""
    ends = _texts(facts["ends"]) or "none: the next turn ends an answer"
    parts = {"header": _texts(facts["headers"]), "end": ends if facts["headers"] else ""}
    if facts["has_blocks"]:
        parts["answers"] = "what the template's generation blocks hold"
    parts["behind the chat"] = _texts([facts["chat_end"]])
    if facts["generation_prompt"] is not None:
        parts["generation prompt"] = _texts([facts["generation_prompt"]]) or "none"
    parts["variables it reads"] = ", ".join(facts["variables"])
    yield from (f"{name:<20}{text}" for name, text in parts.items() if text)


def _texts(texts: Sequence[str]) -> str:
    return " or ".join(repr(text) for text in texts if text)


def _form(name: str, choice: Any) -> str:
    """Return a field that is `auto`, e.g. `content_parts: text (system, user); given (developer)`."""
    by_form: dict[str, list[str]] = {}
    for where, form in choice.items() if isinstance(choice, Mapping) else ():
        by_form.setdefault(form, []).append(where.replace("_", " "))
    words = "; ".join(f"{form} ({', '.join(places)})" for form, places in by_form.items()) or choice
    return f"{name:<20}{words}"
