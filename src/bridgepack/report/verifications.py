"""Renders verifications as text for a terminal."""

from collections.abc import Iterator

from bridgepack.proof.verify.records import RowDifference, VerifyReport
from bridgepack.report.text import printable

_MARKS = {"same": "ok", "differs": "DIFFERS", "could not run": "not run"}
_ORIGINS = {"sources": "the sources", "store": "the stored tokens"}


def describe_verification(report: VerifyReport) -> str:
    """Return the text of a verification: what was compared, the first difference and its cause."""
    how = "every pack" if report.mode == "all" else f"a sample of packs, seed {report.seed}"
    lines = [f"{report.artifact}: {how}, compared with {_ORIGINS[report.origin]}"]
    lines += [f"  {_MARKS[check.outcome]:<8} {check.name:<16} {check.detail}" for check in report.checks]
    lines += [f"  note     {note}" for note in report.notes]
    if report.differences:
        lines += ["", *_difference_lines(report.differences[0], report.origin)]
    lines += ["", _verdict(report)]
    return printable("\n".join(lines))


def _difference_lines(item: RowDifference, origin: str) -> Iterator[str]:
    place = f"{item.split} pack {item.pack} ({item.shard} row {item.shard_row})"
    if item.sequence is not None:
        place += f", sequence {item.sequence}"
    yield f"first difference: {place}"
    if item.file is not None:
        yield f"  source   {item.file} row {item.row}"
    token = "" if item.token is None else f", token {item.token} of the sequence"
    yield f"  column   {item.column or 'all'}{token}"
    yield f"  artifact {item.in_artifact!s}"
    yield f"  {origin:<8} {item.from_source!s}"
    yield f"  cause    {', '.join(item.causes)}: {item.cause}"


def _verdict(report: VerifyReport) -> str:
    compared = f"{report.num_packs_compared:,} of {report.num_packs:,} packs compared with {_ORIGINS[report.origin]}"
    if report.outcome == "same":
        return f"verified: {compared}"
    if report.outcome == "differs":
        return f"differs from {_ORIGINS[report.origin]}: {compared}, {report.num_packs_different:,} differ"
    return f"not verified: {compared}; all that could be compared is the same"
