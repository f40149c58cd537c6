"""Renders comparisons of loss masks as text for a terminal."""

from collections.abc import Iterator

from bridgepack.proof.masks.records import DerivationCount, MaskFinding, MaskReport
from bridgepack.report.text import printable

_REASONS_SHOWN = 4


def describe_masks(report: MaskReport) -> str:
    """Return the text of a comparison: what was compared, how much each derivation could judge, and the findings."""
    how = "every row" if report.mode == "all" else f"a sample of rows, seed {report.seed}"
    lines = [f"{report.target}: {how}, {report.num_rows_read:,} of {report.num_rows:,}"]
    lines += _count_lines(report)
    lines += [f"  note: {note}" for note in report.notes]
    for item in report.findings:
        lines += ["", *_finding_lines(item)]
    hidden = sum(report.kinds.values()) - len(report.findings)
    if hidden:
        lines += ["", f"... and {hidden:,} more findings (--limit shows more)"]
    lines += ["", *(f"  {kind:<26} {count:>8,} sequences" for kind, count in report.kinds.items()), _verdict(report)]
    return printable("\n".join(lines))


def _count_lines(report: MaskReport) -> Iterator[str]:
    if report.drops:
        drops = ", ".join(f"{reason} {count:,}" for reason, count in report.drops.items())
        yield f"  rows dropped: {drops}"
    judges = ", ".join(f"{count:,} judged by {number} derivations" for number, count in report.judged_by.items())
    yield f"  {report.num_sequences:,} sequences: {judges or 'none judged'}"
    for item in report.derivations:
        yield from _derivation_lines(item)


def _derivation_lines(item: DerivationCount) -> Iterator[str]:
    in_part = f", {item.num_in_part:,} partly" if item.num_in_part else ""
    silent = f", {item.num_not_judged:,} not judged" if item.num_not_judged else ""
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
    against = f"; disagreeing: {', '.join(finding.derivations)}" if finding.derivations else ""
    token = "" if finding.token is None else f", from token {finding.token} on"
    yield f"  {finding.detail}{token}{against}"
    for name, text in finding.texts.items():
        yield f"  {name}: {printable(text)!r}"
    yield f"  {finding.advice}"


def _verdict(report: MaskReport) -> str:
    if report.outcome == "disagree":
        return f"masks disagree: {report.num_with_findings:,} of {report.num_sequences:,} sequences with findings"
    if report.outcome == "could not run":
        if not report.num_rows_read:
            return "not compared: the sources have no rows. Check data.train, or choose another --split."
        return f"not compared: none of {report.num_sequences:,} sequences could be judged"
    unjudged = f"; {report.num_not_judged:,} could not be judged" if report.num_not_judged else ""
    return f"masks agree: {report.num_agreed:,} of {report.num_sequences:,} sequences{unjudged}"
