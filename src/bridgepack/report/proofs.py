"""Renders verifications and comparisons of loss masks as text for a terminal."""

from collections.abc import Iterator

from bridgepack.proof.masks.records import DerivationCount, MaskFinding, MaskReport
from bridgepack.proof.verify.records import RowDifference, VerifyReport
from bridgepack.report.text import printable

_MARKS = {"same": "ok", "differs": "DIFFERS", "could not run": "not run"}
_ORIGINS = {"sources": "the sources", "store": "the stored tokens"}


def describe_verification(report: VerifyReport) -> str:
    """Return the text of a verification: what was compared, the first difference and its cause."""
    how = "every pack" if report.mode == "all" else f"a sample of the packs, seed {report.seed}"
    lines = [f"{report.artifact}: {how}, from {_ORIGINS[report.origin]}"]
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
        return f"not what {_ORIGINS[report.origin]} give: {compared}, {report.num_packs_different:,} differ"
    return f"not verified: {compared}; what could be compared is the same"


_REASONS_SHOWN = 4


def describe_masks(report: MaskReport) -> str:
    """Return the text of a comparison: what was compared, how much each derivation could judge, and the findings."""
    how = "every row" if report.mode == "all" else f"a sample of the rows, seed {report.seed}"
    lines = [f"{report.target}: {how}, {report.num_rows_read:,} of {report.num_rows:,}"]
    lines += _count_lines(report)
    lines += [f"  note: {note}" for note in report.notes]
    for item in report.findings:
        lines += ["", *_finding_lines(item)]
    hidden = sum(report.kinds.values()) - len(report.findings)
    if hidden:
        lines += ["", f"... and {hidden:,} more findings (--limit shows more)"]
    lines += [
        "",
        *(f"  {kind:<26} {count:>8,} sequences" for kind, count in report.kinds.items()),
        _mask_verdict(report),
    ]
    return printable("\n".join(lines))


def _count_lines(report: MaskReport) -> Iterator[str]:
    if report.drops:
        drops = ", ".join(f"{reason} {count:,}" for reason, count in report.drops.items())
        yield f"  gave no sequence: {drops}"
    judges = ", ".join(f"{count:,} by {number or 'none'}" for number, count in report.judged_by.items())
    yield f"  {report.num_sequences:,} sequences; so many judged by so many derivations: {judges or 'none'}"
    for item in report.derivations:
        yield from _derivation_lines(item)


def _derivation_lines(item: DerivationCount) -> Iterator[str]:
    in_part = f", {item.num_in_part:,} in part" if item.num_in_part else ""
    silent = f", {item.num_not_judged:,} not" if item.num_not_judged else ""
    yield f"  {item.name:<22} judged {item.num_judged:,}{in_part}{silent}"
    reasons = list(item.reasons.items())
    for reason, count in reasons[:_REASONS_SHOWN]:
        yield f"  {'':<22} {count:>8,}: {reason}"
    if len(reasons) > _REASONS_SHOWN:
        yield f"  {'':<22} ... and {len(reasons) - _REASONS_SHOWN} other reasons"


def _finding_lines(item: MaskFinding) -> Iterator[str]:
    finding = item.finding
    message = "" if finding.message is None else f", message {finding.message}"
    yield f"{finding.kind}: {item.file} row {item.row}{message} ({item.split})"
    against = f"; against it: {', '.join(finding.derivations)}" if finding.derivations else ""
    token = "" if finding.token is None else f", from token {finding.token} on"
    yield f"  {finding.detail}{token}{against}"
    for name, text in finding.texts.items():
        yield f"  {name}: {printable(text)!r}"
    yield f"  {finding.advice}"


def _mask_verdict(report: MaskReport) -> str:
    if report.outcome == "disagree":
        return f"masks disagree: {report.num_with_findings:,} of {report.num_sequences:,} sequences with findings"
    if report.outcome == "could not run":
        if not report.num_rows_read:
            return "not compared: the sources have no row. Name others in data.train, or with --split."
        return f"not compared: none of {report.num_sequences:,} sequences could be judged"
    unjudged = f"; {report.num_not_judged:,} could not be judged" if report.num_not_judged else ""
    return f"masks agree: {report.num_agreed:,} of {report.num_sequences:,} sequences{unjudged}"
