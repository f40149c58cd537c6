"""The blocks of the differences of two artifacts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.lengths import lengths_of_plan
from bridgepack.proof.diff.records import DiffReport, SequenceDifference, SplitDiff, ValueDifference
from bridgepack.reporting.blocks import Block, Column, Line, Picture, Section, Table, Verdict
from bridgepack.reporting.charts import length_chart, picture_of
from bridgepack.reporting.results import shows

_FATES = {
    "lost": "only in the first",
    "gained": "only in the second",
    "retokenized": "same row, new tokens",
    "mask_moved": "same tokens, new mask",
    "moved": "same content, new row",
}
_LONGEST_TEXT = 160


@shows
def diff_blocks(report: DiffReport, pictures: Mapping[str, Sequence[Picture]] | None = None) -> Iterator[Block]:
    """Yield what differs; `pictures` are histograms of lengths by split."""
    yield Line(f"first:  {report.first}")
    yield Line(f"second: {report.second}")
    for title, values in (("inputs that differ", report.inputs), ("settings that differ", report.settings)):
        if values:
            yield Section(title, (_values_table(title, values),))
    for split in report.splits:
        yield Section(split.name, (*_split_blocks(split), *(pictures or {}).get(split.name, ())))
    verdict = "the same packs" if report.is_same else "different packs"
    details = ("Settings differ, but no pack changes.",) if report.is_same and report.settings else ()
    yield Verdict(text=verdict, details=details, tone="good" if report.is_same else "warn")


def length_pictures(report: DiffReport, artifacts: Sequence[Artifact]) -> dict[str, list[Picture]]:
    """Return the histograms of lengths of both artifacts, by split.

    Raises:
        ArtifactError: an artifact can no longer be read.
    """
    pictures: dict[str, list[Picture]] = {}
    for split in report.splits:
        for name, artifact in zip(("first", "second"), artifacts, strict=True):
            record = artifact.manifest.split(split.name)
            if record is not None and record.statistics.num_packs:
                lengths = lengths_of_plan(artifact, split.name, record.statistics.num_packs)
                picture = picture_of(
                    length_chart(lengths, artifact.manifest.packed_sequence_size),
                    title=f"Lengths of {split.name}, {name}",
                    description=f"The {name} artifact: sequences by runtime tokens; the axis is logarithmic.",
                    amount="Sequences",
                    axis="Runtime tokens",
                )
                pictures.setdefault(split.name, []).append(picture)
    return pictures


def _values_table(title: str, values: Sequence[ValueDifference]) -> Table:
    columns = (Column("Name", "{}"), Column("", ": {}"), Column("", " -> {}"), Column("First"), Column("Second"))
    rows = [
        (value.name, _short(value.first), _short(value.second), _text(value.first), _text(value.second))
        for value in values
    ]
    return Table(title=title, columns=columns, rows=rows, indent=0)


def _split_blocks(split: SplitDiff) -> Iterator[Block]:
    columns = (
        Column("Outcome", "{:<26}"),
        Column("Sequences", "{:>12} sequences", is_number=True),
        Column("Packed elsewhere", ", {} of them packed elsewhere", is_number=True),
    )
    rows = [(_FATES[fate], f"{count:,}", "") for fate, count in split.counts.items()]
    rows = [("unchanged", f"{split.num_unchanged:,}", f"{split.num_repacked:,}"), *rows]
    yield Table(title=f"Sequences of {split.name}", columns=columns, rows=rows, indent=0)
    of_statistics = (
        Column("Statistic", "{:<26}"),
        Column("First", "{:>16}", is_number=True),
        Column("Second", "{:>16}", is_number=True),
        Column("Differs", "  *"),
    )
    values = [
        (value.name, _number(value.first), _number(value.second), "" if value.first == value.second else "yes")
        for value in split.statistics
    ]
    head = f"{'':<26}{'first':>16}{'second':>16}"
    yield Table(title=f"Statistics of {split.name}", columns=of_statistics, rows=values, head=head, indent=0)
    yield from (Section("", tuple(_difference(difference))) for difference in split.differences)


def _difference(difference: SequenceDifference) -> Iterator[Block]:
    ends = [place for place in (difference.first, difference.second) if place is not None]
    places = [f"{end.file} row {end.row}, pack {end.pack} sequence {end.position}" for end in ends]
    where = places[0] if len(set(places)) == 1 else " -> ".join(places)
    aside = "" if difference.is_same_input else " (its file differs, too)"
    items = () if difference.token is None else (f"first token that differs: {difference.token}",)
    yield Line(f"{_FATES[difference.fate]}: {where}{aside}", items)
    texts = [("text", "  ", text) for text in difference.text]
    if len(difference.text) > 1:
        ends_of_text = zip(("first", "second"), ("- ", "+ "), difference.text, strict=False)
        texts = [(name, mark, text) for name, mark, text in ends_of_text]
    for move in difference.masks:
        kind = "trained now" if move.is_trained_now else "no longer trained"
        name = f"tokens {move.start}-{move.stop - 1} {kind}"
        texts.append((name, f"{name}: ", move.text))
    columns = (Column("", "{}"), Column("", "{}"), Column("What"), Column("Text"))
    rows = [(mark, _short(text), name, text) for name, mark, text in texts]
    if rows:
        yield Table(title="Texts that differ", columns=columns, rows=rows)


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


def _short(value: Any) -> str:
    text = str(value).replace("\n", "\\n").replace("\t", "\\t")
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
