"""Draws packs and their sequences as text, with what is trained of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridgepack.records.words import counted
from bridgepack.reporting.text import printable

if TYPE_CHECKING:
    from bridgepack.data.artifact.inspection import PackView, SequenceView
    from bridgepack.proof.trace.records import TracedSequence

_STRIP_WIDTH = 72


def draw_pack(view: PackView, *, has_colour: bool, limit: int | None = None) -> str:
    """Return one pack, or its first sequences; trained text is between ⟦ and ⟧, and green on a terminal."""
    used = sum(item.runtime_length + item.num_alignment_tokens for item in view.sequences)
    lines = [
        f"{view.split} pack {view.index}: {counted(len(view.sequences), 'sequence')}, {used:,} of "
        f"{view.packed_sequence_size:,} "
        f"runtime tokens, {view.packed_sequence_size - used:,} empty",
        _strip(view),
        trained_text_note(has_colour=has_colour),
    ]
    if view.note:
        lines.append(view.note)
    for item in view.sequences[:limit]:
        lines += ["", draw_sequence(item, has_colour=has_colour)]
    if limit is not None and limit < len(view.sequences):
        lines += ["", f"... and {len(view.sequences) - limit} more sequences (omit --limit to see all)"]
    return "\n".join(lines)


def trained_text_note(*, has_colour: bool) -> str:
    """Return how `draw_sequence` marks trained text."""
    return "trained text is green, between ⟦ and ⟧" if has_colour else "trained text is between ⟦ and ⟧"


def draw_sequence(item: SequenceView, *, has_colour: bool) -> str:
    """Return one sequence as text, with a heading that says where it came from; arguments as of `draw_pack`."""
    opening, closing = ("\x1b[32m⟦", "⟧\x1b[0m") if has_colour else ("⟦", "⟧")
    parts = [(printable(span.text), span.is_trained) for span in item.spans]
    text = "".join(f"{opening}{part}{closing}" if is_trained else part for part, is_trained in parts)
    return f"{_heading(item)}\n{text}"


def origin_of(item: SequenceView | TracedSequence) -> str:
    """Return the row that a sequence comes from, and of a later piece of a split row its first token."""
    origin = f"{printable(item.file)} row {item.row}" if item.file else "source unknown"
    return f"{origin} from token {item.first_token:,}" if item.first_token else origin


def _strip(view: PackView) -> str:
    """Return the pack as a strip, a letter per sequence: `|aaaaabbbcc··|`."""
    cells = ["·"] * _STRIP_WIDTH
    position = 0
    for item in view.sequences:
        length = item.runtime_length + item.num_alignment_tokens
        first = position * _STRIP_WIDTH // view.packed_sequence_size
        position += length
        stop = max(position * _STRIP_WIDTH // view.packed_sequence_size, first + 1)
        letter = "abcdefghijklmnopqrstuvwxyz"[item.position % 26]
        cells[first : min(stop, _STRIP_WIDTH)] = letter * (min(stop, _STRIP_WIDTH) - first)
    return f"|{''.join(cells)}|"


def _heading(item: SequenceView) -> str:
    padding = f" + {item.num_alignment_tokens} alignment" if item.num_alignment_tokens else ""
    num_skipped = item.num_skipped_tokens
    skipped = f" ({num_skipped:,} after EOS, which Megatron-Bridge 0.6 does not train)" if num_skipped else ""
    piece = f", piece {item.piece} of {item.num_pieces}" if item.num_pieces else ""
    detail = f": {printable(item.cut_detail)}" if item.cut_detail else ""
    cut = f"; cut on purpose, preprocessing.over_long {printable(item.cut)}{detail}" if item.cut else ""
    return (
        f"--- sequence {item.position}: {origin_of(item)}{piece}, {item.runtime_length:,}{padding} runtime tokens, "
        f"{item.num_trained_tokens:,} trained{skipped}{cut}"
    )
