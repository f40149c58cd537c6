"""Renders the differences of artifacts as text for a terminal and as an HTML page."""

from collections.abc import Iterator, Mapping
from typing import Any

from bridgepack import __version__
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.reading.remote import artifact_place
from bridgepack.proof.diff.records import DiffReport, SequenceDifference, SplitDiff
from bridgepack.reporting.html.charts import Chart, length_chart, lengths_of_plan
from bridgepack.reporting.html.render import render_template
from bridgepack.reporting.text import printable

_FATES = {
    "lost": "only in the first",
    "gained": "only in the second",
    "retokenized": "same row, new tokens",
    "mask_moved": "same tokens, new mask",
    "moved": "same content, new row",
}
_LONGEST_TEXT = 160


def describe_artifact_diff(report: DiffReport) -> str:
    """Return the differences of two artifacts as text."""
    lines = [f"first:  {report.first}", f"second: {report.second}"]
    for title, items in (("inputs that differ", report.inputs), ("settings that differ", report.settings)):
        if items:
            lines += ["", title]
            lines += [f"  {item.name}: {_short(item.first)} -> {_short(item.second)}" for item in items]
    for split in report.splits:
        lines += ["", *_split_lines(split)]
    lines += ["", "the same packs" if report.is_same else "different packs"]
    return printable("\n".join(lines))


def artifact_diff_page(report: DiffReport) -> str:
    """Return the differences of two artifacts as an HTML page, with the length histograms of both.

    Raises:
        ArtifactError: an artifact can no longer be read.
    """
    places = {"first": Artifact(artifact_place(report.first)), "second": Artifact(artifact_place(report.second))}
    charts = {split.name: dict(_length_charts(places, split.name)) for split in report.splits}
    return render_template("diff.html.jinja", report=report, charts=charts, fates=_FATES, version=__version__)


def _length_charts(places: Mapping[str, Artifact], split: str) -> Iterator[tuple[str, Chart]]:
    for place, artifact in places.items():
        record = artifact.manifest.split(split)
        if record is not None and record.statistics.num_packs:
            lengths = lengths_of_plan(artifact, split, record.statistics.num_packs)
            yield place, length_chart(lengths, artifact.manifest.packed_sequence_size)


def _split_lines(split: SplitDiff) -> Iterator[str]:
    yield split.name
    yield f"  {'unchanged':<26}{split.num_unchanged:>12,} sequences, {split.num_repacked:,} of them packed elsewhere"
    for fate, count in split.counts.items():
        yield f"  {_FATES[fate]:<26}{count:>12,} sequences"
    yield f"  {'':<26}{'first':>16}{'second':>16}"
    for item in split.statistics:
        mark = "" if item.first == item.second else "  *"
        yield f"  {item.name:<26}{_number(item.first):>16}{_number(item.second):>16}{mark}"
    for found in split.differences:
        yield from _difference_lines(found)


def _difference_lines(item: SequenceDifference) -> Iterator[str]:
    found = [place for place in (item.first, item.second) if place is not None]
    places = [f"{one.file} row {one.row}, pack {one.pack} sequence {one.position}" for one in found]
    where = places[0] if len(set(places)) == 1 else " -> ".join(places)
    whose = "" if item.is_same_input else " (its file differs, too)"
    yield ""
    yield f"  {_FATES[item.fate]}: {where}{whose}"
    if item.token is not None:
        yield f"    first token that differs: {item.token}"
    for mark, text in zip("-+" if len(item.text) > 1 else " ", item.text, strict=False):
        yield f"    {mark} {_short(text)}"
    for moved in item.masks:
        kind = "trained now" if moved.is_trained_now else "no longer trained"
        yield f"    tokens {moved.start}-{moved.stop - 1} {kind}: {_short(moved.text)}"


def _short(value: Any) -> str:
    shown = str(value).replace("\n", "\\n").replace("\t", "\\t")
    return shown if len(shown) <= _LONGEST_TEXT else f"{shown[:_LONGEST_TEXT]}..."


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
