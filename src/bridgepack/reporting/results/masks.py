"""The blocks of a comparison of loss masks."""

from collections.abc import Iterator, Mapping

from bridgepack.proof.masks.records import DerivationCount, MaskFinding, MaskReport
from bridgepack.records.words import count_text
from bridgepack.reporting.blocks import Block, Column, Line, Section, Table, Title, Tone, Verdict
from bridgepack.reporting.results import shows
from bridgepack.reporting.text import printable

_REASONS_SHOWN = 4
_TONES: Mapping[str, Tone] = {"agree": "good", "disagree": "bad", "could not run": "warn"}


@shows
def mask_blocks(report: MaskReport) -> Iterator[Block]:
    """Yield what was compared, how much each derivation could judge, and the findings."""
    how = "every row" if report.mode == "all" else f"a sample of rows, seed {report.seed}"
    yield Title(f"{report.target}: {how}, {report.num_rows_read:,} of {report.num_rows:,}")
    if report.drops:
        drops = ", ".join(f"{reason} {count:,}" for reason, count in report.drops.items())
        yield Line(f"  rows dropped: {drops}")
    judges = ", ".join(f"{count:,} judged by {number} derivations" for number, count in report.judged_by.items())
    yield Line(f"  {count_text(report.num_sequences, 'sequence')}: {judges or 'none judged'}")
    yield from map(_derivation, report.derivations)
    yield from (Line(f"  note: {note}") for note in report.notes)
    for finding in report.findings:
        yield Section("", (_finding(finding),))
    num_hidden = sum(report.kinds.values()) - len(report.findings)
    if num_hidden:
        yield Section("", (Line(f"... and {num_hidden:,} more findings (--limit shows more)"),))
    columns = (Column("Finding", "{:<26}"), Column("Sequences", " {:>8} sequences", is_number=True))
    kinds = [(kind, f"{count:,}") for kind, count in report.kinds.items()]
    if kinds:
        yield Section("", (Table(title="Findings by kind", columns=columns, rows=kinds),))
    yield Verdict(text=_verdict(report), tone=_TONES[report.outcome])


def _derivation(count: DerivationCount) -> Line:
    in_part = f", {count.num_in_part:,} partly" if count.num_in_part else ""
    silent = f", {count.num_not_judged:,} not judged" if count.num_not_judged else ""
    reasons = [f"{number:>8,}: {reason}" for reason, number in count.reasons.items()]
    items = reasons[:_REASONS_SHOWN]
    if len(reasons) > _REASONS_SHOWN:
        items.append(f"... and {len(reasons) - _REASONS_SHOWN} other reasons")
    return Line(f"  {count.name:<22} judged {count.num_judged:,}{in_part}{silent}", tuple(items), 25)


def _finding(finding: MaskFinding) -> Line:
    about = finding.finding
    message = "" if about.message is None else f", message {about.message}"
    against = f"; disagreeing: {', '.join(about.derivations)}" if about.derivations else ""
    token = "" if about.token is None else f", from token {about.token} on"
    texts = (f"{name}: {printable(text)!r}" for name, text in about.texts.items())
    return Line(
        f"{about.kind}: {finding.file} row {finding.row}{message} ({finding.split})",
        (f"{about.detail}{token}{against}", *texts, about.advice),
    )


def _verdict(report: MaskReport) -> str:
    if report.outcome == "disagree":
        return f"masks disagree: {report.num_with_findings:,} of {report.num_sequences:,} sequences with findings"
    if report.outcome == "could not run":
        if not report.num_rows_read:
            return "not compared: the sources have no rows. Check data.train, or choose another --split."
        return f"not compared: none of {report.num_sequences:,} sequences could be judged"
    remainder = f"; {report.num_not_judged:,} could not be judged" if report.num_not_judged else ""
    return f"masks agree: {report.num_agreed:,} of {report.num_sequences:,} sequences{remainder}"
