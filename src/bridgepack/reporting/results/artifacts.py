"""The blocks of an artifact: what it is, and for each split its rows, packs, sources and losses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bridgepack.data.artifact.artifact import DROPPED_ROWS_FILE, LOST_CONTENT_FILE, PLAN_FOLDER
from bridgepack.data.artifact.inspection import ArtifactView
from bridgepack.records import (
    LOSS_CURES,
    Drop,
    DropReason,
    LostContent,
    LostKind,
    Manifest,
    SourceRecord,
    SplitRecord,
    SplitStatistics,
    UnreadField,
    Waiting,
)
from bridgepack.records.flags import lost_flags_in
from bridgepack.records.words import count_text
from bridgepack.reporting.blocks import Block, Column, Figure, Figures, Line, Picture, PictureBar, Section, Table
from bridgepack.reporting.results import shows
from bridgepack.reporting.results.layouts import reading_text
from bridgepack.reporting.results.served import kinds_table
from bridgepack.reporting.results.tokenizers import tokenizer_warnings
from bridgepack.reporting.text import MOST_LINES, without_middle

#: Characters of a source's name on a screen.
_LABEL = 38
#: Characters of what is wrong with a row; of more, the middle is left out, because the remedy stands at the end.
_DETAIL_CHARACTERS = 500
#: Names of fields without a finding that are shown, and characters of a field's name.
_NAMES, _NAME_CHARACTERS = 40, 80
#: Columns of counts by reason: on pages the share and the example, on a screen the example in words.
REASONS = (Column("Reason", "{:<28}"), Column("Rows", "{:>8}", is_number=True), Column("Share", is_number=True))
EXAMPLES = (Column("For example"), Column("", "   {}"))


@shows
def inspection_blocks(view: ArtifactView) -> Iterator[Block]:
    """Yield an artifact's statistics, then the lengths of each split as a picture."""
    yield from manifest_blocks(view.manifest, view.folder, view.waiting)
    yield from map(length_picture, view.manifest.splits)


def manifest_blocks(manifest: Manifest, folder: Path, waiting: Waiting | None = None) -> Iterator[Block]:
    """Yield an artifact's statistics, with how long ranks wait for each other in its own run where that is known."""
    yield Figures(tuple(_facts(manifest, waiting)))
    warnings = tokenizer_warnings(lost_flags_in(manifest.tokenizer), loses_text=manifest.tokenizer.get("loses_text"))
    yield from (Section("", (line,)) for line in warnings)
    for split in manifest.splits:
        yield Section(split.name, tuple(_split_blocks(manifest, split, folder)))
    if manifest.served is not None and manifest.served.num_answers:
        yield kinds_table(manifest.served)


def _facts(manifest: Manifest, waiting: Waiting | None) -> Iterator[Figure]:
    yield Figure(name="fingerprint", value=manifest.fingerprint[:12])
    yield Figure(name="packed_sequence_size", value=f"{manifest.packed_sequence_size:,}", note=" runtime tokens")
    because = manifest.resolved["pad_seq_to_mult"]["because"]
    yield Figure(name="pad_seq_to_mult", value=f"{manifest.pad_seq_to_mult}", note=f" ({because})")
    yield Figure(name="tokenizer", value=manifest.tokenizer["name_or_path"])
    if manifest.balance is not None:
        yield Figure(name="balance", value=manifest.balance.describe())
    if waiting is not None:
        now = waiting.as_built
        yield Figure(
            name="slowest rank",
            value=f"{now.mean:.3f}",
            note=f" times an even step (p95 {now.p95:.3f}, worst {now.worst:.3f}), over {waiting.num_steps:,} steps\n"
            f"{waiting.shuffled.mean:.3f} in random order, {waiting.within_batch.mean:.3f} balanced within_batch, "
            f"{waiting.across_batches.mean:.3f} across_batches",
        )


def _split_blocks(manifest: Manifest, split: SplitRecord, folder: Path) -> Iterator[Block]:
    yield from ledger_blocks(split)
    yield pack_figures(manifest, split)
    if split.is_mixture:
        yield source_table(split)
    yield from loss_blocks(split)
    sources = [" ".join(source.name) for source in split.sources] if split.sources[1:] else []
    yield from unread_blocks(split.unread, sources)
    if set(split.drops) - {DropReason.NOT_SAMPLED} or split.dropped_pieces:
        yield Line(f"every dropped row: {folder / PLAN_FOLDER / DROPPED_ROWS_FILE}")
    if split.lost_content:
        yield Line(f"every row with lost content: {folder / PLAN_FOLDER / LOST_CONTENT_FILE}")


def _figures(figures: Mapping[str, tuple[str, str]]) -> Figures:
    return Figures(tuple(Figure(name=name, value=value, note=note) for name, (value, note) in figures.items()), 20)


def ledger_blocks(split: SplitRecord) -> Iterator[Block]:
    """Yield how many rows of a split were read, packed and dropped, with the reasons."""
    numbers, num_dropped = split.statistics, sum(split.drops.values())
    files = "" if split.skipped_files is None else f"\n{split.skipped_files.describe()}"
    reading = reading_text(split)
    yield _figures(
        {
            "rows in": (
                f"{numbers.num_rows_in:,}",
                _if_any(numbers.num_blank_lines, " (and {} blank lines)") + files,
            ),
            **({"read as": (reading, "")} if reading else {}),
            "sequences packed": (
                f"{numbers.num_sequences:,}",
                _if_any(numbers.num_truncated, ", of which {} truncated")
                + _if_any(numbers.num_repeated, ", {} of them repeated")
                + _pieces(numbers),
            ),
            "rows dropped": (f"{num_dropped:,}", ""),
        }
    )
    drops = {drop.reason: origin_text(split, drop) for drop in reversed(split.drop_examples)}
    yield from _reasons(
        f"Rows dropped, {split.name}", split.drops, drops, numbers.num_rows_in, "left out of the mixture by the seed"
    )
    if split.dropped_pieces:
        text = f", of {numbers.num_partly_packed:,} rows whose other pieces are packed"
        yield _figures({"pieces dropped": (f"{sum(split.dropped_pieces.values()):,}", text)})
        pieces = {drop.reason: origin_text(split, drop) for drop in reversed(split.piece_examples)}
        title = f"Pieces dropped of rows that are packed in part, {split.name}"
        yield from _reasons(title, split.dropped_pieces, pieces, numbers.num_pieces)


def _reasons(
    title: str, counts: Mapping[Any, int], examples: Mapping[Any, str], num_rows: int, otherwise: str = ""
) -> Iterator[Table]:
    rows = [
        (str(reason), f"{count:,}", _share(count, num_rows), *example_cells(examples.get(reason, ""), otherwise))
        for reason, count in counts.items()
    ]
    if rows:
        yield Table(title=title, columns=(*REASONS, *EXAMPLES), rows=rows)


def example_cells(example: str, otherwise: str = "") -> tuple[str, str]:
    """Return the cells of `EXAMPLES`; `otherwise` stands where there is no example."""
    return (example, f"e.g. {example}") if example else (otherwise, otherwise)


def _share(count: float, total: float) -> str:
    return f"{count / total:.1%}" if total else "-"


def pack_figures(manifest: Manifest, split: SplitRecord) -> Figures:
    """Return the packs of a split, how full they are, and how much of them is trained."""
    numbers = split.statistics
    alignment = numbers.num_alignment_tokens / max(numbers.num_packs * manifest.packed_sequence_size, 1)
    trained_fraction = numbers.num_trained_tokens / max(numbers.num_tokens, 1)
    figures = {
        "packs": (
            f"{numbers.num_packs:,}",
            f", {numbers.sequences_per_pack:.1f} sequences per pack (max {numbers.max_sequences_per_pack})",
        ),
        "fill": (
            f"{manifest.fill_fraction(split):.2%}",
            f" of the capacity is tokens, {alignment:.2%} alignment padding",
        ),
        "tokens": (
            f"{numbers.num_tokens:,}",
            f", of which {numbers.num_trained_tokens:,} ({trained_fraction:.1%}) trained",
        ),
    }
    if numbers.num_added_tokens:
        share = numbers.num_added_tokens / max(numbers.num_tokens - numbers.num_added_tokens, 1)
        text = f" tokens show earlier turns again, {share:.0%} more than one sequence per row"
        figures["of split chats"] = f"{numbers.num_added_tokens:,.0f}", text
    if num_rows := split.lost_content.get(LostKind.CUT_HISTORY, 0):
        text = f"{count_text(numbers.num_cut_turns, 'turn')} of {count_text(num_rows, 'row')} (preprocessing.over_long)"
        figures["cut on purpose"] = count_text(numbers.num_cut_exchanges, "exchange"), f", {text}"
    num_bytes = sum(shard.num_bytes for shard in split.shards)
    return _figures(figures | {"shards": (f"{len(split.shards)}", f", {num_bytes / 1e6:,.1f} MB")})


def source_table(split: SplitRecord) -> Table:
    """Return the sources of a split as a tree, with their shares, and their packs where these hold nothing else."""
    has_packs = any(source.num_packs is not None for source in split.sources)
    columns = (
        Column("", f"{{:<{_LABEL}}}"),
        Column("Source"),
        *(
            Column(name, screen, is_number=True)
            for name, screen in (
                ("Rows", "{:>9}"),
                ("Sequences", " {:>10}"),
                ("Tokens", " {:>13}"),
                ("Trained", " {:>13}"),
                ("Trained share", ""),
                ("Share requested", " {:>7}"),
                ("Share reached", " {:>7}"),
                *([("Packs", " {:>6}")] if has_packs else []),
            )
        ),
    )
    return Table(
        title=f"Sources of {split.name}",
        columns=columns,
        rows=[_source_row(sources, depth) for depth, sources in _source_tree(split)],
        head=f"{'sources':<{_LABEL}}{'rows':>9} {'sequences':>10} {'tokens':>13} {'trained':>13}  asked  actual"
        + (f" {'packs':>6}" if has_packs else ""),
        indent=0,
        most_rows=MOST_LINES,
    )


def _source_tree(split: SplitRecord) -> Iterator[tuple[int, Sequence[SourceRecord]]]:
    """Yield depth, from 1, and sources of each line of a tree: those of a mixture, then each of them below it."""
    above: tuple[str, ...] = ()
    for source in split.sources:
        for depth in range(1, len(source.name)):
            group = source.name[:depth]
            if above[:depth] != group:
                yield depth, [member for member in split.sources if member.name[:depth] == group]
        above = source.name
        yield len(above), [source]


def _source_row(sources: Sequence[SourceRecord], depth: int) -> tuple[str, ...]:
    name = "  " * depth + sources[0].name[depth - 1]
    label = name if len(name) <= _LABEL else f"{'  ' * depth}...{name[2 * depth + 3 - _LABEL :]}"
    rows, sequences, tokens, num_trained = (
        sum(getattr(source, f"num_{text}") for source in sources)
        for text in ("rows_in", "sequences", "tokens", "trained_tokens")
    )
    shares = [source.share_asked for source in sources if source.share_asked is not None]
    counts = (f"{number:,}" for number in (rows, sequences, tokens, num_trained))
    request = f"{sum(shares):.2%}" if shares else "-"
    packs = [source.num_packs for source in sources if source.num_packs is not None]
    return (
        label,
        name,
        *counts,
        _share(num_trained, tokens),
        request,
        f"{sum(source.share_got for source in sources):.2%}",
        *([f"{sum(packs):,}"] if packs else []),
    )


def loss_blocks(split: SplitRecord) -> Iterator[Table]:
    """Yield what the chat template left out or changed, with cures."""
    examples: dict[str, str] = {loss.kind: origin_text(split, loss) for loss in reversed(split.lost_examples)}
    rows = [
        (
            str(kind),
            f"{count:,}",
            *example_cells(examples.get(kind, "")),
            LOSS_CURES.get(kind, "see the docs of the bridgepack that built it"),
        )
        for kind, count in split.lost_content.items()
    ]
    if rows:
        yield losses_table(
            f"Content that the chat template left out or changed, {split.name}", rows, "left out or changed"
        )


def losses_table(title: str, rows: Sequence[Sequence[str]], verb: str) -> Table:
    """Return a table of losses; rows are kind, rows, the cells of `EXAMPLES`, and the cure."""
    return Table(
        title=title,
        columns=(*REASONS[:2], *EXAMPLES, Column("Fix", "  fix: {}", is_below=True)),
        rows=rows,
        head=f"{'lost content':<20}content of rows that the chat template {verb}",
    )


def unread_blocks(fields: Sequence[UnreadField], sources: Sequence[str] = ()) -> Iterator[Block]:
    """Yield the columns and fields of turns that nobody reads; `sources` are names if there are several."""
    texts = [field for field in fields if field.holds != "identifier"]
    if not fields:
        return
    columns = (
        Column("Name", "{:<28}"),
        Column("Rows", "{:>8}", is_number=True),
        Column("", "   {}"),
        Column("Holds"),
        Column("Share", is_number=True),
        *((Column("Source"),) if sources else ()),
        Column("For example"),
    )
    head = f"{'not read':<20}columns of rows and fields of turns that are not used"
    rows = [_unread_row(field, sources) for field in texts]
    title = "Columns of rows and fields of turns that are not used"
    yield Table(title=title, columns=columns, rows=rows, head=head, most_rows=MOST_LINES)
    identifiers = [field for field in fields if field.holds == "identifier"]
    names = [without_middle(name, _NAME_CHARACTERS) for name in dict.fromkeys(field.name for field in identifiers)]
    if names:
        more = f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else ""
        yield Line(f"  {', '.join(names[:_NAMES])}{more}: identifiers, labels or copies")
        of_pages = tuple(replace(column, screen="") for column in columns)
        rows = [_unread_row(field, sources) for field in identifiers]
        yield Table(title="Identifiers, labels or copies", columns=of_pages, rows=rows)


def _unread_row(field: UnreadField, sources: Sequence[str]) -> tuple[str, ...]:
    share, source = _share(field.num_rows, field.num_rows_read), sources[field.source] if sources else ""
    where = f" of {source}" if sources else ""
    words = (
        f"{field.holds} in {field.num_rows / max(field.num_rows_read, 1):.0%} of the rows{where}, e.g. {field.example}"
    )
    cells = (without_middle(field.name, _NAME_CHARACTERS), f"{field.num_rows:,}", words, field.holds, share)
    return *cells, *((source,) if sources else ()), field.example


def origin_text(split: SplitRecord, example: Drop | LostContent) -> str:
    """Return `FILE row N: what is wrong with it`."""
    detail = " ".join(without_middle(example.detail, _DETAIL_CHARACTERS).split())
    file = dict(enumerate(split.inputs)).get(example.file_index)
    return f"{file.path if file else 'an input that the manifest does not list'} row {example.row}: {detail}"


def length_picture(split: SplitRecord) -> Picture:
    """Return a split's sequences by length, in runtime tokens."""
    histogram = split.statistics.length_histogram
    tallest = max((count for _, count in histogram), default=1) or 1
    lows = [1, *(bound + 1 for bound, _ in histogram)]
    width = 100 / max(len(histogram), 1)
    bars = (
        PictureBar(
            label=f"{low:>9,} - {bound:<9,}",
            value=f"{count:>10,}",
            height=100 * count / tallest,
            x=round(place * width, 2),
            width=round(width, 2),
        )
        for place, (low, (bound, count)) in enumerate(zip(lows, histogram, strict=False))
    )
    return Picture(
        title=f"sequence lengths in runtime tokens, {split.name}",
        description=f"Sequences of {split.name} by runtime tokens.",
        amount="Sequences",
        axis="Runtime tokens",
        bars=tuple(bars),
    )


def _if_any(count: int, text: str) -> str:
    return text.format(f"{count:,}") if count else ""


def _pieces(numbers: SplitStatistics) -> str:
    num_left_out = _if_any(numbers.num_untrained_pieces, "; {} more without trained tokens left out")
    return _if_any(numbers.num_split, f", of which {numbers.num_pieces:,} are pieces of {{}} split rows{num_left_out}")
