"""The blocks of a comparison of an artifact with its sources."""

from collections.abc import Iterator, Mapping

from bridgepack.proof.verify.records import RowDifference, VerifyReport
from bridgepack.reporting.blocks import Block, Column, Figure, Figures, Line, Section, Table, Title, Tone, Verdict
from bridgepack.reporting.results import shows

_MARKS = {"same": "ok", "differs": "DIFFERS", "could not run": "not run"}
_TONES: Mapping[str, Tone] = {"same": "good", "differs": "bad", "could not run": "warn"}


@shows
def verification_blocks(report: VerifyReport) -> Iterator[Block]:
    """Yield what was compared, the first difference and its cause."""
    how = "every pack" if report.mode == "all" else f"a sample of packs, seed {report.seed}"
    yield Title(f"{report.artifact}: {how}, compared with the sources")
    yield Table(
        title="What was compared",
        columns=(Column("Outcome", "{:<8} "), Column("What", "{:<16} "), Column("Details", "{}")),
        rows=[(_MARKS[check.outcome], check.name, check.detail) for check in report.checks],
    )
    yield from (Line(f"  note     {note}") for note in report.notes)
    if report.differences:
        yield Section("", tuple(_difference(report.differences[0])))
    yield Verdict(text=_verdict(report), tone=_TONES[report.outcome])


def _difference(difference: RowDifference) -> Iterator[Block]:
    place = f"{difference.split} pack {difference.pack} (index {difference.shard_row} in {difference.shard})"
    if difference.sequence is not None:
        place += f", sequence {difference.sequence}"
    yield Line(f"first difference: {place}")
    token = "" if difference.token is None else f", token {difference.token} of the sequence"
    values = {
        **({} if difference.file is None else {"source": f"{difference.file} row {difference.row}"}),
        "column": f"{difference.column or 'all'}{token}",
        "artifact": f"{difference.in_artifact!s}",
        "sources": f"{difference.from_source!s}",
        "cause": f"{', '.join(difference.causes)}: {difference.cause}",
    }
    yield Figures(tuple(Figure(name=f"  {name}", value=value) for name, value in values.items()), 11)


def _verdict(report: VerifyReport) -> str:
    numbers = f"{report.num_packs_compared:,} of {report.num_packs:,} packs compared with the sources"
    if report.outcome == "same":
        return f"verified: {numbers}"
    if report.outcome == "differs":
        return f"differs from the sources: {numbers}, {report.num_packs_different:,} differ"
    return f"not verified: {numbers}; all that could be compared is the same"
