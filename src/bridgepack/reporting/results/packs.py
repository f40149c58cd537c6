"""The blocks of a pack: what is in it, and its sequences as text."""

from collections.abc import Iterator

from bridgepack.data.artifact.inspection import PackView, SequenceView
from bridgepack.proof.trace.records import TracedSequence
from bridgepack.records.words import count_text
from bridgepack.reporting.blocks import Block, Legend, Line, MarkedText, Section, Span, Strip, Title
from bridgepack.reporting.results import shows


@shows
def pack_blocks(view: PackView, *, limit: int | None = None) -> Iterator[Block]:
    """Yield one pack, or its first sequences."""
    num_used = view.num_used_tokens
    yield Title(
        f"{view.split} pack {view.index}: {count_text(len(view.sequences), 'sequence')}, {num_used:,} of "
        f"{view.packed_sequence_size:,} runtime tokens, {view.packed_sequence_size - num_used:,} empty"
    )
    yield Strip(tuple(_boxes(view)))
    yield Legend()
    if view.note:
        yield Line(view.note)
    yield from map(sequence_block, view.sequences[:limit])
    if limit is not None and limit < len(view.sequences):
        more = f"... and {len(view.sequences) - limit} more sequences (omit --limit to see all)"
        yield Section("", (Line(more),))


def _boxes(view: PackView) -> Iterator[tuple[float, float]]:
    start = 0
    for sequence in view.sequences:
        length = sequence.runtime_length + sequence.num_alignment_tokens
        size = max(view.packed_sequence_size, 1)
        yield 100 * start / size, 100 * length / size
        start += length


def sequence_block(sequence: SequenceView) -> MarkedText:
    """Return one sequence as text, with where it came from."""
    return MarkedText(heading=_heading(sequence), spans=marked_spans(sequence))


def marked_spans(sequence: SequenceView) -> tuple[Span, ...]:
    """Return a sequence's stretches of text."""
    return tuple(Span(span.text, span.is_trained) for span in sequence.spans)


def origin_of(sequence: SequenceView | TracedSequence) -> str:
    """Return the row that a sequence comes from, and of a later piece of a split row its first token."""
    origin = f"{sequence.file} row {sequence.row}" if sequence.file else "source unknown"
    return f"{origin} from token {sequence.first_token:,}" if sequence.first_token else origin


def _heading(sequence: SequenceView) -> str:
    padding = f" + {sequence.num_alignment_tokens} alignment" if sequence.num_alignment_tokens else ""
    num_skipped = sequence.num_skipped_tokens
    after_eos = f" ({num_skipped:,} after EOS, which Megatron-Bridge 0.6 does not train)" if num_skipped else ""
    piece = f", piece {sequence.piece} of {sequence.num_pieces}" if sequence.num_pieces else ""
    detail = f": {sequence.cut_detail}" if sequence.cut_detail else ""
    cut = f"; cut on purpose, preprocessing.over_long {sequence.cut}{detail}" if sequence.cut else ""
    return (
        f"sequence {sequence.position}: {origin_of(sequence)}{piece}, {sequence.runtime_length:,}{padding} runtime "
        f"tokens, {sequence.num_trained_tokens:,} trained{after_eos}{cut}"
    )
