"""Renders the preview of a build as text for a terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bridgepack.planning.preview import Note, Preview, SourcePreview
from bridgepack.records import LOSS_CURES
from bridgepack.report.terminal import describe_run, draw_sequence, trained_text_note
from bridgepack.report.text import printable, without_middle

#: Maximum printed characters of a stretch of text; the middle of a longer one is omitted.
_SHOWN_CHARACTERS = 1500
_SHOWN_FILES = 3


def describe_preview(preview: Preview, *, has_colour: bool) -> str:
    """Return the text of a preview: per source its format, first sequences, tokens, drops; then packs and steps."""
    parts = ["\n".join(_describe_source(source, has_colour=has_colour)) for source in preview.sources]
    return "\n\n".join([*parts, printable("\n".join(_describe_packs(preview)))])


def _describe_source(source: SourcePreview, *, has_colour: bool) -> Iterator[str]:
    """Yield lines; text of rows is made printable when it is drawn, because colours would be lost here."""
    names = ", ".join(source.files[:_SHOWN_FILES]) + (", ..." if len(source.files) > _SHOWN_FILES else "")
    yield printable(f"{source.split}: {names}")
    columns = "; ".join(f"{name}: {kind}" for name, kind in source.columns.items())
    yield printable(f"  {'format':<20}{source.format}, {columns or 'no column is known'}")
    yield f"  {'rows read':<20}{_rows_read(source)}"
    if source.sequences:
        yield f"  {'first sequences':<20}{trained_text_note(has_colour=has_colour)}"
    for sequence in source.sequences:
        spans = tuple(replace(span, text=without_middle(span.text, _SHOWN_CHARACTERS)) for span in sequence.spans)
        yield ""
        yield draw_sequence(replace(sequence, spans=spans), has_colour=has_colour)
    if source.sequences:
        yield ""
    tokens = source.tokens
    if tokens is None:
        yield f"  {'tokens':<20}none: no row would become a sequence"
    else:
        yield (
            f"  {'tokens per row':<20}p50 {tokens.p50:,}  p95 {tokens.p95:,}  p99 {tokens.p99:,}  max {tokens.max:,}"
        )
        yield f"  {'trained':<20}{tokens.trained_fraction:.1%} of the tokens"
    num_dropped = sum(drop.num_rows for drop in source.drops)
    yield f"  {'rows dropped':<20}{num_dropped:,} of {source.num_rows_read:,}"
    yield from _describe_notes(source.drops)
    if source.lost_content:
        yield "  lost content        content of rows that the chat template leaves out or changes"
        yield from _describe_notes(source.lost_content)


def _rows_read(source: SourcePreview) -> str:
    if not source.is_sample:
        return f"{source.num_rows_read:,}, all rows"
    files = f" in {len(source.files)} of {source.num_files:,} files" if source.num_files > 1 else ""
    return f"{source.num_rows_read:,} of about {source.num_rows:,}{files}: all figures are of this sample"


def _describe_notes(notes: Sequence[Note]) -> Iterator[str]:
    for note in notes:
        yield printable(f"    {note.kind:<28}{note.num_rows:>8,}   e.g. {' '.join(note.example.split())}")
        if note.kind in LOSS_CURES:
            yield f"      fix: {LOSS_CURES[note.kind]}"


def _describe_packs(preview: Preview) -> Iterator[str]:
    if preview.num_packs is None:
        yield "packs: not projected; which sequences are used depends on all rows (data.mixture, data.deduplicate)"
    about = "about " if preview.is_sample else ""
    counts = ", ".join(f"{about}{count:,} {split}" for split, count in (preview.num_packs or {}).items())
    if counts:
        yield f"packs: {counts}{' (projected from the sample; the build counts exactly)' if about else ''}"
    if preview.run is not None:
        yield from describe_run(preview.run)
    for field, reasons in preview.stops.items():
        yield f"warning: {field} is error: a build would stop at such rows ({reasons}), not drop them."
