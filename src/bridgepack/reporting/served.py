"""Renders comparisons of trained with served answers as text for a terminal."""

from collections.abc import Iterator

from bridgepack.proof.served.records import ServedFinding, ServedReport
from bridgepack.records import ServedRecord
from bridgepack.reporting.text import printable


def describe_served(report: ServedReport) -> str:
    """Return the text of a comparison: counts by kind, the first findings, and what to do about each kind."""
    how = "every row" if report.mode == "all" else f"a sample of rows, seed {report.seed}"
    lines = [f"{report.target}: {how}, {report.num_rows_read:,} of {report.num_rows:,}"]
    if report.drops:
        lines += [f"  rows dropped: {', '.join(f'{reason} {count:,}' for reason, count in report.drops.items())}"]
    for item in report.findings:
        lines += ["", *_finding_lines(item)]
    hidden = sum(count.num_answers for count in report.record.differing) - len(report.findings)
    if hidden:
        lines += ["", f"... and {hidden:,} more answers (--limit shows more)"]
    lines += ["", *count_lines(report.record)]
    for kind, cure in report.cures.items():
        lines += [f"  {kind}: {cure}"]
    return printable("\n".join([*lines, _verdict(report)]))


def count_lines(record: ServedRecord) -> Iterator[str]:
    """Yield answers and trained tokens by kind, with their shares."""
    num_answers, num_tokens = max(record.num_answers, 1), max(record.num_trained_tokens, 1)
    for count in record.counts:
        yield (
            f"  {count.kind:<17} {count.num_answers:>9,} answers ({count.num_answers / num_answers:.1%}), "
            f"{count.num_trained_tokens:>11,} trained tokens ({count.num_trained_tokens / num_tokens:.1%})"
        )


def describe_sample(record: ServedRecord) -> Iterator[str]:
    """Yield lines about a sample of answers: their kinds, and what to do where a server shows them differently."""
    if not record.num_answers:
        return
    yield "trained answers as a server shows them (a sample; `bridgepack masks --served --all` compares every one):"
    yield from count_lines(record)
    for count in record.differing:
        yield f"  {count.kind}: {record.cure(count.kind)}"


def _finding_lines(item: ServedFinding) -> Iterator[str]:
    yield f"{item.kind}: {item.file} row {item.row}, message {item.turn} ({item.split})"
    token = "" if item.token is None else f", from token {item.token} on"
    yield f"  {item.detail}{token}"
    if item.trained_text:
        yield f"  trained: {item.trained_text!r}"
    if item.served_text:
        yield f"  served:  {item.served_text!r}"


def _verdict(report: ServedReport) -> str:
    record = report.record
    if report.outcome == "could not run":
        return "not compared: no row gives a trained answer. Check data.train, or choose another --split."
    if report.outcome == "equal":
        return f"all {record.num_answers:,} answers are trained as they are served"
    num_answers = sum(count.num_answers for count in record.differing)
    return f"{num_answers:,} of {record.num_answers:,} answers are not trained as they are served"
