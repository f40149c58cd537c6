"""The blocks of a run's losses: a table and a picture of each source, and rows with their texts."""

from collections.abc import Iterator, Sequence

from bridgepack.proof.losses.records import LossReport, RowLoss
from bridgepack.records.losses import SourceLoss
from bridgepack.records.words import count_text
from bridgepack.reporting.blocks import (
    Block,
    Column,
    Legend,
    Line,
    MarkedText,
    Picture,
    PictureBar,
    Section,
    Span,
    Table,
    Title,
)
from bridgepack.reporting.results import shows
from bridgepack.reporting.results.packs import marked_spans

_NUM_BARS = 24
#: Sources with a picture.
_NUM_PICTURES = 8
_NO_SOURCE = "(of no source)"


@shows
def loss_blocks(report: LossReport) -> Iterator[Block]:
    """Yield the losses of each source, training beside validation, then the rows."""
    yield Title(report.headline())
    if report.intervals:
        yield _table(report)
        yield from _pictures(report)
    yield from map(Line, report.notes)
    for name, path in report.files.items():
        yield Line(f"{name}: {path}")
    if report.rows:
        yield Section(_rows_title(report), (Legend(), *map(_row_text, report.rows)))


def _table(report: LossReport) -> Table:
    rows = []
    for (split, source), (first, last) in report.last_losses().items():
        tokens = sum(
            line.num_trained_tokens for line in report.intervals if (line.split, line.source) == (split, source)
        )
        change = last.loss - first.loss
        cells = (split, source or _NO_SOURCE, f"{first.loss:.4f}", f"{last.loss:.4f}", f"{change:+.4f}", f"{tokens:,}")
        rows.append(cells)
    return Table(
        title="Loss by source",
        columns=(
            Column("split", "{:<11}"),
            Column("source", "{:<24}"),
            Column("first loss", "{:>9}", is_number=True),
            Column("last loss", "{:>9}", is_number=True),
            Column("change", "{:>9}", is_number=True),
            Column("trained tokens", "{:>14}", is_number=True),
        ),
        rows=rows,
        head="split       source                  first loss last loss   change trained tokens",
    )


def _pictures(report: LossReport) -> Iterator[Picture]:
    """Yield a picture for each split of the largest sources; all have one scale."""
    highest = max(line.loss for line in report.intervals)
    tokens: dict[str, int] = {}
    for line in report.intervals:
        if line.source is not None:
            tokens[line.source] = tokens.get(line.source, 0) + line.num_trained_tokens
    largest = sorted(tokens, key=lambda name: -tokens[name])[:_NUM_PICTURES]
    for source in (name for name in tokens if name in largest):
        for split in ("training", "validation"):
            lines = [line for line in report.intervals if (line.source, line.split) == (source, split)]
            if len(lines) > 1:
                yield _picture(source, split, lines, highest)


def _picture(source: str, split: str, lines: Sequence[SourceLoss], highest: float) -> Picture:
    size = -(-len(lines) // _NUM_BARS)
    groups = [lines[index : index + size] for index in range(0, len(lines), size)]
    bars = []
    for index, group in enumerate(groups):
        loss = sum(line.loss_sum for line in group) / sum(line.num_trained_tokens for line in group)
        first, last = group[0].first_step, group[-1].step
        bars.append(
            PictureBar(
                label=f"{last}" if first == last else f"{first} - {last}",
                value=f"{loss:.4f}",
                height=100 * loss / highest if highest > 0 else 0.0,
                x=100 * index / len(groups),
                width=100 / len(groups),
            )
        )
    return Picture(
        title=f"{source}, {split}",
        description=f"The {split} loss of {source} over the steps of the run; all pictures have one scale.",
        amount="Loss",
        axis="Steps",
        bars=tuple(bars),
    )


def _rows_title(report: LossReport) -> str:
    amount = f"{len(report.rows):,} of {count_text(report.num_rows, 'row')}"
    if report.step is not None:
        return f"Step {report.step}: {amount}, highest loss first"
    return f"Furthest above their source: {amount}"


def _row_text(row: RowLoss) -> MarkedText:
    place = f"{row.file} row {row.row}" + (f" from token {row.first_token:,}" if row.first_token else "")
    steps = ", ".join(map(str, row.steps[:4])) + (", ..." if len(row.steps) > 4 else "")
    heading = (
        f"{place}: loss {row.loss:.4f}, its source {row.source} {row.source_loss:.4f}; "
        f"{count_text(row.num_trained_tokens, 'trained token')}, step {steps}"
    )
    spans = marked_spans(row.sequence) if row.sequence is not None else (Span("", is_trained=False),)
    return MarkedText(heading=heading, spans=spans)
